"""Loading a configuration: what is right builds, what is wrong is named, all of it at once."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import pytest

from streamdp.config import load, parse
from streamdp.config.show import to_toml
from streamdp.errors import ConfigurationError
from streamdp.strategies import STRATEGIES, parameter_names

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "clinic.toml"

MINIMAL = """
[stream]
name = "s"
[domain.age]
type = "integer"
low = 0
high = 99
[domain.sex]
type = "categorical"
values = ["f", "m"]
[time]
length = "1m"
[privacy]
epsilon = "1.0"
window = 10
[[histogram]]
name = "h"
attributes = ["sex"]
strategy = "baseline"
[input]
topics = ["in"]
"""


def changed(**changes):
    """MINIMAL with keys by dotted path (`__` for the dot) set, or removed when None."""
    data = tomllib.loads(MINIMAL)
    for path, value in changes.items():
        *parents, last = path.split("__")
        here = data
        for parent in parents:
            here = here[int(parent)] if isinstance(here, list) else here.setdefault(parent, {})
        if value is None:
            del here[last]
        else:
            here[last] = value
    return to_toml(data)


def faults(text):
    with pytest.raises(ConfigurationError) as raised:
        parse(text)
    assert raised.value.exit_code == 2
    message = str(raised.value)
    assert "pydantic" not in message
    assert "Input should" not in message
    return [line.strip() for line in message.splitlines()[1:]]


def only_fault(**changes):
    found = faults(changed(**changes))
    assert len(found) == 1, found
    return found[0]


class TestWhatIsRight:
    def test_defaults(self):
        config = parse(MINIMAL)
        assert (config.epsilon, config.window, config.horizon, config.records_per_user) == (1, 10, None, 1)
        assert config.time.length_ms == 60_000
        assert (config.time.origin_ms, config.time.publish_after_ms, config.time.skew_ms) == (0, 0, 5_000)
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


DISTANCE = {"releases": 2, "threshold": 5}


class TestStrategies:
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_every_strategy_can_be_configured_with_all_its_parameters(self, strategy):
        values = {
            **{
                "interval": 2,
                "releases": 2,
                "threshold_fraction": "0.5",
                "expected_users": 10,
                "decision_ratio": "1/3",
            },
            **{
                "groups": 1,
                "controller": "signed",
                "kp": 1,
                "ki": 0.5,
                "kd": 0,
                "integral_window": 3,
                "set_point": 0.1,
            },
            **{"scale": 2.5, "burn_in": 1, "threshold_low": 1, "threshold_high": 9, "dead_band": 0},
        }
        # The threshold in counts is the other way to say threshold_fraction; the published calibration is refused.
        names = parameter_names(strategy) - {"calibration", "threshold"}
        guarantee = {"privacy__window": None, "privacy__horizon": 10} if strategy in ("dsft", "dsat") else {}
        parameters = {name: values[name] for name in names}
        config = parse(changed(histogram__0__strategy=strategy, histogram__0__parameters=parameters, **guarantee))
        arguments = config.strategy_arguments(config.histogram[0], config.build_views()[0])
        assert set(arguments["parameters"]) == names
        assert config.build_strategy(config.histogram[0], config.build_views()[0]).time_point == 0

    def test_defaults_are_the_strategies_own(self):
        text = changed(histogram__0__strategy="dsat_w", histogram__0__parameters=DISTANCE)
        config = parse(text)
        view = config.build_views()[0]
        arguments = config.strategy_arguments(config.histogram[0], view)
        bare = arguments | {"parameters": DISTANCE}
        kind = STRATEGIES[bare.pop("kind")]
        parameters = bare.pop("parameters")
        # Equal fingerprints: the configuration's defaults and the strategy's are the same.
        assert kind(**bare, **parameters).state() == config.build_strategy(config.histogram[0], view).state()

    @pytest.mark.parametrize("strategy", ["dsft", "dsat"])
    def test_finite_strategies_need_a_horizon(self, strategy):
        fault = only_fault(histogram__0__strategy=strategy, histogram__0__parameters=DISTANCE)
        assert fault.startswith(f"histogram[0].strategy: found {strategy!r}, which works towards a privacy.horizon")

    @pytest.mark.parametrize("strategy", ["dsat_w", "bd", "ba"])
    def test_w_event_strategies_need_a_window(self, strategy):
        parameters = DISTANCE if strategy == "dsat_w" else {}
        fault = only_fault(
            histogram__0__strategy=strategy,
            histogram__0__parameters=parameters,
            privacy__window=None,
            privacy__horizon=5,
        )
        assert fault.startswith(f"histogram[0].strategy: found {strategy!r}, which is for a privacy.window (w-event)")

    def test_the_published_calibration_is_refused_with_the_reason(self):
        fault = only_fault(
            histogram__0__strategy="dsat_w", histogram__0__parameters=DISTANCE | {"calibration": "published"}
        )
        assert fault.startswith("histogram[0].parameters.calibration: not for a running stream")
        assert "does not give the privacy it claims" in fault

    @pytest.mark.parametrize(
        ("parameters", "expected"),
        [
            ({"releases": 11, "threshold": 1}, "parameters.releases: found 11; give at most the privacy.window, 10"),
            ({"releases": 0, "threshold": 1}, "parameters.releases: found 0; give 1 or more"),
            ({"releases": 1}, "parameters: give either threshold (in counts) or threshold_fraction"),
            ({"releases": 1, "threshold": 1, "threshold_fraction": 1}, "parameters: give either threshold"),
            ({"releases": 1, "threshold_fraction": "0.1"}, "parameters: threshold_fraction is of expected_users"),
            ({"releases": 1, "threshold": -1}, "parameters: threshold is negative"),
            (
                {"releases": 1, "threshold": 1, "groups": 3},
                "parameters: groups must be between 1 and the number of cells",
            ),
            ({"releases": 1, "threshold": 1, "ki": -1}, "parameters.ki: found -1; give 0 or more"),
            ({"releases": 1, "threshold": 1, "kp": float("inf")}, "parameters.kp: found inf; give a finite number"),
            (
                {"releases": 1, "threshold": 1, "threshold_low": 3, "threshold_high": 2},
                "parameters: threshold_low is above threshold_high",
            ),
        ],
    )
    def test_parameters_that_make_no_sense(self, parameters, expected):
        fault = only_fault(histogram__0__strategy="dsat_w", histogram__0__parameters=parameters)
        assert fault.startswith(f"histogram[0].{expected}")

    def test_an_interval_beyond_the_window(self):
        fault = only_fault(histogram__0__strategy="fixed", histogram__0__parameters={"interval": 11})
        assert fault == "histogram[0].parameters.interval: found 11; give at most the privacy.window, 10"


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"stream__name": "Clinic"}, "stream.name: found 'Clinic'; give 1 to 100 lower-case letters"),
            ({"stream__name": 3}, "stream.name: found 3; give text in quotes"),
            ({"stream": None}, "stream: missing; needed: What the stream is called."),
            ({"stream": "x"}, "stream: found 'x'; give a table"),
            ({"streem": {}}, "streem: unknown key; did you mean 'stream'?"),
            ({"time__clokc": "wall"}, "time.clokc: unknown key; did you mean 'clock'?"),
            ({"output__zzz": 1}, "output.zzz: unknown key; known here: prefix, format, log"),
            ({"time__clock": "sun"}, "time.clock: found 'sun'; give 'wall' or 'event'"),
            ({"time__length": "1 parsec"}, "time.length: found '1 parsec'; give a duration such as"),
            ({"time__length": "0s"}, "time.length: found '0s'; give a duration of at least 1ms"),
            ({"time__length": True}, "time.length: found true; give a duration"),
            ({"time__skew": -1}, "time.skew: found -1; a duration is not negative"),
            ({"time__skew": 0.0001}, "time.skew: found 0.0001; a duration is a whole number of milliseconds"),
            ({"time__origin": "monday"}, "time.origin: found 'monday'; give a date and time such as"),
            ({"time__expire_after": 0}, "time.expire_after: found 0; give 1 or more"),
            (
                {"time__expire_after": 2, "time__tombstone_points": 3},
                "time: tombstone_points is more than expire_after",
            ),
            ({"privacy__epsilon": 0}, "privacy.epsilon: found 0; give a number above 0"),
            ({"privacy__epsilon": "much"}, "privacy.epsilon: found 'much'; give an exact number"),
            ({"privacy__epsilon": float("nan")}, "privacy.epsilon: found nan; give an exact number"),
            ({"privacy__window": 0}, "privacy.window: found 0; give 1 or more"),
            ({"privacy__window": None}, "privacy: give exactly one of horizon"),
            ({"privacy__horizon": 5}, "privacy: give exactly one of horizon"),
            ({"privacy__window": 2.5}, "privacy.window: found 2.5; give a whole number"),
            ({"privacy__window": "9"}, "privacy.window: found '9'; give a whole number"),
            ({"privacy__window": True}, "privacy.window: found true; give a whole number"),
            ({"privacy__records_per_user": 2}, "input.record_id: missing; with privacy.records_per_user = 2"),
            (
                {"domain__age__type": "integral"},
                "domain.age.type: found 'integral'; give one of 'categorical', 'integer'",
            ),
            ({"domain__age__type": None}, "domain.age.type: missing; give one of 'categorical', 'integer', 'real'"),
            ({"domain__age__high": "x"}, "domain.age.high: found 'x'; give a whole number"),
            ({"domain__age__high": -1}, "domain.age: low 0 is above high -1"),
            ({"domain__age__bins": 101}, "domain.age: 101 bins do not fit 100 integers"),
            ({"domain__age__hihg": 1}, "domain.age.hihg: unknown key; did you mean 'high'?"),
            ({"domain__sex__values": ["f", "f"]}, "domain.sex: each value once; repeated: f"),
            ({"domain__sex__outside": "clamp"}, "domain.sex.outside: found 'clamp'; give 'reject' or 'drop'"),
            (
                {"domain__w": {"type": "real", "low": 0, "high": 1}},
                "domain.w: a real attribute needs low, high and bins",
            ),
            ({"domain__a b": {"type": "real"}}, 'domain."a b": a real attribute needs'),
            (
                {"histogram__0__strategy": "best"},
                "histogram[0].strategy: found 'best'; give one of 'auto', 'baseline'",
            ),
            ({"histogram__0__strategy": "fixed"}, "histogram[0].parameters: missing"),
            ({"histogram__0__parameters": {"x": 1}}, "histogram[0].parameters.x: unknown key; nothing goes here"),
            ({"histogram__0__share": "1.5"}, "histogram[0].share: found '1.5'; give a share above 0 and at most 1"),
            (
                {"histogram__0__method": "magic"},
                "histogram[0].method: found 'magic'; give one of efpa,",
            ),
            ({"histogram__0__post": ["x"]}, "histogram[0].post[0]: found 'x'; give 'nonnegative', 'integer' or"),
            ({"histogram__0__attributes": []}, "histogram[0].attributes: found nothing in it; give at least one"),
            (
                {"histogram__0__attributes": ["sx"]},
                "histogram[0].attributes[0]: found 'sx', which is not in the domain",
            ),
            (
                {"histogram__0__attributes": [{"name": "age", "bins": 101}]},
                "histogram[0].attributes[0]: 101 bins cannot",
            ),
            (
                {"histogram__0__attributes": [{"name": "age", "bnis": 1}]},
                "histogram[0].attributes[0].bnis: unknown key",
            ),
            (
                {"histogram__0__attributes": [{"name": "age", "bins": 5, "edges": [0, 99]}]},
                "histogram[0].attributes[0]: give one",
            ),
            (
                {"histogram__0__attributes": [{"name": "sex", "groups": {"x": ["f"]}}]},
                "histogram[0].attributes[0]: in no group: m",
            ),
            ({"input__topics": []}, "input.topics: found nothing in it; give at least one"),
            ({"input__topics": "in"}, "input.topics: found 'in'; give a list in square brackets"),
            ({"input__topics": ["a b"]}, "input.topics[0]: found 'a b'; give 1 to 249 letters"),
            ({"input__topics": ["a", "a"]}, "input.topics: found 'a' 2 times"),
            ({"input__topics": ["s.latest"]}, "input.topics: found 's.latest', which this stream writes"),
            (
                {"input__user": "patient"},
                'input.user: found \'patient\'; give "key" for the message key, or "field:NAME"',
            ),
            ({"input__user": "field:a", "input__record_id": "a"}, "input.record_id: found 'a', which names the user"),
            ({"input__user": "field:key"}, 'input: user = "field:key" reads like the message key'),
            ({"input__user": "field:sex"}, "input.user: found 'sex', an attribute of the domain"),
            ({"input__record_id": "age"}, "input.record_id: found 'age', an attribute of the domain"),
            ({"dead_letters": {"path": "a", "topic": "b"}}, "dead_letters: give path or topic, not both"),
            (
                {"dead_letters": {"topic": "s.head"}},
                "dead_letters.topic: found 's.head', which this stream reads or writes",
            ),
            ({"journal__keep_points": 10}, "journal: checkpoint_every is more than half of keep_points"),
            ({"input__kafka": {}}, "input.kafka: bootstrap.servers is missing"),
            ({"input__kafak": {}}, "input.kafak: unknown key; did you mean 'kafka'?"),
        ],
    )
    def test_every_fault_says_where_what_and_what_instead(self, changes, expected):
        assert only_fault(**changes).startswith(expected)

    def test_an_attribute_twice(self):
        assert faults(changed(histogram__0__attributes=["sex", "sex"])) == [
            f"histogram[0].attributes[{place}]: found 'sex' 2 times; give each attribute once" for place in (0, 1)
        ]

    def test_origin_needs_a_time_zone(self):
        found = faults(MINIMAL.replace('length = "1m"', 'length = "1m"\norigin = 2026-01-01T00:00:00'))
        assert found == ["time.origin: found 2026-01-01T00:00:00; give a time zone too, such as 2026-01-01T00:00:00Z"]

    def test_names_must_differ_and_shares_must_fit(self):
        histogram = tomllib.loads(MINIMAL)["histogram"][0]
        assert faults(changed(histogram=[histogram, histogram])) == [
            f"histogram[{place}].name: found 'h' 2 times; give each name once" for place in (0, 1)
        ]
        two = [histogram | {"share": "0.7"}, histogram | {"name": "i", "share": "0.4"}]
        assert faults(changed(histogram=two)) == [
            "histogram: found shares that sum to 1.1; give shares that sum to at most 1"
        ]
        two = [histogram | {"share": 1}, histogram | {"name": "i"}]
        assert faults(changed(histogram=two)) == [
            "histogram[1].share: missing, and the others leave nothing; lower theirs"
        ]

    def test_too_many_cells(self):
        big = {"type": "integer", "low": 0, "high": 4999}
        fault = only_fault(domain__a=big, domain__b=big, histogram__0__attributes=["a", "b"])
        assert fault.startswith("histogram[0].attributes: found 25,000,000 cells; give fewer")

    def test_all_faults_at_once_also_between_tables(self):
        histogram = {"name": "h", "attributes": ["sx", {"name": "age", "bins": 101}], "strategy": "dsft", "share": 2}
        found = faults(
            changed(
                stream__name="X",
                time__length="soon",
                domain__sex__values=[],
                domain__age__hihg=1,
                histogram=[histogram, {"name": "i", "attributes": ["age", "age"], "strategy": "baseline"}],
                input__topics=["a", "a"],
            )
        )
        assert [fault.partition(": ")[0] for fault in found] == [
            *("stream.name", "domain.age.hihg", "domain.sex", "time.length", "histogram[0].share"),
            *("histogram[0].parameters", "input.topics", "histogram[0].attributes[0]", "histogram[0].strategy"),
            *("histogram[1].attributes[0]", "histogram[1].attributes[1]"),
        ]

    def test_secrets_are_not_repeated_even_when_wrong(self):
        fault = only_fault(input__user={"password": "hunter2"})
        assert "hunter2" not in fault

    def test_toml_errors_have_a_line(self):
        with pytest.raises(ConfigurationError, match=r"not valid TOML: .*line 2"):
            parse("[stream]\nname = \n")

    def test_an_empty_file_asks_for_every_table_it_needs(self):
        assert [fault.partition(":")[0] for fault in faults("")] == [
            *("stream", "domain", "time", "privacy", "histogram", "input")
        ]

    def test_files_that_cannot_be_read(self, tmp_path):
        with pytest.raises(ConfigurationError, match=r"cannot read .*No such file"):
            load(tmp_path / "none.toml")
        (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigurationError, match="not UTF-8"):
            load(tmp_path / "bytes.toml")
