"""The plan of a stream in plain words, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from streamdp.config.observe import MAX_CONNECTIONS
from streamdp.config.plan import HistogramPlan, Noise, StreamPlan
from streamdp.config.stream import StreamConfig
from streamdp.fields import exact_text
from streamdp.privacy.exact import decimal_text

_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000), ("millisecond", 1))


def as_text(plan: StreamPlan) -> str:
    """What `streamdp check` prints."""
    config = plan.config
    lines = [
        f"Stream {config.name}: {_count(len(plan.histograms), 'histogram')} over"
        f" {_count(len(config.domain), 'attribute')}, a time point every {duration_words(config.time.length_ms)}.",
        "",
        "Who is protected from what",
        *_items(protection(plan)),
    ]
    for histogram in plan.histograms:
        lines += ["", f"Histogram {histogram.name}", *_items(_histogram_sentences(histogram, plan))]
    lines += ["", "What is left for jobs", *_items([_left(plan), *_left_by_level(plan)])]
    lines += ["", "What it takes", *_items([_open_files(config)])]
    return "\n".join(lines)


def as_json(plan: StreamPlan) -> dict[str, Any]:
    """The same for programs; exact numbers are text."""
    config = plan.config
    return {
        "stream": config.name,
        "guarantee": _guarantee(plan),
        "epsilon": exact_text(config.epsilon),
        "horizon": config.horizon,
        "window": config.window,
        "records_per_user": config.records_per_user,
        "point_ms": config.time.length_ms,
        "protection": list(protection(plan)),
        "histograms": [
            {
                "name": histogram.name,
                "attributes": list(histogram.view.attributes),
                "shape": list(histogram.view.shape),
                "cells": histogram.view.cells,
                "strategy": histogram.strategy,
                "method": histogram.method,
                "share": exact_text(histogram.share),
                "epsilon": exact_text(histogram.epsilon),
                "epsilon_for_decisions": exact_text(histogram.outline.decisions),
                "max_releases": histogram.outline.releases,
                "range_cells": histogram.range_cells,
                "best_release": _noise_json(histogram.best, histogram),
                "worst_release": _noise_json(histogram.worst, histogram),
            }
            for histogram in plan.histograms
        ],
        "epsilon_left_for_jobs": exact_text(plan.epsilon_left),
        "levels": [
            {"name": level.name, "epsilon": exact_text(level.epsilon), "left_for_jobs": exact_text(plan.left_of(level))}
            for level in config.levels
        ],
    }


def _open_files(config: StreamConfig) -> str:
    """As measured: 88 with 2 partitions of an embedded log, 730 with 52."""
    observe = config.observe
    listeners = sum(where is not None for where in (observe.metrics, observe.operator_metrics, observe.page))
    each = "13 for each input partition" if config.input_kafka is None else "a few for each broker"
    return f"Open files: about {100 + MAX_CONNECTIONS * listeners}, and {each}; `ulimit -Hn` must allow them."


def promise(config: StreamConfig) -> str:
    """The guarantee of a live stream in two sentences of public parameters, for dashboards."""
    span = config.horizon or config.window or 0
    real_time = duration_words(span * config.time.length_ms)
    epsilon = f"{'their own epsilon, at most' if config.levels else 'epsilon ='} {decimal_text(config.epsilon)}"
    if config.horizon is not None:
        return (
            f"One user (one key of the input) is protected at {epsilon} over all {_count(span, 'time point')}"
            f" ({real_time}) together. This covers lasting facts and membership."
        )
    return (
        f"One user (one key of the input) is protected at {epsilon} over any"
        f" {_count(span, 'consecutive time point')} ({real_time}), for ever. This does not hide lasting facts or"
        " membership."
    )


def protection(plan: StreamPlan) -> Iterator[str]:
    """Section by section what the guarantee says, and what it does not."""
    config, span = plan.config, plan.span
    epsilon = decimal_text(config.epsilon)
    real_time = duration_words(span * config.time.length_ms)
    if not plan.guaranteed:
        yield (
            'NO GUARANTEE: with clock = "event" the data close time points, so one user\'s message can create output.'
            ' This is for replay; a live stream needs clock = "wall". What follows holds for the noise alone.'
        )
    if config.horizon is not None:
        yield (
            f"A user's presence in the whole series of {_count(span, 'time point')} ({real_time}) is protected at"
            f" epsilon = {epsilon}, lasting facts and membership included. After point {span} nothing more is released."
        )
    else:
        yield (
            f"w-event privacy, for ever: what was true of a user during up to {_count(span, 'consecutive time point')}"
            f" ({real_time}) is protected at epsilon = {epsilon}."
        )
        yield (
            "It does not hide lasting facts, nor that somebody is a member: what was true during L points is"
            f" protected at ceil(L / {span}) * {epsilon}. For lasting facts use a horizon, or let records expire."
        )
        if plan.message_epsilon is not None and config.time.expire_after is not None:
            life = config.time.expire_after
            yield (
                f"Records expire {_count(life, 'point')} ({duration_words(life * config.time.length_ms)}) after a"
                f" user's last message, so a single message is protected at epsilon ="
                f" {decimal_text(plan.message_epsilon)}."
            )
    if config.levels:
        listed = ", ".join(f"{level.name} at {decimal_text(level.epsilon)}" for level in config.levels)
        yield (
            f"Every user has their own epsilon, from a public table: {listed}. Where epsilon is said above, a user's"
            f" own counts. Who has no entry is {config.levels[0].name}; a number is rounded down to one of these; a"
            " preference that changes later is kept at the smaller. What a preference itself tells about somebody is"
            " public, and personalised results are off where preferences go with the data."
        )
    who = "message key" if config.input.user_field is None else f"value of the field {config.input.user_field!r}"
    yield (
        f"A user is a {who}, with at most {_count(config.records_per_user, 'record')} at a time. A person under k keys"
        " gets k times the epsilon. Changing a record is two steps, so up to twice. Deleting refunds nothing."
    )
    if not plan.guaranteed:
        return
    wait = config.time.publish_after_ms
    if wait:
        yield (
            f"A release leaves {duration_words(wait)} after its point closes, whatever there was to read. When reading"
            " took longer it leaves late, and how late is outside the guarantee: give publish_after more than it takes."
        )
    else:
        yield (
            "The moment a release leaves is outside the guarantee: with publish_after = 0 it leaves when it is ready,"
            " which depends on how much there was to read. Give publish_after more than that takes, and the moment"
            " tells nothing."
        )


def _histogram_sentences(histogram: HistogramPlan, plan: StreamPlan) -> Iterator[str]:
    shape = " x ".join(
        f"{name} {size}" for name, size in zip(histogram.view.attributes, histogram.view.shape, strict=True)
    )
    yield (
        f"{_count(histogram.view.cells, 'cell')} ({shape}), strategy {histogram.strategy}, method {histogram.method}:"
        f" {_percent(histogram.share)} of epsilon, {decimal_text(histogram.epsilon)}."
    )
    within = "in all" if plan.config.horizon is not None else f"in any {_count(plan.span, 'point')}"
    outline = histogram.outline
    decisions = f"; deciding costs {decimal_text(outline.decisions)}" if outline.decisions else ""
    if histogram.best == histogram.worst:
        each = f"each with epsilon {decimal_text(outline.largest)}"
    else:
        each = outline.between or (
            f"with epsilon between {decimal_text(outline.smallest)} when the window is busy and"
            f" {decimal_text(outline.largest)} when it was quiet"
        )
    yield f"At most {_count(outline.releases, 'release')} {within}, {each}{decisions}."
    yield from outline.notes
    if histogram.method != "laplace":
        yield f"The noise of a release is that of the method {histogram.method}; an estimate is given for laplace only."
        return
    if histogram.best == histogram.worst:
        yield _noise_sentence("Noise", histogram.best, histogram)
    else:
        yield _noise_sentence("Noise at best", histogram.best, histogram)
        yield _noise_sentence("Noise at worst", histogram.worst, histogram)


def _noise_sentence(opening: str, noise: Noise, histogram: HistogramPlan) -> str:
    return (
        f"{opening}: scale {decimal_text(noise.scale)}. Expect a cell to be off by {_figure(noise.cell_error)}, and a"
        f" range of half the cells ({histogram.range_cells}) by about {_figure(noise.range_error)}."
    )


def _left(plan: StreamPlan) -> str:
    if not plan.epsilon_left:
        of = f" of the level {plan.config.levels[0].name}" if plan.config.levels else ""
        return f"Nothing: the histograms take all of epsilon{of}. Lower their shares to leave some."
    where = "over the horizon" if plan.config.horizon is not None else f"in every window of {plan.span} points"
    each = plan.config.jobs.max_epsilon
    most = "" if each is None else f" One job may ask for at most {decimal_text(each)}."
    share = plan.epsilon_left / plan.config.epsilon
    return f"epsilon {decimal_text(plan.epsilon_left)} {where} ({_percent(share)} of the whole).{most}"


def _left_by_level(plan: StreamPlan) -> Iterator[str]:
    if not plan.config.levels:
        return
    left = ", ".join(f"{level.name} {decimal_text(plan.left_of(level))}" for level in plan.config.levels)
    yield (
        f"By level: {left}. A personalised job asks the most liberal level for its epsilon and every other in"
        " proportion to this; any other job asks the same of everybody, so the strictest level bounds it."
    )


def _guarantee(plan: StreamPlan) -> str:
    if not plan.guaranteed:
        return "none"
    return "finite horizon" if plan.config.horizon is not None else "w-event"


def _noise_json(noise: Noise, histogram: HistogramPlan) -> dict[str, Any]:
    figures: dict[str, Any] = {"epsilon": exact_text(noise.epsilon)}
    if histogram.method == "laplace":
        figures |= {
            "scale": exact_text(noise.scale),
            "expected_cell_error": noise.cell_error,
            "expected_range_error": noise.range_error,
        }
    return figures


def duration_words(milliseconds: int) -> str:
    """The two largest units: `1 hour 40 minutes`."""
    parts: list[str] = []
    for unit, size in _UNITS:
        number, milliseconds = divmod(milliseconds, size)
        if number:
            parts.append(_count(number, unit))
    return " ".join(parts[:2]) or "0 seconds"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _percent(share: Fraction) -> str:
    return f"{float(share * 100):.4g} %"


def _figure(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _items(sentences: Iterator[str] | list[str]) -> list[str]:
    return [
        textwrap.fill(sentence, width=100, initial_indent="  - ", subsequent_indent="    ") for sentence in sentences
    ]
