"""What a program that subscribes imports.

    from streamdp.client import subscribe
    from streamdp.transport.filelog import FileLog

    for update in subscribe(FileLog("data/log"), "clinic"):
        if update.is_new:
            print(update.release.range_count(age=(20, 29), sex="f"))

Everything here was released under the guarantee; reading it, combining it and keeping it costs nobody any privacy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamdp import messages
from streamdp.domain import View
from streamdp.domain.view import Selector
from streamdp.engine import Topics
from streamdp.histograms.variance import Variance
from streamdp.transport.base import TopicPartition, Transport
from streamdp.transport.tail import tail

if TYPE_CHECKING:
    import pandas

_NORMAL_95 = 1.959964
_WITH_COUNTS = ("release", "forecast")


class RangeCount(int):
    """The number of records in a range as it was published, and how far off it may be.

    It is an integer and can be used as one.
    """

    standard_error: float | None
    """The standard deviation of its error; None where nothing was published about it."""
    drift_included: bool
    """Whether that includes how much the data may have moved since the release. If not, it is the noise alone."""

    def __new__(cls, value: int, standard_error: float | None = None, drift_included: bool = False) -> RangeCount:
        self = super().__new__(cls, value)
        self.standard_error = standard_error
        self.drift_included = drift_included
        return self

    @property
    def value(self) -> int:
        return int(self)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Meant to hold the true number 95 times in 100, by the normal distribution; None without a standard error."""
        if self.standard_error is None:
            return None
        return self - _NORMAL_95 * self.standard_error, self + _NORMAL_95 * self.standard_error


@dataclass(frozen=True, eq=False)
class Release:
    """A published histogram: noisy counts, and everything public about how they were made."""

    header: dict[str, Any]
    counts: NDArray[np.int64]
    """One count for each cell, flat; `to_numpy` has the histogram's shape."""
    age: int = 0
    """How many points have closed since the one it is of."""

    @property
    def release_id(self) -> str:
        return str(self.header["release_id"])

    @property
    def histogram(self) -> str:
        return str(self.header["histogram"])

    @property
    def time_point(self) -> int:
        """The time point that the counts are of."""
        return int(self.header["time_point"])

    @property
    def closed(self) -> int:
        """When that time point closed, in milliseconds since 1970."""
        return int(self.header["closed"])

    @property
    def epsilon(self) -> Fraction:
        """What this release cost: nothing, if it is a forecast."""
        return Fraction(self.header["epsilon"])

    @property
    def kind(self) -> str:
        """`release`, or `forecast`: then nobody looked at the data, and the counts follow from earlier releases."""
        return str(self.header["kind"])

    @property
    def noise_scale(self) -> Fraction | None:
        """The scale of the discrete Laplace noise in each count; None when it has no single scale.

        An estimate from several releases has none; `standard_error` is known in more cases.
        """
        scale = self.header["noise_scale"]
        return None if scale is None else Fraction(scale)

    @cached_property
    def view(self) -> View:
        """What the cells mean."""
        return View.from_description(self.header["view"])

    @cached_property
    def variance(self) -> Variance | None:
        """What is known of the error of the counts; None where nothing is, as in messages of older versions."""
        published = self.header.get("variance")
        return None if published is None else Variance.from_json(self.view.shape, published)

    def at(self, time_point: int) -> Release:
        """As it stands at a time point, which may be its own."""
        age = max(0, time_point - self.time_point)
        return self if age == self.age else replace(self, age=age)

    def range_count(self, **ranges: Selector) -> RangeCount:
        """The number of records in a range, and how far off it may be: `range_count(age=(20, 29), sex="f")`."""
        drift_included = self.variance is not None and self.variance.drift is not None
        value = self.view.range_count(self.counts, **ranges)
        return RangeCount(value, self.standard_error(**ranges), drift_included)

    def standard_error(self, **ranges: Selector) -> float | None:
        """Of the count of a range, `age` points after the release; None where nothing is known.

        `auto` publishes how fast the data moves, and then drift since the release is part of it. For other strategies
        it is the noise of the release.
        """
        if self.variance is None:
            return None
        return self.variance.standard_error(self.view.selection(**ranges), self.age)

    def to_numpy(self) -> NDArray[np.int64]:
        """The counts in the histogram's shape, one axis for each attribute."""
        return self.counts.reshape(self.view.shape)

    def to_pandas(self) -> pandas.Series[int]:
        """The counts by the labels of their cells: one index level for each attribute."""
        import pandas

        labels, names = self.view.axis_labels, self.view.attributes
        index: pandas.Index[str]
        if len(names) == 1:
            index = pandas.Index(labels[0], name=names[0])
        else:
            index = pandas.MultiIndex.from_product(labels, names=names)
        return pandas.Series(self.counts, index=index, name=self.histogram)


@dataclass(frozen=True)
class Update:
    """One time point of one histogram: something new, or the same as before. Points that nobody watched share one."""

    kind: str
    """`release` (fresh counts), `forecast` (new ones that follow from earlier releases), `repeat` (the last ones stand)
    or `ended` (nothing more will come)."""
    header: dict[str, Any]
    release: Release | None
    """What a subscriber holds now; None when nothing was ever released, or it lies before where reading began."""

    @property
    def is_new(self) -> bool:
        """Whether there are new counts: a release, or a forecast."""
        return self.kind in _WITH_COUNTS

    @property
    def histogram(self) -> str:
        return str(self.header["histogram"])

    @property
    def time_point(self) -> int:
        return int(self.header["time_point"])

    @property
    def first_time_point(self) -> int:
        """The first point that it is about: an earlier one where several in a row were missed."""
        return int(self.header.get("first_missed", self.time_point))


def latest(transport: Transport, prefix: str) -> dict[str, Release]:
    """The newest full release, or forecast, of every histogram of a stream."""
    topic = Topics.of(prefix).latest
    parts: dict[str, dict[int, messages.Decoded]] = {}
    newest: dict[str, Release] = {}
    for message in _read(transport, topic, transport.begin_offsets([topic]), follow=False):
        histogram, part = str(message.header["histogram"]), int(message.header["part"])
        parts.setdefault(histogram, {})[part] = message
        whole = messages.join_parts(parts[histogram].values())
        if whole is not None and whole.counts is not None:
            newest[histogram] = Release(whole.header, whole.counts)
    head = _head(transport, prefix)
    now = 0 if head is None else int(head["time_point"])
    return {name: release.at(now) for name, release in newest.items()}


def subscribe(
    transport: Transport,
    prefix: str,
    *,
    histograms: Collection[str] | None = None,
    from_beginning: bool = False,
    follow: bool = True,
) -> Iterator[Update]:
    """The updates of a stream, in order, each once.

    Begins with the latest full release of each histogram, or with the oldest message that is still there
    (`from_beginning`). With `follow=False` it ends where the topic ended when it began; else it waits for more, until
    every histogram has ended.
    """
    topic = Topics.of(prefix).releases
    start = transport.begin_offsets([topic]) if from_beginning else transport.end_offsets([topic])
    held: dict[str, Release] = {} if from_beginning else latest(transport, prefix)
    wanted = [release for name, release in sorted(held.items()) if histograms is None or name in histograms]
    yield from (Update(str(release.header["kind"]), release.header, release) for release in wanted)
    # Points may close between the two reads above: what they published is in `held`, or older than it.
    begun = {name: release.time_point for name, release in held.items()}
    parts: dict[str, list[messages.Decoded]] = {}
    # A point's messages come together, `ended` last: at the first of those, every histogram has been seen.
    running: set[str] = set()
    for message in _read(transport, topic, start, follow and not _has_ended(transport, prefix)):
        name, header = str(message.header["histogram"]), message.header
        shown = histograms is None or name in histograms
        if message.kind == "ended":
            running.discard(name)
            if shown:
                yield Update("ended", header, held.get(name))
            if not any(histograms is None or other in histograms for other in running):
                return
            continue
        running.add(name)
        if int(header["time_point"]) <= begun.get(name, 0):
            continue
        if message.kind in _WITH_COUNTS:
            release_id = str(header["release_id"])
            parts.setdefault(release_id, []).append(message)
            whole = messages.join_parts(parts[release_id])
            if whole is None or whole.counts is None:
                continue
            del parts[release_id]
            header, held[name] = whole.header, Release(whole.header, whole.counts)
        elif name in held:
            held[name] = held[name].at(int(header["time_point"]))
        if shown:
            yield Update(message.kind, header, held.get(name))


def _has_ended(transport: Transport, prefix: str) -> bool:
    """Whether the stream's finite horizon is over, as its head says."""
    head = _head(transport, prefix)
    return head is not None and bool(head["ended"])


def _head(transport: Transport, prefix: str) -> dict[str, Any] | None:
    """What the stream says of its last closed point, if anything."""
    newest = tail(transport, Topics.of(prefix).head, 1)
    return messages.decode(newest[0].value or b"").header if newest else None


def _read(
    transport: Transport, topic: str, start: dict[TopicPartition, int], follow: bool
) -> Iterator[messages.Decoded]:
    end = transport.end_offsets([topic])
    reader = transport.reader(start)
    try:
        while follow or any(reader.positions()[partition] < end[partition] for partition in end):
            for batch in reader.poll(timeout=0.5):
                last = None if follow else end[TopicPartition(batch.topic, batch.partition)]
                yield from (
                    messages.decode(value)
                    for value in (batch if last is None else batch.before(last)).values
                    if value is not None
                )
    finally:
        reader.close()
