"""Die at every file operation of an append over three topics, and look at what is left.

Run as a script (it forks, which a test process with threads must not): exits non-zero on the first violation.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import closing
from pathlib import Path

from contract import drain, values

from streamdp.transport.base import Message, TopicSpec
from streamdp.transport.filelog import FileLog

TOPICS = ["a", "b", "c"]
OPERATIONS = ("pwrite", "fsync", "fdatasync", "ftruncate", "open", "close")


def append(writer: object, number: int, topics: list[str]) -> None:
    writer.append([Message(topic, b"%d" % number * 40, b"k") for topic in topics])  # type: ignore[attr-defined]


def die_at(step: int, half: bool) -> None:
    """From now on, the step-th operation is the last thing this process does; a write may stop half way."""
    left = step

    def dying(name: str) -> None:
        original = getattr(os, name)

        def operation(*arguments: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                if name == "pwrite" and half:
                    descriptor, data, position = arguments
                    original(descriptor, bytes(data)[: len(data) // 2], position)  # type: ignore[arg-type,call-overload]
                os._exit(9)
            return original(*arguments)

        setattr(os, name, operation)

    for name in OPERATIONS:
        dying(name)


def crash(root: Path, step: int, half: bool, before: int, topics: list[str], segment_bytes: int) -> bool:
    """Whether the process died (rather than finish first)."""
    child = os.fork()
    if child == 0:
        log = FileLog(root, segment_bytes=segment_bytes)
        writer = log.writer("crash")
        for number in range(before):
            append(writer, number, topics)
        die_at(step, half)
        append(writer, before, topics)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def seen(log: FileLog) -> list[int]:
    """How many appends each topic shows; their content is checked."""
    found = drain(log, TOPICS)
    for rows in found.values():
        assert values(rows) == [b"%d" % number * 40 for number in range(len(rows))], values(rows)
    return [len(rows) for rows in found.values()]


def check(root: Path, before: int, topics: list[str], segment_bytes: int) -> int:
    """Run through every step; returns how many there were."""
    step = 0
    while True:
        step += 1
        for half in (False, True):
            shutil.rmtree(root, ignore_errors=True)
            with closing(FileLog(root)) as witness:
                witness.ensure_topics([TopicSpec(topic) for topic in TOPICS])
                if not crash(root, step, half, before, topics, segment_bytes):
                    return step
                expected = [[count if topic in topics else 0 for topic in TOPICS] for count in (before, before + 1)]
                first = seen(witness)
                assert first in expected, (step, half, first)
                with closing(FileLog(root)) as recovered:
                    second = seen(recovered)
                    assert second in expected and second >= first, (step, half, first, second)
                    assert seen(witness) == second, (step, half)
                    # A partial recovery (one topic only) must neither show nor hide half of it either.
                    with closing(recovered.writer("crash")) as writer:
                        append(writer, second[0], ["a"])
                        assert seen(witness) == [second[0] + 1, *second[1:]], (step, half)


def recover_one_topic(root: Path) -> None:
    """After each crash another process, open since before, appends to one topic only; the others must not lag."""
    step = 0
    died = True
    while died:
        step += 1
        shutil.rmtree(root, ignore_errors=True)
        with closing(FileLog(root)) as witness, closing(FileLog(root)) as feeder:
            witness.ensure_topics([TopicSpec(topic) for topic in TOPICS])
            with closing(feeder.writer("feeder")) as writer:
                died = crash(root, step, False, 1, TOPICS, 1 << 20)
                writer.append([Message("b", b"x")])
                found = [values(rows) for rows in drain(witness, TOPICS).values()]
                assert len(found[0]) == len(found[2]) == len(found[1]) - 1, (step, found)
                assert found[1][-1] == b"x" and found[1][:-1] == found[0] == found[2]


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    steps = [
        check(directory, before, topics, segment_bytes)
        for before, segment_bytes in ((0, 1 << 20), (2, 1 << 20), (2, 100))
        for topics in (TOPICS, ["a"])
    ]
    assert all(count > 2 for count in steps), steps
    recover_one_topic(directory)
