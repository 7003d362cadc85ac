"""Comparing strategies: the figures are those of a replay, and defaults are public."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from replay_samples import close, config, line, write

from streamdp.errors import ConfigurationError
from streamdp.replay.candidates import candidates, fitting, parse_settings
from streamdp.replay.compare import compare
from streamdp.replay.play import Player, open_trace
from streamdp.replay.plot import to_svg
from streamdp.replay.queries import RangeQueries, errors
from streamdp.strategies import STRATEGIES

DSAT_W = 'strategy = "dsat_w"\nparameters = { releases = 2, threshold = 40 }'


@pytest.fixture
def path(tmp_path):
    lines = []
    for point in range(1, 13):
        ward = ["north", "south", "east"][point // 4 % 3]
        lines += [line(f"u{i}", 60_000 * (point - 1) + i, ward) for i in range(0, 200, point)] + [close(point)]
    return write(tmp_path / "t", lines)


def run(path, stream, **options):
    with open_trace(path, stream) as trace:
        return compare(stream, trace, **options)


def test_every_strategy_that_fits_is_compared(path):
    settings = config(strategy=DSAT_W)
    comparison = run(path, settings, runs=3, seed=1)
    assert {standing.strategy for standing in comparison.standings} == set(fitting(settings))
    assert comparison.time_points == 12
    for standing in comparison.standings:
        assert 0 < standing.epsilon <= 1
        assert len(standing.absolute_by_point) == 12
        assert sum(standing.releases_by_point) == pytest.approx(standing.releases)
        assert standing.absolute == pytest.approx(sum(standing.absolute_by_point) / 12)
    best = [standing.absolute for standing in comparison.of("wards")]
    assert best == sorted(best)


@pytest.mark.parametrize("privacy", ['epsilon = "1"\nwindow = 5', 'epsilon = "1"\nhorizon = 26000000'])
def test_a_run_of_missed_points_is_one_in_the_figures(tmp_path, privacy):
    lines = [line("a", 5, "north"), close(1), close(25_920_000, missed=True), close(25_920_001)]
    comparison = run(write(tmp_path / "t", lines), config(privacy=privacy), strategies=["baseline", "auto"], runs=2)
    assert comparison.time_points == 3
    for standing in comparison.standings:
        assert len(standing.absolute_by_point) == 3
        assert standing.releases_by_point[:2] == [1, 0]


def test_fitting_covers_all_strategies():
    assert set(fitting(config())) | set(fitting(config(privacy='epsilon = "1"\nhorizon = 9'))) == set(STRATEGIES)


def test_the_figures_are_those_of_the_strategy_on_the_true_counts(path):
    settings = config(strategy=DSAT_W)
    comparison = run(path, settings, strategies=["ba"], runs=2, seed=3)
    with open_trace(path, settings) as trace:
        player = Player(settings, trace)
        truth = [player.pipeline.population.counts("wards").copy() for _ in player.play()]
    from streamdp.privacy import InsecureSeededSource

    means = []
    queries = RangeQueries((4,))
    for seed in (3_000_009, 3_000_010):
        (view,) = settings.build_views()
        (candidate,) = candidates(settings, settings.histogram[0], view, ["ba"], {})
        strategy = candidate.make(InsecureSeededSource(seed))
        found = []
        for counts in truth:
            held = strategy.step(counts).counts
            found.append(errors(queries.answers(counts), queries.answers(held), int(counts.sum()))[0])
        means.append(sum(found) / len(found))
    assert comparison.standings[0].absolute == pytest.approx(sum(means) / 2)


def test_a_seed_makes_a_comparison_reproducible(path):
    settings = config(strategy=DSAT_W)
    one, two, other = (run(path, settings, runs=2, seed=seed).to_json() for seed in (1, 1, 2))
    assert one == two
    assert one != other


def test_the_configured_strategy_keeps_its_parameters_and_others_follow_it():
    settings = config(strategy=DSAT_W)
    (view,) = settings.build_views()
    own, fixed = candidates(settings, settings.histogram[0], view, ["dsat_w", "fixed"], {})
    assert own.parameters["releases"] == 2 and own.parameters["threshold"] == 40
    assert fixed.parameters == {"interval": 2}  # two releases in a window of four


def test_a_threshold_nobody_gave_is_twice_the_noise_floor():
    settings = config(privacy='epsilon = "1.1"\nwindow = 40')
    (view,) = settings.build_views()
    (candidate,) = candidates(settings, settings.histogram[0], view, ["dsat_w"], {})
    assert candidate.parameters["releases"] == 10
    # 1.13 * 10 releases / 1 epsilon * sqrt(4 cells * 4 groups)
    assert candidate.parameters["threshold"] == 91
    assert candidate.parameters["threshold_low"] == 46


def test_parameters_can_be_set(path):
    settings = config(strategy=DSAT_W)
    given = parse_settings(["dsat_w.releases=3", "dsat_w.threshold_fraction=0.5", "dsat_w.expected_users=100"])
    (standing,) = run(path, settings, strategies=["dsat_w"], runs=1, settings=given).standings
    assert standing.parameters["releases"] == 3
    assert standing.parameters["threshold_fraction"] == "1/2"
    assert "threshold" not in standing.parameters


@pytest.mark.parametrize(
    "strategies, settings, match",
    [
        (["dsat"], [], "does not go with this configuration, which has a window"),
        (["nonsense"], [], "baseline, fixed, dsat_w, bd, ba do"),
        (["ba"], ["ba.releases=3"], "releases"),
        (["dsat_w"], ["dsat_w.releases=none"], "releases"),
        (["dsat_w"], ["dsft.releases=3"], "does not go"),
    ],
)
def test_what_does_not_fit_is_refused(path, strategies, settings, match):
    with pytest.raises(ConfigurationError, match=match):
        run(path, config(strategy=DSAT_W), strategies=strategies, settings=parse_settings(settings))


@pytest.mark.parametrize("text", ["releases=3", "dsat_w.releases", "dsat_w.=3", ".releases=3", "dsat_w.releases="])
def test_settings_are_strategy_parameter_value(text):
    with pytest.raises(ConfigurationError, match="--set is"):
        parse_settings([text])


def test_the_plot_is_a_picture_with_a_line_for_each_strategy(path):
    comparison = run(path, config(strategy=DSAT_W), runs=2, seed=1)
    root = ElementTree.fromstring(to_svg(comparison))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(comparison.standings)
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {standing.strategy for standing in comparison.standings} <= texts
    for polyline in lines:
        for pair in polyline.get("points").split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= 860 and 0 <= y <= 400
