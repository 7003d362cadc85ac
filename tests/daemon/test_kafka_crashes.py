"""The daemon on a real broker, SIGKILLed at every named step and at random, and the broker with it."""

from __future__ import annotations

import pytest
from kafka_stream import KafkaStream
from test_crashes import assert_prefix, campaign, kill_at

from streamdp.daemon.steps import STEPS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.parametrize("part", [0, 1])
def test_killed_at_every_named_step(broker, tmp_path, part):
    stream = KafkaStream(tmp_path, server=broker.plain)
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


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random(broker, tmp_path, seed):
    campaign(KafkaStream(tmp_path, server=broker.plain), kills=10, seed=seed, longest=2.0)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(10, 16))
def test_killed_three_hundred_times(broker, tmp_path, seed):
    campaign(KafkaStream(tmp_path, server=broker.plain), kills=50, seed=seed, longest=2.0)
