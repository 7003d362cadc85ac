"""Keyed 128-bit digests of users and record ids, a column at a time.

SipHash-2-4 with 128-bit output (Aumasson and Bernstein, INDOCRYPT 2012): a pseudorandom function for short inputs.
Without the key nobody can choose two users that collide, nor tell from a digest whether a guessed user is behind it.
The key belongs to the stream's secrets: with it, digests are as good as the names.

Every row of a column is one lane of numpy arrays. Rows are ordered by length, so that the lanes still reading input are
a prefix and one pass serves all lengths.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from streamdp.transport.batch import Blobs

KEY_BYTES = 16

LONGEST_IN_LANES = 512
"""Lanes cost a pass per 8 bytes however few rows are left; longer inputs get BLAKE2b under the same key, one by one."""

# The state and its scratch stay in the second-level cache, and the cost of a numpy call is spread over many rows.
_LANES = 32768

_Lane = NDArray[np.uint64]


class Digester:
    """Digests under one key."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a digest key has {KEY_BYTES} bytes")
        self._key = key
        k0, k1 = np.frombuffer(key, "<u8")
        self._start = (
            k0 ^ np.uint64(0x736F6D6570736575),
            k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE),
            k0 ^ np.uint64(0x6C7967656E657261),
            k1 ^ np.uint64(0x7465646279746573),
        )

    def __call__(self, column: Blobs) -> NDArray[np.uint64]:
        """One digest a row, as two little-endian words; a null row gets the digest of the empty string."""
        digests = np.empty((len(column), 2), np.uint64)
        if not len(column):
            return digests
        lengths = column.lengths()
        whole = lengths >> 3
        rows: NDArray[np.int64] | None = None
        if lengths.max() > LONGEST_IN_LANES:
            long = lengths > LONGEST_IN_LANES
            for row in np.flatnonzero(long).tolist():
                text = hashlib.blake2b(column[row] or b"", digest_size=16, key=self._key).digest()
                digests[row] = np.frombuffer(text, "<u8")
            rows = np.flatnonzero(~long)
            rows = rows[np.argsort(-whole[rows], kind="stable")]
        elif whole.min() != whole.max():
            rows = np.argsort(-whole, kind="stable")
        # Eight bytes of padding, so that a whole word can be read from where the last byte ends.
        padded = np.zeros(column.nbytes + 8, np.uint8)
        padded[:-8] = np.frombuffer(column.content(), np.uint8)
        words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
        starts = column.starts[:-1] - column.starts[0]
        total = len(column) if rows is None else len(rows)
        for begin in range(0, total, _LANES):
            lanes = slice(begin, begin + _LANES) if rows is None else rows[begin : begin + _LANES]
            digests[lanes] = self._digest_lanes(words, starts[lanes], lengths[lanes])
        return digests

    def _digest_lanes(self, words: _Lane, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Rows in descending order of whole words; `words[i]` is the word that begins at byte i."""
        count = len(starts)
        whole = lengths >> 3
        state = _State(self._start, count)
        for step in range(int(whole[0]) + 1):
            # Lanes with more than `step` whole words read one; those with exactly `step` read the rest and the length.
            active = int(np.searchsorted(-whole, -step, side="right"))
            full = int(np.searchsorted(-whole, -step, side="left"))
            message = words[starts[:active] + 8 * step]
            rest = (lengths[full:active] & 7).astype(np.uint64) << np.uint64(3)
            message[full:] &= (np.uint64(1) << rest) - np.uint64(1)
            message[full:] |= lengths[full:active].astype(np.uint64) << np.uint64(56)
            state.absorb(message)
        return state.finish()


class _State:
    """The four words of every lane; all operations in place."""

    def __init__(self, start: tuple[np.uint64, ...], count: int) -> None:
        self._words = [np.full(count, word, np.uint64) for word in start]
        self._scratch = np.empty(count, np.uint64)

    def absorb(self, message: _Lane) -> None:
        active = len(message)
        v0, v3 = self._words[0][:active], self._words[3][:active]
        v3 ^= message
        self._rounds(2, active)
        v0 ^= message

    def finish(self) -> NDArray[np.uint64]:
        v0, v1, v2, v3 = self._words
        digest = np.empty((len(v0), 2), np.uint64)
        v2 ^= np.uint64(0xEE)
        self._rounds(4, len(v0))
        digest[:, 0] = v0 ^ v1 ^ v2 ^ v3
        v1 ^= np.uint64(0xDD)
        self._rounds(4, len(v0))
        digest[:, 1] = v0 ^ v1 ^ v2 ^ v3
        return digest

    def _rounds(self, rounds: int, active: int) -> None:
        v0, v1, v2, v3 = (word[:active] for word in self._words)
        scratch = self._scratch[:active]
        for _ in range(rounds):
            v0 += v1
            v2 += v3
            _rotate(v1, 13, scratch)
            _rotate(v3, 16, scratch)
            v1 ^= v0
            v3 ^= v2
            _rotate(v0, 32, scratch)
            v2 += v1
            v0 += v3
            _rotate(v1, 17, scratch)
            _rotate(v3, 21, scratch)
            v1 ^= v2
            v3 ^= v0
            _rotate(v2, 32, scratch)


_SHIFTS = [np.uint64(bits) for bits in range(65)]


def _rotate(word: _Lane, bits: int, scratch: _Lane) -> None:
    np.right_shift(word, _SHIFTS[64 - bits], out=scratch)
    np.left_shift(word, _SHIFTS[bits], out=word)
    np.bitwise_or(word, scratch, out=word)
