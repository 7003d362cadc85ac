"""The feedback controller that moves the public threshold of DSAT (Li et al. 2015, section 4.2)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

from streamdp.errors import ConfigurationError
from streamdp.privacy.exact import as_fraction
from streamdp.strategies.base import Rational, at_least

Variant = Literal["signed", "published"]
VARIANTS: tuple[Variant, ...] = ("signed", "published")


class Controller:
    """A PID controller from public inputs (time, and which points were releases) to the next public threshold.

    Guarantee: it never sees data, so it costs nothing; the noise of the sparse vector enters after it. With deviation
    `x = rate - target` and output `u = kp * e + ki * (sum of the last integral_window errors) + kd * slope since the
    last release`, the threshold moves by `scale * u` and is clamped to `[low, high]`.

    - `signed`: `e = x / set_point`, zero inside the dead band, cut at -1 and 1, so the threshold rises while releases
      come too often, falls while they come too seldom and rests on target. An error that pushes against a bound is
      not summed up (anti-windup). `set_point` defaults to the target rate and `scale` to `threshold * target`: a full
      error during one target interval moves the threshold by its starting value.
    - `published`: equations 1 to 4 as printed: `e = | |x| - set_point | / set_point`, down for `x <= 0`, else up. It is
      not zero on target, so the threshold swings between its ends. `set_point` defaults to 0.05 and `scale` to a
      quarter of the range, as 0.5 is of the printed [0, 2].

    The arithmetic is in floats, which is fine for a public number, and is the same before and after a restart.
    """

    def __init__(
        self,
        variant: Variant,
        *,
        threshold: Rational,
        target: Rational,
        kp: float = 1.0,
        ki: float = 0.0,
        kd: float = 0.0,
        integral_window: int = 10,
        set_point: float | None = None,
        scale: float | None = None,
        low: float = 0.0,
        high: float | None = None,
        dead_band: float = 0.1,
    ) -> None:
        if variant not in VARIANTS:
            raise ConfigurationError(f"controller must be one of {', '.join(VARIANTS)}")
        signed = variant == "signed"
        self.variant = variant
        self.target = _finite("target", target)
        start = _finite("threshold", threshold)
        self.low = _finite("threshold_low", low)
        self.high = _finite("threshold_high", 10 * start if high is None else high)
        self.kp, self.ki, self.kd = _finite("kp", kp), _finite("ki", ki), _finite("kd", kd)
        self.set_point = _finite("set_point", (self.target if signed else 0.05) if set_point is None else set_point)
        default_scale = start * self.target if signed else (self.high - self.low) / 4
        self.scale = _finite("scale", default_scale if scale is None else scale)
        self.dead_band = _finite("dead_band", dead_band)
        if self.low > self.high:
            raise ConfigurationError("threshold_low must not be above threshold_high")
        if self.set_point <= 0:
            raise ConfigurationError("set_point must be positive")
        if min(self.scale, self.dead_band, self.kp, self.ki, self.kd) < 0:
            raise ConfigurationError("scale, dead_band, kp, ki and kd must not be negative")
        self.threshold = min(max(start, self.low), self.high)
        self._errors: deque[float] = deque(maxlen=at_least(1, "integral_window", integral_window))
        self._error: float | None = None
        self._released: tuple[int, float] | None = None

    def advance(self, time_point: int, rate: float) -> int:
        """Move to this point's threshold, given the rate of releases before it; rounded up to a whole count."""
        deviation = rate - self.target
        error = self._signed_error(deviation) if self.variant == "signed" else self._published_error(deviation)
        self._error = error
        self._errors.append(0.0 if self._winds_up(error) else error)
        slope = 0.0
        if self._released is not None and self._released[0] < time_point:
            slope = (error - self._released[1]) / (time_point - self._released[0])
        output = self.scale * (self.kp * error + self.ki * math.fsum(self._errors) + self.kd * slope)
        if self.variant == "published" and deviation <= 0:
            output = -output
        self.threshold = min(max(self.threshold + output, self.low), self.high)
        return math.ceil(self.threshold)

    def released(self, time_point: int) -> None:
        """Note that this point was a release; the slope is measured from the error it had, when it had one."""
        self._released = None if self._error is None else (time_point, self._error)

    def describe(self) -> dict[str, Any]:
        """The parameters in force, for a configuration's fingerprint."""
        names = ("variant", "target", "low", "high", "kp", "ki", "kd", "set_point", "scale", "dead_band")
        return {name: getattr(self, name) for name in names} | {"integral_window": self._errors.maxlen}

    def state(self) -> dict[str, Any]:
        """As JSON, whose floats are read back exactly."""
        return {
            "threshold": self.threshold,
            "errors": list(self._errors),
            "error": self._error,
            "released": self._released,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on where `state()` was taken."""
        self.threshold = state["threshold"]
        self._errors.clear()
        self._errors.extend(state["errors"])
        self._error = state["error"]
        self._released = None if state["released"] is None else (state["released"][0], state["released"][1])

    def _signed_error(self, deviation: float) -> float:
        error = deviation / self.set_point
        return 0.0 if abs(error) <= self.dead_band else min(max(error, -1.0), 1.0)

    def _published_error(self, deviation: float) -> float:
        return abs(abs(deviation) - self.set_point) / self.set_point

    def _winds_up(self, error: float) -> bool:
        if self.variant == "published":
            return False
        return (self.threshold >= self.high and error > 0) or (self.threshold <= self.low and error < 0)


def _finite(name: str, value: Rational) -> float:
    try:
        return float(as_fraction(value))
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"{name} must be a finite number") from None
