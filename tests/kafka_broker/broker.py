"""A real broker: one process in KRaft's combined mode on loopback, with plain, TLS and SASL listeners.

It can be stopped, killed, paused and started again on the same ports and data. The broker dies with the process that
started it, even when that is killed.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from dataclasses import asdict, dataclass
from pathlib import Path

from .install import kafka_jars

USER, PASSWORD = "alice", "correct-horse"
START_SECONDS = 90
JAVA = ["java", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
LOGGING = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dlog4j2.level=warn"]


@dataclass(frozen=True)
class Addresses:
    """How to reach the broker; an address is None where a broker given from outside has no such listener."""

    plain: str
    tls: str | None = None
    sasl: str | None = None
    certificate: str | None = None

    def describe(self) -> dict[str, str | None]:
        return asdict(self)


@dataclass(frozen=True)
class Place:
    """A broker's place in a cluster: its number, and the ports of all controllers, its own among them."""

    cluster_id: str
    node: int
    controllers: tuple[int, ...]

    @property
    def replicas(self) -> int:
        """Every broker has a copy of every partition."""
        return len(self.controllers)

    @property
    def heap(self) -> str:
        return "-Xmx512m" if self.replicas == 1 else "-Xmx320m"


def places(count: int) -> list[Place]:
    """A new cluster of so many brokers."""
    cluster_id = "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
    controllers = tuple(_free_ports(count))
    return [Place(cluster_id, node, controllers) for node in range(1, count + 1)]


class Broker:
    """A broker under the caller's control; its files live under `home`."""

    def __init__(self, home: Path, place: Place | None = None) -> None:
        place = place or places(1)[0]
        self.home = home
        self._java_command = [*JAVA, place.heap, *LOGGING, "-cp", f"{kafka_jars()}/*"]
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        _make_certificate(home)
        plain, tls, sasl = _free_ports(3)
        self.addresses = Addresses(
            f"127.0.0.1:{plain}", f"127.0.0.1:{tls}", f"127.0.0.1:{sasl}", str(home / "certificate.pem")
        )
        self._settings = home / "server.properties"
        self._settings.write_text(_settings(home, plain, tls, sasl, place))
        format_storage = ("kafka.tools.StorageTool", "format", "-t", place.cluster_id, "-c", str(self._settings))
        self._java(*format_storage, "--add-scram", f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]")

    def start(self) -> None:
        """Start it on its ports and data, and wait until it answers."""
        self.launch()
        self.await_answer()

    def launch(self) -> None:
        log = (self.home / "broker.log").open("ab")
        self._process = subprocess.Popen(
            [*_dying_with_parent(), *self._java_command, "kafka.Kafka", str(self._settings)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=self.home,
        )
        log.close()

    def await_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self.addresses.plain):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker did not start: {(self.home / 'broker.log').read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """An orderly shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: what a crash of the broker looks like."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: the broker keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def copy_of(self, topic: str, copy: Path) -> Path:
        """A copy of what the topic holds; the broker must not run."""
        for folder in (self.home / "data").glob(f"{topic}-*"):
            shutil.copytree(folder, copy / folder.name)
        return copy

    def put_back(self, copy: Path) -> None:
        """Make topics what they were when they were copied, as an unclean election does; the broker must not run."""
        for folder in copy.iterdir():
            shutil.rmtree(self.home / "data" / folder.name)
            shutil.copytree(folder, self.home / "data" / folder.name)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _java(self, *arguments: str) -> None:
        command = [*self._java_command, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.home)
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[0]} failed: {(done.stdout + done.stderr)[-2000:]}")


def _settings(home: Path, plain: int, tls: int, sasl: int, place: Place) -> str:
    login = "org.apache.kafka.common.security"
    controller = place.controllers[place.node - 1]
    in_sync = place.replicas // 2 + 1
    values = {
        "process.roles": "broker,controller",
        "node.id": place.node,
        "controller.quorum.voters": ",".join(
            f"{node}@127.0.0.1:{port}" for node, port in enumerate(place.controllers, 1)
        ),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls},SASL_PLAINTEXT://127.0.0.1:{sasl},"
        f"CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": home / "keystore.pem",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{login}.plain.PlainLoginModule required"
        f' username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";',
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        "log.dirs": home / "data",
        "num.partitions": 1,
        "default.replication.factor": place.replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": place.replicas,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": place.replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 2,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
        "log.retention.ms": -1,
        "num.network.threads": 2,
        "num.io.threads": 2,
        "controlled.shutdown.enable": "false",
        # A broker that was killed can register again only when its old session is over.
        "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 500,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _make_certificate(home: Path) -> None:
    key, certificate = home / "key.pem", home / "certificate.pem"
    if certificate.exists():
        return
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    (home / "keystore.pem").write_text(key.read_text() + certificate.read_text())


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _answers(address: str) -> bool:
    """Whether the broker answers an ApiVersions request, which an accepting socket alone does not promise."""
    host, _, port = address.partition(":")
    try:
        with socket.create_connection((host, int(port)), 1) as connection:
            connection.settimeout(2)
            body = (18).to_bytes(2) + (0).to_bytes(2) + (1).to_bytes(4) + (4).to_bytes(2) + b"test"
            connection.sendall(len(body).to_bytes(4) + body)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


def _dying_with_parent() -> list[str]:
    """The command in front of the broker's that has the kernel kill it with its parent, where there is one."""
    return ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
