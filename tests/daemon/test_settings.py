"""What a journal was begun with and a configuration may not change, and what a change that is allowed does."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from harness import Stream

from streamdp.config import load
from streamdp.config.transports import open_input, open_output
from streamdp.daemon.recovery import checkpoint_cut, drain, recover
from streamdp.daemon.start import open_journal
from streamdp.ingest.dead_letters import DeadLetterFile
from streamdp.journal import JournalMismatch, PointCommit
from streamdp.population import write_checkpoint
from streamdp.privacy import BudgetExceeded
from streamdp.transport.base import Message


def opened(path: Path) -> None:
    """Opens the journal as a start does."""
    config = load(path)
    with closing(open_input(config)) as source, closing(open_output(config)) as target:
        open_journal(config, source, target).close()


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        # Else a person would hold m records by the old name and m by the new one, and a histogram move by both.
        ("[input]\n", '[input]\nuser = "field:account"\n', "input.user"),
        ("[input]\n", '[input]\nrecord_id = "number"\n', "input.record_id"),
        ("[input]\n", "[input]\nmax_record_bytes = 100\n", "input.max_record_bytes"),
        ("[journal]\n", '[output]\nprefix = "two"\n[journal]\n', "output.prefix"),
        ("[journal]\n", '[output.log]\npath = "other"\n[journal]\n', "log or cluster"),
        ("[time]\n", "[time]\norigin = 2026-01-01T00:00:00Z\n", "time.origin"),
        ('length = "100ms"', 'length = "200ms"', "time.length"),
        ('skew = "1h"', 'skew = "2h"', "time.skew"),
        ('epsilon = "1"', 'epsilon = "2"', "privacy.epsilon"),
        ("window = 20", "window = 21", "privacy.window"),
        ("window = 20", "window = 20\nrecords_per_user = 1", None),
        ("high = 99", "high = 119", "domain.age"),
        ("high = 99", 'high = 99\noutside = "clamp"', "domain.age"),
        # Of the same shape, so that nothing else would notice.
        ('attributes = ["ward"]', 'attributes = [{ name = "age", bins = 4 }]', "histogram.wards.attributes"),
        ("interval = 3", "interval = 4", "histogram.ages.parameters.interval"),
        ("threshold = 20", "threshold = 21", "histogram.wards.parameters.threshold"),
        ('share = "0.5"', 'share = "0.4"', "histogram.wards.share"),
        ("keep_points = 100000", "keep_points = 1000", None),
    ],
)
def test_what_does_not_change_under_a_ledger(tmp_path, old, new, name):
    stream = Stream(tmp_path)
    opened(stream.path)
    text = stream.path.read_text()
    assert old in text
    stream.path.write_text(text.replace(old, new, 1))
    if name is None:
        opened(stream.path)
    else:
        for _ in range(2):
            with pytest.raises(JournalMismatch, match=name.replace(".", r"\.")):
                opened(stream.path)
    stream.path.write_text(text)
    opened(stream.path)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("window = 20", "horizon = 20", "privacy.horizon|privacy.window"),
        ("records_per_user = 2", "records_per_user = 3", "privacy.records_per_user"),
        ("records_per_user = 2", "records_per_user = 1", "privacy.records_per_user"),
    ],
)
def test_neither_the_kind_of_guarantee_nor_who_contributes_how_much_changes(tmp_path, old, new, name):
    stream = Stream(tmp_path, strategy="auto", parameters="", guarantee="window = 20\nrecords_per_user = 2")
    text = stream.path.read_text().replace("[input]\n", '[input]\nrecord_id = "number"\n')
    stream.path.write_text(text)
    opened(stream.path)
    stream.path.write_text(text.replace(old, new, 1))
    with pytest.raises(JournalMismatch, match=name):
        opened(stream.path)


def test_a_start_that_was_refused_promised_nothing(tmp_path):
    """A histogram for which there is no room may be tried again with a smaller share."""
    stream = Stream(tmp_path)
    text = stream.path.read_text().replace('share = "0.5"', 'share = "0.4"')
    stream.path.write_text(text)
    opened(stream.path)
    with (
        closing(open_input(stream.config)) as source,
        closing(open_output(stream.config)) as target,
        closing(open_journal(stream.config, source, target)) as journal,
    ):
        journal.commit_point(PointCommit(1, 0, 100, cut=None, status="missed"))
        journal.reserve("elsewhere", "0.15", "what another histogram holds")
    more = '[[histogram]]\nname = "new"\nattributes = ["age"]\nshare = "{}"\n'
    stream.path.write_text(text + more.format("0.2"))
    with pytest.raises(BudgetExceeded):
        opened(stream.path)
    stream.path.write_text(text + more.format("0.05"))
    opened(stream.path)


def test_a_histogram_may_come_and_go_and_is_then_what_it_was(tmp_path):
    stream = Stream(tmp_path)
    text = stream.path.read_text().replace('share = "0.5"', 'share = "0.4"')
    more = '[[histogram]]\nname = "old"\nattributes = [{ name = "age", bins = 2 }]\nshare = "0.2"\n'
    for added in ("", more, "", more):
        stream.path.write_text(text + added)
        opened(stream.path)
    stream.path.write_text(
        text
        + more.replace("age", "ward").replace("bins = 2", 'groups = {a = ["north"], b = ["south", "east", "west"]}')
    )
    with pytest.raises(JournalMismatch, match=r"histogram\.old\.attributes"):
        opened(stream.path)


def upsert(user: str, ts: int, ward: str) -> Message:
    value = {"ts": ts, "op": "upsert", "record": {"ward": ward, "age": 5}}
    return Message("visits", json.dumps(value).encode(), key=user.encode(), partition=0)


class Live:
    """A stream run point by point, as the daemon does it but for the clock and the outputs."""

    def __init__(self, stream: Stream) -> None:
        config = stream.config
        self._stream, self._config = stream, config
        self._source, self._target = open_input(config), open_output(config)
        self.journal = open_journal(config, self._source, self._target)
        self._letters = DeadLetterFile(config.dead_letters_path)
        self.pipeline, self._reader, _ = recover(config, self.journal, self._source, self._letters, False, None)

    def close_point(self, *records: Message) -> None:
        self._stream.append(list(records))
        point = self.journal.last_time_point + 1
        cut = self._source.end_offsets(["visits"])
        drain(self._reader, self.pipeline, cut, point, 2**50)
        self.pipeline.expire(point)
        self.journal.commit_point(PointCommit(point, 0, 0, cut))

    def checkpoint(self) -> None:
        self._config.checkpoint_path.mkdir(parents=True, exist_ok=True)
        point, cut = self.journal.cuts()[-1]
        description = checkpoint_cut(self.journal, cut, {})
        write_checkpoint(self.pipeline.population, self._config.checkpoint_path, description, point)

    def counts(self) -> list[int]:
        return self.pipeline.population.counts("wards").tolist()

    def close(self) -> None:
        for each in (self._reader, self._letters, self.journal, self._target, self._source):
            each.close()


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("before", ["", "expire_after = 6"])
def test_recovery_expires_at_each_point_what_expired_then(tmp_path, before, checkpoint):
    stream = Stream(tmp_path, expiry=before)
    live = Live(stream)
    live.close_point(upsert("a", 1_000, "north"), upsert("b", 1_000, "north"))
    if checkpoint:
        live.checkpoint()
    live.close_point()
    live.close_point()
    # Older than what is known of a, and so refused; with an expiry of 2 points nothing would be known any more.
    live.close_point(upsert("a", 500, "south"), upsert("b", 2_000, "east"))
    live.close()
    text = stream.path.read_text()
    shorter = text.replace("[time]\n", "[time]\nexpire_after = 2\n") if not before else text.replace("= 6", "= 2")
    stream.path.write_text(shorter)
    live = Live(stream)
    live.close_point()
    counts = live.counts()
    assert counts == [0, 0, 1, 0], "a is gone since the last point, b is there"
    live.close()
    again = Live(stream)
    assert again.counts() == counts
    again.close()
    stream.path.write_text(text)
    with pytest.raises(JournalMismatch, match=r"time\.expire_after is 2 and may only become shorter"):
        opened(stream.path)
