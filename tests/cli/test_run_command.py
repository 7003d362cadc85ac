"""`streamdp run` as far as it can be seen without waiting for time points."""

from __future__ import annotations

import resource
import signal

import pytest

from streamdp.cli import main
from streamdp.daemon.daemon import Daemon

CONFIG = """\
[stream]
name = "s"
[domain.a]
type = "integer"
low = 0
high = 9
[time]
length = "1h"
[privacy]
epsilon = "1"
window = 5
[[histogram]]
name = "h"
attributes = ["a"]
strategy = "baseline"
[input]
topics = ["in"]
[input.log]
path = "log"
[journal]
path = "journal.db"
"""


@pytest.fixture
def signals_as_before():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals_as_before")
def test_a_defect_ends_the_daemon_without_quoting_the_data(tmp_path, monkeypatch, capfd):
    def run(self: Daemon) -> None:
        self._held.close()
        users = 417329000 + 1
        raise MemoryError(f"Unable to allocate 3.1 GiB for an array with shape ({users},)")

    monkeypatch.setattr(Daemon, "run", run)
    monkeypatch.setattr("streamdp.observe.logs.set_up", lambda level: None)
    path = tmp_path / "s.toml"
    path.write_text(CONFIG)
    limits: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr("resource.setrlimit", lambda what, limit: limits.append((what, limit)))
    assert main(["run", str(path)]) == 1
    assert (resource.RLIMIT_CORE, (0, 0)) in limits, "a core dump would hold the data"
    said = capfd.readouterr().err
    assert "417329001" not in said
    assert "stopped by MemoryError" in said
    assert "raise" in said, "where it happened is told"


def test_who_subscribes_too_early_is_told_what_makes_the_topic(tmp_path, capsys):
    path = tmp_path / "s.toml"
    path.write_text(CONFIG)
    assert main(["subscribe", str(path)]) == 1
    said = capsys.readouterr().err
    assert "there is no log" in said
    assert f"start `streamdp run {path}`" in said


@pytest.mark.usefixtures("signals_as_before")
def test_points_that_data_could_close_are_refused_before_anything_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("streamdp.observe.logs.set_up", lambda level: None)
    path = tmp_path / "s.toml"
    path.write_text(CONFIG.replace('length = "1h"', 'length = "1h"\nclock = "event"'))
    assert main(["run", str(path)]) == 2
    assert "no guarantee" in capsys.readouterr().err
    assert not (tmp_path / "journal.db").exists()
