"""Results of replays, real and made up, and a page's structure, for the tests of reports."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from streamdp.config import load
from streamdp.replay.play import open_trace, replay
from streamdp.replay.result import HistogramResult, ReplayResult

FIXTURES = Path(__file__).parents[2] / "replay_fixtures"


def played(name, seed=1):
    config = load(FIXTURES / name / "config.toml")
    with open_trace(FIXTURES / name / "trace.jsonl.zst", config) as trace:
        return replay(config, trace, seed=seed)


def made_up(points=30, shapes=((12,),), **more):
    """A result of any size, without playing anything."""
    return ReplayResult(
        stream="made-up",
        trace="/home/somebody/secret/trace.jsonl",
        guarantee="epsilon = 1",
        clock="marks",
        seed=None,
        histograms=[_histogram(f"h{place}", shape, points) for place, shape in enumerate(shapes)],
        time_points=list(range(1, points + 1)),
        opened=[1_767_225_600_000 + 60_000 * point for point in range(points)],
        closed=[1_767_225_660_000 + 60_000 * point for point in range(points)],
        records=[1_000] * points,
        messages=5_000,
        **more,
    )


def _histogram(name, shape, points):
    draws = np.random.default_rng(5)
    cells = int(np.prod(shape))
    true = draws.integers(0, 1_000, cells)
    fresh = [point % 10 == 0 for point in range(points)]
    return HistogramResult(
        name=name,
        strategy="dsat",
        guarantee="epsilon = 1 for a user's presence in all time points together",
        view={"axes": [{"attribute": f"axis{axis}"} for axis in range(len(shape))]},
        shape=tuple(shape),
        axis_labels=tuple(tuple(f"v{code}" for code in range(size)) for size in shape),
        epsilon="1/1",
        queries=1_000,
        kinds=["release" if yes else "repeat" for yes in fresh],
        reasons=["above" if yes else "below" for yes in fresh],
        thresholds=[None if point == 0 else 250.5 for point in range(points)],
        distances=[None if point == 0 else point * 7 % 400 for point in range(points)],
        absolute=draws.uniform(0, 100, points).tolist(),
        relative=draws.uniform(0, 1, points).tolist(),
        l1=draws.integers(0, 5_000, points).tolist(),
        epsilon_spent=np.linspace(0, 1, points).tolist(),
        epsilon_left=np.linspace(1, 0, points).tolist(),
        total_spent="1/1",
        true_counts=true.tolist(),
        released_counts=(true + draws.integers(-20, 20, cells)).tolist(),
    )


_VOID = {"meta", "link", "input", "br", "hr", "img", "wbr"}


class Structure(HTMLParser):
    """Tags balanced, ids, texts, and whatever an attribute points at."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.faults, self.ids, self.targets, self.references = [], [], [], []
        self.text, self.tags = "", []
        self._open = []
        self.feed(page)
        self.close()
        self.faults += [f"{tag} is never closed" for tag in self._open]

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        found = dict(attributes)
        if len(found) != len(attributes):
            self.faults.append(f"{tag}: an attribute twice")
        self.ids += [found["id"]] if "id" in found else []
        self.targets += [found[name] for name in ("href", "src", "action", "data", "srcset") if name in found]
        self.references += [found["for"]] if "for" in found else []
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> out of place")

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("script", "style"):
            self.text += data
