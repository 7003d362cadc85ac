"""The terms of a ledger: what is promised, to how many time points, for how many records a user."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from streamdp.privacy.exact import as_fraction, to_text
from streamdp.privacy.levels import Level, checked_levels, levels_from_state, levels_state

Kind = Literal["finite_horizon", "w_event"]


def positive(epsilon: Any) -> Fraction:
    """`epsilon` as an exact positive rational: nothing computed from the data is free, and nothing is given back."""
    value = as_fraction(epsilon)
    if value <= 0:
        raise ValueError("an epsilon is greater than zero")
    return value


@dataclass(frozen=True, slots=True)
class Terms:
    """What a ledger promises; fixed for its life.

    `points` is the horizon `N` or the window `w`. A user holds at most `records_per_user` records in a snapshot. `user`
    says what names a user, "key" or "field:NAME": were it to change, one person would hold records under two names, and
    what was spent was spent on somebody else. `levels` are those that users' preferences are kept at, strictest first;
    none when everybody is promised the total.
    """

    kind: Kind
    epsilon_total: Fraction
    points: int
    records_per_user: int = 1
    user: str = "key"
    levels: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("finite_horizon", "w_event"):
            raise ValueError('the kind of guarantee is "finite_horizon" or "w_event"')
        object.__setattr__(self, "epsilon_total", positive(self.epsilon_total))
        for name, number in (("horizon or window", self.points), ("records per user", self.records_per_user)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"the {name} is an integer from 1 on")
        object.__setattr__(self, "levels", checked_levels(self.levels, self.epsilon_total))

    @classmethod
    def finite_horizon(
        cls, total: Any, horizon: int, records_per_user: int = 1, user: str = "key", levels: tuple[Level, ...] = ()
    ) -> Terms:
        return cls("finite_horizon", as_fraction(total), horizon, records_per_user, user, levels)

    @classmethod
    def w_event(
        cls, total: Any, window: int, records_per_user: int = 1, user: str = "key", levels: tuple[Level, ...] = ()
    ) -> Terms:
        return cls("w_event", as_fraction(total), window, records_per_user, user, levels)

    @property
    def is_finite(self) -> bool:
        return self.kind == "finite_horizon"

    def state(self) -> dict[str, Any]:
        state = {
            "kind": self.kind,
            "epsilon_total": to_text(self.epsilon_total),
            "points": self.points,
            "records_per_user": self.records_per_user,
            "user": self.user,
        }
        return state | {"levels": levels_state(self.levels)} if self.levels else state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Terms:
        epsilon = as_fraction(state["epsilon_total"])
        levels = levels_from_state(state.get("levels", ()))
        return cls(state["kind"], epsilon, state["points"], state["records_per_user"], state["user"], levels)
