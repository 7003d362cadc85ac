"""Which settings may change once a journal exists.

The ledger belongs to the input data: what was promised about the data, and what a closed snapshot means, stays as it
was when the journal was begun. Even what looks stricter is no exception: a window of 4 after one of 2 leaves windows
that spent 1.5 times epsilon, and a smaller bound on records shrinks the noise while users still hold more.

Every setting is in the table. A start compares those that are not free with what the journal holds (`promised`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any, Literal, get_args

from pydantic import BaseModel

from streamdp.config.stream import StreamConfig

Kind = Literal["fixed", "shorter", "period", "free"]

WORDS: dict[Kind, str] = {"fixed": "no", "shorter": "only shorter", "period": "at a period's end", "free": "yes"}
"""For the reference page."""

MAY_CHANGE: dict[str, Kind] = {
    "stream.name": "fixed",
    # What a record counts as: another domain would count the same input otherwise.
    "domain.type": "fixed",
    "domain.values": "fixed",
    "domain.low": "fixed",
    "domain.high": "fixed",
    "domain.bins": "fixed",
    "domain.edges": "fixed",
    "domain.outside": "fixed",
    # The guarantee counts in time points.
    "time.length": "fixed",
    "time.clock": "fixed",
    "time.origin": "fixed",
    "time.publish_after": "free",
    # Recovery reads the input again and must take what was taken then.
    "time.skew": "fixed",
    "time.max_clock_jump": "free",
    "time.expire_after": "shorter",
    "time.tombstone_points": "shorter",
    "privacy.epsilon": "fixed",
    "privacy.horizon": "fixed",
    "privacy.window": "fixed",
    "privacy.records_per_user": "fixed",
    "privacy.preferences.classes": "fixed",
    "privacy.preferences.levels": "fixed",
    "privacy.preferences.path": "free",
    "privacy.preferences.topic": "free",
    # A histogram may come where the ledger has room, and go. Under its name it stays what it was.
    "histogram.name": "free",
    "histogram.attributes.name": "fixed",
    "histogram.attributes.bins": "fixed",
    "histogram.attributes.edges": "fixed",
    "histogram.attributes.groups": "fixed",
    "histogram.share": "fixed",
    "histogram.method": "fixed",
    "histogram.post": "fixed",
    "histogram.strategy": "fixed",
    "histogram.parameters": "fixed",
    "input.topics": "fixed",
    # Who a user is: one person under two names would hold twice the records.
    "input.user": "fixed",
    "input.record_id": "fixed",
    "input.start": "free",
    "input.max_record_bytes": "fixed",
    "input.max_key_bytes": "fixed",
    # Where a log or cluster is found may change. Which one it is may not: the journal holds its id.
    "input.log.path": "free",
    "input.kafka": "free",
    "output.log.path": "free",
    "output.kafka": "free",
    "output.prefix": "fixed",
    "output.format": "free",
    "dead_letters.path": "free",
    "dead_letters.topic": "free",
    "dead_letters.max_file_bytes": "free",
    "dead_letters.keep_files": "free",
    "journal.path": "free",
    "journal.keep_points": "free",
    "journal.checkpoint_every": "free",
    "journal.checkpoint_path": "free",
    "jobs.share": "free",
    "jobs.max_epsilon": "free",
    "jobs.kinds": "free",
    "jobs.workers": "free",
    "jobs.max_waiting": "free",
    "jobs.time_limit": "free",
    "jobs.memory_mb": "free",
    "observe.metrics": "free",
    "observe.operator_metrics": "free",
    "observe.operator_hosts": "free",
    "observe.page": "free",
}

MAY_SHORTEN = frozenset(name for name, kind in MAY_CHANGE.items() if kind == "shorter")


def promised(config: StreamConfig) -> dict[str, Any]:
    """The settings that are not free, as JSON values with the defaults resolved, by the name to call them by."""
    given = config.model_dump(mode="json")
    tables = ("domain.", "histogram.")
    values = {
        name: _value(given, name) for name, kind in MAY_CHANGE.items() if kind != "free" and not name.startswith(tables)
    }
    values |= {
        "time.origin": config.time.origin.astimezone(UTC).isoformat(),
        "time.tombstone_points": config.time.tombstones,
        "input.topics": sorted(config.input.topics),
        "output.prefix": config.output_prefix,
        "domain": list(config.domain),
    }
    values |= {f"domain.{each.name}": each.describe() for each in config.build_domain().attributes}
    for histogram, view in zip(given["histogram"], config.build_views(), strict=True):
        settings = {
            "attributes": [axis.describe() for axis in view.axes],
            "share": str(config.share(view.name)),
            "method": histogram["method"],
            "post": histogram["post"],
            "strategy": histogram["strategy"],
        }
        settings |= {f"parameters.{name}": value for name, value in histogram["parameters"].items()}
        values |= {f"histogram.{view.name}.{name}": value for name, value in settings.items()}
    return values


def setting_names(model: type[BaseModel] = StreamConfig, prefix: str = "") -> Iterator[str]:
    """The dotted names of every setting there is; of the entries of a list or of named tables, without their names."""
    for name, field in model.model_fields.items():
        tables = list(_tables(field.annotation))
        if prefix + name in MAY_CHANGE:
            yield prefix + name
        elif tables:
            for table in tables:
                yield from setting_names(table, f"{prefix}{name}.")
        else:
            yield prefix + name


def _tables(annotation: Any) -> Iterator[type[BaseModel]]:
    """The tables that a setting of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _tables(part)


def _value(given: Any, name: str) -> Any:
    for part in name.split("."):
        given = None if given is None else given[part]
    return given
