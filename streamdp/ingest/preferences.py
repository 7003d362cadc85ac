"""Reading a public table of preferences: who the user is, and which level their text stands for.

A preference is the name of a class, or a number, which is rounded down to the nearest level. One above every level, and
so one above the total, has the highest. One that is empty counts as no entry: the strictest. What no level can honour,
zero or below and anything less than the strictest, is a fault, and so is a class that does not exist.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from streamdp.errors import ConfigurationError
from streamdp.ingest.digest import Digester
from streamdp.ingest.keys import users_of_keys
from streamdp.ingest.strict_json import DEEPEST, depth
from streamdp.population.levels import STRICTEST, LevelTable
from streamdp.privacy.exact import as_fraction, decimal_text
from streamdp.privacy.levels import Level
from streamdp.transport.batch import Blobs

_MAX_FAULTS = 10
_LONGEST_PREFERENCE = 100


class UnknownPreference(ValueError):
    """A preference that no level can honour."""


class PreferenceReader:
    """Texts to levels, and users to digests as the population keeps them. `user` is `[input] user`."""

    def __init__(self, levels: Sequence[Level], classes: Mapping[str, Fraction], digest_key: bytes, user: str) -> None:
        self._epsilons = [level.epsilon for level in levels]
        self._strictest = levels[0]
        self._classes = {name: self._epsilons.index(epsilon) for name, epsilon in classes.items()}
        self._digest = Digester(digest_key)
        self._by_key = user == "key"

    def level_of(self, text: str | None) -> int:
        """The place of the level, strictest first."""
        text = (text or "").strip()
        if not text:
            return STRICTEST
        if text in self._classes:
            return self._classes[text]
        try:
            number = as_fraction(text if len(text) <= _LONGEST_PREFERENCE else "")
        except ValueError:
            known = ", ".join(self._classes) or "none"
            raise UnknownPreference(f"neither a number nor a class; there are: {known}") from None
        if number <= 0:
            raise UnknownPreference("zero or below: who wants nothing computed of them must not be in the input")
        if number < self._epsilons[STRICTEST]:
            raise UnknownPreference(
                f"below the strictest level, {self._strictest.name}: this stream spends up to "
                f"{decimal_text(self._strictest.epsilon)} on everybody"
            )
        return bisect_right(self._epsilons, number) - 1

    def read_file(self, path: Path) -> LevelTable:
        """The table of a file; ConfigurationError that names the lines at fault when there are any."""
        try:
            users, preferences = _json_lines(path) if path.suffix in (".jsonl", ".ndjson") else _csv(path)
        except OSError as error:
            raise ConfigurationError(f"cannot read the preferences in {path}: {error.strerror or error}") from None
        levels, faults = self._levels(preferences)
        if faults:
            first_row = 1 if path.suffix in (".jsonl", ".ndjson") else 2
            lines = [f"  line {row + first_row}: {fault}" for row, fault in list(faults.items())[:_MAX_FAULTS]]
            more = [f"  and {len(faults) - _MAX_FAULTS} more"] if len(faults) > _MAX_FAULTS else []
            raise ConfigurationError("\n".join([f"the preferences in {path} have faults:", *lines, *more]))
        return self._table(Blobs.from_arrow(users), levels)

    def read_messages(self, keys: Blobs, values: Blobs) -> tuple[LevelTable, int]:
        """The table of a topic's messages, and how many of them no level can honour.

        Those have the strictest level: anybody who may write to the topic may write such a message at any time.
        """
        levels, faults = self._levels(pa.array([_message_text(value) for value in values], pa.string()))
        return self._table(keys, levels), len(faults)

    def _levels(self, preferences: pa.StringArray) -> tuple[npt.NDArray[np.uint8], dict[int, str]]:
        """The level of every row, and what is wrong with some rows, whose level is the strictest."""
        encoded = pc.dictionary_encode(preferences.fill_null(""))
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        levels, wrong = [], dict[int, str]()
        for place, text in enumerate(encoded.dictionary.to_pylist()):
            try:
                levels.append(self.level_of(text))
            except UnknownPreference as error:
                levels.append(STRICTEST)
                wrong[place] = str(error)
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        faults = {}
        if wrong:
            rows = np.flatnonzero(np.isin(codes, list(wrong)))
            faults = {int(row): wrong[int(codes[row])] for row in rows}
        return np.array(levels, np.uint8)[codes], faults

    def _table(self, users: Blobs, levels: npt.NDArray[np.uint8]) -> LevelTable:
        named = users_of_keys(users) if self._by_key else users
        somebody = named.lengths() > 0
        return LevelTable.of_entries(self._digest(named)[somebody], levels[somebody])


def _csv(path: Path) -> tuple[pa.LargeBinaryArray, pa.StringArray]:
    columns = {"user": pa.large_binary(), "preference": pa.string()}
    try:
        table = pyarrow.csv.read_csv(
            path,
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=columns, include_columns=list(columns), strings_can_be_null=False
            ),
        ).combine_chunks()
    except (pa.ArrowInvalid, KeyError):
        raise ConfigurationError(
            f"the preferences in {path} are not CSV with a line of headings and the columns user and preference"
        ) from None
    return _whole(table["user"]), _whole(table["preference"])


def _whole(column: pa.ChunkedArray) -> Any:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _json_lines(path: Path) -> tuple[pa.LargeBinaryArray, pa.StringArray]:
    users, preferences = [], []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line, parse_float=str, parse_int=str)
                users.append(str(entry["user"]).encode())
                preferences.append(None if entry.get("preference") is None else str(entry["preference"]))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ConfigurationError(
                    f'the preferences in {path}, line {number}: give {{"user": ..., "preference": ...}}'
                ) from None
    return pa.array(users, pa.large_binary()), pa.array(preferences, pa.string())


def _message_text(value: bytes | None) -> str | None:
    """The text of a message: plain, or as a JSON string or number. A null value takes the entry back."""
    if value is None:
        return None
    text = value.decode("utf-8", "replace")
    if depth(value) > DEEPEST:
        return text
    try:
        return str(json.loads(text, parse_float=str, parse_int=str))
    except ValueError:
        return text
