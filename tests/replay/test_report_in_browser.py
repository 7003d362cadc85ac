"""The report in a real browser: nothing on the console, no sideways scrolling, and everything by keyboard.

Needs Chromium (on Debian: apt-get install chromium). The page is put into a frame of the width to try, and a script
around it plays the reader; what it saw comes back in the dumped document.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest
from report_samples import made_up, played
from waiting import PATIENCE

from streamdp.replay.report import render

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="NOT TESTED in a browser: no Chromium (apt-get install -y chromium)"),
]

_AROUND = """<!DOCTYPE html><meta charset="utf-8"><body>
<iframe id="page" style="border:0;width:{width}px;height:900px" srcdoc="{page}"></iframe><pre id="found"></pre>
<script>
const frame = document.getElementById("page");
frame.addEventListener("load", () => {{
  const view = frame.contentWindow, page = frame.contentDocument, found = {{}};
  const all = selector => [...page.querySelectorAll(selector)];
  const press = (element, key) => element.dispatchEvent(new view.KeyboardEvent("keydown", {{key, bubbles: true}}));
  {script}
  document.getElementById("found").textContent = JSON.stringify(found);
}});
</script>"""

_LAYOUT = """
  found.scroll = page.documentElement.scrollWidth - page.documentElement.clientWidth;
  found.beyond = all("main *").filter(one => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && (box.right > page.documentElement.clientWidth + 1 || box.left < -1);
  }).map(one => one.tagName + "." + one.className + " " + one.textContent.slice(0, 30));
  const overlaps = [];
  for (const axis of all(".x, .y")) {
    const boxes = [...axis.querySelectorAll("span")].map(one => one.getBoundingClientRect());
    boxes.forEach((one, place) => boxes.slice(place + 1).forEach(other => {
      if (one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom)
        overlaps.push(axis.textContent.slice(0, 60));
    }));
  }
  found.overlaps = overlaps;
  found.charts = all(".chart").map(one => one.querySelector("h3").textContent);
  found.drawn = all(".drawing").map(one => one.querySelectorAll("canvas, .bar").length);
  const size = one => parseFloat(view.getComputedStyle(one).fontSize);
  found.small = all("main *").filter(one => one.textContent && size(one) < 12).length;
"""


def visit(tmp_path, page, script, width=1000, *flags):
    """What the script found; fails on anything on the browser's console."""
    path = tmp_path / "around.html"
    path.write_text(_AROUND.format(width=width, page=html.escape(page), script=script), encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER,
            *["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"],
            *["--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"],
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1300,1000",
            "--virtual-time-budget=4000",
            *flags,
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    match = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, "the script did not reach its end"
    return json.loads(html.unescape(match[1]))


@pytest.mark.parametrize("width", [320, 390, 1000])
def test_every_width_shows_everything_without_scrolling_sideways(tmp_path, width):
    result = played("census")
    found = visit(tmp_path, render(result), _LAYOUT, width)
    assert found["scroll"] == 0
    assert found["beyond"] == []
    assert found["overlaps"] == []
    assert found["small"] == 0
    assert found["charts"] == ["Error", "Distance against threshold", "Release points", "Budget"] * 2
    assert found["drawn"] == [2, 2]


def test_wide_and_deep_histograms_fit_too(tmp_path):
    result = made_up(points=700, shapes=[(200,), (300, 90), (9, 4, 5, 3)])
    found = visit(tmp_path, render(result), _LAYOUT, 390)
    assert (found["scroll"], found["beyond"], found["overlaps"]) == (0, [], [])
    assert found["drawn"][0] == 2 * 200


def test_the_pointer_tells_the_point_it_is_at(tmp_path):
    result = made_up()
    histogram = result.histograms[0]
    script = """
      const slider = page.querySelector(".pointer input");
      found.last = page.querySelector(".pointer output").textContent;
      slider.value = 10;
      slider.dispatchEvent(new view.Event("input"));
      found.eleventh = page.querySelector(".pointer output").textContent;
      const area = page.querySelector(".chart .area"), box = area.getBoundingClientRect();
      area.dispatchEvent(new view.PointerEvent("pointerdown", {clientX: box.left + 1, clientY: box.top + 5}));
      found.first = page.querySelector(".pointer output").textContent;
      found.cursor = page.querySelector(".cursor").getBoundingClientRect().left - box.left;
      found.width = box.width;
    """
    found = visit(tmp_path, render(result), script)
    assert found["last"].startswith("point 30 2026-01-01 00:30:00 UTC")
    assert "point 11 " in found["eleventh"]
    assert "release (above)" in found["eleventh"]
    assert f"distance {histogram.distances[10]}" in found["eleventh"]
    assert "threshold 250.5" in found["eleventh"]
    assert "point 1 " in found["first"]
    assert "distance" not in found["first"]
    assert found["cursor"] == pytest.approx(found["width"] / 60, abs=2)


def test_the_arrow_keys_walk_through_the_cells_and_the_axes_can_be_chosen(tmp_path):
    result = made_up(shapes=[(4, 3, 5)])
    histogram = result.histograms[0]
    script = """
      const told = () => page.querySelector("output.cell").textContent;
      let area = page.querySelector(".drawing .area");
      found.focusable = area.tabIndex === 0;
      press(area, "ArrowRight"); press(area, "ArrowRight"); press(area, "ArrowDown");
      found.summed = told();
      const selects = all(".axes select");
      selects[1].value = "2";
      selects[1].dispatchEvent(new view.Event("change"));
      press(page.querySelector(".drawing .area"), "ArrowRight");
      found.slice = told();
      selects[0].value = "sum";
      selects[0].dispatchEvent(new view.Event("change"));
      found.bars = all(".drawing .bar").length;
      selects[1].value = "across";
      selects[1].dispatchEvent(new view.Event("change"));
      found.roles = selects.map(one => one.value);
      press(page.querySelector(".drawing .area"), "ArrowRight");
      found.swapped = told();
    """
    found = visit(tmp_path, render(result), script)

    def cell(*chosen):
        """Counts over the cells whose codes are among those chosen, on each axis."""
        return [
            sum(
                counts[(a * 3 + b) * 5 + c]
                for a in (range(4) if chosen[0] is None else [chosen[0]])
                for b in (range(3) if chosen[1] is None else [chosen[1]])
                for c in (range(5) if chosen[2] is None else [chosen[2]])
            )
            for counts in (histogram.true_counts, histogram.released_counts)
        ]

    assert found["focusable"]
    # The longest axis lies across, the next one down, the rest is summed.
    true, released = cell(1, None, 1)
    assert found["summed"].startswith(f"axis0 v1, axis2 v1: true {true:,}, released {released:,}, off by")
    true, released = cell(0, 2, 0)
    assert found["slice"].startswith(f"axis0 v0, axis1 v2, axis2 v0: true {true:,}, released {released:,}")
    assert found["bars"] == 10
    assert found["roles"] == ["sum", "across", "sum"]
    true, released = cell(None, 0, None)
    assert found["swapped"].startswith(f"axis1 v0: true {true:,}, released {released:,}")


@pytest.mark.parametrize("flags", [[], ["--blink-settings=preferredColorScheme=0"]], ids=["light", "dark"])
def test_text_and_lines_stand_out_from_the_page(tmp_path, flags):
    script = """
      const numbers = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
      const light = colour => numbers(colour).map(part => part / 255)
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
      const contrast = (one, other) => {
        const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
      };
      const colour = (selector, name) => view.getComputedStyle(page.querySelector(selector))[name];
      const back = colour("body", "backgroundColor");
      found.dark = light(back) < 0.1;
      found.texts = Object.fromEntries(["main", "figcaption p", ".y span", "thead th", "a", ".facts dt"]
        .map(selector => [selector, contrast(colour(selector, "color"), back)]));
      found.warning = contrast(colour(".warning p", "color"), colour(".warning", "backgroundColor"));
      found.lines = Object.fromEntries(["svg .error", "svg .threshold", "svg .spent"]
        .map(selector => [selector, contrast(colour(selector, "stroke"), back)]));
      found.release = contrast(colour("svg .release", "fill"), back);
    """
    found = visit(tmp_path, render(made_up()), script, 1000, *flags)
    assert found["dark"] == bool(flags)
    assert min(found["texts"].values()) >= 4.5, found["texts"]
    assert found["warning"] >= 4.5
    assert min(found["lines"].values()) >= 3, found["lines"]
    assert found["release"] >= 3
