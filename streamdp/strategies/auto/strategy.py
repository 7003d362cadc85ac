"""The default strategy: no parameter but epsilon and the horizon or window."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, sqrt
from typing import Any, Unpack

import numpy as np

from streamdp.arrays import Counts, Floats
from streamdp.histograms import Noisy
from streamdp.histograms.bands import bands_of
from streamdp.histograms.variance import Variance, laplace_variance
from streamdp.privacy.exact import as_fraction, decimal_text, to_text
from streamdp.strategies.auto.estimate import Estimate
from streamdp.strategies.auto.outlook import Means, intervals, longest_gap, next_release
from streamdp.strategies.auto.scales import Scales, cell_share, range_noise
from streamdp.strategies.auto.watch import SHARE, Watch
from streamdp.strategies.base import Common, Cost, StreamStrategy, Verdict
from streamdp.strategies.description import Conditions, NoParameters, Outline

# Charges are multiples of this fraction of epsilon, so that exact sums stay short.
FINEST = 2**20
_USUAL = 1.5
"""A release that must tell something takes this part of epsilon, over the square root of the horizon or of the window:
enough of it, and little enough that hardly anything is lost by it."""
_SMALLER, _SMALLER_WINDOW, _WIDER = 0.35, 0.3, 0.9
"""The powers by which the first one takes more, where epsilon is smaller than 1 (with a horizon, in a window), or the
histogram wide."""
_READABLE = 8.0
"""A histogram is wide when at epsilon 1 a random range has more noise than so many users."""
_SECOND = 4
"""The second, soon after it, takes at least this part of the usual."""
_CRIES, _BEFORE = 8, Fraction(1, 10)
"""So many cries are taken to have come in such a part of a span before the first point: that others will follow must be
disproved."""
_REST = Fraction(3, 10)
"""With a horizon, scheduled releases need shares besides: this part of one for each, at the present interval."""
_DEAR = 3
"""A watch is worth while that costs no more than this part of what answers its cry."""
_ANSWERS = 3
"""In a window, what answers a cry leaves as much for as many of them in all."""
_SHORTEST_SPAN = 8
_USEFUL = 8
"""After a cry comes a release of at least this part of the usual one, or there is no use in asking."""
_POOR = 16
"""A release that gets less than this part of what it was meant to get would be noise; it waits until there is more."""
_FEWEST_FINITE = 4
"""So many releases lie in a horizon even when nothing moves: something may, later."""
_FEWEST_WINDOW = 2
_MOST, _MOST_WINDOW = Fraction(1, 2), Fraction(7, 10)
"""The most of what a horizon, or a window, has left that one release takes: something may happen right after it."""
_MOST_LATER = Fraction(1, 3)
"""The same of a horizon, after the first: the longer it was quiet, the less is left to answer what comes."""
_SMALL = Fraction(1, 3)
"""In a window, or this part of epsilon: where releases are so small, older ones soon leave the window."""


class Auto(StreamStrategy):
    """Releases when a fresh release is worth more than waiting, and publishes what all releases together tell.

    Guarantee: that of the Laplace mechanism in every release and of the sparse vector in every watch, composed
    adaptively. When a release is scheduled and what it may spend is a function of the time and of what was published,
    never of the data; between two of them a `Watch` may look at the data and cry, which brings the next one forward: a
    watch costs a 64th of `epsilon` or less, as the first release decided, once, however often it is asked. Given
    what was published before, a release of `e` costs `e` (`Scales`, sensitivity `m`). Along every history, in exact
    rationals, the releases and watches of a finite horizon spend at most `epsilon` together.

    Under w-event a watch costs every window that meets one of its questions. Take any window, and in it the last point
    at which a release was made or a watch begun. What that point was allowed to spend is what `epsilon` leaves after
    the releases of the `w` points up to it and after all watches that are on or cried in them; these are all the
    releases of the window, and all watches that it meets. So no window costs more than `epsilon`, and one in which
    neither happens costs at most the watch that is on.

    The product of the likelihood ratios is then at most `exp(epsilon)`, whichever history it was. What is published, at
    releases and between them, is a function of noisy releases, of cries and of the time, so it costs nothing more.

    What it does: it learns from releases how fast the data moves (`Drift`) and in what manner (`Motion`), keeps
    the best estimate of the data for every scale (`Estimate`), publishes forecasts between releases when that
    has moved, and looks for the interval between releases under which
    the error to expect is the least (`next_release`). Budget accrues with the time since the last release and is spent
    whole when one is due; data that stands still may get more than accrued. A silence is at most three times as long as
    the one before. Where a watch could see anything, one looks for what nobody foresaw; what answers its cry leaves as
    much for the cries that are to be expected after it.
    """

    kind = "auto"
    summary = "when a fresh release is worth more than waiting"
    methods = ("laplace",)
    combines = True
    state_version = 6

    def __init__(self, parameters: NoParameters, **common: Unpack[Common]) -> None:
        super().__init__(parameters, **common)
        self._bands = bands_of(self.shape)
        self._method = self._scales = scales = Scales(self._bands)
        self._estimate = Estimate(self._bands, scales, laplace_variance(self.sensitivity / self.epsilon), self.span)
        self._spent: list[tuple[int, Fraction]] = []
        self._last_release = 0
        self._gap = 0
        self._due = 1
        self._usual = usual_share(self.epsilon, self.span, self.window is not None)
        self._wanted = first_share(self.epsilon, self.span, self.window is not None, self.shape)
        self._interval = 1
        self._watch = Watch(self._bands, self.epsilon * SHARE, self.sensitivity, self.span)
        self._cried = False
        self._meant = 0
        """How long the silence was meant to be that a cry has just ended."""

    @classmethod
    def outline(cls, parameters: Any, conditions: Conditions) -> Outline:
        epsilon, span, returns = conditions.epsilon, conditions.span, conditions.window is not None
        largest = largest_share(epsilon, span, returns)
        smallest = busy_share(epsilon, span, returns, conditions.shape)
        first = first_share(epsilon, span, returns, conditions.shape)
        longest = longest_gap_planned(span, returns)
        return Outline(
            span,
            largest,
            smallest,
            cell_share=cell_share(conditions.shape),
            between=(
                f"with epsilon between about {float(smallest):.3g} each when the counts never rest and"
                f" {float(largest):.3g} when they do"
            ),
            notes=(
                f"The first point is released with epsilon {float(first):.3g}, the second release follows within three"
                f" points, and no gap is planned to be longer than {longest} {'point' if longest == 1 else 'points'}.",
                "It learns from its own releases how fast the counts move, and chooses the interval between releases,"
                " and what each may spend, for the least error; that costs nothing. Where there are enough records to"
                " see it through the noise, a change detector looks between releases for jumps, and costs epsilon"
                f" {decimal_text(epsilon * SHARE)} at most, once, however long it looks. What is published is the best"
                " estimate from all releases so far, with trends and daily or weekly rhythms, never negative, and with"
                " the error to expect of any range; so the noise below is the most, and usually much less is left of"
                " it. Between releases it publishes what they let expect, when that has moved: a forecast, which costs"
                " nothing.",
            ),
        )

    def _decide(self, counts: Counts) -> Verdict:
        self._cried, self._meant = False, 0
        verdict = self._scheduled()
        if not verdict.epsilon:
            self._look_ahead()
        if verdict.reason == "waiting" and self.last is not None:
            return self._look(counts, self.last)
        return verdict

    def _scheduled(self) -> Verdict:
        """What time and what was published say of this point."""
        if self.time_point == self.horizon:
            left = self._left(self.time_point)
            return Verdict("final", left) if left else Verdict("cut_off")
        if self.last is not None and self.time_point < self._due:
            return Verdict("waiting")
        epsilon = min(self._affordable(), self._spendable())
        if not epsilon or epsilon * _POOR < self._wanted:
            return Verdict("cut_off")
        return Verdict("first" if self.last is None else "scheduled", epsilon)

    def _look_ahead(self) -> None:
        """Publishes a forecast for this point, if that is not what subscribers hold."""
        if self.released is None:
            return
        shown = self._last_release if self.forecast_at is None else self.forecast_at
        age = self._age
        if self._estimate.has_moved(shown - self._last_release, age):
            self._publish_forecast(self._estimate.forecast(self.released, age), self.time_point)

    @property
    def _age(self) -> int:
        """Points since the last release."""
        return self.time_point - self._last_release

    def _look(self, counts: Counts, published: Counts) -> Verdict:
        """A point before the next release is due: watched, or passed without a look."""
        if not self._can_watch():
            return Verdict("waiting")
        costs: tuple[Cost, ...] = ()
        if not self._watch.is_on:
            self._watch.begin(self._source)
            costs = (Cost(self._watch.epsilon, "decisions"),)
            if self.window is None:
                self._spent.append((self.time_point, self._watch.epsilon))
        answer, threshold = self._answer(), self._watch.threshold
        if not self._watch.cries(counts, published, self._slack(answer), self.time_point):
            return Verdict("below", threshold=threshold, costs=costs)
        self._wanted, self._cried, self._meant = answer, True, self._due - self._last_release
        return Verdict("above", min(answer, self._spendable()), threshold, costs)

    def _can_watch(self) -> bool:
        """Whether a watch is on, or may begin, and a release could follow its cry: all of it public."""
        if not self._watch.sees:
            return False
        price = Fraction(0) if self._watch.is_on else self._watch.epsilon
        is_dear = price * _DEAR > self._answer()
        return not is_dear and self._left(self.time_point) - price >= self._usual / _USEFUL

    def _cries(self) -> int:
        """How many there were, of a span."""
        return self._watch.ended_since(self.time_point - self.span)

    def _jumps(self) -> int:
        """How many of them had a reason, as far as anybody can tell."""
        return self._watch.confirmed_since(self.time_point - self.span)

    def _answer(self) -> Fraction:
        """What would answer a cry now: its share of what is left, if others follow as often as they came so far."""
        passed = min(self.time_point, self.span) + _BEFORE * self.span
        ahead = self.span if self.horizon is None else self.horizon - self.time_point
        shares = 1 + (self._jumps() + _CRIES) * ahead / passed
        if self.window is None:
            shares += _REST * ahead / self._interval
        left = self._left(self.time_point)
        answer = left / shares if self.window is None else min(self._for_releases / shares, left / _ANSWERS)
        return max(self._rounded(answer), self.epsilon / FINEST)

    def _slack(self, answer: Fraction) -> Floats:
        """What is nothing to cry for: the error of what is published, or of the answer where that is the larger."""
        fresh = self._estimate.fresh(self.sensitivity / (answer * (1 - self._scales.share)))
        return self._watch.slack(np.maximum(self._estimate.held(), fresh))

    def _absorb(self, noisy: Noisy, epsilon: Fraction) -> Noisy:
        assert noisy.scale is not None  # cells have Laplace noise
        if self.released is None:
            estimate = self._estimate.begin(noisy.counts, noisy.scale)
            if self.span >= _SHORTEST_SPAN:
                self._watch.fit(float(noisy.counts.sum()))
        else:
            self._gap = self._age
            jumped = self._cried and self._is_confirmed(noisy.counts, noisy.scale)
            # What a window spends comes back, so it may follow a jump as if it were a trend; a horizon saves.
            at_once = jumped and self.window is None
            estimate = self._estimate.correct(
                self.released, noisy.counts, noisy.scale, self._gap, cried=jumped, at_once=at_once
            )
        self._last_release = self.time_point
        self._spent.append((self.time_point, epsilon))
        self._spent = [(point, spent) for point, spent in self._spent if self._counts_at(point, self.time_point)]
        self._plan()
        until = max(self._due - self.time_point, 1)
        return Noisy(self._estimate.publish(estimate, until), noisy.scale)

    def _is_confirmed(self, noisy: Counts, scale: Fraction) -> bool:
        """Whether the release after a cry sees what it was for; a watch may cry for nothing."""
        assert self.last is not None  # or there was nothing to watch
        variances = self._estimate.held() + self._scales.noise(scale)
        return self._watch.confirm(noisy, self.last, self._slack(self._wanted), variances, self.time_point)

    def _variance(self, scale: Fraction | None) -> Variance | None:
        return None if self.post else self._estimate.variance(self._age)

    def _counts_at(self, point: int, time_point: int) -> bool:
        """Whether what was spent at `point` counts in the sum that ends with `time_point`."""
        return self.window is None or point > time_point - self.window

    def _left(self, time_point: int) -> Fraction:
        spent = (epsilon for point, epsilon in self._spent if self._counts_at(point, time_point))
        return self._for_releases - sum(spent, Fraction(0))

    @property
    def _for_releases(self) -> Fraction:
        """All of epsilon, or in a window what the watches that it meets leave; a horizon pays for each as it begins."""
        met = 0 if self.window is None else self._cries() + self._watch.is_on
        return self.epsilon - met * self._watch.epsilon

    def _affordable(self) -> Fraction:
        """What was wanted; in a window, no more than leaves as much for every release until older ones are forgotten.

        Without that bound a burst of releases right after a large one would use up the window and then stop.
        """
        epsilon = self._wanted
        if self.window is None or self.last is None:
            return epsilon
        held = [(point, spent) for point, spent in self._spent if self._counts_at(point, self.time_point)]
        spent_then = sum((spent for _, spent in held), Fraction(0))
        interval = max(self._interval, self._age)
        for point, spent in held:
            releases = -(-(point + self.window - self.time_point) // interval)
            epsilon = min(epsilon, (self._for_releases - spent_then) / releases)
            spent_then -= spent
        return self._rounded(epsilon)

    def _spendable(self) -> Fraction:
        """The most that a release may take now."""
        left = self._left(self.time_point)
        if self.window in (None, 1) or self.last is None:
            return left
        return min(left, self._rounded(max(_MOST_WINDOW * left, _SMALL * self.epsilon)))

    def _rounded(self, epsilon: Fraction) -> Fraction:
        return epsilon * FINEST / self.epsilon // 1 * self.epsilon / FINEST

    def _plan(self) -> None:
        """When the next release is due, and what it may cost."""
        if self.time_point == self.horizon or (self.window is None and not self._left(self.time_point)):
            return
        means = self._finite_means() if self.window is None else self._window_means(self.window)
        answer = self._answer()
        watch = self._watch if self._can_watch() else None
        longest = longest_gap(self._gap, self._meant)
        following = next_release(self._bands, self._estimate, longest, means, watch, self._slack(answer))
        self._due = self.time_point + following.gap
        self._interval = following.interval
        wanted = Fraction(round(following.epsilon / float(self.epsilon) * FINEST), FINEST) * self.epsilon
        if not self._gap:
            # One release tells nothing of drift: the second follows soon, and must be able to see it.
            wanted = max(wanted, self._usual / _SECOND)
        if self.window is None and self._jumps():
            # Where things happen, quiet is no reason to spend what the next one needs.
            wanted = min(wanted, answer)
        self._wanted = max(wanted, self.epsilon / FINEST)

    def _finite_means(self) -> Means:
        assert self.horizon is not None
        ahead, left = float(self.horizon - self.time_point), float(self._left(self.time_point))

        def shares(gap: Floats, interval: Floats, boost: Floats) -> tuple[Floats, Floats]:
            accrued = left * gap / ahead
            epsilon = np.minimum(
                accrued * boost, np.where(gap >= ahead, left, np.maximum(float(_MOST_LATER) * left, accrued))
            )
            rest = np.maximum(ahead - gap, 1)
            return epsilon, np.where(ahead > gap, (left - epsilon) * np.minimum(interval / rest, 1), 0)

        def granted(when: Floats, interval: Floats, before: list[Floats], wanted: Floats) -> Floats:
            return wanted

        return Means(
            ahead,
            intervals(self.horizon, _FEWEST_FINITE),
            float(self.epsilon),
            float(self.sensitivity),
            shares,
            granted,
        )

    def _window_means(self, window: int) -> Means:
        epsilon = float(self._for_releases)
        part = 1.0 if window == 1 else float(_MOST_WINDOW)
        points = np.array([point for point, _ in self._spent])
        upto = np.cumsum([0.0, *(float(spent) for _, spent in self._spent)])

        def shares(gap: Floats, interval: Floats, boost: Floats) -> tuple[Floats, Floats]:
            wanted = np.minimum(epsilon * boost / np.ceil(window / gap), part * epsilon)
            return wanted, np.minimum(epsilon / np.ceil(window / interval), part * epsilon)

        def granted(when: Floats, interval: Floats, before: list[Floats], wanted: Floats) -> Floats:
            older = upto[-1] - upto[np.searchsorted(points, self.time_point + when - window, side="right")]
            own = np.zeros_like(wanted)
            for number, spent in enumerate(before):
                own += spent * ((len(before) - number) * interval < window)
            left = np.maximum(epsilon - older - own, 0)
            affordable: Floats = np.minimum(left, np.maximum(part * left, float(_SMALL) * epsilon))
            return np.minimum(affordable, wanted)

        return Means(2.0 * window, intervals(window, _FEWEST_WINDOW), epsilon, float(self.sensitivity), shares, granted)

    def _progress(self) -> dict[str, Any]:
        return {
            "spent": [[point, to_text(epsilon)] for point, epsilon in self._spent],
            "last_release": self._last_release,
            "forecast_at": self.forecast_at,
            "gap": self._gap,
            "due": self._due,
            "wanted": to_text(self._wanted),
            "interval": self._interval,
            "estimate": self._estimate.state(),
            "watch": self._watch.state(),
        }

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._spent = [(point, as_fraction(epsilon)) for point, epsilon in state["spent"]]
        self._last_release = state["last_release"]
        self._gap = state["gap"]
        self._due = state["due"]
        self._wanted = as_fraction(state["wanted"])
        self._interval = state["interval"]
        self._estimate.resume(state["estimate"])
        if state["forecast_at"] is not None:
            assert self.released is not None  # a forecast is made from that
            age = state["forecast_at"] - self._last_release
            self._publish_forecast(self._estimate.forecast(self.released, age), state["forecast_at"])
        self._watch.resume(state["watch"], self._source)


def largest_share(epsilon: Fraction, span: int, returns: bool) -> Fraction:
    """The most that one release takes while others are to come: more where it `returns`, as in a window."""
    if span == 1:
        return epsilon
    return epsilon * (_MOST_WINDOW if returns else _MOST)


def longest_gap_planned(span: int, returns: bool) -> int:
    """The longest that is planned, in points."""
    return -(-span // (_FEWEST_WINDOW if returns else _FEWEST_FINITE))


def busy_share(epsilon: Fraction, span: int, returns: bool, shape: tuple[int, ...]) -> Fraction:
    """What a release costs when every point is released: what the first two leave, shared equally."""
    first = first_share(epsilon, span, returns, shape)
    left = epsilon - first - usual_share(epsilon, span, returns) / _SECOND
    return left / (span - 2) if left > 0 and span > 2 else first


def first_share(epsilon: Fraction, span: int, returns: bool, shape: tuple[int, ...]) -> Fraction:
    """What the first release costs: more than usual for a small epsilon or a wide histogram.

    The more noise, the fewer releases pay; and if there is to be but one good one, it had better be the first.
    """
    smaller = _SMALLER_WINDOW if returns else _SMALLER
    more = max(1 / float(epsilon), 1.0) ** smaller * max(range_noise(shape, Fraction(1)) / _READABLE, 1.0) ** _WIDER
    return _part(epsilon, span, returns, _USUAL * more)


def usual_share(epsilon: Fraction, span: int, returns: bool) -> Fraction:
    """What a release costs that must tell something."""
    return _part(epsilon, span, returns, _USUAL)


def _part(epsilon: Fraction, span: int, returns: bool, part: float) -> Fraction:
    share = epsilon * Fraction(ceil(part / sqrt(span) * FINEST), FINEST)
    return min(share, largest_share(epsilon, span, returns))
