"""Second daemons, old journals, topics made anew, wrong passwords: on a real broker, nobody spends the budget twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from kafka_broker.broker import PASSWORD, USER
from kafka_stream import KafkaStream
from test_refusals import copy_journal, goes_on_with_a_gap, journal_files, refused, restore_journal, streamdp
from waiting import PATIENCE

from streamdp.config.transports import open_input, open_output
from streamdp.daemon.claims import Owners
from streamdp.daemon.start import open_journal
from streamdp.journal import PointCommit

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def stream(broker, tmp_path) -> KafkaStream:
    stream = KafkaStream(tmp_path, server=broker.plain, guarantee="window = 3000")
    stream.feed(200)
    stream.flush()
    return stream


def running(stream: KafkaStream) -> subprocess.Popen[bytes]:
    """A daemon that has published something since."""
    goal = stream.last_published() + 2
    process = stream.start()
    stream.wait(lambda: stream.last_published() >= goal, process)
    return process


def told_to_stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE)


def shadow(stream: KafkaStream, topics: str) -> Path:
    """A configuration with a name and a journal of its own over some topics."""
    text = stream.path.read_text().replace(f'name = "{stream.name}"', f'name = "{stream.name}-shadow"')
    text = text.replace(f'topics = ["{stream.topic}"]', f"topics = [{topics}]")
    path = stream.directory / "shadow.toml"
    path.write_text(text.replace("state/journal.db", "elsewhere/journal.db"))
    return path


def run(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamdp", "run", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_another_journal_on_the_same_input_is_refused_and_the_first_daemon_goes_on(stream):
    path = shadow(stream, f'"{stream.topic}"')
    first = running(stream)
    second = run(path)
    assert second.returncode == 1
    assert "belongs to another journal" in second.stderr
    goal = stream.last_published() + 2
    stream.wait(lambda: stream.last_published() >= goal, first)
    assert told_to_stop(first) == 0
    assert run(path).returncode == 1, "also one after the other"
    stream.check()


def test_another_journal_on_some_of_the_same_topics_is_refused(stream, broker, tmp_path):
    (tmp_path / "other").mkdir()
    other = KafkaStream(tmp_path / "other", server=broker.plain)
    path = shadow(stream, f'"{other.topic}", "{stream.topic}"')
    stream.run_until(points=2)
    second = run(path)
    assert second.returncode == 1
    assert f"{stream.topic}' belongs to another journal" in second.stderr


def test_a_daemon_on_a_copy_of_the_journal_fences_the_first(stream, tmp_path):
    first = running(stream)
    first.send_signal(signal.SIGSTOP)
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(stream.config.journal_path.parent, copy / "state")
    text = stream.path.read_text()
    (copy / "clinic.toml").write_text(text)
    before = stream.last_published()
    second = subprocess.Popen(
        [sys.executable, "-m", "streamdp", "run", str(copy / "clinic.toml")], stderr=subprocess.PIPE
    )
    stream.wait(lambda: stream.last_published() >= before + 2, second)
    first.send_signal(signal.SIGCONT)
    assert first.wait(PATIENCE) == 1, stream.log_text()
    assert "taken over this identity" in stream.log_text()
    assert "Traceback" not in stream.log_text()
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=PATIENCE)
    assert second.returncode == 0
    headers = stream.summary(stream.outputs())
    assert len(headers) == len(set(headers)), "a time point was published twice"
    shutil.rmtree(stream.config.journal_path.parent)
    shutil.copytree(copy / "state", stream.config.journal_path.parent)
    stream.run_until(points=2)
    stream.check()


def test_an_old_copy_of_the_journal(stream, tmp_path):
    stream.run_until(points=3)
    copy_journal(stream, tmp_path / "copy")
    stream.run_until(points=3)
    before = stream.outputs()
    restore_journal(stream, tmp_path / "copy")
    said = refused(stream)
    assert "old copy" in said
    assert stream.outputs() == before


@pytest.mark.parametrize(
    ("elsewhere", "said"),
    [
        ('[output]\nprefix = "two"\n', "output.prefix"),
        ('[output.log]\npath = "log"\n', "log or cluster"),
        ('[output.kafka]\nbootstrap.servers = "{other}"\n', "log or cluster"),
    ],
)
def test_an_old_copy_that_would_publish_elsewhere(stream, request, tmp_path, elsewhere, said):
    stream.run_until(points=3)
    copy_journal(stream, tmp_path / "copy")
    stream.run_until(points=3)
    restore_journal(stream, tmp_path / "copy")
    other = request.getfixturevalue("own_broker").addresses.plain if "{other}" in elsewhere else None
    stream.path.write_text(stream.path.read_text() + elsewhere.format(other=other))
    assert said in refused(stream)


def test_a_fork_of_the_journal_as_high_as_the_one_that_published(stream, tmp_path):
    stream.run_until(points=3)
    copy_journal(stream, tmp_path / "copy")
    stream.run_until(points=3)
    published = stream.last_published()
    restore_journal(stream, tmp_path / "copy")
    config = stream.config
    with (
        closing(open_input(config)) as source,
        closing(open_output(config)) as target,
        open_journal(config, source, target) as journal,
    ):
        journal.commit_point(PointCommit(published, 0, 0, None, "missed", first=journal.last_time_point + 1))
    before = stream.outputs()
    said = refused(stream)
    assert f"time point {published} was published by another copy" in said
    assert "write-off" in said
    assert stream.outputs() == before


def test_an_old_copy_does_not_stop_the_daemon_that_runs(stream, tmp_path):
    stream.run_until(points=3)
    old = tmp_path / "old"
    shutil.copytree(stream.config.journal_path.parent, old / "state")
    shutil.copy(stream.path, old / "clinic.toml")
    first = running(stream)
    second = run(old / "clinic.toml")
    assert (second.returncode, "old copy" in second.stderr) == (1, True)
    goal = stream.last_published() + 2
    stream.wait(lambda: stream.last_published() >= goal, first)
    assert told_to_stop(first) == 0
    stream.check()


def test_a_transaction_that_a_crash_left_open_is_ended_and_not_waited_for(stream):
    """The daemon died while it published. The broker would end its transaction after minutes."""
    assert told_to_stop(running(stream)) == 0
    with (
        closing(open_input(stream.config)) as source,
        closing(open_output(stream.config)) as target,
        open_journal(stream.config, source, target) as journal,
        closing(Owners(source, target, stream.config, journal)) as owners,
    ):
        identity = owners.identity
    leave_open = (
        "import os, sys; from kafka import KafkaProducer\n"
        "producer = KafkaProducer(bootstrap_servers=sys.argv[1], transactional_id=sys.argv[2],"
        " transaction_timeout_ms=600_000)\n"
        "producer.init_transactions(); producer.begin_transaction()\n"
        "producer.send('streamdp.owners', key=b'x', value=b'{}').get(30); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", leave_open, stream.server, identity], check=True, timeout=PATIENCE)
    assert told_to_stop(running(stream)) == 0


def test_an_empty_journal(stream):
    stream.run_until(points=3)
    for file in journal_files(stream):
        file.unlink(missing_ok=True)
    before = stream.outputs()
    said = refused(stream)
    assert "another journal" in said
    assert "write-off" in said
    assert stream.outputs() == before
    done = streamdp(stream, "journal", "write-off", "--yes")
    assert done.returncode == 0, done.stderr
    stream.run_until(points=2)
    fresh = stream.summary(stream.outputs()[len(before) :])
    assert {kind for _, _, kind in fresh} == {"repeat"}, "the lost journal's budget must not be spent again"


def test_a_topic_made_anew_ends_the_daemon_and_is_refused_afterwards(stream):
    first = running(stream)
    stream.delete_input()
    time.sleep(0.5)
    stream.make_input()
    assert first.wait(PATIENCE) == 1, stream.log_text()
    said = stream.log_text()
    assert "deleted and created again" in said or "does not exist" in said
    assert "Traceback" not in said
    before = stream.outputs()
    assert "belongs to the input" in refused(stream)
    assert stream.outputs() == before


def test_input_that_retention_deleted(stream, broker):
    from kafka import KafkaAdminClient, TopicPartition

    stream.run_until(points=4)
    for path in stream.config.checkpoint_path.iterdir():
        path.unlink()
    admin = KafkaAdminClient(bootstrap_servers=broker.plain)
    admin.delete_records({TopicPartition(stream.topic, 0): 5})
    admin.close()
    said = refused(stream)
    assert "no longer holds what recovery needs" in said
    assert "--accept-gap" in said
    goes_on_with_a_gap(stream)


def test_deletes_that_compaction_may_have_dropped(broker, tmp_path):
    compacted = {"cleanup.policy": "compact", "delete.retention.ms": "1"}
    stream = KafkaStream(tmp_path, server=broker.plain, topic_configs=compacted)
    stream.feed(200)
    stream.flush()
    stream.run_until(points=4)
    said = refused(stream)
    assert "is compacted" in said
    assert "--accept-gap" in said
    goes_on_with_a_gap(stream)


def test_new_partitions_are_read_while_running(stream, broker):
    from kafka import KafkaAdminClient

    first = running(stream)
    admin = KafkaAdminClient(bootstrap_servers=broker.plain)
    admin.create_partitions({stream.topic: 4})
    admin.close()
    stream.close_clients()  # Its producer knows two partitions; the next one will know four.
    stream.partitions = 4
    time.sleep(1)
    stream.feed(200)
    stream.flush()
    goal = stream.last_published() + 4
    stream.wait(lambda: stream.last_published() >= goal, first)
    assert told_to_stop(first) == 0
    stream.check()


def test_a_wrong_password_ends_it_at_once(secured_broker, tmp_path):
    stream = KafkaStream(tmp_path, server=secured_broker.plain)
    text = stream.path.read_text().replace(
        f'bootstrap.servers = "{secured_broker.plain}"',
        f'bootstrap.servers = "{secured_broker.sasl}"\nsecurity.protocol = "SASL_PLAINTEXT"\n'
        f'sasl.mechanism = "SCRAM-SHA-256"\nsasl.username = "{USER}"\nsasl.password = {{env = "SECRET"}}',
    )
    stream.path.write_text(text)
    begin = time.monotonic()
    process = stream.start(SECRET="not the password")
    assert process.wait(PATIENCE) == 1
    assert time.monotonic() - begin < 60
    said = stream.log_text()
    # A busy client may see only that connections end; the error names the login all the same.
    assert "refused the login" in said or "check bootstrap.servers, security.protocol and the login" in said
    assert "Traceback" not in said
    assert "not the password" not in said
    assert stream.start(SECRET=PASSWORD, kill_at="start.opened").wait(60) == -signal.SIGKILL, "the right one gets in"
