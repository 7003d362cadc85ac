"""The register of owners: copies of a journal, older or forked, whatever prefix or output they are started with."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from harness import Stream
from test_refusals import refused, streamdp

from streamdp import messages
from streamdp.config import StreamConfig, load
from streamdp.config.transports import open_input, open_output
from streamdp.daemon.claims import OWNERS, Owners
from streamdp.daemon.start import open_journal
from streamdp.daemon.write_off import plan_write_off
from streamdp.errors import StreamdpError
from streamdp.journal import Journal, Opening, PointCommit
from streamdp.transport.base import Message, TopicSpec
from streamdp.transport.filelog import FileLog
from streamdp.transport.tail import newest, tail


@contextmanager
def owning(config: StreamConfig, journal_path: Path | None = None) -> Iterator[tuple[Journal, Owners, FileLog]]:
    """A journal of the stream, its entries in the register, and the output."""
    if journal_path is not None:
        journal = config.journal.model_copy(update={"path": str(journal_path)})
        config = config.model_copy(update={"journal": journal})
    with (
        closing(open_input(config)) as source,
        closing(open_output(config)) as target,
        open_journal(config, source, target) as opened,
        closing(Owners(source, target, config, opened)) as owners,
    ):
        yield opened, owners, target


def publish(journal: Journal, owners: Owners, target: FileLog, point: int) -> None:
    """One point that costs nothing and looks the same whoever publishes it."""
    journal.commit_point(PointCommit(point, 0, 0, {}, status="missed", messages=[Message("out", b"%d" % point)]))
    stored = journal.unpublished()
    target.ensure_topics([TopicSpec("out")])
    with closing(target.writer(owners.identity)) as writer:
        writer.append([*(each.message for each in stored), *owners.messages(stored[-1])])
    journal.mark_published(each.sequence for each in stored)


@pytest.fixture(params=["one log", "two logs"])
def config(tmp_path, request) -> StreamConfig:
    stream = Stream(tmp_path)
    if request.param == "two logs":
        stream.path.write_text(stream.path.read_text() + '[output.log]\npath = "out"\n')
    return stream.config


@pytest.mark.parametrize("goes_on", [0, 1], ids=["an older copy", "a fork of equal height"])
def test_a_copy_is_refused_once_the_other_has_published(config, tmp_path, goes_on):
    copy = tmp_path / "copy.db"
    with owning(config) as (journal, owners, target):
        owners.claim().close()
        publish(journal, owners, target, 1)
    shutil.copy(config.journal_path, copy)
    with owning(config, copy) as (_, owners, _):
        owners.require_ours()
    with owning(config) as (journal, owners, target):
        publish(journal, owners, target, 2)
        owners.require_ours()
        journal.commit_point(PointCommit(3, 0, 0, {}, status="missed"))  # A crash comes before it is published.
        owners.require_ours()
    with owning(config, copy) as (journal, owners, _):
        for point in range(2, 2 + goes_on):
            journal.commit_point(PointCommit(point, 0, 0, {}, status="missed", messages=[Message("out", b"2")]))
        for refuse in (owners.require_ours, owners.claim):
            with pytest.raises(StreamdpError, match=r"published by another copy.*write-off"):
                refuse()


def test_a_write_off_makes_the_copy_the_one_that_goes_on(config, tmp_path):
    copy = tmp_path / "copy.db"
    with owning(config) as (journal, owners, target):
        owners.claim().close()
        journal.record_opening(Opening(0, 100, {}, {}, 0))
        publish(journal, owners, target, 1)
    shutil.copy(config.journal_path, copy)
    with owning(config) as (journal, owners, target):
        publish(journal, owners, target, 2)
    copied = config.model_copy(update={"journal": config.journal.model_copy(update={"path": str(copy)})})
    with closing(open_input(copied)) as source, closing(open_output(copied)) as target:
        with plan_write_off(copied, source, target) as plan:
            assert plan.needed and plan.until == 2
            plan.carry_out("restored")
        with plan_write_off(copied, source, target) as plan:
            assert not plan.needed
    with owning(config, copy) as (journal, owners, target):
        assert journal.ledger.resumes_at == 2 + 20
        owners.claim().close()
        publish(journal, owners, target, 3)
        owners.require_ours()
    with owning(config) as (_, owners, _), pytest.raises(StreamdpError, match="published by another copy"):
        owners.require_ours()


def test_another_journal_is_refused_wherever_it_publishes(config, tmp_path):
    with owning(config) as (journal, owners, target):
        owners.claim().close()
        publish(journal, owners, target, 1)
    elsewhere = tmp_path / "elsewhere.toml"
    text = (tmp_path / "clinic.toml").read_text().replace('path = "out"', 'path = "third"')
    elsewhere.write_text(text.replace("state/journal.db", "other.db"))
    with owning(load(elsewhere)) as (_, owners, _), pytest.raises(StreamdpError, match="belongs to another journal"):
        owners.claim().close()


def test_the_register_is_read_back_only_as_far_as_needed(tmp_path, monkeypatch):
    """Its length between two compactions is that of every stream's points together."""
    with closing(FileLog(tmp_path, durable=False)) as log:
        log.ensure_topics([TopicSpec(OWNERS, cleanup="compact")])
        writer = log.writer("w")
        writer.append([Message(OWNERS, b"first", key=b"early")])
        writer.append([Message(OWNERS, b"%d" % number, key=b"often") for number in range(100_000)])
        writer.append([Message(OWNERS, b"last", key=b"late")])
        writer.close()
        starts: list[int] = []
        reader = log.reader
        monkeypatch.setattr(log, "reader", lambda positions: (starts.extend(positions.values()), reader(positions))[1])
        assert {key: message.value for key, message in newest(log, OWNERS, {b"late", b"often"}).items()} == {
            b"late": b"last",
            b"often": b"99999",
        }
        assert min(starts) > 99_000
        found = newest(log, OWNERS, {b"early", b"late", b"never"})
        assert {key: message.value for key, message in found.items()} == {b"early": b"first", b"late": b"last"}


# With daemons of their own


@pytest.fixture
def stream(tmp_path) -> Stream:
    """It has published since its state, checkpoints included, was copied."""
    stream = Stream(tmp_path, guarantee="window = 30")
    stream.feed(200)
    stream.run_until(points=3)
    shutil.copytree(stream.config.journal_path.parent, tmp_path / "copy")
    stream.run_until(points=3)
    return stream


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [('[output]\nprefix = "two"\n', "output.prefix"), ('[output.log]\npath = "elsewhere"\n', "log or cluster")],
)
def test_a_copy_that_publishes_elsewhere(stream, tmp_path, more, said):
    shutil.rmtree(stream.config.journal_path.parent)
    shutil.copytree(tmp_path / "copy", stream.config.journal_path.parent)
    text = stream.path.read_text()
    stream.path.write_text(text + more)
    assert said in refused(stream)
    assert streamdp(stream, "journal", "write-off", "--yes").returncode == 1, "nor is this a way around it"
    stream.path.write_text(text)
    assert "old copy" in refused(stream)
    published = stream.last_published()
    assert streamdp(stream, "journal", "write-off", "--yes").returncode == 0
    before = stream.outputs()

    def after():
        return [messages.decode(value).header for value in stream.outputs()[len(before) :]]

    daemon = stream.start()
    stream.wait(lambda: any(header["kind"] == "release" for header in after()), daemon)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(60) == 0
    # Points that passed while no daemon was there are one message, whose first counts.
    first = [(header.get("first_missed", header["time_point"]), header["kind"]) for header in after()]
    assert {kind for time_point, kind in first if time_point < published + 30} == {"repeat"}
    stream.run_until(points=2)
    assert "sound" in streamdp(stream, "journal", "verify").stdout


@pytest.mark.slow
def test_every_publication_is_in_the_register(stream):
    with closing(FileLog(stream.directory / "log")) as log:
        entries = [message.value or b"" for message in tail(log, OWNERS)]
    claim, *published = map(json.loads, entries)
    assert "commit" not in claim
    points = [entry["time_point"] for entry in published]
    assert points == sorted(points) and points[-1] == stream.last_published()
    numbers = [entry["commit"] for entry in published]
    assert numbers == sorted(numbers)
