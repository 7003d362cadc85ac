"""Reading traces: the columns agree with the letter of the format, and what is broken is said to be, where it is."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamdp.replay import files as files_module
from streamdp.replay import reader as reader_module
from streamdp.replay.reader import Messages, TraceReader
from streamdp.replay.trace import BrokenTrace, Header, Mark, Row, TraceMismatch, read_line
from streamdp.replay.writer import TraceWriter

SHORT = b'{"key":"u1","ts":1767225600000,"op":"upsert","record":{"ward":"north"}}'
FULL = (
    b'{"topic":"visits","partition":1,"offset":7,"timestamp":1767225600001,"key":"u2",'
    b'"value":"{\\"ts\\":1,\\"op\\":\\"delete\\"}"}'
)


def write(path, lines, compress=lambda data: data):
    path.write_bytes(compress(b"".join(line + b"\n" for line in lines)))
    return path


def flat(trace):
    """Every item in the order of the lines: (line, topic, partition, offset, timestamp, key, value), or a mark."""
    items = []
    for item in trace:
        if isinstance(item, Mark):
            items.append((item.line, item))
            continue
        rows = []
        for batch, lines in zip(item.batches, item.lines, strict=True):
            assert (batch.offsets[1:] > batch.offsets[:-1]).all()
            columns = zip(batch.offsets.tolist(), batch.timestamps.tolist(), batch.keys, batch.values, strict=True)
            for line, (offset, timestamp, key, value) in zip(lines.tolist(), columns, strict=True):
                rows.append((line, batch.topic, batch.partition, offset, timestamp, key, value))
        items += sorted(rows, key=lambda row: row[0])
    return items


def by_the_letter(lines):
    items = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        found = read_line(line, number)
        if isinstance(found, Row):
            topic = "visits" if found.topic is None else found.topic
            fields = (topic, found.partition, found.offset, found.timestamp, found.key, found.value)
            items.append((number, *fields))
        else:
            items.append((number, found))
    return items


def same(one, other):
    """Values of the short form may be spelled otherwise by the two readings, but say the same."""

    def plain(item):
        if len(item) == 2:
            return item
        try:
            return (*item[:-1], json.loads(item[-1]))
        except (TypeError, ValueError):
            return item

    return [plain(item) for item in one] == [plain(item) for item in other]


TEXTS = st.text(max_size=12).map(lambda text: "".join(c for c in text if not 0xD800 <= ord(c) <= 0xDFFF))
RECORDS = st.dictionaries(TEXTS, st.integers() | TEXTS | st.none(), max_size=3)
SHORTS = st.fixed_dictionaries(
    {"key": TEXTS | st.none(), "ts": st.integers(0, 2**70) | st.integers(10**12, 10**13 - 1) | TEXTS, "op": TEXTS},
    optional={"record": RECORDS, "more": st.integers()},
)
FULLS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["visits", "other"]),
        "partition": st.integers(0, 2),
        "offset": st.integers(0, 2**63 - 1),
        "timestamp": st.integers(-(2**63), 2**63 - 1),
        "key": TEXTS | st.none(),
        "value": TEXTS | st.none(),
    }
)
BINARY = st.builds(
    lambda fields, content: {
        **{name: value for name, value in fields.items() if name != "value"},
        "value_base64": base64.b64encode(content).decode(),
    },
    FULLS,
    st.binary(max_size=8),
)
MARKS = st.integers(1, 99).map(lambda point: {"close": point})
LINES = st.tuples(
    st.one_of(SHORTS, SHORTS, FULLS, FULLS, BINARY, MARKS), st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans()
).map(lambda line: json.dumps(line[0], separators=line[1], ensure_ascii=line[2]).encode())


@given(st.lists(LINES | st.sampled_from([b"", b"  ", SHORT, FULL]), max_size=30), st.integers(1, 400))
def test_columns_agree_with_the_letter_of_the_format(tmp_path_factory, lines, block):
    path = write(tmp_path_factory.mktemp("trace") / "t.jsonl", lines)
    with pytest.MonkeyPatch.context() as patch, TraceReader(path, "visits") as trace:
        patch.setattr(reader_module, "_BLOCK_BYTES", block)
        patch.setattr(files_module, "_READ_BYTES", max(1, block // 3))
        assert same(flat(trace), by_the_letter(lines))


def test_a_short_line_stands_for_the_message_with_its_value(tmp_path):
    with TraceReader(write(tmp_path / "t", [SHORT, SHORT]), "visits") as trace:
        value = b'{"ts":1767225600000,"op":"upsert","record":{"ward":"north"}}'
        assert flat(trace) == [(number, "visits", 0, number, 1_767_225_600_000, b"u1", value) for number in (1, 2)]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
def test_compression_is_told_by_the_bytes_and_not_by_the_name(tmp_path, compress):
    for name in ("t.jsonl", "t.gz", "t.zst"):
        with TraceReader(write(tmp_path / name, [SHORT, FULL], compress), "visits") as trace:
            assert len(flat(trace)) == 2


@pytest.mark.parametrize("name", ["t.jsonl", "t.gz", "t.zst"])
def test_what_was_flushed_can_be_read_while_the_trace_is_written(tmp_path, name):
    with TraceWriter(tmp_path / name, Header(marks=True)) as writer:
        writer.lines(SHORT + b"\n")
        writer.mark(Mark(0, 1))
        writer.flush()
        with TraceReader(tmp_path / name, "visits", skip_bad=True) as trace:
            assert [item[0] for item in flat(trace)] == [2, 3]
        writer.lines(FULL + b"\n")
    with TraceReader(tmp_path / name, "visits") as trace:
        assert [item[0] for item in flat(trace)] == [2, 3, 4]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_files_put_one_after_the_other_are_one_trace(tmp_path, compress):
    path = tmp_path / "t"
    path.write_bytes(compress(SHORT + b"\n") + compress(FULL + b"\n"))
    with TraceReader(path, "visits") as trace:
        assert [item[0] for item in flat(trace)] == [1, 2]


def test_the_last_line_needs_no_end(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(SHORT + b"\n" + FULL)
    with TraceReader(path, "visits") as trace:
        assert len(flat(trace)) == 2


def test_an_empty_file_is_an_empty_trace(tmp_path):
    with TraceReader(write(tmp_path / "t", []), "visits") as trace:
        assert flat(trace) == []
        assert not trace.has_marks()


BROKEN = {
    "not JSON": SHORT[:-1],
    "two values": SHORT + SHORT,
    "not an object": b"[1]",
    "NaN": b'{"key":"u1","ts":1767225600000,"op":"upsert","record":{"ward":NaN}}',
    "no message, no mark": b'{"op":"upsert"}',
    "not UTF-8": SHORT.replace(b"north", b"n\xff"),
    "no offset": FULL.replace(b'"offset":7,', b""),
    "no key": FULL.replace(b'"key":"u2",', b""),
    "partition as text": FULL.replace(b'"partition":1', b'"partition":"1"'),
    "partition too large": FULL.replace(b'"partition":1', b'"partition":1024'),
    "negative offset": FULL.replace(b'"offset":7', b'"offset":-7'),
    "offset beyond 64 bits": FULL.replace(b'"offset":7', b'"offset":9223372036854775808'),
    "timestamp missing": FULL.replace(b'"timestamp":1767225600001,', b""),
    "value an object": b'{"topic":"visits","partition":0,"offset":1,"timestamp":1,"key":"u","value":{}}',
    "bad base64": b'{"topic":"visits","partition":0,"offset":1,"timestamp":1,"key":"u","value_base64":"?"}',
    "half a character": b'{"topic":"visits","partition":0,"offset":1,"timestamp":1,"key":"u","value":"\\ud800"}',
    "key a number": b'{"key":5,"ts":1767225600000,"op":"delete"}',
    "mark at 0": b'{"close":0}',
    "mark with more": b'{"close":1,"more":2}',
    "mark as text": b'{"close":"1"}',
    "opening of another point": b'{"open":2}',
    "header in the middle": b'{"streamdp_trace":1}',
}


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("around", [SHORT, FULL], ids=["short", "full"])
def test_a_broken_line_is_named_and_can_be_skipped(tmp_path, line, around):
    path = write(tmp_path / "t", [around, around, line, around])
    with TraceReader(path, "visits") as trace, pytest.raises(BrokenTrace, match=r"line 3: .*--skip-bad") as caught:
        flat(trace)
    assert caught.value.exit_code == 1
    assert "north" not in str(caught.value) and "u1" not in str(caught.value)
    with TraceReader(path, "visits", skip_bad=True) as trace:
        assert [item[0] for item in flat(trace)] == [1, 2, 4]
        assert trace.bad_lines == 1


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_truncated_file_is_an_error_with_a_line_or_can_be_read_as_far_as_it_goes(tmp_path, compress):
    lines = [SHORT.replace(b"u1", b"u%d" % (number**7)) for number in range(3_000)]
    whole = compress(b"".join(line + b"\n" for line in lines))
    path = tmp_path / "t"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    with TraceReader(path, "visits") as trace, pytest.raises(BrokenTrace, match="breaks off") as caught:
        flat(trace)
    with TraceReader(path, "visits", skip_bad=True) as trace:
        items = flat(trace)
        assert trace.bad_lines == 1
    assert len(items) == caught.value.line - 1 < 3_000
    expected = by_the_letter(lines[: len(items)])
    assert same(items, expected)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_damage_inside_the_file_is_an_error(tmp_path, compress):
    whole = bytearray(compress(b"".join(b'{"key":"u%d","ts":1,"op":"x"}\n' % (n**7) for n in range(3_000))))
    whole[len(whole) // 2] ^= 0xFF
    whole[len(whole) // 2 + 1] ^= 0xFF
    path = tmp_path / "t"
    path.write_bytes(whole)
    with pytest.raises(BrokenTrace, match="line"), TraceReader(path, "visits") as trace:
        flat(trace)


def test_a_text_file_cut_short_ends_with_a_broken_line(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(SHORT + b"\n" + SHORT[:30])
    with TraceReader(path, "visits") as trace, pytest.raises(BrokenTrace, match="line 2: not JSON"):
        flat(trace)


def test_the_header_is_read_and_is_no_message(tmp_path):
    header = Header(stream="clinic", domain="abc", first_open=5, length=10, backlog_latest_ts=7, marks=True)
    with TraceReader(write(tmp_path / "t", [header.to_json(), SHORT], zstandard.compress), "visits") as trace:
        assert trace.header == header
        assert [item[0] for item in flat(trace)] == [2]


@pytest.mark.parametrize("header", [b'{"streamdp_trace":2}', b'{"streamdp_trace":1,"length":"1h"}'])
def test_a_header_of_another_format_is_refused(tmp_path, header):
    with pytest.raises(TraceMismatch, match="line 1"):
        TraceReader(write(tmp_path / "t", [header, SHORT]), "visits")


def test_a_topic_the_configuration_does_not_read_is_refused_with_its_line(tmp_path):
    path = write(tmp_path / "t", [SHORT, FULL.replace(b"visits", b"other")])
    with TraceReader(path, "visits", frozenset({"visits"})) as trace, pytest.raises(TraceMismatch, match="line 2"):
        flat(trace)


def test_offsets_that_do_not_ascend_end_a_batch(tmp_path):
    lines = [FULL.replace(b'"offset":7', b'"offset":%d' % offset) for offset in (5, 6, 6, 2, 9)]
    with TraceReader(write(tmp_path / "t", lines), "visits") as trace:
        (item,) = trace
        assert isinstance(item, Messages)
        assert [batch.offsets.tolist() for batch in item.batches] == [[5, 6], [6], [2, 9]]


@pytest.mark.parametrize(
    "lines, marks",
    [
        ([SHORT, b'{ "close" : 1 }'], True),
        ([SHORT.replace(b"north", b'\\"close\\"')], False),
        ([SHORT, b'{"close":'], False),
    ],
)
def test_marks_are_found_without_a_header(tmp_path, lines, marks):
    with TraceReader(write(tmp_path / "t", lines), "visits") as trace:
        assert trace.has_marks() is marks


def test_a_missing_file_is_a_clear_error(tmp_path):
    from streamdp.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match="cannot read"):
        TraceReader(tmp_path / "none", "visits")
