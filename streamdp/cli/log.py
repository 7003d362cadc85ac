"""`streamdp log`: look into an embedded log, and feed it, from the shell."""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from streamdp.errors import ConfigurationError, StreamdpError

if TYPE_CHECKING:
    from streamdp.transport.base import Message, TopicPartition
    from streamdp.transport.batch import RecordBatch
    from streamdp.transport.filelog import FileLog

HELP = "feed an embedded log, print its records, list its topics"
ORDER = 60
DESCRIPTION = """\
Work with an embedded log: a directory that takes the place of Kafka on one machine.

  streamdp log produce --log DIR --topic clicks --key-field user < updates.jsonl
  streamdp log consume --log DIR --topic clicks --from-beginning --max 10
  streamdp log topics  --log DIR
  streamdp log erase   --log DIR --topic clicks < keys.txt

What these commands print is raw data (records, offsets), not a private release: it is for whoever may see the input."""

PRODUCE = """\
Append the lines of standard input to a topic, one message a line; the topic is created when missing.

Without a key option messages have no key. With --key-field F each line is a JSON object and the key is its field F
(text as it is, anything else as JSON). With --key-separator S a line is KEY S VALUE. With --tombstones, a line that
has only KEY and S is a delete: a null value."""

CONSUME = """\
Print the records of a topic, oldest first, one a line: the value as it is, or with --json an object with
partition, offset, timestamp, key, value and headers (bytes that are not UTF-8 as {"base64": ...}; a null is null).

Without --from-beginning only what is appended from now on is printed, so give --follow too, or you will see nothing."""

ERASE = """\
Take every record of the given message keys out of a topic's files, deletes included. Standard input has one key a line.
Other records keep their offsets. Producers and daemons may run meanwhile.

First send a delete, and wait until both checkpoints are `tombstone_points` after it. A daemon that restarts from an
older one would else count the person as before. Every step: docs/guides/erasing-a-person.md"""

LINES_PER_APPEND = 10_000
EARLIER_LINES = f"it and up to {LINES_PER_APPEND:,} lines before it are not written, earlier ones are"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    produce = _action(actions, "produce", "append lines of standard input to a topic", PRODUCE)
    produce.add_argument("--topic", required=True, metavar="T", help="the topic to append to")
    produce.add_argument("--partition", type=int, metavar="P", help="the partition (default: by the key's hash)")
    produce.add_argument(
        "--partitions", type=int, default=1, metavar="N", help="partitions of a new topic (default: 1)"
    )
    key = produce.add_mutually_exclusive_group()
    key.add_argument("--key-field", metavar="F", help="take the key from this field of the JSON object")
    key.add_argument("--key-separator", metavar="S", help=r"a line is the key, this text ('\t' for a tab), the value")
    produce.add_argument("--tombstones", action="store_true", help="with --key-separator: an empty value is a null")
    produce.set_defaults(action=_produce)
    consume = _action(actions, "consume", "print the records of a topic", CONSUME)
    consume.add_argument("--topic", required=True, metavar="T", help="the topic to print")
    consume.add_argument("--from-beginning", action="store_true", help="start at the oldest record, not at the end")
    consume.add_argument("--follow", action="store_true", help="wait for more instead of stopping at the end")
    consume.add_argument("--max", type=int, metavar="N", help="stop after N records")
    consume.add_argument("--json", action="store_true", help="print whole records, as JSON")
    consume.set_defaults(action=_consume)
    erase = _action(actions, "erase", "take the records of keys out of a topic's files", ERASE)
    erase.add_argument("--topic", required=True, metavar="T", help="the topic to erase from")
    erase.set_defaults(action=_erase)
    topics = _action(actions, "topics", "list the topics and their offsets", "List topics, partitions and offsets.")
    topics.add_argument("--json", action="store_true", help="print JSON, one partition a line")
    topics.set_defaults(action=_topics)


def _action(actions: Any, name: str, help_line: str, description: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=help_line, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", required=True, type=Path, metavar="DIR", help="the directory of the log")
    return parser


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.action(arguments)
    return code


def _open(arguments: argparse.Namespace, create: bool = False) -> FileLog:
    from streamdp.transport.filelog import FileLog

    return FileLog(arguments.log, create=create)


def _produce(arguments: argparse.Namespace) -> int:
    from streamdp.transport.base import TopicSpec, UnknownTopic

    if arguments.tombstones and arguments.key_separator is None:
        raise ConfigurationError("--tombstones needs --key-separator: a record without a key cannot be deleted")
    with closing(_open(arguments, create=True)) as log:
        try:
            log.partitions(arguments.topic)
        except UnknownTopic:
            log.ensure_topics([TopicSpec(arguments.topic, arguments.partitions)])
        with closing(log.writer(f"streamdp log produce {os.getpid()}")) as writer:
            number = 0
            for lines in _line_groups(sys.stdin.buffer):
                messages = []
                for line in lines:
                    number += 1
                    messages.append(_message(arguments, line, number))
                writer.append(messages)
    return 0


def _line_groups(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Lines without their ends, as many at a time as have arrived, so that a slow producer's are written at once."""
    rest = b""
    while chunk := getattr(stream, "read1", stream.read)(1 << 20):
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for begin in range(0, len(lines), LINES_PER_APPEND):
            yield lines[begin : begin + LINES_PER_APPEND]
    if rest:
        yield [rest]


def _message(arguments: argparse.Namespace, line: bytes, number: int) -> Message:
    from streamdp.transport.base import Message

    key: bytes | None = None
    value: bytes | None = line
    if arguments.key_field is not None:
        key = _key_of(line, arguments.key_field, number)
    elif arguments.key_separator is not None:
        separator = arguments.key_separator.replace("\\t", "\t").encode()
        key, found, value = line.partition(separator)
        if not found:
            raise StreamdpError(f"line {number} of standard input has no key separator; {EARLIER_LINES}")
        if arguments.tombstones and not value:
            value = None
    return Message(arguments.topic, value, key, partition=arguments.partition)


def _key_of(line: bytes, field: str, number: int) -> bytes:
    try:
        key = json.loads(line)[field]
    except (ValueError, KeyError, TypeError):
        raise StreamdpError(
            f"line {number} of standard input is not a JSON object with a field '{field}'; {EARLIER_LINES}"
        ) from None
    return (key if isinstance(key, str) else json.dumps(key, separators=(",", ":"))).encode()


def _consume(arguments: argparse.Namespace) -> int:
    with closing(_open(arguments)) as log:
        topics = [arguments.topic]
        ends = log.end_offsets(topics)
        start = log.begin_offsets(topics) if arguments.from_beginning else ends
        left = arguments.max
        with closing(log.reader(start)) as reader:
            while (left is None or left > 0) and (arguments.follow or _before(reader.positions(), ends)):
                for batch in reader.poll(timeout=0.5 if arguments.follow else 0.0):
                    shown = batch if left is None else batch.slice(0, left)
                    if not arguments.follow:
                        shown = shown.before(ends[_name(shown)])
                    _print_records(shown, arguments.json)
                    left = None if left is None else left - len(shown)
                sys.stdout.flush()
    return 0


def _name(batch: RecordBatch) -> TopicPartition:
    from streamdp.transport.base import TopicPartition

    return TopicPartition(batch.topic, batch.partition)


def _before(positions: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> bool:
    return any(positions[name] < end for name, end in ends.items())


def _print_records(batch: RecordBatch, as_json: bool) -> None:
    if not as_json:
        for value in batch.values:
            sys.stdout.buffer.write((b"" if value is None else value) + b"\n")
        return
    headers = batch.headers or ((),) * len(batch)
    columns = zip(batch.offsets.tolist(), batch.timestamps.tolist(), batch.keys, batch.values, headers, strict=True)
    for offset, timestamp, key, value, row_headers in columns:
        record = {
            "partition": batch.partition,
            "offset": offset,
            "timestamp": timestamp,
            "key": _text(key),
            "value": _text(value),
            "headers": [[name, _text(content)] for name, content in row_headers],
        }
        sys.stdout.buffer.write(json.dumps(record).encode() + b"\n")


def _text(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _erase(arguments: argparse.Namespace) -> int:
    keys = {line for line in sys.stdin.buffer.read().split(b"\n") if line}
    if not keys:
        raise ConfigurationError("standard input has no key; give one a line")
    with closing(_open(arguments)) as log:
        print(f"{log.erase(arguments.topic, keys):,} records erased")
    return 0


def _topics(arguments: argparse.Namespace) -> int:
    with closing(_open(arguments)) as log:
        rows = []
        for topic in log.topics():
            cleanup = log.describe(topic).spec.cleanup
            begins, ends = log.begin_offsets([topic]), log.end_offsets([topic])
            rows += [(topic, name.partition, cleanup, begins[name], end) for name, end in ends.items()]
    fields = ("topic", "partition", "cleanup", "begin", "end")
    if arguments.json:
        for row in rows:
            print(json.dumps(dict(zip(fields, row, strict=True))))
        return 0
    width = max((len(row[0]) for row in rows), default=5)
    for cells in [fields, *rows]:
        topic, partition, policy, begin, end = map(str, cells)
        print(f"{topic:<{width}}  {partition:>9}  {policy:<7}  {begin:>12}  {end:>12}")
    return 0
