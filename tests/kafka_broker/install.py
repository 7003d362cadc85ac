"""Apache Kafka for the tests: fetched once by Maven into a cache outside the repository."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

POM = Path(__file__).resolve().parents[2] / "deploy" / "kafka-test" / "pom.xml"


class Unavailable(Exception):
    """No broker can be had on this machine; the message says why, in one line."""


def kafka_jars() -> Path:
    """The folder with the broker's jars, fetched if need be; safe to call from several processes at once."""
    if shutil.which("java") is None:
        raise Unavailable("there is no java; install a Java runtime 17 or newer, or set STREAMDP_TEST_BOOTSTRAP")
    [version] = re.findall("<kafka.version>(.*)</kafka.version>", POM.read_text())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamdp"
    jars = cache / f"kafka-{version}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"kafka-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            _fetch(jars)
    return jars


def _fetch(jars: Path) -> None:
    if shutil.which("mvn") is None:
        raise Unavailable("there is no mvn to fetch Apache Kafka; install Maven, or set STREAMDP_TEST_BOOTSTRAP")
    partial = jars.with_name(jars.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = ["mvn", "-B", "-q", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0 or not list(partial.glob("kafka_*.jar")):
        reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no jar arrived")
        raise Unavailable(f"Maven could not fetch Apache Kafka ({reason.strip()[:200]})")
    partial.rename(jars)
