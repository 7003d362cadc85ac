"""Users' levels of privacy, by digest: a public table in the form in which it can be joined with a population.

What is in the table does not depend on who is present, and neither does anything here: looking up a user's level is a
function of that user's own public entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamdp.population.index import Words

Levels = npt.NDArray[np.uint8]

STRICTEST = 0


@dataclass(frozen=True, repr=False)
class LevelTable:
    """A level for each of some users, sorted by digest; everybody else has the strictest, 0."""

    users: Words
    levels: Levels

    @classmethod
    def empty(cls) -> LevelTable:
        return cls(np.zeros((0, 2), np.uint64), np.zeros(0, np.uint8))

    @classmethod
    def of_entries(cls, users: Words, levels: npt.NDArray[np.integer]) -> LevelTable:
        """From entries in any order; of several entries of one user the smallest level counts."""
        order = np.lexsort((levels, users[:, 1], users[:, 0]))
        sorted_users = users[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (sorted_users[1:] != sorted_users[:-1]).any(axis=1)
        return cls(sorted_users[first], levels[order][first].astype(np.uint8))

    def __len__(self) -> int:
        return len(self.levels)

    def of(self, users: Words) -> Levels:
        """The level of each user."""
        places, found = self._find(users)
        levels = np.full(len(users), STRICTEST, np.uint8)
        levels[found] = self.levels[places[found]]
        return levels

    def sizes(self, levels: int) -> list[int]:
        """How many entries each level has: public, as the table is."""
        sizes: list[int] = np.bincount(self.levels, minlength=levels).tolist()
        return sizes

    def lowered_by(self, news: LevelTable, *, complete: bool) -> LevelTable:
        """The table after `news`: a user's level never rises. Who has no entry in `complete` news any more has the
        strictest level from now on, for an entry that is taken back takes its consent with it."""
        places, found = news._find(self.users)
        kept = self.levels.copy()
        kept[found] = np.minimum(kept[found], news.levels[places[found]])
        if complete:
            kept[~found] = STRICTEST
        fresh = ~self._find(news.users)[1]
        users = np.concatenate([self.users, news.users[fresh]])
        return LevelTable.of_entries(users, np.concatenate([kept, news.levels[fresh]]))

    def changed_since(self, before: LevelTable) -> LevelTable:
        """The entries that `before` did not have, or had otherwise."""
        places, found = before._find(self.users)
        changed = ~found
        changed[found] = before.levels[places[found]] != self.levels[found]
        return LevelTable(self.users[changed], self.levels[changed])

    def _find(self, users: Words) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Where each user is, and whether they are anywhere."""
        places = np.searchsorted(self.users[:, 0], users[:, 0])
        found = np.zeros(len(users), np.bool_)
        open_rows = np.arange(len(users))
        # Once round, unless two digests share their first 64 bits.
        while open_rows.size:
            open_rows = open_rows[places[open_rows] < len(self)]
            open_rows = open_rows[self.users[places[open_rows], 0] == users[open_rows, 0]]
            here = self.users[places[open_rows], 1] == users[open_rows, 1]
            found[open_rows[here]] = True
            open_rows = open_rows[~here]
            places[open_rows] += 1
        return places, found
