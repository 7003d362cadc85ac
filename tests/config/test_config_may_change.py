"""The table of what may change under a journal: it has every setting, and what is promised has one value."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from config_samples import changed

from streamdp.config import parse
from streamdp.config.may_change import MAY_CHANGE, promised, setting_names


def test_every_setting_is_in_the_table():
    assert set(setting_names()) == set(MAY_CHANGE), "say in config/may_change.py whether it may change"


def names(before: str, after: str) -> set[str]:
    """The settings that differ."""
    old, new = promised(parse(before)), promised(parse(after))
    assert json.loads(json.dumps(old)) == old
    return {name for name in old | new if old.get(name) != new.get(name)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"time__length": "2m"}, {"time.length"}),
        ({"time__origin": datetime(2026, 1, 1, tzinfo=UTC)}, {"time.origin"}),
        ({"time__skew": "6s"}, {"time.skew"}),
        ({"time__expire_after": 3}, {"time.expire_after", "time.tombstone_points"}),
        ({"privacy__epsilon": "2"}, {"privacy.epsilon"}),
        ({"privacy__window": None, "privacy__horizon": 10}, {"privacy.window", "privacy.horizon"}),
        ({"privacy__records_per_user": 2, "input__record_id": "id"}, {"privacy.records_per_user", "input.record_id"}),
        ({"input__user": "field:account"}, {"input.user"}),
        ({"output__prefix": "other"}, {"output.prefix"}),
        ({"domain__sex__values": ["m", "f"]}, {"domain.sex"}),
        ({"domain__age__outside": "clamp"}, {"domain.age"}),
        ({"histogram__0__attributes": ["age"]}, {"histogram.h.attributes"}),
        ({"histogram__0__method": "privelet"}, {"histogram.h.method"}),
        ({"histogram__0__strategy": "bd"}, {"histogram.h.strategy"}),
        ({"jobs__share": "0.2"}, {"histogram.h.share"}),
    ],
)
def test_a_change_shows_under_the_settings_name(changes, expected):
    assert names(changed(), changed(**changes)) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"output__prefix": "s"},
        {"time__length": "60s"},
        {"time__origin": datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))},
        {"privacy__epsilon": "1"},
        {"domain__age__bins": 100},
        {"histogram__0__share": "1"},
        {"time__publish_after": "1s"},
        {"journal__keep_points": 500},
    ],
)
def test_another_spelling_and_what_is_free_change_nothing(changes):
    assert names(changed(), changed(**changes)) == set()
