"""The bytes on the output topics."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streamdp import messages

HEADER = {"kind": "release", "histogram": "ages", "release_id": "a.ages.1", "time_point": 1}
BROKER_LIMIT = 900_000


@pytest.mark.parametrize("encoding", ["json", "arrow"])
@pytest.mark.parametrize("cells", [1, 7, 40_000, 40_001, 250_000])
def test_a_release_comes_out_as_it_went_in(encoding, cells):
    counts = np.random.default_rng(1).integers(-(2**62), 2**62, cells)
    parts = [messages.decode(value) for value in messages.encode_release(HEADER, counts, encoding)]
    whole = messages.join_parts(reversed(parts))
    np.testing.assert_array_equal(whole.counts, counts)
    assert whole.header["release_id"] == "a.ages.1"
    assert "part" not in whole.header


@pytest.mark.parametrize("encoding", ["json", "arrow"])
def test_no_part_passes_a_broker_limit_even_with_the_widest_counts(encoding):
    counts = np.full(1_048_576, np.iinfo(np.int64).min)
    # Incompressible on purpose: alternate with random bits.
    counts[::2] = np.random.default_rng(2).integers(np.iinfo(np.int64).min, 0, counts[::2].size)
    parts = messages.encode_release(HEADER, counts, encoding)
    assert max(map(len, parts)) <= BROKER_LIMIT
    np.testing.assert_array_equal(messages.join_parts(map(messages.decode, parts)).counts, counts)


def test_the_number_of_parts_depends_on_the_number_of_cells_only():
    small, large = np.zeros(100_000, np.int64), np.full(100_000, -(2**60))
    for encoding in ("json", "arrow"):
        assert len(messages.encode_release(HEADER, small, encoding)) == len(
            messages.encode_release(HEADER, large, encoding)
        )


def test_auto_is_json_until_one_message_will_not_do():
    assert messages.encode_release(HEADER, np.zeros(40_000, np.int64))[0][:1] == b"{"
    assert messages.encode_release(HEADER, np.zeros(40_001, np.int64))[0][:1] != b"{"


def test_a_json_release_is_plain_json():
    (value,) = messages.encode_release(HEADER, np.array([3, -1]), "json")
    assert json.loads(value) == {
        "format": 1,
        **HEADER,
        "part": 1,
        "parts": 1,
        "first_cell": 0,
        "counts": [3, -1],
    }


def test_missing_or_mixed_parts_make_no_release():
    parts = [messages.decode(value) for value in messages.encode_release(HEADER, np.zeros(80_001, np.int64), "json")]
    assert messages.join_parts(parts[:2]) is None
    other = {**HEADER, "release_id": "a.ages.2"}
    strangers = [messages.decode(value) for value in messages.encode_release(other, np.zeros(80_001, np.int64), "json")]
    assert messages.join_parts([*parts[:2], strangers[2]]) is None


@pytest.mark.parametrize("value", [b"", b"{", b"hello", b"[]", b'{"format": 1}', b"\xff\xff\xff\xff\x00", b"{}"])
def test_foreign_bytes_are_refused(value):
    with pytest.raises(messages.BadMessage, match="not streamdp's"):
        messages.decode(value)


def test_a_newer_format_asks_for_an_upgrade():
    with pytest.raises(messages.BadMessage, match="upgrade"):
        messages.decode(b'{"format": 2, "kind": "release"}')
