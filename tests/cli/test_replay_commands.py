"""generate, record, replay and compare, as somebody at a shell uses them."""

from __future__ import annotations

import json

import pytest

from streamdp.cli import main


@pytest.fixture
def taxi(tmp_path, capsys):
    trace, config = tmp_path / "taxi.jsonl.zst", tmp_path / "taxi.toml"
    command = ["generate", "taxi", "--users", "200", "--points", "30", "-o", str(trace), "--config", str(config)]
    assert main(command) == 0
    capsys.readouterr()
    return str(trace), str(config)


def test_generate_needs_no_more_than_a_scenario(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "taxi", "--users", "50", "--points", "3"]) == 0
    assert "streamdp replay taxi.jsonl.zst --config taxi.toml" in capsys.readouterr().out
    assert (tmp_path / "taxi.jsonl.zst").stat().st_mode & 0o777 == 0o600
    assert main(["replay", "taxi.jsonl.zst", "--config", "taxi.toml", "--seed", "1"]) == 0
    (tmp_path / "taxi.jsonl.zst").unlink()
    assert main(["generate", "taxi"]) == 2
    assert "taxi.toml exists" in capsys.readouterr().err
    assert not (tmp_path / "taxi.jsonl.zst").exists()


def test_a_replay_prints_the_figures_and_says_what_they_are(taxi, capsys):
    trace, config = taxi
    assert main(["replay", trace, "--config", config, "--seed", "1"]) == 0
    first = capsys.readouterr().out
    assert "stream taxi: 30 time points, closed by the trace's marks" in first
    assert "reproducible, and NOT private" in first
    assert "as private as the trace" in first
    assert main(["replay", trace, "--config", config]) == 0
    assert "different every time" in capsys.readouterr().out


def test_json_has_every_point(taxi, capsys):
    trace, config = taxi
    outputs = []
    for _ in range(2):
        assert main(["replay", trace, "--config", config, "--seed", "1", "--json"]) == 0
        output = json.loads(capsys.readouterr().out)
        del output["seconds"]
        outputs.append(output)
    assert outputs[0] == outputs[1]
    (grid,) = outputs[0]["histograms"]
    assert len(grid["absolute"]) == len(grid["thresholds"]) == len(outputs[0]["time_points"]) == 30
    assert len(grid["true_counts"]) == len(grid["released_counts"]) == 100


def test_broken_lines_end_it_or_are_counted(taxi, tmp_path, capsys):
    _, config = taxi
    plain = tmp_path / "plain"
    main(["generate", "taxi", "--users", "200", "--points", "30", "-o", str(plain)])
    plain.write_bytes(plain.read_bytes() + b'{"close":\n')
    capsys.readouterr()
    assert main(["replay", str(plain), "--config", config]) == 1
    captured = capsys.readouterr()
    assert "not JSON; --skip-bad passes over such lines" in captured.err and not captured.out
    assert main(["replay", str(plain), "--config", config, "--skip-bad"]) == 0
    assert "broken lines skipped: 1" in capsys.readouterr().out


def test_another_configuration_is_refused(taxi, tmp_path, capsys):
    trace, _ = taxi
    other = tmp_path / "churn.toml"
    main(["generate", "churn", "--users", "100", "--points", "5", "-o", str(tmp_path / "c"), "--config", str(other)])
    assert main(["replay", trace, "--config", str(other)]) == 2
    assert "line 1: the trace was made for another domain" in capsys.readouterr().err


def test_a_trace_goes_into_a_topic_and_comes_out_the_same(taxi, tmp_path, capsys):
    trace, config = taxi
    log, recorded = tmp_path / "log", tmp_path / "recorded.jsonl.gz"
    assert main(["replay", trace, "--to", str(log), "--topic", "taxis"]) == 0
    assert "messages appended to taxis" in capsys.readouterr().out
    assert main(["record", "--log", str(log), "--topic", "taxis", "--from-beginning", str(recorded)]) == 0
    assert recorded.stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    finals = []
    for path in (trace, str(recorded)):
        main(["replay", path, "--config", config, "--json"])
        finals.append(json.loads(capsys.readouterr().out))
    assert finals[0]["clock"] == "marks" and finals[1]["clock"] == "event"
    # The records' own timestamps close the same points as the marks did, for none of them is late.
    for name in ("messages", "time_points", "opened", "records"):
        assert finals[0][name] == finals[1][name]
    assert finals[0]["histograms"][0]["true_counts"] == finals[1]["histograms"][0]["true_counts"]


def test_record_stops_after_so_many(taxi, tmp_path, capsys):
    log, recorded = tmp_path / "log", tmp_path / "r"
    main(["replay", taxi[0], "--to", str(log), "--topic", "taxis"])
    assert main(["record", "--log", str(log), "--topic", "taxis", "--from-beginning", "--max", "7", str(recorded)]) == 0
    assert len(recorded.read_bytes().splitlines()) == 8  # a header, too
    assert main(["record", "--log", str(log), "--topic", "taxis", str(tmp_path / "none")]) == 0
    assert len((tmp_path / "none").read_bytes().splitlines()) == 1


def test_speed_keeps_the_traces_time(tmp_path, taxi, monkeypatch):
    from streamdp.replay import pace

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    trace, config = taxi
    assert main(["replay", trace, "--config", config, "--speed", "60x"]) == 0
    assert clock.now == pytest.approx(29 * 60)  # 29 hours lie between the first close and the last
    clock.now = 0.0
    assert main(["replay", trace, "--to", str(tmp_path / "log"), "--topic", "taxis", "--speed", "3600x"]) == 0
    assert 28 < clock.now <= 30


def test_compare_prints_a_table_and_draws(taxi, tmp_path, capsys):
    trace, config = taxi
    plot = tmp_path / "taxi.svg"
    command = ["compare", trace, "--config", config, "--strategies", "fixed,ba", "--runs", "2", "--plot", str(plot)]
    assert main([*command, "--set", "fixed.interval=5", "--seed", "3"]) == 0
    output = capsys.readouterr().out
    assert "interval=5" in output and "NOT private" in output
    assert plot.read_text().startswith("<svg") and plot.stat().st_mode & 0o777 == 0o600
    assert main([*command[:-2], "--json"]) == 0
    assert {standing["strategy"] for standing in json.loads(capsys.readouterr().out)["standings"]} == {"fixed", "ba"}


def test_compare_tunes(taxi, capsys):
    trace, config = taxi
    command = ["compare", trace, "--config", config, "--strategies", "fixed,ba", "--tune", "--runs", "2", "--seed", "3"]
    assert main([*command, "--processes", "1"]) == 0
    output = capsys.readouterr().out
    assert "interval=" in output and "reported on 2 others" in output and "NOT private" in output
    assert main([*command, "--processes", "2", "--json"]) == 0
    found = {standing["strategy"]: standing for standing in json.loads(capsys.readouterr().out)["standings"]}
    assert min(standing["ratio"] for standing in found.values()) == 1
    assert found["fixed"]["chosen"] <= found["fixed"]["default_chosen"]
    assert f"interval={found['fixed']['parameters']['interval']}" in output


@pytest.mark.parametrize(
    "command, message",
    [
        (["replay", "TRACE"], "give --config"),
        (["replay", "TRACE", "--config", "CONFIG", "--speed", "fast"], "--speed is"),
        (["replay", "TRACE", "--config", "CONFIG", "--speed", "0x"], "--speed is"),
        (["replay", "TRACE", "--config", "CONFIG", "--seed", "-1"], "--seed is 0 or more"),
        (["replay", "TRACE", "--config", "CONFIG", "--queries", "0"], "--queries"),
        (["replay", "TRACE", "--to", "somewhere"], "--to needs --topic"),
        (["replay", "nothing", "--config", "CONFIG"], "cannot read"),
        (["compare", "TRACE", "--config", "CONFIG", "--runs", "0"], "--runs"),
        (["compare", "TRACE", "--config", "CONFIG", "--strategies", "dsat"], "does not go with"),
        (["compare", "TRACE", "--config", "CONFIG", "--histogram", "x"], "no histogram x; there are grid"),
        (["compare", "TRACE", "--config", "CONFIG", "--tune", "--set", "fixed.interval=2"], "leave out --set"),
        (["compare", "TRACE", "--config", "CONFIG", "--tune", "--processes", "0"], "--processes is 1 or more"),
        (["record", "OUT"], "give either CONFIG, or --log"),
        (["record", "CONFIG", "OUT", "--topic", "t"], "--log and --topic go together"),
        (["record", "--log", "somewhere", "--topic", "t", "OUT", "--max", "0"], "--max"),
        (["record", "CONFIG", "TRACE"], "exists"),
        (["generate", "taxi", "-o", "TRACE"], "exists"),
        (["generate", "taxi", "-o", "OUT", "--users", "0"], "--users and --points are 1 or more"),
        (["generate", "taxi", "-o", "OUT", "--points", "-3"], "--users and --points are 1 or more"),
    ],
)
def test_wrong_usage_is_explained(taxi, tmp_path, capsys, command, message):
    names = {"TRACE": taxi[0], "CONFIG": taxi[1], "OUT": str(tmp_path / "out")}
    assert main([names.get(word, word) for word in command]) == 2
    assert message in capsys.readouterr().err


def test_recording_makes_nothing_but_the_trace(taxi, tmp_path, capsys):
    assert main(["record", taxi[1], str(tmp_path / "out")]) == 1
    assert "there is no log" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"taxi.jsonl.zst", "taxi.toml"}


@pytest.mark.parametrize("verb", ["generate", "record", "replay", "compare"])
def test_help_teaches(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    output = capsys.readouterr().out
    assert f"streamdp {verb} " in output
