"""The time a message takes grows with its length, never with the square of it, whatever the message is.

Measured as a ratio of processor times, so that the machine and its load do not matter: eight times the bytes may take
eight times as long, and three times that for caches and luck. What is quadratic takes 64 times as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from decoder_samples import DOMAIN, LATEST, RECORD, batch_of
from ingest_reference import Settings

from streamdp.ingest import Decoder, Reason
from streamdp.ingest.strict_json import loads

SMALL, LARGE = 8 << 10, 64 << 10
LIMIT = 3 * LARGE / SMALL
ROWS = 2
ATTEMPTS = 5
HOPELESS_SECONDS = 5.0

Made = Callable[[int], bytes]


def repeated(begin: bytes, unit: bytes, end: bytes = b"") -> Made:
    return lambda size: begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end


NESTED: dict[str, Made] = {
    "an unclosed string of escaped quotes": repeated(b"[" * 257 + b'"', b'\\"'),
    "unclosed strings in brackets": repeated(b"[" * 257, b'["\\"'),
    "an unclosed string of backslashes": repeated(b"[" * 257 + b'"', b"\\"),
    "quotes": repeated(b"[" * 257, b'"'),
    "brackets": repeated(b"", b"["),
    "objects": repeated(b"", b'{"a":'),
    "brackets and quotes": repeated(b"", b'["[",'),
}
FILLERS: dict[str, Made] = {
    "letters": repeated(b'"', b"a", b'"'),
    "escapes": repeated(b'"', b"\\u00e9", b'"'),
    "quotes": repeated(b'"', b'\\"', b'"'),
    "high": repeated(b'"', "é".encode(), b'"'),
    "digits": repeated(b"", b"7"),
    "fraction": repeated(b"0.", b"3"),
    "exponent": repeated(b"1", b"0", b"e-9"),
    "list": repeated(b"[0", b",0", b"]"),
    "fields": repeated(b'{"a":0', b',"a":0', b"}"),
    "deep": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "spaces": repeated(b"", b" ", b"1"),
}


def filled(template: str) -> dict[str, Made]:
    """The template with every filler in the place of `@`."""
    begin, end = template.encode().split(b"@")
    return {name: lambda size, make=make: begin + make(size) + end for name, make in FILLERS.items()}


# One for each reason a value can be turned away for, in every envelope, each with every filler.
TEMPLATES = {
    "op": '{"ts":1,"op":@,"record":' + RECORD + "}",
    "ts": '{"ts":@,"op":"upsert","record":' + RECORD + "}",
    "record": '{"ts":1,"op":"upsert","record":@}',
    "attribute": '{"ts":1,"op":"upsert","record":{"age":30,"city":"x","height":@,"visits":1,"shop":"p"}}',
    "category": '{"ts":1,"op":"upsert","record":{"age":30,"city":@,"height":1.5,"visits":1,"shop":"p"}}',
    "unknown attribute": '{"ts":1,"op":"upsert","record":{"other":@}}',
    "unknown field": '{"ts":1,"op":"upsert","record":' + RECORD + ',"other":@}',
    "no envelope": "@",
    "torn": '{"ts":1,"op":@',
    "debezium": '{"before":null,"after":' + RECORD + ',"op":"c","source":@}',
    "debezium after": '{"before":null,"after":{"age":@},"op":"c"}',
    "debezium before": '{"before":{"id":@},"after":null,"op":"d"}',
    "wrapped": '{"schema":@,"payload":{"before":null,"after":' + RECORD + ',"op":"c"}}',
    "wrapped payload": '{"schema":{},"payload":{"before":null,"after":@,"op":"c"}}',
}
VALUES = NESTED | {f"{where}, {name}": make for where, text in TEMPLATES.items() for name, make in filled(text).items()}
KEYS = {f"object of {name}": lambda size, make=make: b'{"a":' + make(size) for name, make in NESTED.items()} | {
    f"{text}, {name}": make
    for text in (
        "@",
        '{"id":@}',
        '{"@":1}',
        '{"payload":@}',
        '{"schema":@,"payload":{"id":1}}',
        '{"schema":1,"payload":@}',
    )
    for name, make in filled(text).items()
}

GOOD = b'{"ts":1,"op":"upsert","record":%s}' % RECORD.encode()


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def check_growth(name: str, work: Callable[[Made, int], Callable[[], object]], make: Made) -> None:
    """Fails only if the ratio is too large at every attempt; nearly always the first one settles it."""
    small, large = work(make, SMALL), work(make, LARGE)
    small()  # What is made once, threads and parsers, is not measured.
    fast, slow = float("inf"), float("inf")
    for _ in range(ATTEMPTS):
        # A millisecond is what the call itself may take: a ratio of less would measure the clock.
        fast, slow = min(fast, max(seconds(small), 1e-3)), min(slow, seconds(large))
        if slow <= LIMIT * fast:
            return
        if slow > HOPELESS_SECONDS:
            break
    pytest.fail(f"{name}: {LARGE // SMALL} times the bytes take {slow / fast:.0f} times as long")


SETTINGS = [Settings(DOMAIN), Settings(DOMAIN, user="id"), Settings(DOMAIN, record_id="id")]


@pytest.fixture(scope="module", params=SETTINGS, ids=["by key", "by field", "with record ids"])
def decoder(request: pytest.FixtureRequest) -> Decoder:
    which: Settings = request.param
    limit = 4 * LARGE
    return Decoder(
        DOMAIN,
        user=which.user,
        record_id=which.record_id,
        max_record_bytes=limit,
        max_key_bytes=limit,
        digest_key=bytes(16),
    )


@pytest.mark.parametrize("where", ["", *TEMPLATES])
def test_values(decoder: Decoder, where: str) -> None:
    chosen = NESTED if not where else {name: make for name, make in VALUES.items() if name.startswith(f"{where}, ")}
    for name, make in chosen.items():

        def work(make: Made, size: int) -> Callable[[], object]:
            batch = batch_of([(b"a", make(size), 5)] * ROWS)
            return lambda: decoder.decode(batch, LATEST)

        check_growth(name, work, make)


@pytest.mark.parametrize("value", [None, GOOD, b'{"before":{},"after":null,"op":"d"}'], ids=["null", "good", "delete"])
def test_keys(decoder: Decoder, value: bytes | None) -> None:
    for name, make in KEYS.items():

        def work(make: Made, size: int) -> Callable[[], object]:
            batch = batch_of([(make(size), value, 5)] * ROWS)
            return lambda: decoder.decode(batch, LATEST)

        check_growth(name, work, make)


def test_every_reason_for_a_value_is_among_what_is_measured(decoder: Decoder) -> None:
    rows = [(b"a", make(1 << 10), 5) for make in VALUES.values()]
    rows += [(make(1 << 10), None, -1) for make in KEYS.values()]
    rows += [(b"a", GOOD.replace(b'"ts":1', b'"ts":9999999'), 5), (None, GOOD, 5), (b"a" * (8 * LARGE), GOOD, 5)]
    rows += [(b"a", b'{"ts":1,"op":"upsert"}', 5)]
    found = set(decoder.decode(batch_of(rows), LATEST).rejected_by_reason())
    assert found >= set(Reason) - {Reason.NO_USER, Reason.OUTSIDE_DOMAIN, Reason.SKIPPED}


def test_what_is_too_large_is_not_parsed_key_or_value() -> None:
    """The value would be a user's, and so would the key: both are turned away by their length alone."""
    decoder = Decoder(DOMAIN, max_record_bytes=1000, max_key_bytes=100, digest_key=bytes(16))
    rows = [
        (b'{"id":1%s}' % (b" " * 93), None, 5),  # 101 bytes
        (b'{"id":1%s}' % (b" " * 92), None, 5),  # 100 bytes
        (b"a", GOOD + b" " * 1000, 5),
        (b"a", GOOD, 5),
    ]
    decoded = decoder.decode(batch_of(rows), LATEST)
    assert decoded.rejected_rows.tolist() == [0, 2]
    assert decoded.rejected_by_reason() == {Reason.TOO_LARGE: 2}
    assert decoded.rows.tolist() == [1, 3]
    alone = decoder.decode(batch_of(rows[1:2]), LATEST)
    assert (alone.user[0] == decoded.user[0]).all()


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        (b"[" * 256 + b"]" * 256 + b" " * 300, True),
        (b"[" * 257 + b"]" * 257 + b" " * 300, False),
        (b'["' + b"[" * 600 + b'"]', True),
        (b'["\\"' + b"[" * 600 + b'"]', True),
        (b'["\\\\",' + b"[" * 600 + b"]" * 601, False),
        (b'["\\\\\\"' + b"[" * 600 + b'"]', True),
    ],
)
def test_depth_counts_brackets_outside_of_strings(text: bytes, fine: bool) -> None:
    if fine:
        loads(text)
    else:
        with pytest.raises(ValueError, match="nested too deeply"):
            loads(text)
