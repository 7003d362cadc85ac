"""The report of a replay, without a browser: well-formed, small, self-contained, private, and true to the result."""

from __future__ import annotations

import json
import re
import stat
from xml.etree import ElementTree

import pytest
from report_samples import FIXTURES, Structure, made_up, played

from streamdp.cli import main
from streamdp.errors import ConfigurationError
from streamdp.replay.report import render, write_report
from streamdp.replay.report.chart import TimeAxis, ticks
from streamdp.replay.report.reduce import Cells, Series

MAX_BYTES = 2_000_000


def svgs(page):
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def stored(page):
    """What the page's script reads, one object for each histogram."""
    return [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]


@pytest.mark.parametrize("name", ["census", "taxi", "outbreak", "churn", "hostile"])
def test_every_fixture_makes_a_sound_page(name):
    result = played(name)
    page = render(result)
    structure = Structure(page)
    assert structure.faults == []
    assert len(set(structure.ids)) == len(structure.ids)
    assert set(structure.references) <= set(structure.ids)
    assert len(svgs(page)) == 4 * len(result.histograms)
    assert len(page) < MAX_BYTES


def test_the_page_fetches_nothing_and_may_fetch_nothing():
    page = render(played("census"))
    assert all(target.startswith(("#", "data:")) for target in Structure(page).targets)
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"https?://[^\"'\s)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in page


def test_the_page_says_first_that_it_holds_truth():
    text = Structure(render(made_up())).text
    assert text.index("This page holds unreleased truth") < text.index("Summary")
    assert "as private as the input" in text
    assert "reproducible" not in text


def test_a_seeded_page_says_that_its_noise_is_not_private():
    result = made_up()
    result.seed = 42
    assert "seed 42: reproducible, not private" in Structure(render(result)).text


def test_points_closed_by_records_give_no_guarantee_and_the_page_says_so():
    result = made_up()
    result.guarantee = "none"
    assert "could give no guarantee" in Structure(render(result)).text


def test_the_directory_of_the_trace_is_not_told():
    assert "somebody" not in render(made_up())


def test_what_the_result_found_is_on_the_page():
    result = played("census")
    page = render(result)
    text = Structure(page).text
    for histogram, data in zip(result.histograms, stored(page), strict=True):
        figures = histogram.summary()
        assert f"{figures['releases']} of {len(histogram.kinds)}" in text
        assert f"{figures['mean_absolute_error']:,.2f}" in text
        assert data["true"] == histogram.true_counts
        assert data["released"] == histogram.released_counts
        assert data["kinds"] == histogram.kinds
        assert data["distances"] == histogram.distances
        assert data["absolute"] == pytest.approx(histogram.absolute, rel=1e-4)


def test_names_and_labels_cannot_become_markup():
    result = made_up()
    result.stream = result.histograms[0].name = '</script><script>alert("x")</script>'
    result.histograms[0].axis_labels = (("</script><b>", *result.histograms[0].axis_labels[0][1:]),)
    page = render(result)
    assert Structure(page).faults == []
    assert page.count("<script") == page.count("</script>") == 2
    assert stored(page)[0]["labels"][0][0] == "</script><b>"


def test_lines_are_drawn_where_the_values_are():
    result = made_up(points=4)
    result.histograms[0].absolute = [0.0, 10.0, 20.0, 5.0]
    line = next(path for path in svgs(render(result))[0] if "error" in path.get("class"))
    assert line.get("d") == "M1250 1000h0 L3750 500 L6250 0 L8750 750"


def test_a_gap_is_not_drawn_through():
    result = made_up(points=4)
    result.histograms[0].distances = [None, 10, None, 20]
    line = next(path for path in svgs(render(result))[1] if "distance" in path.get("class"))
    assert line.get("d").count("M") == 2


def test_the_strip_shows_each_release():
    result = made_up(points=20)
    strip = svgs(render(result))[2]
    assert [bar.get("class").split()[1] for bar in strip] == ["release", "asked", "release", "asked"]
    assert strip[2].get("d") == "M5000 0H5500V1000H5000z"


@pytest.mark.parametrize(
    ("high", "expected"), [(0, [0, 1]), (1, [0, 0.5, 1]), (4, [0, 1, 2, 3, 4]), (591, [0, 200, 400, 600])]
)
def test_ticks_are_round_and_cover(high, expected):
    assert ticks(high) == pytest.approx(expected)


@pytest.mark.parametrize("last", [1, 2, 7, 60, 100, 168, 501, 123_456])
def test_time_ticks_are_few_and_begin_with_the_first_point(last):
    found = TimeAxis(last, 1, 1, last, "time point").ticks()
    assert found[0][1] == "1"
    assert 1 <= len(found) <= 7
    assert all(0 < at < 1 for at, _ in found)
    assert len({label for _, label in found}) == len(found)


def test_many_points_become_stretches_that_lose_no_release_and_no_peak():
    result = made_up(points=10_007)
    histogram = result.histograms[0]
    series = Series(result, histogram, 500)
    assert len(series) <= 500
    assert series.time_points[0] == 1
    assert series.closed[-1] == result.closed[-1]
    assert max(d for d in series.distances if d is not None) == max(d for d in histogram.distances if d is not None)
    assert max(series.spent) == 1
    fresh = {place // series.size for place, kind in enumerate(histogram.kinds) if kind == "release"}
    assert {place for place, kind in enumerate(series.kinds) if kind == "release"} == fresh
    assert all(reason == "above" for place, reason in enumerate(series.reasons) if place in fresh)


def test_many_cells_are_summed_and_keep_their_total():
    histogram = made_up(points=3, shapes=[(1000, 700)]).histograms[0]
    cells = Cells(histogram, 20_000)
    assert len(cells.true) == len(cells.released) == cells.shape[0] * cells.shape[1] <= 20_000
    assert sum(cells.true) == sum(histogram.true_counts)
    assert [len(labels) for labels in cells.labels] == cells.shape
    assert (cells.labels[0][0], cells.labels[1][-1]) == ("v0 … v7", "v696 … v699")
    assert cells.summed


@pytest.mark.parametrize(
    ("points", "shapes"),
    [(500, [(96, 2, 12, 2, 2, 3)]), (200_000, [(4,)]), (10, [(1024, 1024)]), (600, [(40, 40)] * 20)],
)
def test_a_page_of_any_replay_is_small(points, shapes):
    page = render(made_up(points, shapes))
    assert len(page.encode()) < MAX_BYTES
    assert Structure(page).faults == []


def test_a_replay_without_points_or_without_releases_still_has_a_page():
    assert "No time point closed" in render(made_up(points=0))
    result = made_up()
    result.histograms[0].released_counts = []
    assert "nothing was ever released" in render(result)


def test_only_the_owner_may_read_it(tmp_path):
    folder = tmp_path / "new" / "report"
    page = write_report(made_up(), folder)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    page.chmod(0o644)
    write_report(made_up(), folder)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert [file.name for file in folder.iterdir()] == ["index.html"]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot write"):
        write_report(made_up(), tmp_path / "file")


def test_the_command_writes_it_and_json_stays_json(tmp_path, capsys):
    folder = FIXTURES / "outbreak"
    trace, config = str(folder / "trace.jsonl.zst"), str(folder / "config.toml")
    assert main(["replay", trace, "--config", config, "--seed", "3", "--json", "--report", str(tmp_path / "r")]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["seed"] == 3
    assert "as private as the trace" in printed.err
    assert "seed 3" in (tmp_path / "r" / "index.html").read_text()
