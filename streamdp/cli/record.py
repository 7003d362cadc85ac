"""`streamdp record`: write a trace from a live input."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamdp.replay.record import Recorder
    from streamdp.replay.trace import Header
    from streamdp.transport.base import Transport

ORDER = 71
HELP = "write a trace of an input, to replay later"
DESCRIPTION = """\
Copies the messages of a stream's input (or of any topic of an embedded log) into a trace.

  streamdp record clinic.toml clinic.jsonl.zst                    the stream from its beginning
  streamdp record clinic.toml clinic.jsonl.zst --follow           and go on, until Ctrl-C
  streamdp record --log data/log --topic visits --from-beginning visits.jsonl.gz

When a daemon runs (or ran) on CONFIG, its journal knows which message counted in which time point. The trace then
begins where the stream began and has marks, and a replay of it makes the same dataset. Without a journal, or with
--log, the trace has no marks: a replay closes points by the records' own timestamps.

A trace holds raw records: it is as private as the input, and only its owner may read the file. Recording reads; it
spends nothing and disturbs no daemon."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, nargs="?", metavar="CONFIG", help="the stream's TOML file")
    parser.add_argument("output", type=Path, metavar="OUT", help="the trace to write: .jsonl, .jsonl.gz or .jsonl.zst")
    parser.add_argument("--log", type=Path, metavar="DIR", help="instead of CONFIG: an embedded log")
    parser.add_argument("--topic", action="append", metavar="T", help="with --log: a topic (may be repeated)")
    parser.add_argument("--from-beginning", action="store_true", help="without a journal: from the oldest message")
    parser.add_argument("--follow", "-f", action="store_true", help="wait for more instead of stopping at the end")
    parser.add_argument("--max", type=int, metavar="N", help="stop after N messages")


def run(arguments: argparse.Namespace) -> int:
    from streamdp.errors import ConfigurationError

    if (arguments.config is None) == (arguments.log is None):
        raise ConfigurationError("give either CONFIG, or --log DIR with --topic T")
    if (arguments.log is None) != (arguments.topic is None):
        raise ConfigurationError("--log and --topic go together")
    if arguments.max is not None and arguments.max < 1:
        raise ConfigurationError("--max is 1 or more")
    if arguments.output.exists():
        raise ConfigurationError(f"{arguments.output} exists; give another name, or remove it first")
    messages = _from_log(arguments) if arguments.config is None else _from_config(arguments)
    print(f"{messages:,} messages recorded in {arguments.output}")
    return 0


def _from_log(arguments: argparse.Namespace) -> int:
    from streamdp.replay.trace import Header
    from streamdp.transport.filelog import FileLog

    with closing(FileLog(arguments.log, create=False)) as log:
        return _record(arguments, log, arguments.topic, Header(marks=False))


def _from_config(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.config.transports import open_input
    from streamdp.journal.reader import JournalReader
    from streamdp.replay.record import Recorder, journal_header, record_journal
    from streamdp.replay.trace import Header
    from streamdp.replay.writer import TraceWriter

    config = load(arguments.config)
    domain = config.build_domain().fingerprint
    with closing(open_input(config, create=False)) as source:
        if not config.journal_path.exists():
            header = Header(stream=config.name, domain=domain, marks=False)
            return _record(arguments, source, config.input.topics, header, config.input.max_record_bytes)
        with JournalReader.open(config.journal_path) as journal:
            opening = journal.opening()
            if opening is None:
                header = Header(stream=config.name, domain=domain, marks=False)
                return _record(arguments, source, config.input.topics, header, config.input.max_record_bytes)
            with TraceWriter(arguments.output, journal_header(opening, config.name, domain)) as writer:
                recorder = Recorder(writer, arguments.max, max_record_bytes=config.input.max_record_bytes)
                with _until_interrupted(recorder, arguments.follow):
                    record_journal(source, config.input.topics, journal, recorder, follow=arguments.follow)
                return recorder.messages


def _record(
    arguments: argparse.Namespace, source: Transport, topics: list[str], header: Header, max_record_bytes: int = 0
) -> int:
    from streamdp.replay.record import Recorder, record_topics
    from streamdp.replay.writer import TraceWriter

    with TraceWriter(arguments.output, header) as writer:
        recorder = Recorder(writer, arguments.max, max_record_bytes=max_record_bytes)
        with _until_interrupted(recorder, arguments.follow):
            record_topics(source, topics, recorder, from_beginning=arguments.from_beginning, follow=arguments.follow)
    return recorder.messages


@contextmanager
def _until_interrupted(recorder: Recorder, follow: bool) -> Iterator[None]:
    """While following, Ctrl-C is the end and not an accident: it waits for the line that is being written."""
    if not follow:
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: recorder.stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
