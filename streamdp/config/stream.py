"""A whole configuration: every table, what they must agree on, and what the rest of streamdp builds from them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, model_validator

from streamdp.config.agreement import disagreements
from streamdp.config.attributes import AttributeSection
from streamdp.config.build import build_domain, build_view, output_topics, shares, strategy_arguments
from streamdp.config.faults import describe_faults
from streamdp.config.histograms import HistogramSection
from streamdp.config.observe import Observe
from streamdp.config.sections import DeadLetters, Input, Jobs, Journal, Output, Privacy, Stream, Time
from streamdp.domain import Domain, View
from streamdp.fields import Settings
from streamdp.privacy.levels import Level
from streamdp.privacy.noise import NoiseSource
from streamdp.privacy.terms import Terms
from streamdp.strategies import Conditions, Strategy, make_strategy
from streamdp.transport.kafka_keys import KafkaSettings, client_settings


class StreamConfig(Settings):
    """One stream: one input, one domain, one ledger, one or more histograms."""

    stream: Stream
    """What the stream is called."""
    domain: Annotated[dict[str, AttributeSection], Field(min_length=1)]
    """The public attributes, `[domain.NAME]`, each as fine as it may ever be used. Fixed, never read from the data."""
    time: Time
    """When a time point closes, and how long records live."""
    privacy: Privacy
    """What is promised. These do not change once a journal exists."""
    histogram: Annotated[list[HistogramSection], Field(min_length=1)]
    """What is counted and released, `[[histogram]]`, one table each."""
    input: Input
    """Where records come from, and whose they are."""
    output: Output = Output()
    """Where releases go."""
    dead_letters: DeadLetters = DeadLetters()
    """Where records that cannot be used go. They hold personal data."""
    journal: Journal = Journal()
    """The ledger and what recovery needs. As private as the input."""
    jobs: Jobs = Jobs()
    """What jobs may use. They are charged to the same budget as the histograms."""
    observe: Observe = Observe()
    """What the daemon shows of itself: metrics, health, the status page. Nothing unless named."""

    _directory: Path = PrivateAttr(default_factory=Path)

    @model_validator(mode="after")
    def _agrees(self) -> StreamConfig:
        faults = disagreements({name: getattr(self, name) for name in type(self).model_fields})
        if faults:
            raise ValueError(describe_faults(faults))
        return self

    def placed_in(self, directory: Path) -> StreamConfig:
        """The same configuration, with relative paths taken from `directory`."""
        placed = self.model_copy()
        placed._directory = directory
        return placed

    @property
    def name(self) -> str:
        return self.stream.name

    @property
    def epsilon(self) -> Fraction:
        return self.privacy.epsilon

    @property
    def horizon(self) -> int | None:
        return self.privacy.horizon

    @property
    def window(self) -> int | None:
        return self.privacy.window

    @property
    def records_per_user(self) -> int:
        return self.privacy.records_per_user

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of privacy that preferences are kept at, strictest first; none when everybody has epsilon."""
        return () if self.privacy.preferences is None else self.privacy.preferences.build_levels()

    @property
    def preferences_path(self) -> Path | None:
        """The file with the table of preferences; None when there is none, or it is a topic."""
        preferences = self.privacy.preferences
        return None if preferences is None or preferences.path is None else self._directory / preferences.path

    @property
    def output_prefix(self) -> str:
        return self.output.prefix or self.stream.name

    @property
    def output_topics(self) -> tuple[str, ...]:
        return output_topics(self.stream, self.output)

    @property
    def input_log_path(self) -> Path:
        return self._directory / self.input.log.path

    @property
    def output_log_path(self) -> Path:
        return self._directory / (self.output.log or self.input.log).path

    @property
    def input_kafka(self) -> KafkaSettings | None:
        """How to reach the input's Kafka, secrets looked up; None when the input is the embedded log."""
        return None if self.input.kafka is None else client_settings(self.input.kafka, "input", self._directory)

    @property
    def output_kafka(self) -> KafkaSettings | None:
        """How to reach the output's Kafka, secrets looked up; None when the output is the embedded log."""
        if self.output.kafka is not None:
            return client_settings(self.output.kafka, "output", self._directory)
        return self.input_kafka if self.output.log is None else None

    @property
    def journal_path(self) -> Path:
        return self._directory / self.journal.path

    @property
    def checkpoint_path(self) -> Path:
        if self.journal.checkpoint_path is not None:
            return self._directory / self.journal.checkpoint_path
        return self.journal_path.parent / "checkpoints"

    @property
    def snapshot_path(self) -> Path:
        """The directory of the snapshots that jobs read."""
        return self.journal_path.parent / "snapshots"

    @property
    def dead_letters_path(self) -> Path | None:
        """The file for dead letters; None when they go to a topic."""
        if self.dead_letters.topic is not None:
            return None
        if self.dead_letters.path is not None:
            return self._directory / self.dead_letters.path
        return self.journal_path.with_suffix(".dead_letters")

    def build_domain(self) -> Domain:
        return build_domain(self.domain)

    def build_views(self) -> list[View]:
        """One per histogram, in order."""
        domain = self.build_domain()
        return [build_view(histogram, domain) for histogram in self.histogram]

    def share(self, histogram: HistogramSection | str) -> Fraction:
        """The part of epsilon that is this histogram's."""
        name = histogram if isinstance(histogram, str) else histogram.name
        return shares(self.histogram, self.jobs.share)[name]

    @property
    def share_left(self) -> Fraction:
        """The part of epsilon that no histogram takes: what jobs may spend."""
        return Fraction(1) - sum(shares(self.histogram, self.jobs.share).values())

    @property
    def terms(self) -> Terms:
        """What the ledger promises, and to whom."""
        user = self.input.user
        if self.horizon is not None:
            return Terms.finite_horizon(self.epsilon, self.horizon, self.records_per_user, user, self.levels)
        assert self.window is not None  # a configuration has one of the two
        return Terms.w_event(self.epsilon, self.window, self.records_per_user, user, self.levels)

    def conditions(self, histogram: HistogramSection, view: View) -> Conditions:
        """What the histogram's strategy works under."""
        epsilon = self.epsilon * self.share(histogram)
        return Conditions(epsilon, view.shape, self.horizon, self.window, self.records_per_user)

    def strategy_arguments(self, histogram: HistogramSection, view: View) -> dict[str, Any]:
        """What `make_strategy` (and restoring one) takes for this histogram, but for the source of noise."""
        return strategy_arguments(histogram, view, self.privacy, self.share(histogram))

    def build_strategy(self, histogram: HistogramSection, view: View, source: NoiseSource | None = None) -> Strategy:
        """A new strategy for this histogram. Draws nothing and spends nothing until its first point."""
        return make_strategy(**self.strategy_arguments(histogram, view), source=source)
