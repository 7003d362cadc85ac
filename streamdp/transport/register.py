"""A few numbers that are overwritten in place and must never be lost: two slots, each with a checksum.

A write goes to the slot that does not hold the current value, so a write cut short leaves the value before it, and a
reader that meets a write half way reads that one too. The values only ever grow, so the larger valid slot is current.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from crc32c import crc32c

from streamdp.transport.files import write_all
from streamdp.transport.segment import corrupted

SLOT_BYTES = 64
REGISTER_BYTES = 2 * SLOT_BYTES


class Register:
    """The layout of one register: a magic of 8 bytes, format version included, and `fields` 64-bit integers."""

    def __init__(self, magic: bytes, fields: int) -> None:
        self._magic = magic
        self._layout = struct.Struct(f"<8s{fields}q")

    def initial(self, *values: int) -> bytes:
        """The content of a new register."""
        return self._encode(values).ljust(REGISTER_BYTES, b"\0")

    def read(self, descriptor: int, position: int, path: Path) -> tuple[int, ...]:
        for attempt in range(100):
            current = max(self._slots(descriptor, position))
            if current:
                return current
            # Both slots were being written while they were read: a reader was held up over two appends.
            if attempt > 10:
                time.sleep(0.001)
        raise corrupted(path, position, "the record of what is committed fails its checksum")

    def write(self, descriptor: int, position: int, values: tuple[int, ...]) -> None:
        slots = self._slots(descriptor, position)
        write_all(descriptor, self._encode(values), position + SLOT_BYTES * slots.index(min(slots)))

    def _slots(self, descriptor: int, position: int) -> list[tuple[int, ...]]:
        """The values of both slots; an invalid one is empty, which sorts first."""
        stored = os.pread(descriptor, REGISTER_BYTES, position)
        return [self._decode(stored[begin : begin + SLOT_BYTES]) for begin in (0, SLOT_BYTES)]

    def _encode(self, values: tuple[int, ...]) -> bytes:
        fields = self._layout.pack(self._magic, *values)
        return fields + crc32c(fields).to_bytes(4, "little")

    def _decode(self, slot: bytes) -> tuple[int, ...]:
        fields = slot[: self._layout.size]
        checksum = slot[self._layout.size : self._layout.size + 4]
        if len(checksum) < 4 or int.from_bytes(checksum, "little") != crc32c(fields) or slot[:8] != self._magic:
            return ()
        return self._layout.unpack(fields)[1:]
