"""The tables of a stream's configuration but for the domain and the histograms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from streamdp.config.kafka import InputKafka, OutputKafka
from streamdp.config.preferences import Preferences
from streamdp.fields import Duration, Name, PositiveDuration, PositiveExact, Settings, Share, Topic

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Records are read as they come, so what is left to do at a close does not grow with the length of a point.
LONGEST_DEFAULT_WAIT_MS = 30_000


class Stream(Settings):
    """What the stream is called."""

    name: Name
    """The stream's name: lower-case letters, digits, dot, dash and underscore."""


class Time(Settings):
    """When a time point closes, and how long records live."""

    length: PositiveDuration
    """How long a time point is: `"500ms"`, `"90s"`, `"5m"`, `"1h"`, `"1d"`, or a number of seconds."""
    clock: Literal["wall", "event"] = "wall"
    """`wall`: points close by the clock. `event`: the records' own timestamps close points; one user's message can then
    create output, so there is **no guarantee**: for replay only."""
    origin: AwareDatetime = EPOCH
    """Where time points are counted from, with a time zone (`2026-01-01T00:00:00Z`)."""
    publish_after: Duration | None = None
    """How long after a point closes its release leaves, so that the time of release tells nothing: more than it takes
    to read, decide and store. When left out, a quarter of `length`, at most 30 seconds. `0`: as soon as stored."""
    skew: Duration = Field(default="5s", validate_default=True)
    """Public: a record whose timestamp is later than the close of the current point plus this is a dead letter."""
    max_clock_jump: PositiveDuration = Field(default="30s", validate_default=True)
    """Public: when the machine's clock jumps by more than this, no time point closes until it is right again, or until
    a start with `--accept-clock`."""
    expire_after: int | None = Field(default=None, ge=1)
    """Forget a user this many points after their last message. Kept for ever when left out."""
    tombstone_points: int | None = Field(default=None, ge=1)
    """For how many points a delete is remembered, so that older messages cannot undo it. When left out, 1000, or
    `expire_after` when that is less."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Time:
        if self.expire_after is not None and (self.tombstone_points or 0) > self.expire_after:
            raise ValueError(
                f"tombstone_points is more than expire_after; a tombstone is forgotten with the user: give at most"
                f" {self.expire_after}"
            )
        return self

    @property
    def length_ms(self) -> int:
        return self.length

    @property
    def origin_ms(self) -> int:
        return (self.origin - EPOCH) // timedelta(milliseconds=1)

    @property
    def publish_after_ms(self) -> int:
        """When a release leaves, the default resolved."""
        return min(self.length // 4, LONGEST_DEFAULT_WAIT_MS) if self.publish_after is None else self.publish_after

    @property
    def max_clock_jump_ms(self) -> int:
        return self.max_clock_jump

    @property
    def skew_ms(self) -> int:
        return self.skew

    @property
    def tombstones(self) -> int:
        """For how many points a delete is remembered, the default resolved."""
        return self.tombstone_points or min(1_000, self.expire_after or 1_000)


class Privacy(Settings):
    """What is promised. These do not change once a journal exists."""

    epsilon: PositiveExact
    """The whole budget: over the horizon, or in every window. An exact number, best as text: `"0.1"`, `"1/3"`."""
    horizon: int | None = Field(default=None, ge=1)
    """The guarantee covers the whole series, which ends after this many time points. Either this or `window`."""
    window: int | None = Field(default=None, ge=1)
    """w-event: the guarantee covers every window of this many time points, for ever. Either this or `horizon`."""
    records_per_user: int = Field(default=1, ge=1)
    """How many records a user may hold at once; all noise grows with it. More than 1 needs `[input] record_id`."""
    preferences: Preferences | None = None
    """Every user with their own epsilon, none above `epsilon`; everybody has `epsilon` when left out."""

    @model_validator(mode="after")
    def _one_guarantee(self) -> Privacy:
        if (self.horizon is None) == (self.window is None):
            raise ValueError("give exactly one of horizon (a series that ends) and window (w-event, for ever)")
        return self


class LogDirectory(Settings):
    """The embedded log."""

    path: str = Field(default="data/log", min_length=1)
    """The log's directory, relative to this file."""


class Input(Settings):
    """Where records come from, and whose they are."""

    topics: Annotated[list[Topic], Field(min_length=1, max_length=64)]
    """The topics to read."""
    user: Annotated[str, StringConstraints(pattern=r"^(key|field:.+)$")] = "key"
    """Who is a user: `"key"`, the message key, or `"field:NAME"`, that field of the record."""
    record_id: str | None = Field(default=None, min_length=1)
    """The field that tells apart the records of one user who may hold several."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a new stream begins to read."""
    max_record_bytes: int = Field(default=65_536, ge=1, le=2**30)
    """A longer record, key and value together, is a dead letter."""
    max_key_bytes: int = Field(default=16_384, ge=1, le=2**30)
    """A record with a longer key is a dead letter."""
    log: LogDirectory = LogDirectory()
    """The embedded log that holds the topics."""
    kafka: InputKafka | None = None
    """Client keys of the Kafka that holds the topics, in librdkafka's names (docs/kafka.md); the log is then unused."""

    @model_validator(mode="after")
    def _not_ambiguous(self) -> Input:
        if self.user == "field:key":
            raise ValueError('user = "field:key" reads like the message key; call the field something else')
        return self

    @property
    def user_field(self) -> str | None:
        """The record's field that names the user; None when the message key does."""
        return None if self.user == "key" else self.user.removeprefix("field:")


class Output(Settings):
    """Where releases go."""

    prefix: Topic | None = None
    """Topics are `PREFIX.releases`, `PREFIX.latest`, `PREFIX.head`, `PREFIX.results`, `PREFIX.rows.ID` and, for
    requests, `PREFIX.jobs`; the stream's name when left out."""
    format: Literal["json", "arrow", "auto"] = "auto"
    """`json`, `arrow` (Arrow IPC, compressed) or `auto`: JSON until a histogram is too wide for one message."""
    log: LogDirectory | None = None
    """The embedded log to write to; the input's log or Kafka when this and `kafka` are left out."""
    kafka: OutputKafka | None = None
    """Client keys of the Kafka to write to, in librdkafka's names (docs/kafka.md)."""

    @model_validator(mode="after")
    def _one_place(self) -> Output:
        if self.log is not None and self.kafka is not None:
            raise ValueError("give log or kafka, not both")
        return self


class DeadLetters(Settings):
    """Where records that cannot be used go. They hold personal data."""

    path: str | None = Field(default=None, min_length=1)
    """A file only its owner may read, relative to this file; beside the journal when left out."""
    topic: Topic | None = None
    """A topic of the output instead of a file."""
    max_file_bytes: int = Field(default=64 << 20, ge=1 << 20)
    """The file is moved aside before it grows beyond this."""
    keep_files: int = Field(default=3, ge=0, le=1_000)
    """How many files moved aside are kept, as `<path>.1` (the newest), `<path>.2` and so on; the oldest is deleted."""

    @model_validator(mode="after")
    def _one_place(self) -> DeadLetters:
        if self.path is not None and self.topic is not None:
            raise ValueError("give path or topic, not both")
        return self


class Journal(Settings):
    """The ledger and what recovery needs. As private as the input."""

    path: str = Field(default="state/journal.db", min_length=1)
    """The journal's file, relative to this file."""
    keep_points: int = Field(default=1_000, ge=1)
    """For how many points the stored releases are kept. Charges are kept for ever."""
    checkpoint_every: int = Field(default=100, ge=1)
    """Write the population to disk every so many points."""
    checkpoint_path: str | None = Field(default=None, min_length=1)
    """The directory of the checkpoints, relative to this file; `checkpoints` beside the journal when left out."""

    @model_validator(mode="after")
    def _keeps_enough(self) -> Journal:
        if self.checkpoint_every * 2 > self.keep_points:
            raise ValueError(
                "checkpoint_every is more than half of keep_points; the journal must reach back two checkpoints:"
                f" give keep_points of at least {self.checkpoint_every * 2}"
            )
        return self


class Jobs(Settings):
    """What jobs may use (docs/jobs.md). They are charged to the same budget as the histograms."""

    share: Share | None = None
    """The part of epsilon set aside for jobs. Histograms without a share of their own divide what is left without it.
    When left out, jobs get what the histograms leave."""
    max_epsilon: PositiveExact | None = None
    """The most epsilon one job may ask for; as much as is left when left out."""
    kinds: list[str] | None = None
    """The kinds of job allowed, `[]` for none; every kind (`streamdp job kinds`) when left out."""
    workers: int = Field(default=1, ge=1, le=64)
    """How many jobs run at once, each in a process of its own."""
    max_waiting: int = Field(default=100, ge=1)
    """How many jobs may be open, running or waiting; a request beyond is refused."""
    time_limit: PositiveDuration = Field(default="10m", validate_default=True)
    """A job that runs longer has failed. Its charge stays spent."""
    memory_mb: int = Field(default=4_096, ge=1_024)
    """Megabytes that one job may allocate; the mapped snapshot does not count. A job that needs more has failed."""

    @property
    def time_limit_seconds(self) -> float:
        return self.time_limit / 1_000
