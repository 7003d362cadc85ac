"""Many lines of a trace at once, as columns.

Three ways, tried in this order, that agree on every line both can read (`trace.read_line` is the letter):

- the short form as every generator writes it, `{"key":"...","ts":N,`...: keys and values are cut out of the bytes with
  numpy, and nothing is parsed, because everything behind the key is the value as it stands;
- the full form through msgspec, a block of lines in one call;
- any other line by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from streamdp.arrays import Bools, Integers
from streamdp.replay.trace import MAX_PARTITIONS, Row
from streamdp.transport.batch import Blobs

Bytes = NDArray[np.uint8]

SHORT_BEGINS = b'{"key":"'
FULL_BEGINS = b'{"topic"'
_TS = b'","ts":'
_LONGEST_KEY = 40
_DIGITS = 13
_POWERS = 10.0 ** np.arange(_DIGITS - 1, -1, -1)
_PADDING = 64
_QUOTE, _BACKSLASH, _COMMA, _BRACE, _ZERO = b'"\\,{0'

Partition = tuple[str | None, int]


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """Messages in the order of their lines. `places` indexes `partitions`."""

    lines: Integers
    partitions: tuple[Partition, ...]
    places: NDArray[np.int32]
    offsets: Integers
    timestamps: Integers
    keys: Blobs
    values: Blobs

    def __len__(self) -> int:
        return len(self.lines)

    @classmethod
    def merge(cls, parts: Sequence[Columns]) -> Columns:
        """One from several, by line."""
        if len(parts) == 1:
            return parts[0]
        partitions = tuple(dict.fromkeys(partition for part in parts for partition in part.partitions))
        lines = np.concatenate([part.lines for part in parts])
        order = np.argsort(lines)
        place = {partition: number for number, partition in enumerate(partitions)}
        places = [
            np.array([place[partition] for partition in part.partitions], np.int32)[part.places] for part in parts
        ]
        return cls(
            lines[order],
            partitions,
            np.concatenate(places)[order],
            np.concatenate([part.offsets for part in parts])[order],
            np.concatenate([part.timestamps for part in parts])[order],
            Blobs.concatenate([part.keys for part in parts]).take(order),
            Blobs.concatenate([part.values for part in parts]).take(order),
        )

    @classmethod
    def of_rows(cls, lines: Sequence[int], rows: Sequence[Row]) -> Columns:
        partitions: dict[Partition, int] = {}
        places = [partitions.setdefault((row.topic, row.partition), len(partitions)) for row in rows]
        return cls(
            np.array(lines, np.int64),
            tuple(partitions),
            np.array(places, np.int32),
            np.array([row.offset for row in rows], np.int64),
            np.array([row.timestamp for row in rows], np.int64),
            Blobs.from_list([row.key for row in rows]),
            Blobs.from_list([row.value for row in rows]),
        )


def padded(block: bytes) -> Bytes:
    """The bytes with room behind them, so that a look beyond a line's end needs no check."""
    content = np.zeros(len(block) + _PADDING, np.uint8)
    content[: len(block)] = np.frombuffer(block, np.uint8)
    return content


def begins_with(content: Bytes, starts: Integers, text: bytes) -> Bools:
    """Which lines (or other places) of padded content begin with the text, of at most 8 bytes."""
    words = _window(content, starts, 8).view("<u8")[:, 0]
    mask = (1 << (8 * len(text))) - 1
    found: Bools = (words & np.uint64(mask)) == np.uint64(int.from_bytes(text, "little"))
    return found


def cut_short(content: Bytes, starts: Integers, ends: Integers, numbers: Integers) -> tuple[Columns | None, Bools]:
    """The lines, all beginning with `SHORT_BEGINS`, that can be cut, and which those are.

    They are known to be JSON. Overwrites the comma behind each key with the brace that begins the value: `content` is
    spent after this.
    """
    quotes, sound = _key_ends(content, starts + len(SHORT_BEGINS))
    sound &= begins_with(content, quotes, _TS)
    timestamps, whole = _timestamps(content, quotes + len(_TS))
    sound &= whole
    if not sound.any():
        return None, sound
    everything = bool(sound.all())
    if not everything:
        starts, ends, quotes, numbers = starts[sound], ends[sound], quotes[sound], numbers[sound]
        timestamps = timestamps[sound]
    commas = quotes + 1
    content[commas] = _BRACE
    # Every line in four pieces: what precedes the key, the key, its quote, the value.
    bounds = np.empty(4 * len(quotes) + 1, np.int64)
    bounds[0] = starts[0]
    bounds[1::4], bounds[2::4], bounds[3::4], bounds[4::4] = starts + len(SHORT_BEGINS), quotes, commas, ends
    pieces = Blobs(content.data, bounds)
    first = np.arange(0, 4 * len(quotes), 4, dtype=np.int64)
    columns = Columns(
        numbers,
        ((None, 0),),
        np.zeros(len(numbers), np.int32),
        numbers,
        timestamps,
        pieces.take(first + 1),
        pieces.take(first + 3),
    )
    return columns, sound


def _window(content: Bytes, begins: Integers, width: int) -> Bytes:
    """`width` bytes from each place on, as rows."""
    windows = np.lib.stride_tricks.sliding_window_view(content, width)
    rows: Bytes = windows[np.minimum(begins, len(windows) - 1)]
    return rows


def _key_ends(content: Bytes, begins: Integers) -> tuple[Integers, Bools]:
    """Where each key's closing quote stands; not sound where an escape comes first, or the key is very long."""
    rows = _window(content, begins, _LONGEST_KEY)
    ending = (rows == _QUOTE) | (rows == _BACKSLASH)
    lengths = np.argmax(ending, axis=1)
    at = rows[np.arange(len(rows)), lengths]
    return begins + lengths, at == _QUOTE


def _timestamps(content: Bytes, begins: Integers) -> tuple[Integers, Bools]:
    """The number written at each place, and whether it is one of 13 digits (all from 2001 to 2286) and a comma."""
    rows = _window(content, begins, _DIGITS + 1)
    digits = rows[:, :_DIGITS] - np.uint8(_ZERO)
    whole: Bools = (digits <= 9).all(axis=1) & (rows[:, 0] != _ZERO) & (rows[:, _DIGITS] == _COMMA)
    # Exact: 13 digits fit the 53 bits of a float, and multiplying floats is what matrices do fast.
    numbers = digits.astype(np.float64) @ _POWERS
    return numbers.astype(np.int64), whole


class _Full(msgspec.Struct, gc=False):
    topic: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp: int | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    value: str | UnsetType | None = UNSET
    key_base64: msgspec.Raw | UnsetType = UNSET
    value_base64: msgspec.Raw | UnsetType = UNSET
    close: msgspec.Raw | UnsetType = UNSET
    open: msgspec.Raw | UnsetType = UNSET

    @property
    def plain(self) -> bool:
        return (
            self.topic is not UNSET
            and self.offset is not UNSET
            and self.timestamp is not UNSET
            and self.key is not UNSET
            and self.value is not UNSET
            and self.key_base64 is UNSET
            and self.value_base64 is UNSET
            and self.close is UNSET
            and self.open is UNSET
            and 0 <= (-1 if isinstance(self.partition, UnsetType) else self.partition) < MAX_PARTITIONS
        )


_FULL_LINES = msgspec.json.Decoder(_Full)


def read_full(lines: Sequence[bytes], numbers: Integers) -> Columns | None:
    """The lines as full messages with text for key and value; None when some line is anything else."""
    try:
        found = _FULL_LINES.decode_lines(b"\n".join(lines))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if len(found) != len(lines) or not all(message.plain for message in found):
        return None
    partitions: dict[Partition, int] = {}
    places = [partitions.setdefault((m.topic, m.partition), len(partitions)) for m in found]  # type: ignore[arg-type]
    try:
        offsets = np.array([message.offset for message in found], np.int64)
        timestamps = np.array([message.timestamp for message in found], np.int64)
        keys = _blobs([message.key for message in found])  # type: ignore[misc]
        values = _blobs([message.value for message in found])  # type: ignore[misc]
    except (OverflowError, UnicodeEncodeError):
        return None
    if offsets.min(initial=0) < 0:
        return None
    return Columns(numbers, tuple(partitions), np.array(places, np.int32), offsets, timestamps, keys, values)


def _blobs(texts: list[str | None]) -> Blobs:
    present = ["" if text is None else text for text in texts]
    joined = "".join(present)
    if not joined.isascii():
        return Blobs.from_list([None if text is None else text.encode() for text in texts])
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, present), np.int64, len(present)), out=starts[1:])
    valid = np.array([text is not None for text in texts], np.bool_) if None in texts else None
    return Blobs(joined.encode(), starts, valid)


_ANY_LINES = msgspec.json.Decoder(msgspec.Raw)


def broken(block: bytes, lines: int) -> bool:
    """Whether some line of a block of `lines` lines is not JSON; errs on the side of yes."""
    try:
        if not block.isascii():
            block.decode()
        return len(_ANY_LINES.decode_lines(block)) != lines
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return True
