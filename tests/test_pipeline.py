"""The pipeline after a restart: what it goes on from is what the journal holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamdp import messages
from streamdp.config.load import parse
from streamdp.engine import Action, CountsMoved, PointClosed, Publish, SaveState, StoreRelease
from streamdp.pipeline import Pipeline
from streamdp.privacy import InsecureSeededSource, Ledger

CONFIG = """
[stream]
name = "clinic"
[domain.ward]
type = "categorical"
values = ["north", "south", "east", "west"]
[time]
length = "1s"
[privacy]
epsilon = "1"
horizon = 200
[[histogram]]
name = "wards"
attributes = ["ward"]
[input]
topics = ["visits"]
"""


class NoLetters:
    def write(self, batch: object, decoded: object) -> None:
        raise AssertionError("there are no records here")


class Stream:
    """A pipeline that can be stopped and started again from what it saved."""

    def __init__(self, last_point: int) -> None:
        self.ledger = Ledger.finite_horizon(1, 200)
        self.ledger.reserve("wards", 1, "auto")
        self.last_point = last_point
        self.states: dict[str, dict[str, Any]] = {}
        self.releases: dict[str, StoreRelease] = {}
        self.start()

    def start(self) -> None:
        self.pipeline = Pipeline(
            parse(CONFIG),
            journal_id="0123456789abcdef",
            digest_key=b"k" * 16,
            ledger=self.ledger,
            dead_letters=NoLetters(),
            last_point=self.last_point,
            states=self.states,
            last_releases=self.releases,
            source=InsecureSeededSource(3),
        )

    def close(self, missed: bool = False) -> dict[str, Any]:
        """One more point, with 40 people more in every ward; returns what is published of it."""
        self.last_point += 1
        self.pipeline.engine.handle(CountsMoved("wards", np.arange(4), np.full(4, 40)))
        at = 1_000 * self.last_point
        actions = self.pipeline.close(PointClosed(self.last_point, at - 1_000, at, missed))
        self.states |= {each.histogram: each.state for each in actions if isinstance(each, SaveState)}
        self.releases |= {each.histogram: each for each in actions if isinstance(each, StoreRelease)}
        return _message(actions)

    def run_to_a_forecast(self) -> str:
        """Returns the id that subscribers hold then."""
        while (header := self.close())["kind"] != "forecast":
            pass
        assert header["release_id"] == f"0123456789ab.wards.{self.last_point}"
        return str(header["release_id"])


def _message(actions: list[Action]) -> dict[str, Any]:
    found = [each for each in actions if isinstance(each, Publish) and each.topic == "clinic.releases"]
    return dict(messages.decode(found[0].value).header)


@pytest.mark.parametrize("begun_after", [0, 17])
def test_a_repeat_after_a_restart_names_the_forecast_that_stands(begun_after: int) -> None:
    """A histogram added at point 18, or a strategy begun anew by a write-off up to 17, counts its points from there."""
    stream = Stream(last_point=begun_after)
    stands = stream.run_to_a_forecast()
    for _ in range(2):
        stream.start()
        header = stream.close(missed=True)
        assert (header["kind"], header["release_id"]) == ("repeat", stands)


def test_a_histogram_left_out_for_a_while_goes_on_from_what_it_published() -> None:
    stream = Stream(last_point=0)
    stands = stream.run_to_a_forecast()
    stream.last_point += 5
    stream.start()
    assert stream.close(missed=True)["release_id"] == stands


def test_a_strategy_begun_by_a_write_off_survives_a_restart_before_its_first_release() -> None:
    stream = Stream(last_point=0)
    stream.close()
    before = stream.releases["wards"].release_id
    stream.states.clear()  # what a write-off does
    for _ in range(3):
        stream.start()
        assert stream.close(missed=True)["release_id"] == before
