"""`check`, `config-schema` and `show-config`, as the command runs them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from streamdp.cli import main

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "clinic.toml"


def test_the_example_checks_clean(capsys):
    assert main(["check", str(EXAMPLE)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    text = " ".join(out.split())
    assert "up to 100 consecutive time points (1 hour 40 minutes) is protected at epsilon = 1" in text
    assert "strategy auto, method laplace: 50 % of epsilon, 0.5." in text
    assert "At most 5 releases in any 100 points, each with epsilon 0.06." in text
    assert "Noise: scale ≈16.66. Expect a cell to be off by 17, and a range of half the cells (2) by about 27." in text
    assert "epsilon 0.2 in every window of 100 points" in text


def test_check_as_json(capsys):
    assert main(["check", "--json", str(EXAMPLE)]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["stream"], plan["guarantee"], plan["epsilon"], plan["window"]) == ("clinic", "w-event", "1", 100)
    ages, wards = plan["histograms"]
    assert (ages["cells"], ages["max_releases"], ages["best_release"]["epsilon"]) == (20, 100, "0.35")
    assert (wards["shape"], wards["epsilon"], wards["best_release"]["scale"]) == ([4], "0.3", "50/3")
    assert plan["epsilon_left_for_jobs"] == "0.2"


@pytest.mark.parametrize("verb", ["check", "show-config"])
def test_a_wrong_configuration_exits_with_2_and_every_fault(verb, tmp_path, capsys):
    file = tmp_path / "wrong.toml"
    file.write_text(EXAMPLE.read_text().replace("window = 100", "window = 0").replace('"1m"', '"soon"'))
    assert main([verb, str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "wrong.toml has 2 faults:" in err
    assert "privacy.window: found 0; give 1 or more" in err
    assert "time.length: found 'soon'" in err


def test_a_missing_file_exits_with_2(tmp_path, capsys):
    assert main(["check", str(tmp_path / "none.toml")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_show_config_prints_toml_or_json(capsys):
    assert main(["show-config", str(EXAMPLE)]) == 0
    shown = tomllib.loads(capsys.readouterr().out)
    assert shown["input"]["max_record_bytes"] == 65_536
    assert main(["show-config", "--json", str(EXAMPLE)]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert as_json["histogram"] == shown["histogram"]


def test_config_schema_prints_json(capsys):
    assert main(["config-schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "StreamConfig"
