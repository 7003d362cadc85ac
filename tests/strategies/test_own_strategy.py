"""Somebody adds a strategy: one file and one line of the registry, and every room of streamdp knows it."""

import json
import subprocess
import sys
import textwrap

import pytest

# The file a contributor writes; the last line stands for theirs in the registry.
TOY = """
    from collections.abc import Mapping
    from typing import Any

    from pydantic import Field

    import streamdp.strategies
    from streamdp.fields import Settings
    from streamdp.strategies.base import StreamStrategy, Verdict
    from streamdp.strategies.description import Outline


    class DoublingParameters(Settings):
        \"\"\"Parameters of `doubling`.\"\"\"

        first: int = Field(ge=1)
        \"\"\"The first release; the next comes after twice as long, and so on.\"\"\"


    class Doubling(StreamStrategy):
        \"\"\"Releases at the points first, 2 first, 4 first, ... with epsilon shared equally. Sensitivity m each.\"\"\"

        kind = "doubling"
        summary = "after twice as long as before"
        guarantees = ("horizon",)
        parameters_type = DoublingParameters

        def __init__(self, parameters, **common):
            super().__init__(parameters, **common)
            self.next = self.conditions.at_most_span("first", parameters.first)
            self.share = self.outline(parameters, self.conditions).largest

        @classmethod
        def outline(cls, parameters, conditions):
            releases = (conditions.span // parameters.first).bit_length()
            return Outline(releases, conditions.epsilon / releases, conditions.epsilon / releases)

        @classmethod
        def suggested(cls, conditions, releases):
            return {"first": max(1, conditions.span >> (releases - 1))}

        def _decide(self, counts):
            if self.time_point < self.next:
                return Verdict("waiting")
            self.next *= 2
            return Verdict("scheduled", self.share)

        def _progress(self) -> dict[str, Any]:
            return {"next": self.next}

        def _resume(self, state: Mapping[str, Any]) -> None:
            self.next = state["next"]


    streamdp.strategies.STRATEGIES["doubling"] = Doubling
"""

STREAM = """
[stream]
name = "toys"

[domain.colour]
type = "categorical"
values = ["red", "blue"]

[time]
length = "1s"

[privacy]
epsilon = "1"
horizon = 20

[input]
topics = ["toys-in"]

[[histogram]]
name = "colours"
attributes = ["colour"]
strategy = "{strategy}"
[histogram.parameters]
{parameters}
"""


@pytest.fixture
def run(tmp_path):
    """A streamdp command in a process that has the toy strategy."""
    script = tmp_path / "with_toy.py"
    script.write_text(
        textwrap.dedent(TOY) + "\nimport sys\nfrom streamdp.cli import main\n\nsys.exit(main(sys.argv[1:]))\n"
    )

    def command(*arguments, strategy="doubling", parameters="first = 2"):
        config = tmp_path / "toys.toml"
        config.write_text(STREAM.format(strategy=strategy, parameters=parameters))
        given = [str(config) if argument == "CONFIG" else str(argument) for argument in arguments]
        return subprocess.run([sys.executable, script, *given], capture_output=True, text=True, check=False)

    return command


def test_check_tells_what_it_spends(run):
    done = run("check", "CONFIG", "--json")
    assert done.returncode == 0, done.stderr
    (histogram,) = json.loads(done.stdout)["histograms"]
    assert histogram["strategy"] == "doubling"
    assert histogram["max_releases"] == 4
    assert histogram["best_release"]["epsilon"] == "0.25"


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ("first = 21", "histogram[0].parameters.first: found 21; give at most the horizon, 20"),
        ("firts = 2", "did you mean 'first'?"),
        ("", "histogram[0].parameters.first: missing; needed: The first release"),
    ],
)
def test_its_parameters_are_checked(run, parameters, fault):
    done = run("check", "CONFIG", parameters=parameters)
    assert done.returncode == 2
    assert fault in done.stderr


def test_it_is_replayed_and_compared(run, tmp_path):
    trace = tmp_path / "toys.jsonl"
    lines = []
    for point in range(1, 21):
        lines.append(
            json.dumps({"key": f"u{point}", "ts": 1_000 * point - 1, "op": "upsert", "record": {"colour": "red"}})
        )
        lines.append(json.dumps({"close": point}))
    trace.write_text("".join(line + "\n" for line in lines))
    done = run("compare", "--config", "CONFIG", trace, "--runs", "1", "--json", strategy="baseline", parameters="")
    assert done.returncode == 0, done.stderr
    compared = {each["strategy"] for each in json.loads(done.stdout)["standings"]}
    assert {"baseline", "doubling", "auto"} <= compared
