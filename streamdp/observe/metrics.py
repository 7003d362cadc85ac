"""Every metric, once: its type, its labels, its meaning, and who may see it.

**public**: a function of bytes that were published and of public parameters; safe to show anybody. **operator**:
describes raw data or depends on it (rates, lag, timings, memory); as private as the input, on a listener of its own
that is off unless it is named. Nothing is registered with the client library's default registry, so none of its own
series slips onto a listener.

docs/metrics.md is made from this table: python -m streamdp.observe.metrics > docs/metrics.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics_core import Metric as Family

# A second series for each counter, with nothing that Prometheus does not know already.
disable_created_metrics()  # type: ignore[no-untyped-call]

Audience = Literal["public", "operator"]
Kind = Literal["counter", "gauge", "histogram"]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LONG_SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)


@dataclass(frozen=True)
class Metric:
    """`unit` is empty for plain numbers."""

    name: str
    kind: Kind
    audience: Audience
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = SECONDS

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a scrape shows."""
        if self.kind == "histogram":
            return tuple(self.name + suffix for suffix in ("_bucket", "_count", "_sum"))
        return (self.name,)


def _public(name: str, kind: Kind, unit: str, text: str, *labels: str) -> Metric:
    return Metric(name, kind, "public", unit, text, labels)


def _operator(
    name: str, kind: Kind, unit: str, text: str, *labels: str, buckets: tuple[float, ...] = SECONDS
) -> Metric:
    return Metric(name, kind, "operator", unit, text, labels, buckets)


METRICS: tuple[Metric, ...] = (
    _public("streamdp_build_info", "gauge", "", "Always 1; the version that runs.", "version"),
    _public(
        "streamdp_stream_info",
        "gauge",
        "",
        "Always 1; the stream's guarantee, `horizon` or `window`, and the same in words.",
        "guarantee",
        "promise",
    ),
    _public("streamdp_ready", "gauge", "", "1 while `/ready` says yes, else 0."),
    _public(
        "streamdp_clock_held",
        "gauge",
        "",
        "1 while no time point closes because the machine's clock jumped, else 0.",
    ),
    _public("streamdp_time_point", "gauge", "", "The last time point that was published."),
    _public("streamdp_time_point_length_seconds", "gauge", "seconds", "How long a time point is."),
    _public("streamdp_span_points", "gauge", "points", "The horizon or the window that epsilon covers."),
    _public(
        "streamdp_last_point_closed_timestamp_seconds",
        "gauge",
        "seconds",
        "When the last published time point closed; when the daemon began, before the first.",
    ),
    _public("streamdp_time_points_total", "counter", "", "Time points published since the daemon began."),
    _public(
        "streamdp_time_points_missed_total", "counter", "", "Those among them that closed while no daemon was there."
    ),
    _public("streamdp_releases_total", "counter", "", "Fresh releases published.", "histogram"),
    _public(
        "streamdp_forecasts_total",
        "counter",
        "",
        "Time points at which a forecast from earlier releases was published, for nothing.",
        "histogram",
    ),
    _public(
        "streamdp_repeats_total",
        "counter",
        "",
        "Time points at which the last release was repeated, by the reason that was published.",
        "histogram",
        "reason",
    ),
    _public(
        "streamdp_last_release_timestamp_seconds",
        "gauge",
        "seconds",
        "When the time point of the latest release closed.",
        "histogram",
    ),
    _public(
        "streamdp_released_records",
        "gauge",
        "records",
        "The sum of the noisy counts that were published last.",
        "histogram",
    ),
    _public(
        "streamdp_release_noise_scale", "gauge", "records", "Scale of the noise in each released count.", "histogram"
    ),
    _public("streamdp_release_epsilon", "gauge", "", "What the latest release cost.", "histogram"),
    _public("streamdp_threshold", "gauge", "records", "The public threshold that was asked last.", "histogram"),
    _public(
        "streamdp_controller_error",
        "gauge",
        "",
        "The error that the threshold's controller acted on: above 0 when releases come too often.",
        "histogram",
    ),
    _public(
        "streamdp_controller_error_integral",
        "gauge",
        "",
        "The sum of errors in the controller's integral window.",
        "histogram",
    ),
    _public("streamdp_epsilon_limit", "gauge", "", "The whole budget: over the horizon, or in every window."),
    _public("streamdp_epsilon_reserved", "gauge", "", "A histogram's constant share of the budget.", "histogram"),
    _public(
        "streamdp_epsilon_spent",
        "gauge",
        "",
        "What of its share is spent over the horizon or in the window.",
        "histogram",
    ),
    _public("streamdp_epsilon_left", "gauge", "", "What of its share is left, as published.", "histogram"),
    _public(
        "streamdp_epsilon_returns_seconds",
        "gauge",
        "seconds",
        "From the last close until some of a histogram's spent share comes back: 0 when none is spent, +Inf when"
        " none ever will.",
        "histogram",
    ),
    _public("streamdp_jobs_epsilon_limit", "gauge", "", "What the histograms' shares leave for jobs."),
    _public("streamdp_jobs_epsilon_spent", "gauge", "", "What jobs have spent over the horizon or in the window."),
    _public("streamdp_jobs_epsilon_left", "gauge", "", "The most that a new job may ask for."),
    _public(
        "streamdp_jobs_epsilon_returns_seconds",
        "gauge",
        "seconds",
        "From the last close until a job may ask for more: 0 when nothing is spent, +Inf when never.",
    ),
    _public("streamdp_jobs_total", "counter", "", "Jobs whose outcome was published.", "kind", "state"),
    _public(
        "streamdp_job_refusals_total",
        "counter",
        "",
        "Refused requests for jobs, by reason: `budget` or `other`.",
        "reason",
    ),
    _public("streamdp_publish_failures_total", "counter", "", "Publications that the output did not take."),
    _public(
        "streamdp_publish_retries_total",
        "counter",
        "",
        "Publications tried again after the output did not take them.",
    ),
    _public(
        "streamdp_publish_failing",
        "gauge",
        "",
        "1 from a publication that the output did not take until it takes one again, else 0.",
    ),
    _operator("streamdp_rows_ingested_total", "counter", "", "Input messages that were applied."),
    _operator("streamdp_rows_rejected_total", "counter", "", "Input messages that became dead letters.", "reason"),
    _operator(
        "streamdp_rows_dropped_total", "counter", "", "Input messages outside the domain, dropped as configured."
    ),
    _operator(
        "streamdp_ingest_seconds", "histogram", "seconds", "Decoding and applying what one poll of the input brought."
    ),
    _operator(
        "streamdp_input_lag_records",
        "gauge",
        "records",
        "Messages between what was read and the end of the input, when the last time point closed.",
        "topic",
        "partition",
    ),
    _operator(
        "streamdp_input_truncations_total",
        "counter",
        "",
        "How often a partition of the input lost messages that were read before: an unclean leader election.",
    ),
    _operator(
        "streamdp_input_uncommitted_records",
        "gauge",
        "records",
        "Messages from the last stable offset to the end of the input: those of open transactions and all behind"
        " them, which time points wait for.",
        "topic",
        "partition",
    ),
    _operator("streamdp_population_users", "gauge", "users", "Users with any state, tombstones included."),
    _operator("streamdp_population_bytes", "gauge", "bytes", "Memory of the table of users."),
    _operator(
        "streamdp_publication_delay_seconds",
        "histogram",
        "seconds",
        "From the close of a time point until it was published.",
        buckets=LONG_SECONDS,
    ),
    _operator("streamdp_journal_commit_seconds", "histogram", "seconds", "Committing a time point to the journal."),
    _operator("streamdp_journal_bytes", "gauge", "bytes", "Size of the journal and its write-ahead file."),
    _operator(
        "streamdp_backup_timestamp_seconds",
        "gauge",
        "seconds",
        "When the newest verified backup of the journal was made (`streamdp journal backup`); 0 when none was.",
    ),
    _operator("streamdp_checkpoint_seconds", "histogram", "seconds", "Writing a checkpoint of the population."),
    _operator(
        "streamdp_requests_dropped_total",
        "counter",
        "",
        "Messages on the topic of requests without an answer: malformed, or too many at once.",
    ),
    _operator("streamdp_jobs_open", "gauge", "jobs", "Admitted jobs, `waiting` or `running`.", "kind", "state"),
    _operator(
        "streamdp_job_queue_seconds",
        "histogram",
        "seconds",
        "From admission to a worker.",
        "kind",
        buckets=LONG_SECONDS,
    ),
    _operator(
        "streamdp_job_run_seconds", "histogram", "seconds", "In a worker, to any end.", "kind", buckets=LONG_SECONDS
    ),
)

STREAM_LABEL = "stream"
"""On every series: the stream's name, which its configuration makes public."""
PROCESS_PREFIX = "process_"
"""On the operator's listener also the client library's own series of the process: memory, CPU, open files."""

Instrument = Any
"""A Counter, Gauge or Histogram of the client library, whose methods differ."""


class StreamRegistry(CollectorRegistry):
    """A registry whose series all carry the stream's name, which the instruments need not know."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self._stream = stream

    def collect(self) -> Iterator[Family]:
        for family in super().collect():
            family.samples = [
                sample._replace(labels={**sample.labels, STREAM_LABEL: self._stream}) for sample in family.samples
            ]
            yield family


class Metrics:
    """One audience's registry with all its instruments: `metrics["streamdp_time_point"].set(3)`.

    A name of another audience is a KeyError: no code path can put an operator's value on the public registry.
    """

    def __init__(self, audience: Audience, stream: str) -> None:
        self.registry = StreamRegistry(stream)
        self._instruments = {
            metric.name: _instrument(metric, self.registry) for metric in METRICS if metric.audience == audience
        }

    def __getitem__(self, name: str) -> Instrument:
        return self._instruments[name]


def _instrument(metric: Metric, registry: CollectorRegistry) -> Instrument:
    match metric.kind:
        case "counter":
            return Counter(metric.name, metric.help, metric.labels, registry=registry)
        case "gauge":
            return Gauge(metric.name, metric.help, metric.labels, registry=registry)
        case "histogram":
            return Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)


def page() -> str:
    """docs/metrics.md."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "Made from the table in `streamdp/observe/metrics.py`, by"
    yield "`python -m streamdp.observe.metrics > docs/metrics.md`."
    yield ""
    yield "Both listeners speak the Prometheus text format at `/metrics`. Neither is there unless the configuration"
    yield "names it, and a port alone listens on this machine only:"
    yield ""
    yield "    [observe]"
    yield "    metrics = 9464           # public metrics, /live, /ready"
    yield "    operator_metrics = 9465  # describes raw data: the operator's own"
    yield ""
    yield f"Every series also has the label `{STREAM_LABEL}`, the stream's name."
    yield ""
    yield "## Public: `[observe] metrics`"
    yield ""
    yield "Computed from messages that were published and from public parameters, and moved only when something is"
    yield "published: showing them to anybody costs nobody any privacy."
    yield ""
    yield from _table(metric for metric in METRICS if metric.audience == "public")
    yield ""
    yield "## Operator: `[observe] operator_metrics`"
    yield ""
    yield "They describe raw data or depend on it, and are **outside the guarantee**: as private as the input."
    yield ""
    yield from _table(metric for metric in METRICS if metric.audience == "operator")
    yield ""
    yield "Also the usual `process_*` series of the Prometheus client: memory, CPU seconds, open files, start time."
    yield ""


def _table(metrics: Iterable[Metric]) -> Iterator[str]:
    yield "| metric | type | unit | labels | meaning |"
    yield "|---|---|---|---|---|"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.help} |"


if __name__ == "__main__":
    sys.stdout.write(page())
