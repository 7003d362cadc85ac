"""`[privacy.preferences]`: what is accepted, what is refused, and what `check` says of it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from streamdp.config import parse
from streamdp.config.plan import plan
from streamdp.config.report import as_json, as_text, promise
from streamdp.errors import ConfigurationError

BASE = """
[stream]
name = "clinic"
[domain.ward]
type = "categorical"
values = ["north", "south"]
[time]
length = "1s"
[privacy]
epsilon = "1"
window = 10
[privacy.preferences]
{preferences}
[[histogram]]
name = "wards"
attributes = ["ward"]
strategy = "baseline"
share = "{share}"
[input]
topics = ["visits"]
"""
CLASSES = 'classes = { strict = "0.05", normal = "0.3", open = "1.0" }'


def config(preferences: str = f'{CLASSES}\npath = "people.csv"', share: str = "0.02"):
    return parse(BASE.format(preferences=preferences, share=share))


def test_levels_are_the_classes_and_the_grid_strictest_first() -> None:
    found = config(f'{CLASSES}\nlevels = ["0.1", "0.3", 0.5]\ntopic = "consents"')
    assert [(level.name, level.epsilon) for level in found.levels] == [
        ("strict", Fraction(1, 20)), ("0.1", Fraction(1, 10)), ("normal", Fraction(3, 10)), ("0.5", Fraction(1, 2)),
        ("open", Fraction(1)),
    ]  # fmt: skip
    assert found.preferences_path is None
    assert config().preferences_path is not None


@pytest.mark.parametrize(
    ("preferences", "share", "fault"),
    [
        (CLASSES, "0.02", "exactly one of path"),
        (f'{CLASSES}\npath = "a"\ntopic = "b"', "0.02", "exactly one of path"),
        ('path = "a"', "0.02", "give classes, or levels"),
        ('classes = { a = "0" }\npath = "a"', "0.02", "give a number above 0"),
        ('classes = { a = "-1" }\npath = "a"', "0.02", "give a number above 0"),
        ('classes = { a = "1.5" }\npath = "a"', "0.02", "nobody spends more than the privacy.epsilon, 1"),
        ('levels = ["2"]\npath = "a"', "0.02", "nobody spends more"),
        ('classes = { a = "0.1", b = "0.1" }\npath = "a"', "0.02", "two classes promise the same"),
        (f'{CLASSES}\ntopic = "visits"', "0.02", "which holds something else"),
        (f'{CLASSES}\ntopic = "clinic.jobs"', "0.02", "which holds something else"),
        (f'{CLASSES}\npath = "a"', "0.06", "take epsilon 0.06 of everybody, and 'strict' allows 0.05"),
        (f'{CLASSES}\npath = "a"\nlevels = [{", ".join(str(i / 1000) for i in range(1, 65))}]', "0.0001", "at most 64"),
    ],
)
def test_what_cannot_be_promised_is_a_fault(preferences, share, fault) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        config(preferences, share)


def test_check_says_it_in_words_and_numbers() -> None:
    text = " ".join(as_text(plan(config())).split())
    assert "Every user has their own epsilon, from a public table: strict at 0.05, normal at 0.3, open at 1." in text
    assert "protected at their own epsilon, at most 1 over any" in promise(config())
    assert "By level: strict 0.03, normal 0.28, open 0.98." in text
    assert "epsilon 0.03 in every window" in text
    assert as_json(plan(config()))["levels"][1] == {"name": "normal", "epsilon": "0.3", "left_for_jobs": "0.28"}
