"""Random histories against the dictionary model: disorder, duplicates, deletes, expiry, bounds, restarts."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from population_model import DOMAIN, VIEWS, Message, Model, feed

from streamdp.population import Population, Snapshot, load_latest, write_checkpoint, write_snapshot

PARTITIONS = 3


@dataclass(frozen=True)
class History:
    """Options, the messages of every point by partition, and seeds for how they are read."""

    options: dict[str, int | bool | None]
    points: list[list[list[Message]]]
    crowded: bool

    def model(self) -> Model:
        return Model(**self.options)  # type: ignore[arg-type]

    def population(self) -> Population:
        return Population(DOMAIN, VIEWS, **self.options)  # type: ignore[arg-type]


@st.composite
def histories(draw: st.DrawFn, users: int = 5) -> History:
    record_ids = draw(st.booleans())
    bound = draw(st.integers(1, 3)) if record_ids else 1
    options = {
        "record_ids": record_ids,
        "records_per_user": bound,
        "keys_per_user": bound + draw(st.integers(0, 3)) if record_ids else 1,
        "expire_after": draw(st.none() | st.integers(1, 3)),
        "tombstone_points": draw(st.integers(1, 3)),
    }
    one = st.tuples(
        st.integers(0, users - 1),
        st.integers(0, 5),
        st.integers(0, 8),
        st.integers(0, 3).map(lambda x: x == 0),
        st.tuples(st.integers(0, 2), st.integers(0, 299)),
    )
    next_offset = [0] * PARTITIONS
    points = []
    for _ in range(draw(st.integers(1, 5))):
        partitions = []
        for partition in range(PARTITIONS):
            rows = draw(st.lists(one, max_size=12))
            start = next_offset[partition]
            partitions.append([Message(*row, partition, start + place) for place, row in enumerate(rows)])
            next_offset[partition] += len(rows)
        points.append(partitions)
    return History(options, points, draw(st.booleans()))


def play_point(
    population: Population, partitions: list[list[Message]], time_point: int, crowded: bool, random: np.random.Generator
) -> None:
    """Read the point in a random interleaving of random batches, some delivered twice; then close it."""
    before = {view.name: population.counts(view.name) for view in VIEWS}
    left = [list(messages) for messages in partitions]
    moves = []
    while any(left):
        partition = int(random.choice([place for place, messages in enumerate(left) if messages]))
        size = int(random.integers(1, len(left[partition]) + 1))
        batch, left[partition] = left[partition][:size], left[partition][size:]
        for _ in range(int(random.integers(1, 3))):
            moves.append(feed(population, batch, time_point, crowded))
    moves.append(population.close(time_point))
    for view in VIEWS:
        for moved in moves:
            change = moved.changes[view.name]
            assert (np.diff(change.cells) > 0).all()
            assert change.changes.all()
            before[view.name][change.cells] += change.changes
        assert (before[view.name] == population.counts(view.name)).all()


def contents(population: Population, time_point: int) -> list[tuple[int, int, int]]:
    with tempfile.TemporaryDirectory() as directory:
        snapshot = Snapshot.open(write_snapshot(population, Path(directory), time_point, with_users=True))
        assert snapshot.users is not None
        rows = zip(
            snapshot.users[:, 1].tolist(), *(snapshot.columns[name].tolist() for name in DOMAIN.names), strict=True
        )
        return sorted(rows)


@pytest.mark.slow
@settings(deadline=None, max_examples=600)
@given(histories(), st.integers(0, 2**32))
def test_counts_equal_the_model_at_every_close(history: History, seed: int) -> None:
    random = np.random.default_rng(seed)
    model, population = history.model(), history.population()
    for time_point, partitions in enumerate(history.points):
        play_point(population, partitions, time_point, history.crowded, random)
        model.point(chain.from_iterable(partitions), time_point)
        for view in VIEWS:
            assert (population.counts(view.name) == model.counts(view)).all()
        assert population.users == len({user for user, _ in model.state})


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(histories(), st.integers(0, 2**32))
def test_reading_in_another_order_gives_the_same_records(history: History, seed: int) -> None:
    random = np.random.default_rng(seed)
    first, second = history.population(), history.population()
    for time_point, partitions in enumerate(history.points):
        play_point(first, partitions, time_point, history.crowded, random)
        play_point(second, partitions, time_point, history.crowded, random)
        assert contents(first, time_point) == contents(second, time_point)


@settings(deadline=None, max_examples=100)
@given(histories(), st.lists(st.integers(0, 6), min_size=5, max_size=5))
def test_closing_the_last_of_a_run_of_points_is_closing_each(history: History, missed: list[int]) -> None:
    """A run may begin in the middle of a point: what came before it counts in its first one."""
    at_once, one_by_one = history.population(), history.population()
    time_point = 0
    for partitions, run in zip(history.points, missed, strict=False):
        time_point += 1
        for population in (at_once, one_by_one):
            for messages in filter(None, partitions):
                feed(population, messages, time_point, history.crowded)
        for point in range(time_point, time_point + run):
            one_by_one.close(point)
        time_point += run
        for population in (at_once, one_by_one):
            population.close(time_point)
        assert contents(at_once, time_point) == contents(one_by_one, time_point)
        assert at_once.users == one_by_one.users
        for view in VIEWS:
            assert (at_once.counts(view.name) == one_by_one.counts(view.name)).all()


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(histories(), st.integers(0, 2**32))
def test_users_do_not_move_each_other(history: History, seed: int) -> None:
    """Leaving one user out changes nothing but that user's own records, at most the bound in L1."""
    random = np.random.default_rng(seed)
    everyone, others = history.population(), history.population()
    for time_point, partitions in enumerate(history.points):
        play_point(everyone, partitions, time_point, False, random)
        fewer = [[message for message in messages if message.user] for messages in partitions]
        play_point(others, fewer, time_point, False, random)
        # User 0's digest is zero, and only that one.
        assert [row for row in contents(everyone, time_point) if row[0]] == contents(others, time_point)
        for view in VIEWS:
            distance = np.abs(everyone.counts(view.name) - others.counts(view.name)).sum()
            assert distance <= everyone.records_per_user


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(histories(), st.integers(0, 2**32))
def test_a_restart_from_any_checkpoint_goes_on_the_same(history: History, seed: int) -> None:
    random = np.random.default_rng(seed)
    through = history.population()
    with tempfile.TemporaryDirectory() as name:
        expected = []
        for time_point, partitions in enumerate(history.points):
            play_point(through, partitions, time_point, history.crowded, random)
            expected.append(contents(through, time_point))
            directory = Path(name) / str(time_point)
            directory.mkdir()
            write_checkpoint(through, directory, {"closed": time_point}, time_point)
        for start in range(len(history.points)):
            restored = load_latest(Path(name) / str(start), DOMAIN, VIEWS, **history.options)
            assert restored is not None
            assert (restored.cut, restored.time_point) == ({"closed": start}, start)
            population = restored.population
            assert contents(population, start) == expected[start]
            for time_point in range(start + 1, len(history.points)):
                play_point(population, history.points[time_point], time_point, history.crowded, random)
                assert contents(population, time_point) == expected[time_point]
            for view in VIEWS:
                assert (population.counts(view.name) == through.counts(view.name)).all()


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(histories(), st.integers(0, 2**32))
def test_a_checkpoint_may_stand_anywhere_in_a_point(history: History, seed: int) -> None:
    random = np.random.default_rng(seed)
    model, population = history.model(), history.population()
    for time_point, partitions in enumerate(history.points):
        cut = [int(random.integers(0, len(messages) + 1)) for messages in partitions]
        for messages, end in zip(partitions, cut, strict=True):
            feed(population, messages[:end], time_point, history.crowded)
        with tempfile.TemporaryDirectory() as name:
            write_checkpoint(population, Path(name), cut, time_point)
            restored = load_latest(Path(name), DOMAIN, VIEWS, **history.options)
        assert restored is not None
        population = restored.population
        rest = [messages[end:] for messages, end in zip(partitions, restored.cut, strict=True)]
        play_point(population, rest, time_point, history.crowded, random)
        model.point(chain.from_iterable(partitions), time_point)
        for view in VIEWS:
            assert (population.counts(view.name) == model.counts(view)).all()


@pytest.mark.parametrize("bound", [1, 3])
@pytest.mark.slow
def test_a_long_history_of_many_users(bound: int) -> None:
    """Growth, recycled rows and index rebuilds, at a size hypothesis does not reach."""
    random = np.random.default_rng(7)
    options = {
        "record_ids": bound > 1,
        "records_per_user": bound,
        "keys_per_user": bound + 2 if bound > 1 else 1,
        "expire_after": 4,
        "tombstone_points": 2,
    }
    history = History(options, [], False)
    model, population = history.model(), history.population()
    offset = 0
    for time_point in range(20):
        partitions: list[list[Message]] = []
        for partition in range(PARTITIONS):
            count = int(random.integers(0, 1500))
            messages = [
                Message(
                    user=int(random.integers(0, 3000)) + 300 * time_point,
                    record=int(random.integers(0, 6)),
                    ts=time_point * 10 + int(random.integers(-30, 10)),
                    delete=bool(random.random() < 0.2),
                    codes=(int(random.integers(0, 3)), int(random.integers(0, 300))),
                    partition=partition,
                    offset=offset + place,
                )
                for place in range(count)
            ]
            partitions.append(messages)
        offset += 2000
        play_point(population, partitions, time_point, False, random)
        model.point(chain.from_iterable(partitions), time_point)
        for view in VIEWS:
            assert (population.counts(view.name) == model.counts(view)).all()
        assert population.users == len({user for user, _ in model.state})


def test_the_model_sees_a_wrong_order() -> None:
    """The comparison can fail: with stamps turned round the model holds something else."""
    model = Model(False, 1, 1, None, 1)
    new = Message(1, 0, 5, False, (0, 7), 0, 1)
    model.point([new, replace(new, ts=4, codes=(1, 8), offset=2)], 0)
    assert model.held() == [(1, (0, 7))]
