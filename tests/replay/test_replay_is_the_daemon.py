"""A replay is the same engine as the daemon: to the byte, and to the population."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
from harness import CONFIG, WARDS
from waiting import PATIENCE

from streamdp.config import load
from streamdp.config.transports import open_input, open_output
from streamdp.daemon.daemon import to_commit
from streamdp.daemon.recovery import drain
from streamdp.daemon.start import start
from streamdp.engine import PointClosed, Publish
from streamdp.journal import JournalReader
from streamdp.pipeline import population_settings
from streamdp.population import load_latest
from streamdp.privacy import InsecureSeededSource
from streamdp.replay.play import Player, open_trace
from streamdp.replay.record import Recorder, journal_header, record_journal
from streamdp.replay.writer import TraceWriter
from streamdp.transport.base import Message, TopicSpec
from streamdp.transport.filelog import FileLog

# guarantee, strategy, parameters, encoding
CASES = [
    ("window = 5", "dsat_w", "releases = 2\nthreshold = 30", "json"),
    ("window = 5", "ba", "", "arrow"),
    ("horizon = 12", "dsat", "releases = 4\nthreshold = 30", "auto"),
]


def configured(directory, length, guarantee, strategy, parameters, encoding):
    """The clinic of the crash tests, with two input topics and users who expire."""
    transport = f'[output]\nformat = "{encoding}"\n[input]\ntopics = ["visits", "more"]\n[input.log]\npath = "log"'
    settings = {"guarantee": guarantee, "strategy": strategy, "parameters": parameters, "expiry": "expire_after = 8"}
    path = directory / "clinic.toml"
    path.write_text(CONFIG.format(name="clinic", epsilon="1", length=length, transport=transport, **settings))
    return path


def visits(rng, count, now):
    """Messages of all kinds, most of them good."""
    found = []
    for number in range(count):
        user, topic = b"u%d" % rng.integers(80), ["visits", "more"][int(rng.integers(2))]
        record = {"ward": WARDS[int(rng.integers(4))], "age": int(rng.integers(120))}
        value = {"ts": int(now - rng.integers(0, 4_000)), "op": "upsert", "record": record}
        text = json.dumps({"ts": now, "op": "delete"} if number % 11 == 0 else value).encode()
        if number % 13 == 0:
            text = [None, b"", b"\xff\x00", text[:-1], text + b"\n"][int(rng.integers(5))]
        found.append(Message(topic, text, key=user, timestamp=int(now)))
    return found


@pytest.mark.parametrize("guarantee, strategy, parameters, encoding", CASES)
def test_every_message_is_the_daemons_to_the_byte(tmp_path, guarantee, strategy, parameters, encoding):
    config = load(configured(tmp_path, "1m", guarantee, strategy, parameters, encoding))
    rng = np.random.default_rng(8)
    source, target = open_input(config), open_output(config)
    source.ensure_topics([TopicSpec(topic) for topic in config.input.topics])
    feeder = source.writer("feeder")
    feeder.append(visits(rng, 150, 1_000_000))  # waits there when the stream begins
    held = start(config, source, target, noise=InsecureSeededSource(99))
    journal, engine = held.journal, held.pipeline.engine
    published = []
    for point in (1, 2, 3, *range(5, 13)):
        first = 4 if point == 5 else point
        missed = point - first + 1 if point in (5, 9) else 0
        feeder.append(visits(rng, 60, held.schedule.opens(point) + 20_000))
        cut = None if missed else source.high_watermarks(config.input.topics)
        if cut is not None:
            latest = held.schedule.closes(point) + config.time.skew_ms
            drain(held.reader, held.pipeline, cut, point, latest)
        event = PointClosed(point, held.schedule.opens(first), held.schedule.closes(point), missed)
        actions = held.pipeline.close(event)
        held.dead_letters.flush()
        journal.commit_point(to_commit(event, cut, actions, engine.ended))
        published += [(m.message.topic, m.message.key, m.message.value) for m in journal.messages(point)]
    trace_path = tmp_path / "trace.jsonl.zst"
    opening = journal.opening()
    with TraceWriter(trace_path, journal_header(opening, config.name, config.build_domain().fingerprint)) as writer:
        record_journal(source, config.input.topics, journal, Recorder(writer, None), follow=False)
    with open_trace(trace_path, config) as trace:
        player = Player(
            config,
            trace,
            journal_id=journal.identity.journal_id,
            digest_key=journal.digest_key,
            source=InsecureSeededSource(99),
        )
        replayed = [
            (action.topic, action.key, action.value)
            for _, actions in player.play()
            for action in actions
            if isinstance(action, Publish)
        ]
    assert replayed == published
    assert len({value for *_, value in published}) > 24
    assert held_by(player.pipeline.population) == held_by(held.pipeline.population)
    assert player.tally.by_name()  # the bad ones were there, in both
    feeder.close()
    held.close()
    source.close()
    target.close()


@pytest.mark.slow
def test_a_trace_recorded_from_a_running_daemon_replays_to_the_same_population(tmp_path):
    path = configured(tmp_path, "300ms", *CASES[0])
    config = load(path)
    rng = np.random.default_rng(9)
    with closing(FileLog(config.input_log_path, create=True)) as log:
        log.ensure_topics([TopicSpec("visits", partitions=2), TopicSpec("more")])
        with closing(log.writer("feeder")) as feeder:
            feeder.append(visits(rng, 200, time.time_ns() // 10**6))
            daemon = subprocess.Popen([sys.executable, "-m", "streamdp", "run", str(path)], stderr=subprocess.DEVNULL)
            follower = None
            try:
                deadline = time.monotonic() + PATIENCE
                while last_point(config) < 6 and time.monotonic() < deadline:
                    feeder.append(visits(rng, 40, time.time_ns() // 10**6))
                    if follower is None and last_point(config) >= 2:
                        command = [sys.executable, "-m", "streamdp", "record", str(path), str(tmp_path / "f"), "-f"]
                        follower = subprocess.Popen(command, stdout=subprocess.PIPE)
                    time.sleep(0.05)
            finally:
                daemon.send_signal(signal.SIGTERM)
                assert daemon.wait(PATIENCE) == 0
            assert follower is not None
            mark = re.compile(rb'{"close":%d[,}].*\n' % last_point(config))
            deadline = time.monotonic() + PATIENCE
            while not (tmp_path / "f").exists() or not mark.search((tmp_path / "f").read_bytes()):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            follower.send_signal(signal.SIGINT)
            assert b"recorded" in follower.communicate(timeout=PATIENCE)[0]
            assert follower.returncode == 0
    last = last_point(config)
    assert last >= 6
    subprocess.run(
        [sys.executable, "-m", "streamdp", "record", str(path), str(tmp_path / "t.gz")],
        check=True,
        stdout=subprocess.PIPE,
    )
    assert (tmp_path / "t.gz").stat().st_mode & 0o777 == 0o600
    checkpoint = load_latest(
        config.checkpoint_path, config.build_domain(), config.build_views(), **population_settings(config)
    )
    with JournalReader.open(config.journal_path) as journal:
        digest_key = journal.digest_key
    for recorded in (tmp_path / "t.gz", tmp_path / "f"):
        with open_trace(recorded, config) as trace:
            player = Player(config, trace, digest_key=digest_key)
            reached = None
            for event, _ in player.play():
                reached = event.time_point
                if reached == checkpoint.time_point:
                    break
        assert reached == checkpoint.time_point
        mine, theirs = player.pipeline.population, checkpoint.population
        assert held_by(mine) == held_by(theirs)
        for name in ("wards", "ages"):
            np.testing.assert_array_equal(mine.counts(name), theirs.counts(name))
        assert mine.counts("wards").sum() > 0


def held_by(population):
    """Who holds what, in no order: rows are placed as batches came."""
    found = set()
    for users, codes in population.counted_chunks():
        found |= {
            (*user, *values) for user, values in zip(users.tolist(), np.column_stack(codes).tolist(), strict=True)
        }
    return found


def last_point(config):
    if not config.journal_path.exists():
        return 0
    try:
        with JournalReader.open(config.journal_path) as journal:
            return journal.last_time_point
    except Exception:  # being made at this moment
        return 0
