"""Messages of every kind, good and nasty, and how their rows are checked against the reference."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from ingest_reference import Settings, digest_128, meaning

from streamdp.domain import Attribute, Domain
from streamdp.ingest import Decoded, Decoder, Reason
from streamdp.transport.batch import Blobs, RecordBatch

KEY = bytes(range(100, 116))
LATEST = 2_000_000

DOMAIN = Domain(
    [
        Attribute.integer("age", 0, 99, bins=10),
        Attribute.categorical("city", ["x", "y", "é", "a b"]),
        Attribute.real("height", 0.5, 2.5, bins=300, outside="clamp"),
        Attribute.integer("visits", -5, 5, outside="clamp"),
        Attribute.categorical("shop", ["p", "q"], outside="drop"),
    ]
)

BY_KEY = Settings(DOMAIN, latest=LATEST)

ALL_SETTINGS = [
    BY_KEY,
    Settings(DOMAIN, user="who"),
    Settings(DOMAIN, record_id="id", latest=LATEST),
    Settings(DOMAIN, user="who", record_id="id"),
]

RECORD = '{"age":30,"city":"x","height":1.75,"visits":1,"shop":"p"}'
WITH_NAMES = RECORD[:-1] + ',"who":"anna","id":7}'
GOOD = f'{{"ts":1000,"op":"upsert","record":{RECORD}}}'.encode()
GOOD_WITH_NAMES = f'{{"ts":1000,"op":"upsert","record":{WITH_NAMES}}}'.encode()


def good(which: Settings) -> bytes:
    record = json.loads(RECORD)
    if which.user != "key":
        record["who"] = "anna"
    if which.record_id is not None:
        record["id"] = 7
    return json.dumps({"ts": 1000, "op": "upsert", "record": record}).encode()


def batch_of(rows: list[tuple[bytes | None, bytes | None, int]]) -> RecordBatch:
    return RecordBatch(
        "input",
        0,
        np.arange(len(rows), dtype=np.int64) * 3 + 5,
        np.array([row[2] for row in rows], np.int64),
        Blobs.from_list([row[0] for row in rows]),
        Blobs.from_list([row[1] for row in rows]),
    )


def decoder_of(which: Settings) -> Decoder:
    return Decoder(
        which.domain,
        user=which.user,
        record_id=which.record_id,
        max_record_bytes=which.max_record_bytes,
        digest_key=KEY,
    )


def outcomes(decoded: Decoded, rows: int) -> list[tuple[Any, ...]]:
    """One outcome a row, in the form of `meaning` but with digests for names."""
    found: list[Any] = [None] * rows

    def put(row: int, outcome: tuple[Any, ...]) -> None:
        assert found[row] is None
        found[row] = outcome

    for column in (decoded.rows, decoded.rejected_rows, decoded.dropped_rows):
        assert (np.diff(column) > 0).all()
    for dtype, column in zip(DOMAIN.dtypes, decoded.codes, strict=True):
        assert column.dtype == dtype
    for place, row in enumerate(decoded.rows.tolist()):
        delete = bool(decoded.delete[place])
        record = None if decoded.record is None else tuple(map(int, decoded.record[place]))
        codes = tuple(int(column[place]) for column in decoded.codes)
        user = tuple(map(int, decoded.user[place]))
        put(row, ("row", int(decoded.ts[place]), delete, user, record, codes))
    for row, reason in zip(decoded.rejected_rows.tolist(), decoded.rejected_reasons.tolist(), strict=True):
        put(row, ("rejected", Reason(reason).name))
    for row in decoded.dropped_rows.tolist():
        put(row, ("dropped",))
    assert None not in found
    return found


def expected(which: Settings, key: bytes | None, value: bytes | None, timestamp: int) -> tuple[Any, ...]:
    result = meaning(which, key, value, timestamp)
    if result[0] != "row":
        return result
    _, ts, delete, user, record, codes = result
    codes = (0,) * len(which.domain) if codes is None else codes
    named = None if record is None else digest_128(KEY, record)
    return ("row", ts, delete, digest_128(KEY, user), named, codes)


def check(which: Settings, rows: list[tuple[bytes | None, bytes | None, int]]) -> None:
    decoded = decoder_of(which).decode(batch_of(rows), which.latest)
    for row, found in zip(rows, outcomes(decoded, len(rows)), strict=True):
        assert found == expected(which, *row), row


def own(ts: str = "1000", op: str = '"upsert"', record: str = RECORD) -> str:
    return f'{{"ts":{ts},"op":{op},"record":{record}}}'


def with_field(name: str, text: str) -> str:
    fields = {"age": "30", "city": '"x"', "height": "1.75", "visits": "1", "shop": '"p"', "who": '"anna"', "id": "7"}
    return "{" + ",".join(f'"{key}":{value}' for key, value in {**fields, name: text}.items()) + "}"


SCALARS = [
    *("null", "true", "false", "0", "-0", "5", "99", "100", "-1", "-5", "1.0", "0.5", "2.5", "1e0", "1E+2", "-0.0"),
    *("1.75", "2.5000000000000004", "0.49999999999999994", "1e-400", "1e400", "-1e400", "1" * 500, "-" + "1" * 500),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "1" * 5000),
    *("NaN", "Infinity", "-Infinity", "Inf", "-Inf", "nan", "01", "+1", ".5", "1.", "0x1", "1_0", "--1", "1e", ""),
    *('"x"', '"é"', '"\\u00e9"', '"a b"', '"a\\u0020b"', '"X"', '""', '"5"', '"1000"', '"p"', '"2020-01-01"', '"\\/"'),
    *('"\\ud800"', '"\\udc00x"', '"\\ud83d\\ude00"', '"\\u0000"', '"a\tb"', '"a\nb"', '"a\x00b"', '"\x7f"', '"x'),
    *("'x'", '"\\x"', '"\\u12"', "[]", "{}", "[1]", '{"a":1}', '["x"]', "[[[]]]", '{"age":1,"age":2}', "// x", "1 2"),
]

WHOLE: list[bytes | None] = [
    *(None, b"", b" ", b"\n", b"\x00", b"{", b"}", b"{}", b"[]", b"null", b"1", b'"x"', b"{}{}", b"{}\n{}", b"{} {}"),
    *(
        GOOD + GOOD,
        GOOD + b"\n" + GOOD,
        GOOD + b"\n",
        b" " + GOOD,
        b"\r\n" + GOOD + b"\t ",
        GOOD + b"\x00",
        GOOD + b"x",
    ),
    *(
        b"\xef\xbb\xbf" + GOOD,
        GOOD.decode().encode("utf-16"),
        GOOD[:-1],
        GOOD[1:],
        GOOD + b"}",
        b"{" + GOOD,
        GOOD + b",",
    ),
    *(
        b'{"ts":1,"op":"}',
        b'{"}',
        b'{"ts":1,"record":{"age":1}',
        b'{"a":"\xff"}',
        b'{"\xff":1}',
        b'{"a":"\xed\xa0\x80"}',
    ),
    GOOD.replace(b'"x"', b'"\xc3"'),
    GOOD.replace(b'"x"', b'"\xc3\xa9"'),
    GOOD.replace(b",", b" ,\t "),
    GOOD.replace(b",", b",\n"),
    GOOD.replace(b",", b",\r"),
    GOOD.replace(b'"age"', b'"\\u0061ge"'),
    GOOD.replace(b'{"age":30', b'{"age":30,"age":40'),
    GOOD.replace(b'{"age":30', b'{"age":40,"\\u0061ge":30'),
    GOOD.replace(b'{"age":30', b'{"age":null,"age":30'),
    GOOD.replace(b'{"age":30', b'{"age":30,"age":null'),
    GOOD.replace(b'{"age":30', b'{"age":30,"extra":1'),
    GOOD.replace(b'{"age":30', b'{"age":30,"extra":null'),
    GOOD.replace(b'{"age":30', b'{"age":30,"":1'),
    GOOD.replace(b'{"ts":1000', b'{"ts":1000,"ts":2000'),
    GOOD.replace(b'{"ts":1000', b'{"extra":1'),
    GOOD.replace(b'{"ts":1000', b'{"extra":NaN,"ts":1000'),
    GOOD.replace(b'{"ts":1000,', b"{"),
    GOOD.replace(b'"op":"upsert",', b""),
    b'{"ts":1000,"op":"delete"}',
    b'{"ts":1000,"op":"delete","record":null}',
    b'{"op":"delete"}',
    b'{"ts":1000,"op":"upsert"}',
    b'{"ts":1000,"op":"upsert","record":{}}',
    b'{"a":' + b"[" * 300 + b"]" * 300 + b"}",
    b'{"a":' + b"[" * 1500 + b"]" * 1500 + b"}",
    b'{"after":{},"a":' + b"[" * 255 + b"]" * 255 + b"}",
    b'{"after":{},"a":' + b"[" * 256 + b"]" * 256 + b"}",
    b'{"after":{},"op":"c","a":"' + b"[" * 300 + b'"}',
    b"x" * 5000,
    b'{"ts":1000,"op":"upsert","record":{"age":"' + b"9" * 4000 + b'"}}',
]


def debezium(op: str, before: str = "null", after: str = "null", rest: str = "") -> str:
    return f'{{"before":{before},"after":{after},"op":{op}{rest}}}'


CHANGES = [
    debezium('"c"', after=WITH_NAMES, rest=',"ts_ms":900,"source":{"ts_ms":800,"db":"d"}'),
    debezium('"u"', before='{"age":"?"}', after=WITH_NAMES, rest=',"ts_ms":900,"transaction":null'),
    debezium('"r"', after=WITH_NAMES, rest=',"source":{"snapshot":"true"}'),
    debezium('"r"', after=with_field("age", "300")),
    debezium('"c"', after=with_field("other", '{"nested":[1]}')),
    debezium('"c"', after=with_field("who", "12")),
    debezium('"c"', after=with_field("id", '"x"')),
    debezium('"c"', after=RECORD),
    debezium('"d"', before=WITH_NAMES, rest=',"ts_ms":900'),
    debezium('"d"', before='{"who":"anna","id":7}', rest=',"ts_ms":900'),
    debezium('"d"', before='{"who":null,"id":7}', rest=',"ts_ms":900'),
    debezium('"d"', before="{}"),
    debezium('"d"'),
    debezium('"c"'),
    debezium('"c"', after="5"),
    debezium('"c"', before="5", after=WITH_NAMES),
    debezium('"d"', before="[]"),
    debezium('"t"', after=WITH_NAMES),
    debezium("null", after=WITH_NAMES),
    debezium("1", after=WITH_NAMES),
    debezium('"c"', after=WITH_NAMES, rest=',"ts_ms":"900"'),
    debezium('"c"', after=WITH_NAMES, rest=',"ts_ms":900,"source":{"ts_ms":1.5}'),
    debezium('"c"', after=WITH_NAMES, rest=',"ts_ms":900,"source":"here"'),
    debezium('"c"', after=WITH_NAMES, rest=',"ts_ms":99000000'),
    debezium('"c"', after=WITH_NAMES, rest=',"note":NaN'),
    debezium('"c"', after=WITH_NAMES, rest=',"note":-Infinity'),
    debezium('"c"', after=WITH_NAMES, rest=',"note":"NaN Infinity"'),
    debezium('"c"', after=WITH_NAMES, rest=',"note":1e999'),
    debezium('"c"', after=WITH_NAMES, rest=',"note":"\\ud800"'),
    debezium('"c"', after=WITH_NAMES, rest=',"op":"d"'),
    debezium('"c"', after=WITH_NAMES, rest=',"after":null'),
    debezium('"c"', after=WITH_NAMES, rest=f',"payload":{debezium(chr(34) + "d" + chr(34), before=WITH_NAMES)}'),
    debezium('"c"', after=WITH_NAMES, rest=',"schema":{},"payload":null'),
]

WRAPPED = [f'{{"schema":{{"type":"struct","fields":[{{"a":1}}]}},"payload":{change}}}' for change in CHANGES] + [
    '{"payload":{}}',
    '{"payload":5}',
    '{"payload":null,"schema":null}',
    f'{{"payload":{CHANGES[0]},"before":{{}}}}',
    f'{{"payload":{CHANGES[0]},"after":null}}',
    f'{{"payload":{CHANGES[0]},"after":5}}',
    f'{{"payload":{CHANGES[0]},"extra":NaN}}',
    f'{{"payload":{CHANGES[0]},"extra":[1]}}',
    f'{{"payload":{CHANGES[0]},"payload":{CHANGES[8]}}}',
]

NAMED = [own(record=with_field(name, text)) for name in ("age", "city", "height", "visits", "shop") for text in SCALARS]
NAMED += [own(record=with_field(name, text)) for name in ("who", "id") for text in SCALARS]
ENVELOPES = [own(ts=text) for text in SCALARS] + [own(op=text) for text in SCALARS] + [own(record=t) for t in SCALARS]
ENVELOPES += [own(op='"delete"', record=with_field(name, "[1]")) for name in ("age", "who", "id", "extra")]
ENVELOPES += [own(ts=str(LATEST)), own(ts=str(LATEST + 1))]

# Where keys name the users, a record with `who` or `id` would fail for that alone.
WITHOUT_NAMES = [text.replace(',"who":"anna","id":7', "") for text in (*NAMED, *CHANGES, *WRAPPED)]

NASTY: list[bytes | None] = WHOLE + [
    text.encode() for text in (*NAMED, *ENVELOPES, *CHANGES, *WRAPPED, *dict.fromkeys(WITHOUT_NAMES))
]

KEYS: list[bytes | None] = [
    *(None, b"", b"anna", b"\xff\x00", b"{", b'{"who":"anna","id":7}', b'{"id": 7, "who":"anna"}', b'{"id":7}'),
    *(b'{"schema":{"type":"struct"},"payload":{"id":7}}', b'{"schema":{"type":"int"},"payload":7}'),
    *(
        b'{"schema":null,"payload":null}',
        b'{"payload":5}',
        b'{"schema":1}',
        b'{"id":7}}',
        b'{"id":"\\u00e9"}',
        b"k" * 600,
    ),
    *(b'{"schema":{"type":"struct"},"payload":{"id":-0}}', b'{"id":NaN}', b'[{"id":7}]', b'{"id":1e2}', b'"anna"'),
]

SLOWLY = [BY_KEY, *(pytest.param(which, marks=pytest.mark.slow) for which in ALL_SETTINGS[1:])]
