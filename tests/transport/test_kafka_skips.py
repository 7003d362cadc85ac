"""What is skipped to the end of its batch is neither decompressed nor decoded, and its neighbours are read as usual."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from test_kafka_decompression import NAME, batch_of, record

from streamdp.transport import kafka_batches
from streamdp.transport.base import MAX_RECORD_BYTES, TopicPartition
from streamdp.transport.guard import Guard, Skip, Skips
from streamdp.transport.kafka_batches import Buffered, read_fetched
from streamdp.transport.kafka_codecs import decompressed


class Marks(Guard):
    """Remembers what a reader said."""

    def __init__(self, *skips: Skip) -> None:
        super().__init__(Skips(skips))
        self.now: tuple[int, int] | None = None
        self.seen: list[tuple[int, int]] = []

    def reading(self, name: TopicPartition, first: int, last: int) -> None:
        assert name == NAME
        self.now = first, last
        self.seen.append(self.now)

    def read(self) -> None:
        self.now = None


class Died(BaseException):
    pass


def lethal(after: int) -> object:
    """Decompresses as usual, but not beyond so many bytes of a zstd batch."""

    def decompress(codec: int, data: memoryview) -> Iterator[bytes]:
        given = 0
        for piece in decompressed(codec, data):
            given += len(piece)
            if codec == 4 and given > after:
                raise Died
            yield piece

    return decompress


@pytest.fixture
def dies(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda after: monkeypatch.setattr(kafka_batches, "decompressed", lethal(after))


def offsets(buffer: bytes, guard: Guard, position: int = 0) -> list[tuple[int, bytes | None]]:
    buffered = Buffered(position, guard)
    buffered.put(read_fetched(NAME, position, buffer, (), MAX_RECORD_BYTES, guard))
    found: list[tuple[int, bytes | None]] = []
    while (batch := buffered.take(8 << 20, None)) is not None:
        found += zip(batch.offsets.tolist(), batch.keys, strict=True)
    return found


def small(base: int, codec: int) -> bytes:
    return batch_of([record(i, b"k%d" % (base + i), b"v") for i in range(3)], base, codec)


def test_a_lethal_batch_between_others_is_stepped_over(dies: Callable[[int], None]) -> None:
    dies(0)
    buffer = small(0, 1) + small(3, 4) + small(6, 1)
    with pytest.raises(Died):
        offsets(buffer, Marks())
    guard = Marks(Skip(NAME, 3, 5))
    found = offsets(buffer, guard)
    assert found == [(0, b"k0"), (1, b"k1"), (2, b"k2"), (3, None), (6, b"k6"), (7, b"k7"), (8, b"k8")]
    assert guard.now is None and (3, 5) not in guard.seen and {(0, 2), (6, 8)} <= set(guard.seen)


def test_the_marker_names_the_batch_in_which_the_reader_died(dies: Callable[[int], None]) -> None:
    dies(0)
    guard = Marks()
    with pytest.raises(Died):
        offsets(small(0, 1) + small(3, 4), guard)
    assert guard.now == (3, 5)


def test_one_skipped_record_of_a_batch_does_not_hide_the_others() -> None:
    guard = Marks(Skip(NAME, 4, 4))
    assert [offset for offset, _ in offsets(small(3, 4), guard)] == [3, 4, 5]


def test_a_long_batch_is_read_up_to_what_kills(dies: Callable[[int], None]) -> None:
    count, size = 250, 60_000
    buffer = batch_of([record(i, b"%d" % i, bytes(size)) for i in range(count)], 0, 4) + small(count, 1)
    dies(8 << 20)
    guard = Marks()
    buffered = Buffered(0, guard)
    buffered.put(read_fetched(NAME, 0, buffer, (), MAX_RECORD_BYTES, guard))
    with pytest.raises(Died):
        while buffered.take(1 << 30, None) is not None:
            pass
    assert guard.now == (0, count - 1)
    first = buffered.position
    assert 0 < first < count
    skips = Skip(NAME, first, count - 1)
    assert [offset for offset, _ in offsets(buffer, Marks(skips))] == [*range(first + 1), count, count + 1, count + 2]
    # Its stand-in lies before this position, and no byte of it is read.
    again = [offset for offset, _ in offsets(buffer, Marks(skips), position=first + 3)]
    assert again == [count, count + 1, count + 2]


def test_the_marker_of_a_trial_ends_with_the_batch_of_its_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies beyond is skipped in a trial, and must not be taken for what could not be read."""

    def dies(*arguments: object) -> None:
        raise Died

    monkeypatch.setattr(kafka_batches, "_columns", dies)
    guard = Marks(Skip(NAME, 3, 1 << 40))
    with pytest.raises(Died):
        offsets(small(0, 1) + small(3, 1) + small(6, 1), guard)
    assert guard.now == (0, 2)
