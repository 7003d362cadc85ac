"""What the rest of streamdp builds from the tables of a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from streamdp.config.attributes import AttributeSection
from streamdp.config.histograms import HistogramSection
from streamdp.config.sections import Output, Privacy, Stream
from streamdp.domain import Domain, View

TOPIC_SUFFIXES = ("releases", "latest", "head", "results", "jobs")


def build_domain(attributes: Mapping[str, AttributeSection]) -> Domain:
    return Domain(section.build(name) for name, section in attributes.items())


def build_view(histogram: HistogramSection, domain: Domain) -> View:
    return View(histogram.name, domain, [attribute.build() for attribute in histogram.attributes])


def output_topics(stream: Stream, output: Output) -> tuple[str, ...]:
    return tuple(f"{output.prefix or stream.name}.{suffix}" for suffix in TOPIC_SUFFIXES)


def shares(histograms: Sequence[HistogramSection], jobs: Fraction | None = None) -> dict[str, Fraction]:
    """Every histogram's part of epsilon, by name: its own, or an equal part of what the others and `jobs` leave."""
    given = {histogram.name: histogram.share for histogram in histograms if histogram.share is not None}
    left = Fraction(1) - (jobs or 0) - sum(given.values())
    silent = len(histograms) - len(given)
    return {histogram.name: histogram.share or left / silent for histogram in histograms}


def strategy_arguments(histogram: HistogramSection, view: View, privacy: Privacy, share: Fraction) -> dict[str, Any]:
    """What `make_strategy` takes for this histogram, but for the source of noise."""
    return {
        "kind": histogram.strategy,
        "epsilon": privacy.epsilon * share,
        "cells": view.cells,
        "shape": view.shape,
        "horizon": privacy.horizon,
        "window": privacy.window,
        "sensitivity": privacy.records_per_user,
        "parameters": histogram.parameters_given(),
        "method": histogram.method,
        "post": tuple(histogram.post),
    }
