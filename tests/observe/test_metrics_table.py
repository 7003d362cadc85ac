"""The table of metrics: sound names, one place, and the page made from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from streamdp.observe.metrics import METRICS, Metrics, page

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_what_the_table_says():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m streamdp.observe.metrics > docs/metrics.md"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_named_as_prometheus_users_expect(metric):
    assert re.fullmatch(r"streamdp_[a-z]+(_[a-z]+)*", metric.name)
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    if metric.unit in ("seconds", "bytes"):
        assert metric.name.endswith(f"_{metric.unit}")
    assert metric.help.endswith(".")
    assert not set(metric.labels) & {"user", "key", "id", "job"}, "no label may hold a value that a user chose"


def test_a_metric_is_declared_once():
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_an_audience_has_its_own_metrics_and_no_others():
    public, operator = Metrics("public", "s"), Metrics("operator", "s")
    for metric in METRICS:
        mine, other = (public, operator) if metric.audience == "public" else (operator, public)
        assert mine[metric.name] is not None
        with pytest.raises(KeyError):
            other[metric.name]


@pytest.mark.parametrize("audience", ["public", "operator"])
def test_every_series_names_its_stream(audience):
    metrics = Metrics(audience, "clinic")
    for metric in METRICS:
        if metric.audience == audience and metric.labels:
            metrics[metric.name].labels(*metric.labels)
    for _ in range(2):
        samples = [sample for family in metrics.registry.collect() for sample in family.samples]
        assert len(samples) > 10
        assert {sample.labels["stream"] for sample in samples} == {"clinic"}


def test_nothing_is_in_the_librarys_own_registry():
    assert not any(family.name.startswith("streamdp") for family in REGISTRY.collect())
