"""Strangers at a listener: many connections, slow ones, endless headers, names that lead here by a trick."""

from __future__ import annotations

import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from observed import Observed, get, running
from waiting import PATIENCE

from streamdp.config.observe import MAX_CONNECTIONS, Address
from streamdp.observe import server
from streamdp.observe.server import MAX_REQUEST_BYTES, Answer, Listener


@pytest.fixture
def listening():
    """Opens listeners, and closes them in the end."""
    with ExitStack() as opened:

        def listen(hosts=None, body=b"fine\n") -> int:
            listener = Listener("metrics", Address("127.0.0.1", 0), {"/": lambda query: Answer(body)}, hosts)
            opened.callback(listener.close)
            return listener.address.port

        yield listen


def connect(port: int, text: bytes = b"GET / HTTP/1.0\r\n") -> socket.socket:
    """A client that has begun to ask, and goes no further."""
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    client.sendall(text)
    return client


def connect_all(ports: list[int]) -> list[socket.socket]:
    """All at once: one after the other would take longer than a client may."""
    with ThreadPoolExecutor(len(ports)) as pool:
        return list(pool.map(connect, ports))


def rest(client: socket.socket) -> bytes:
    found = b""
    try:
        while more := client.recv(65_536):
            found += more
    except ConnectionResetError:
        pass
    return found


def seconds_until_dropped(client: socket.socket, sent: bytes = b"x", every: float = 0.1) -> float:
    began = time.monotonic()
    client.settimeout(every)
    while time.monotonic() - began < 10:
        try:
            client.sendall(sent)
            if not client.recv(1):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - began


def open_files(pid: int | str = "self") -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_connections_are_bounded_and_the_next_one_is_answered(listening):
    port = listening()
    before = open_files()
    clients = connect_all([port] * (MAX_CONNECTIONS + 50))
    try:
        assert get(port, "/") == (200, "fine\n")
        held_here = open_files() - before - len(clients)
        assert held_here <= MAX_CONNECTIONS + 1
    finally:
        for client in clients:
            client.close()


def test_a_client_that_sends_a_byte_now_and_then_is_dropped(listening, monkeypatch):
    monkeypatch.setattr(server, "CLIENT_SECONDS", 0.5)
    with connect(listening(), b"GET / HTTP/1.0\r\nX-Slow: ") as client:
        assert seconds_until_dropped(client) < 5


def test_a_client_that_does_not_listen_is_dropped(listening, monkeypatch):
    """A little of the answer now and then keeps no connection."""
    monkeypatch.setattr(server, "CLIENT_SECONDS", 0.5)
    size = 64 << 20
    with connect(listening(body=b"x" * size), b"GET / HTTP/1.0\r\n\r\n") as client:
        began, received = time.monotonic(), 0
        while time.monotonic() - began < 1.5:
            received += len(client.recv(1_024))
            time.sleep(0.05)
        received += len(rest(client))
        assert received < size


def test_a_request_is_bounded(listening):
    port = listening()
    fits = b"GET / HTTP/1.0\r\nX-Long: " + b"x" * (MAX_REQUEST_BYTES - 100) + b"\r\n\r\n"
    with connect(port, fits) as client:
        assert rest(client).startswith(b"HTTP/1.0 200")
    with connect(port, b"GET / HTTP/1.0\r\n" + b"X-Many: y\r\n" * (MAX_REQUEST_BYTES // 10)) as client:
        assert b" 200 " not in rest(client).split(b"\r\n")[0]
    with connect(port, b"GET /" + b"x" * 2 * MAX_REQUEST_BYTES) as client:
        assert b" 200 " not in rest(client).split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9465", 200),
        ("127.0.0.1:9465", 200),
        ("[::1]:9465", 200),
        ("10.1.2.3:9465", 200),
        ("streamdp:9465", 200),
        ("evil.example", 403),
        ("evil.example:9465", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(listening, host, status):
    with connect(listening(hosts=["Streamdp"]), f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()) as client:
        answer = rest(client)
    assert answer.startswith(b"HTTP/1.0 %d" % status)
    assert (b"operator_hosts" in answer) == (status == 403)


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 500, reason="few descriptors")
def test_without_descriptors_a_listener_waits_and_then_goes_on(listening):
    port = listening()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as files, socket.socket() as late:
        late.settimeout(PATIENCE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                while True:
                    files.enter_context(Path("/dev/null").open())
            late.connect(("127.0.0.1", port))
            late.sendall(b"GET / HTTP/1.0\r\n\r\n")
            began = time.process_time()
            time.sleep(1)
            assert time.process_time() - began < 0.5, "it spins"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert rest(late).startswith(b"HTTP/1.0 200")


@pytest.mark.slow
def test_a_daemon_goes_on_while_strangers_hold_its_ports(tmp_path):
    """With few descriptors, as many connections as they would all be, and a byte each now and then."""
    stream = Observed(tmp_path, length="200ms")
    with running(stream, points=1) as (ports, process), ExitStack() as clients:
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard
        mine = open_files(process.pid)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (mine + 2 * MAX_CONNECTIONS + 60, hard))
        for client in connect_all([ports["metrics"], ports["page"]] * (MAX_CONNECTIONS + 100)):
            clients.enter_context(client)
        seen = stream.last_published()
        assert get(ports["metrics"], "/live")[0] == 200
        assert open_files(process.pid) < mine + 2 * MAX_CONNECTIONS + 50
        stream.wait(lambda: stream.last_published() >= seen + 5, process)
        assert get(ports["metrics"], "/ready")[0] == 200
