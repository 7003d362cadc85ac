"""Release at fixed intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from streamdp.arrays import Counts
from streamdp.strategies.base import Common, StreamStrategy, Verdict, at_least


class Fixed(StreamStrategy):
    """Release the first point and then whenever `interval` points have passed since the last release.

    Guarantee: releases lie at least `interval` points apart, so `N` points hold at most `ceil(N / interval)` of them
    and any window at most `ceil(w / interval)`; each costs `epsilon` over that number. Sensitivity `m` each. When
    points are skipped the schedule moves on with the next release, which keeps that distance. Seed 001, section 3.4.
    """

    kind = "fixed"

    def __init__(self, *, interval: int, **common: Unpack[Common]) -> None:
        self.interval = at_least(1, "interval", interval)
        super().__init__({"interval": self.interval}, **common)
        self.share = self.epsilon / -(-self.span // self.interval)
        self._last_release: int | None = None

    def _decide(self, counts: Counts) -> Verdict:
        if self._last_release is not None and self.time_point < self._last_release + self.interval:
            return Verdict("waiting")
        self._last_release = self.time_point
        return Verdict("scheduled", self.share)

    def _progress(self) -> dict[str, Any]:
        return {"last_release": self._last_release}

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._last_release = state["last_release"]
