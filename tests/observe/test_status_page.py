"""The status page in a real browser, over a real daemon: it draws what was released, and follows what comes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from browser import BROWSER, WHY_NOT, Browser
from observed import Observed, get, running, submit
from waiting import PATIENCE

from streamdp import messages
from streamdp.client import Release
from streamdp.config.observe import Address
from streamdp.domain import Attribute, Domain, View
from streamdp.observe.board import Board
from streamdp.observe.page import page_routes
from streamdp.observe.server import Listener

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=WHY_NOT),
    pytest.mark.xdist_group("status_page"),  # one daemon and one browser for all of them
]

WIDE = """
  [...document.querySelectorAll("main *")].filter(one => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1) && !one.closest(".centres");
  }).map(one => one.tagName + "." + one.className)
"""

# The WCAG's contrast of every piece of text against what is behind it.
CONTRASTS = """
(() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const linear = part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = numbers(colour).map(value => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = one => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (numbers(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("main *")]
    .filter(one => [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
    .filter(one => one.getBoundingClientRect().width && !one.closest("svg"))
    .map(one => {
      const [a, b] = [light(getComputedStyle(one).color), light(behind(one))];
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.tagName + "." + one.className];
    });
})()
"""


class Clinic(Observed):
    """Three attributes in one histogram, two of them numbers: a picker, and a place for the centres of clusters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        text = self.path.read_text().replace(
            "[domain.age]", '[domain.stay]\ntype = "integer"\nlow = 0\nhigh = 29\nbins = 6\n\n[domain.age]'
        )
        self.path.write_text(text.replace('["ward", "age"]', '["ward", "age", "stay"]'))

    def _value(self, user: int) -> bytes:
        value = super()._value(user)
        if b'"age"' not in value:
            return value
        message = json.loads(value)
        message["record"]["stay"] = self.randomness.randrange(30)
        return json.dumps(message).encode()


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The stream, its ports and a browser on its page, with one job done."""
    stream = Clinic(tmp_path_factory.mktemp("page"), length="500ms")
    with running(stream, points=2) as (ports, process):
        submit(stream, "kmeans", "--epsilon", "0.1", "--set", "n_clusters=3")
        browser = Browser(tmp_path_factory.mktemp("profile"))
        try:
            browser.call("Page.navigate", url=f"http://127.0.0.1:{ports['page']}/")
            browser.wait_for("document.querySelectorAll('section.histogram[data-drawn]').length === 2")
            yield stream, ports, browser, process
        finally:
            browser.close()


def counts_of(stream: Clinic, release_id: str):
    release = next(
        message
        for message in map(messages.decode, stream.outputs())
        if message.kind == "release" and message.header["release_id"] == release_id
    )
    return release.counts


def test_bars_are_the_released_counts(shown):
    stream, _, browser, _ = shown
    drawn = browser.evaluate("""(() => {
      const section = document.querySelector("section[data-name=wards]");
      const bars = [...section.querySelectorAll(".bar")];
      return {id: section.dataset.drawn, counts: bars.map(bar => Number(bar.dataset.count)),
              heights: bars.map(bar => bar.getBoundingClientRect().height)};
    })()""")
    counts = counts_of(stream, drawn["id"])
    assert drawn["counts"] == counts.tolist()
    per_record = drawn["heights"][0] / abs(counts[0])
    assert drawn["heights"] == pytest.approx([abs(count) * per_record for count in counts], abs=0.6)


def choose(browser: Browser) -> None:
    """Stay across and age down, by the picker."""
    browser.evaluate("""(() => {
      const choose = (axis, value) => {
        const select = document.querySelector(`section[data-name=ages] [data-axis=${axis}]`);
        select.value = value;
        select.dispatchEvent(new Event("change"));
      };
      choose("across", "stay"); choose("down", "age");
    })()""")
    browser.wait_for("document.querySelector('section[data-name=ages] .axis').textContent === 'stay across, age down'")


def test_the_picker_chooses_two_of_three_attributes_and_the_heat_map_follows(shown):
    stream, _, browser, _ = shown
    choose(browser)
    drawn = browser.evaluate("""(() => {
      const section = document.querySelector("section[data-name=ages]");
      const canvas = section.querySelector(".area canvas");
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return {id: section.dataset.drawn, size: [canvas.width, canvas.height],
              reds: [...pixels].filter((_, index) => index % 4 === 0)};
    })()""")
    sums = counts_of(stream, drawn["id"]).reshape(4, 10, 6).sum(axis=0).clip(min=0)
    assert drawn["size"] == [6, 10]
    # Light where there is nothing, dark where there is most: the red channel falls from 238 to 4.
    expected = (238 + (4 - 238) * sums / sums.max()).reshape(-1)
    assert drawn["reds"] == pytest.approx(expected.tolist(), abs=1)


def test_centres_of_a_job_are_drawn_over_the_heat_map_and_listed(shown):
    _, ports, browser, _ = shown
    choose(browser)
    browser.wait_for("document.querySelectorAll('section[data-name=ages] .centre').length === 3")
    job = json.loads(get(ports["page"], "/status.json")[1])["jobs"][0]
    stays = [centre[job["summary"]["attributes"].index("stay")] for centre in job["summary"]["centres"]]
    drawn = browser.evaluate("[...document.querySelectorAll('.centre')].map(one => parseFloat(one.getAttribute('cx')))")
    assert drawn == pytest.approx([100 * stay / 30 for stay in stays], abs=1)
    assert browser.evaluate("document.querySelector('#job-list .badge').textContent") == "done"


def test_a_new_release_appears_by_itself(shown):
    _, _, browser, _ = shown
    first = browser.evaluate("document.querySelector('section[data-name=ages]').dataset.drawn")
    points = browser.evaluate("document.querySelectorAll('section[data-name=ages] .strip rect').length")
    browser.wait_for(f"document.querySelector('section[data-name=ages]').dataset.drawn !== '{first}'")
    browser.wait_for(f"document.querySelectorAll('section[data-name=ages] .strip rect').length > {points}")


def test_cells_are_read_by_keyboard_alone(shown):
    _, _, browser, _ = shown
    browser.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.closest('section').dataset.name") == "wards"
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    read = browser.evaluate("document.querySelector('section[data-name=wards] .readout').textContent")
    second = browser.evaluate("document.querySelectorAll('section[data-name=wards] .bar')[1].dataset.count")
    assert read == f"ward south: about {int(second):,} records"
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.dataset.axis") == "across"


@pytest.mark.parametrize("width", [320, 390, 1100])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_is_legible(shown, width, scheme):
    _, _, browser, _ = shown
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.evaluate("new Promise(done => setTimeout(done, 400))")
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.evaluate(WIDE) == []
    contrasts = browser.evaluate(CONTRASTS)
    assert len(contrasts) > 30
    assert [found for found in contrasts if found[0] < 4.5] == []
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    assert dark == (scheme == "dark")


def test_nothing_was_on_the_console_and_nothing_came_from_elsewhere(shown):
    _, ports, browser, _ = shown
    assert browser.complaints == []
    loaded = browser.evaluate("performance.getEntriesByType('resource').map(one => one.name)")
    assert loaded
    assert all(name.startswith(f"http://127.0.0.1:{ports['page']}/") for name in loaded)


def test_it_says_when_the_daemon_is_gone(shown):
    _, _, browser, process = shown
    process.terminate()
    process.wait(PATIENCE)
    browser.wait_for("document.getElementById('state').textContent.startsWith('No answer')")


def test_a_horizon_burns_down_to_its_end_and_text_from_outside_stays_text(tmp_path):
    """A board made up here: what a real stream shows only at its end, and what an ill-meaning requester may send."""
    view = View("wards", Domain([Attribute.categorical("ward", ["<b>north</b>", "south"])]), ["ward"])
    about = {"stream": "<i>s</i>", "epsilon": 1.0, "horizon": 40, "window": None, "length_ms": 1_000}
    board = Board(about, [view])
    header = {
        "kind": "release",
        "release_id": "x",
        "histogram": "wards",
        "time_point": 1,
        "closed": 0,
        "epsilon": "1/2",
    }
    header |= {"noise_scale": None, "method": "laplace", "view": view.describe()}
    # Ten points later the total, whose indicator lies in the coarser band alone, has a variance of 2 * (8 + 9 * 10.4).
    header["variance"] = {"noise": [8.0, 3.0], "drift": [10.4, 1.0]}
    board.hold(Release(header, np.array([-3, 9])))
    for point in range(1, 11):
        told = {"kind": "repeat", "histogram": "wards", "time_point": point, "closed": 1_000 * point, "reason": "below"}
        board.take(messages.decode(messages.encode({**told, "threshold": "5/1", "epsilon_left": "1/4"})))
    board.take(messages.decode(messages.encode({"kind": "head", "time_point": 10, "closed": 10_000, "ended": False})))
    board.set_budget(
        {"histograms": [{"name": "wards", "reserved": 0.5, "spent": 0.25}], "jobs": {"limit": 0, "spent": 0, "left": 0}}
    )
    job = {"kind": "result", "id": "<img src=x onerror=alert(1)>", "job": None, "state": "refused", "published_at": 2}
    board.take(messages.decode(messages.encode({**job, "reason": "<script>", "part": 1, "parts": 1})))
    listener = Listener("page", Address("127.0.0.1", 0), page_routes(board))
    browser = Browser(tmp_path / "profile")
    try:
        browser.call("Page.navigate", url=f"http://{listener.address}/")
        browser.wait_for("document.querySelector('section.histogram[data-drawn]') !== null")
        assert browser.evaluate("document.querySelector('.left svg').getAttribute('viewBox')") == "0 0 40 100"
        assert browser.evaluate("document.querySelectorAll('.left .even').length") == 1
        below_zero = browser.evaluate(
            "[...document.querySelectorAll('.bar')].map(bar => bar.getBoundingClientRect().top)"
        )
        assert below_zero[0] > below_zero[1]
        assert browser.evaluate("document.querySelectorAll('img, main i:not(.mark), main script').length") == 0
        assert browser.evaluate("document.getElementById('stream').textContent") == "<i>s</i>"
        # 1.96 standard errors.
        assert " · 6 ± 28 records in 2 cells" in browser.evaluate("document.querySelector('.facts').textContent")
        assert "<img" in browser.evaluate("document.querySelector('.job').textContent")
        assert browser.evaluate("document.querySelectorAll('.forecast').length") == 0
        # A forecast has new counts, is drawn, and is told from a release.
        told = {"reason": "waiting", "threshold": None, "epsilon_left": "1/4"}
        forecast = header | told | {"kind": "forecast", "release_id": "y", "time_point": 11, "closed": 11_000}
        for part in messages.encode_release(forecast | {"epsilon": "0/1"}, np.array([2, 9])):
            board.take(messages.decode(part))
        browser.wait_for("document.querySelectorAll('.strip .forecast, .legend .forecast').length === 2")
        facts = browser.evaluate("document.querySelector('.facts').textContent")
        assert facts.startswith("Forecast for time point 11") and "cost nothing: from earlier releases" in facts
        assert browser.complaints == []
    finally:
        browser.close()
        listener.close()
