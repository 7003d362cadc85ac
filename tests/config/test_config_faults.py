"""A configuration that is wrong: every fault is named, with what was found and what would be right."""

from __future__ import annotations

import tomllib

import pytest
from config_samples import MINIMAL, changed, faults, only_fault

from streamdp.config import load, parse
from streamdp.errors import ConfigurationError


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
