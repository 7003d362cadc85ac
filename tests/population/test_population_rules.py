"""The rules of the population one at a time, as a reader would ask about them."""

from __future__ import annotations

import numpy as np
import pytest
from population_model import DOMAIN, VIEWS, Message, digests, feed

from streamdp.domain import Attribute, Domain
from streamdp.population import Population


def message(
    user: int, ts: int, size: int, *, record: int = 0, delete: bool = False, at: tuple[int, int] = (0, 0)
) -> Message:
    return Message(user, record, ts, delete, (0, size), *at)


def sizes(population: Population) -> list[int]:
    """The `size` attribute of everything counted."""
    return np.flatnonzero(population.counts("both").reshape(300, 3).sum(axis=1)).tolist()


def offsets_from(start: int, *messages: Message) -> list[Message]:
    return [Message(m.user, m.record, m.ts, m.delete, m.codes, m.partition, start + i) for i, m in enumerate(messages)]


def test_the_newest_timestamp_wins_in_and_across_batches() -> None:
    population = Population(DOMAIN, VIEWS)
    feed(population, offsets_from(0, message(1, 5, 50), message(1, 7, 70), message(1, 6, 60)), 1)
    assert sizes(population) == [70]
    assert feed(population, offsets_from(3, message(1, 6, 61), message(1, 2, 20)), 1).stale == 2
    assert sizes(population) == [70]


def test_on_equal_timestamps_the_later_offset_wins_and_partitions_are_ordered() -> None:
    population = Population(DOMAIN, VIEWS)
    feed(population, [message(1, 5, 10, at=(1, 3)), message(1, 5, 11, at=(1, 4))], 1)
    assert sizes(population) == [11]
    assert feed(population, [message(1, 5, 12, at=(1, 4))], 1).stale == 1
    feed(population, [message(1, 5, 13, at=(0, 900))], 1)
    assert sizes(population) == [11]
    feed(population, [message(1, 5, 14, at=(2, 0))], 1)
    assert sizes(population) == [14]


def test_a_tombstone_refuses_older_messages_for_its_period_only() -> None:
    population = Population(DOMAIN, VIEWS, tombstone_points=2)
    feed(population, offsets_from(0, message(1, 5, 10), message(1, 8, 0, delete=True)), 1)
    population.close(1)
    feed(population, offsets_from(2, message(1, 7, 11)), 2)
    assert sizes(population) == []
    assert population.users == 1
    population.close(2)
    feed(population, offsets_from(3, message(1, 7, 12)), 3)
    assert sizes(population) == []
    population.close(3)
    assert population.users == 0
    feed(population, offsets_from(4, message(1, 7, 13)), 4)
    assert sizes(population) == [13]


def test_a_record_is_in_exactly_as_many_snapshots_as_expire_after_says() -> None:
    population = Population(DOMAIN, VIEWS, expire_after=3)
    feed(population, [message(1, 5, 10)], 1)
    seen = []
    for time_point in range(1, 6):
        moved = population.close(time_point)
        seen.append(sizes(population))
        assert moved.changes["both"].changes.tolist() == ([-1] if time_point == 4 else [])
    assert seen == [[10], [10], [10], [], []]


def test_a_stale_message_does_not_prolong_a_life() -> None:
    population = Population(DOMAIN, VIEWS, expire_after=2)
    feed(population, offsets_from(0, message(1, 5, 10)), 1)
    population.close(1)
    feed(population, offsets_from(1, message(1, 4, 11)), 2)
    population.close(2)
    population.close(3)
    assert sizes(population) == []


@pytest.mark.parametrize("record_ids", [False, True])
def test_delivering_a_message_again_changes_nothing(record_ids: bool) -> None:
    population = Population(DOMAIN, VIEWS, record_ids=record_ids, expire_after=2)
    feed(population, [message(1, 5, 10)], 1)
    population.close(1)
    assert feed(population, [message(1, 5, 10)], 2).stale == 1
    population.close(2)
    assert sizes(population) == [10]
    population.close(3)
    assert sizes(population) == []


def test_beyond_the_bound_the_oldest_record_is_not_counted() -> None:
    population = Population(DOMAIN, VIEWS, records_per_user=2)
    feed(population, offsets_from(0, *(message(1, ts, 10 * ts, record=ts) for ts in (3, 1, 2))), 1)
    assert sizes(population) == [20, 30]
    feed(population, offsets_from(3, message(1, 4, 11, record=1)), 1)
    assert sizes(population) == [11, 30]


def test_a_deleted_record_makes_room_for_the_next_newest() -> None:
    population = Population(DOMAIN, VIEWS, records_per_user=2)
    feed(population, offsets_from(0, *(message(1, ts, 10 * ts, record=ts) for ts in (1, 2, 3))), 1)
    feed(population, offsets_from(3, message(1, 9, 0, record=3, delete=True)), 1)
    assert sizes(population) == [10, 20]


def test_only_the_newest_keys_are_remembered() -> None:
    population = Population(DOMAIN, VIEWS, records_per_user=1, record_ids=True, keys_per_user=2)
    feed(population, offsets_from(0, *(message(1, ts, 10 * ts, record=ts) for ts in (1, 2, 3))), 1)
    feed(population, offsets_from(3, *(message(1, 9, 0, record=ts, delete=True) for ts in (2, 3))), 1)
    assert sizes(population) == []


@pytest.mark.parametrize("records_per_user", [1, 2])
def test_what_is_deleted_or_forgotten_leaves_no_trace(records_per_user: int) -> None:
    population = Population(DOMAIN, VIEWS, records_per_user=records_per_user, expire_after=5, tombstone_points=2)
    feed(population, offsets_from(0, *(message(user, 5, 200) for user in range(1, 9))), 1)
    feed(population, offsets_from(8, message(3, 6, 200, delete=True)), 1)
    population.close(1)
    assert np.count_nonzero(population.columns()["codes"]) == 7
    population.close(3)
    assert np.count_nonzero(population.columns()["core"][:, 0]) == 7
    population.close(6)
    assert not any(np.count_nonzero(column) for column in population.columns().values())


def test_rows_are_used_again() -> None:
    population = Population(DOMAIN, VIEWS, expire_after=1)
    for time_point in range(1, 40):
        users = range(1000 * time_point, 1000 * time_point + 1000)
        feed(population, offsets_from(1000 * time_point, *(message(user, 1, 10) for user in users)), time_point)
        population.close(time_point)
        assert population.counts("colour").sum() == 1000
        assert len(population.columns()["offset"]) <= 2000
    assert population.users == 1000


def test_one_users_flood_in_reverse_order_is_one_record() -> None:
    population = Population(DOMAIN, VIEWS)
    feed(population, offsets_from(0, *(message(1, -place, place % 300) for place in range(5000))), 1)
    assert sizes(population) == [0]


def test_an_empty_batch_moves_nothing() -> None:
    moved = feed(Population(DOMAIN, VIEWS), [], 1)
    assert set(moved.changes) == {"colour", "both"}
    assert not any(len(change.cells) for change in moved.changes.values())


def test_a_closed_point_never_changes() -> None:
    population = Population(DOMAIN, VIEWS)
    population.close(3)
    with pytest.raises(ValueError, match="never changes"):
        feed(population, [message(1, 1, 1)], 3)
    with pytest.raises(ValueError, match="in order"):
        population.close(3)


def test_wrong_use_is_refused() -> None:
    population = Population(DOMAIN, VIEWS)
    with pytest.raises(ValueError, match="ascend"):
        feed(population, [message(1, 1, 1, at=(0, 4)), message(2, 1, 1, at=(0, 4))], 1)
    with pytest.raises(ValueError, match="out of range"):
        feed(population, [message(1, 1, 1, at=(1 << 16, 0))], 1)
    arguments = (np.zeros(1, np.int64), np.zeros(1, np.bool_), [np.zeros(1, np.int64)] * 2)
    with pytest.raises(ValueError, match="record ids"):
        population.apply(
            digests([1], False),
            digests([1], False),
            *arguments,
            partition=0,
            offsets=np.zeros(1, np.int64),
            time_point=1,
        )
    for wrong in ({"records_per_user": 0}, {"records_per_user": 2, "record_ids": False}, {"expire_after": 0}):
        with pytest.raises(ValueError):
            Population(DOMAIN, VIEWS, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="own domain"):
        Population(Domain([Attribute.integer("size", 0, 9)]), VIEWS)


def test_counts_are_a_copy_and_reprs_hold_no_number() -> None:
    population = Population(DOMAIN, VIEWS)
    moved = feed(population, [message(1, 1, 277)], 1)
    population.counts("colour")[:] = 99
    assert population.counts("colour").tolist() == [1, 0, 0]
    assert "277" not in repr(moved) and "831" not in repr(moved)
