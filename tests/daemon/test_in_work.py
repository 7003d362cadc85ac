"""The file that says what is in work: it outlives the process, and counts deaths in a row at one place."""

from __future__ import annotations

import stat

import numpy as np
import pytest

from streamdp.daemon.in_work import InWork, Place, died_reading
from streamdp.errors import StreamdpError
from streamdp.transport.base import TopicPartition
from streamdp.transport.batch import Blobs, RecordBatch

NAME, OTHER = TopicPartition("visits", 3), TopicPartition("visits", 4)


def batch(first: int, last: int, name: TopicPartition = NAME) -> RecordBatch:
    rows = last - first + 1
    empty = Blobs.from_list([b""] * rows)
    return RecordBatch(*name, np.arange(first, last + 1), np.zeros(rows, np.int64), empty, empty)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.db.reading"


def test_a_place_in_work_is_a_death_and_what_is_done_is_none(path):
    run = InWork(path)
    assert run.suspects == [] and stat.S_IMODE(path.stat().st_mode) == 0o600
    for first in (0, 10, 20, 30):
        run.begin(batch(first, first + 9))
        if first:
            run.end()
    run.reading(OTHER, 5, 7)
    # No orderly end: the next one finds it, though this one never wrote the file itself.
    assert died_reading(path) == Place(OTHER, 5, 7)
    assert InWork(path).suspects == [Place(OTHER, 5, 7), Place(NAME, 30, 39)]


def test_deaths_at_one_place_add_up_until_a_start_is_refused(path):
    for deaths, (first, last) in enumerate([(0, 99), (10, 50), (0, 40)], 1):
        run = InWork(path)
        run.require_progress()
        assert [place.deaths for place in run.suspects] == ([deaths - 1] if deaths > 1 else [])
        run.begin(batch(first, last))
    for _ in range(2):  # also when it was refused before
        run = InWork(path)
        assert run.suspects == [Place(NAME, 10, 40, deaths=3)]
        with pytest.raises(StreamdpError, match=r"offsets 10 to 40 of partition 3 of topic 'visits'.*journal skip"):
            run.require_progress()
    run.clear()
    assert InWork(path).suspects == []


def test_a_death_elsewhere_is_counted_by_itself_and_forgets_no_other(path):
    """Two lethal records in two partitions: whichever is read first kills."""
    InWork(path).begin(batch(0, 9))
    InWork(path).begin(batch(0, 9))
    InWork(path).begin(batch(10, 19, OTHER))
    assert InWork(path).suspects == [Place(OTHER, 10, 19), Place(NAME, 0, 9, 2)]
    InWork(path).begin(batch(0, 9))
    with pytest.raises(StreamdpError, match="offsets 0 to 9"):
        InWork(path).require_progress()


def test_who_passes_the_place_is_no_longer_counted_against_it(path):
    InWork(path).begin(batch(0, 9))
    run = InWork(path)
    run.begin(batch(0, 5))
    run.end()
    assert InWork(path).suspects == [Place(NAME, 0, 9)]
    run = InWork(path)
    run.begin(batch(6, 9))
    run.end()
    assert run.suspects == [] and InWork(path).suspects == []


@pytest.mark.parametrize(
    ("error", "is_death"),
    [(None, False), (StreamdpError("no room"), False), (SystemExit(0), False), (MemoryError(), True)],
)
def test_an_end_with_a_reason_of_its_own_is_no_death(path, error, is_death):
    run = InWork(path)
    try:
        with run.orderly_end():
            run.reading(NAME, 0, 9)
            run.begin(batch(0, 9))
            if error is not None:
                raise error
    except BaseException as raised:
        assert raised is error
    assert bool(InWork(path).suspects) == is_death


@pytest.mark.parametrize("content", [b"", b"rubbish", b"SDPREAD\x01" + bytes(10)])
def test_a_file_that_is_none_of_ours_counts_nothing(path, content):
    path.write_bytes(content)
    assert InWork(path).suspects == []
