"""`[privacy.preferences]`: every user with their own epsilon."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from streamdp.fields import Name, PositiveExact, Settings, Topic, exact_text
from streamdp.privacy.levels import MAX_LEVELS, Level


class Preferences(Settings):
    """Every user with their own epsilon (docs/personalized.md), from a **public** table that does not depend on who is
    present. A user without an entry has the strictest level."""

    classes: Annotated[dict[Name, PositiveExact], Field(max_length=MAX_LEVELS)] = Field(default={})
    """Classes a user can choose, and what each promises: `strict = "0.05"`, `open = "1"`. At most `privacy.epsilon`."""
    levels: Annotated[list[PositiveExact], Field(max_length=MAX_LEVELS)] = Field(default=[])
    """A grid for preferences given as numbers: each is rounded down to the nearest of these and the classes."""
    path: str | None = Field(default=None, min_length=1)
    """The table as a file, relative to this one: CSV with the columns `user` and `preference` (a class or a number), or
    JSON lines with the same fields. Read at the start, and again when it has changed. Either this or `topic`."""
    topic: Topic | None = None
    """The table as a compacted topic beside the input's: the key is the user, the value a class or a number."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Preferences:
        if (self.path is None) == (self.topic is None):
            raise ValueError("give exactly one of path (a file) and topic (a compacted topic)")
        if not self.classes and not self.levels:
            raise ValueError("give classes, or levels that numbers are rounded down to")
        if len(set(self.classes.values())) < len(self.classes):
            raise ValueError("two classes promise the same; give each an epsilon of its own")
        if len({*self.classes.values(), *self.levels}) > MAX_LEVELS:
            raise ValueError(f"give at most {MAX_LEVELS} classes and levels in all")
        return self

    def build_levels(self) -> tuple[Level, ...]:
        """Strictest first. A level has the name of its class, or that of its epsilon."""
        names = {epsilon: exact_text(epsilon) for epsilon in self.levels}
        names |= {epsilon: name for name, epsilon in self.classes.items()}
        return tuple(Level(names[epsilon], epsilon) for epsilon in sorted(names))
