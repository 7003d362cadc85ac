"""A configuration that is right: defaults, units, paths, and what is built from it."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from config_samples import EXAMPLE, MINIMAL, changed

from streamdp.config import load, parse


class TestWhatIsRight:
    def test_defaults(self):
        config = parse(MINIMAL)
        assert (config.epsilon, config.window, config.horizon, config.records_per_user) == (1, 10, None, 1)
        assert config.time.length_ms == 60_000
        assert (config.time.origin_ms, config.time.publish_after_ms, config.time.skew_ms) == (0, 15_000, 5_000)
        assert (config.time.clock, config.time.expire_after, config.time.tombstones) == ("wall", None, 1_000)
        assert (config.input.user_field, config.input.record_id, config.input.start) == (None, None, "earliest")
        assert config.output_topics == ("s.releases", "s.latest", "s.head", "s.results", "s.jobs")
        assert config.share("h") == 1
        assert config.share_left == 0

    def test_paths_are_relative_to_the_file(self, tmp_path):
        file = tmp_path / "conf" / "s.toml"
        file.parent.mkdir()
        file.write_text(changed(journal__path="j/x.db", output__log={"path": "/elsewhere"}))
        config = load(file)
        assert config.input_log_path == tmp_path / "conf" / "data" / "log"
        assert config.output_log_path == Path("/elsewhere")
        assert config.journal_path == tmp_path / "conf" / "j" / "x.db"
        assert config.checkpoint_path == tmp_path / "conf" / "j" / "checkpoints"
        assert config.dead_letters_path == tmp_path / "conf" / "j" / "x.dead_letters"

    def test_output_goes_to_the_input_log_unless_told(self):
        config = parse(changed(input__log={"path": "mine"}))
        assert config.output_log_path == Path("mine")

    def test_dead_letters_may_go_to_a_file_or_a_topic(self):
        assert parse(changed(dead_letters={"path": "d"})).dead_letters_path == Path("d")
        assert parse(changed(dead_letters={"topic": "s.dead"})).dead_letters_path is None

    @pytest.mark.parametrize(
        ("written", "exact"),
        [
            ("0.1", Fraction(1, 10)),
            (0.1, Fraction(1, 10)),
            ("1/3", Fraction(1, 3)),
            (2, Fraction(2)),
            ("1e-3", Fraction(1, 1000)),
        ],
    )
    def test_epsilon_is_exact(self, written, exact):
        assert parse(changed(privacy__epsilon=written)).epsilon == exact

    @pytest.mark.parametrize(
        ("written", "milliseconds"),
        [
            ("500ms", 500),
            ("90s", 90_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            (2, 2_000),
            (0.25, 250),
            ("1.5s", 1_500),
        ],
    )
    def test_durations(self, written, milliseconds):
        assert parse(changed(time__length=written)).time.length_ms == milliseconds

    def test_origin(self):
        config = parse(MINIMAL.replace('length = "1m"', 'length = "1m"\norigin = 2026-01-01T01:00:00+01:00'))
        assert config.time.origin_ms == 1_767_225_600_000

    def test_tombstones_do_not_outlive_users(self):
        assert parse(changed(time__expire_after=7)).time.tombstones == 7
        assert parse(changed(time__expire_after=7, time__tombstone_points=3)).time.tombstones == 3

    def test_user_may_be_a_field(self):
        assert parse(changed(input__user="field:patient")).input.user_field == "patient"

    def test_the_domain_keeps_its_order_and_its_bins(self):
        text = changed(
            domain__age__bins=10,
            domain__age__outside="clamp",
            domain__weight={"type": "real", "edges": [0, 0.5, 2]},
            domain__height={"type": "integer", "edges": [0, 100, 250]},
        )
        domain = parse(text).build_domain()
        assert domain.names == ("age", "sex", "weight", "height")
        assert domain.sizes == (10, 2, 2, 2)
        assert domain["age"].outside == "clamp"
        assert domain["height"].labels == ("0-99", "100-250")

    def test_views(self):
        attributes = [{"name": "age", "edges": [0, 50, 99]}, {"name": "sex", "groups": {"all": ["f", "m"]}}]
        view = parse(changed(histogram__0__attributes=attributes)).build_views()[0]
        assert view.name == "h"
        assert view.axis_labels == (("0-49", "50-99"), ("all",))

    def test_shares_left_unsaid_are_equal(self):
        histogram = tomllib.loads(MINIMAL)["histogram"][0]
        three = [histogram | {"share": "0.4"}, histogram | {"name": "i"}, histogram | {"name": "j"}]
        config = parse(changed(histogram=three))
        assert [config.share(one) for one in config.histogram] == [Fraction(2, 5), Fraction(3, 10), Fraction(3, 10)]
        assert config.share_left == 0
        assert parse(changed(histogram__0__share="0.75")).share_left == Fraction(1, 4)

    def test_the_example_builds_every_strategy(self):
        config = load(EXAMPLE)
        for histogram, view in zip(config.histogram, config.build_views(), strict=True):
            strategy = config.build_strategy(histogram, view)
            assert strategy.epsilon == config.epsilon * config.share(histogram)
            assert strategy.guarantee != "none"
