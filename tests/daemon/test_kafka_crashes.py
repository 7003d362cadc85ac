"""The daemon on a real broker, SIGKILLed at every named step and at random, and the broker with it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from kafka_stream import KafkaStream
from test_crashes import assert_prefix, kill_after, kill_at

from streamdp.daemon.steps import STEPS

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def stream_on(tmp_path) -> Iterator[Callable[..., KafkaStream]]:
    made: list[KafkaStream] = []

    def make(server: str, **settings: object) -> KafkaStream:
        made.append(KafkaStream(tmp_path, server=server, **settings))
        return made[-1]

    yield make
    for stream in made:
        stream.close()


@pytest.mark.parametrize("part", [0, 1])
def test_killed_at_every_named_step(broker, stream_on, part):
    stream = stream_on(broker.plain)
    stream.feed(200)
    before: list[bytes] = []
    for step in STEPS[part::2]:
        kill_at(stream, step)
        after = stream.outputs()
        assert_prefix(before, after)
        before = after
    stream.feed(100)
    stream.run_until(points=3)
    assert_prefix(before, stream.outputs())
    stream.check()


def campaign(stream: KafkaStream, kills: int, seed: int) -> None:
    randomness = random.Random(seed)
    stream.feed(200)
    before: list[bytes] = []
    for number in range(kills):
        if number % 3 == 2:
            kill_at(stream, f"{randomness.choice(STEPS[6:15])}:{randomness.randrange(1, 4)}")
        else:
            kill_after(stream, randomness.uniform(0.5, 4.0))
        after = stream.outputs()
        assert_prefix(before, after)
        before = after
    stream.run_until(points=3)
    assert_prefix(before, stream.outputs())
    stream.check()


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random(broker, stream_on, seed):
    campaign(stream_on(broker.plain), kills=10, seed=seed)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(10, 16))
def test_killed_three_hundred_times(broker, stream_on, seed):
    campaign(stream_on(broker.plain), kills=50, seed=seed)
