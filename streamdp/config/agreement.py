"""What the tables of a configuration must agree on, when each is right by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from streamdp.config.attributes import AttributeSection, HistogramAttribute
from streamdp.config.build import build_domain, build_view, output_topics, shares, strategy_arguments
from streamdp.config.faults import Fault
from streamdp.config.histograms import HistogramSection
from streamdp.config.sections import Jobs, Privacy
from streamdp.errors import ConfigurationError
from streamdp.fields import exact_text
from streamdp.strategies import STRATEGIES, WrongParameter, make_strategy, strategies_for
from streamdp.strategies.description import Guarantee

MAX_CELLS = 2**24

Attributes = Mapping[str, AttributeSection | None]


@dataclass(frozen=True)
class Unsound:
    """What is right in a histogram that is not; None for what is not."""

    attributes: list[HistogramAttribute] | None
    strategy: str | None


def disagreements(sections: Mapping[str, Any]) -> list[Fault]:
    """What is wrong between tables that are each right.

    A table or an attribute that is not right is None in `sections`, and a histogram is an `Unsound`: what needs it is
    left unchecked, so that the faults of the others still show.
    """
    return [
        *_topic_faults(sections),
        *_owner_faults(sections),
        *_histogram_faults(sections),
        *_preference_faults(sections),
        *_job_faults(sections["jobs"]),
    ]


def _topic_faults(sections: Mapping[str, Any]) -> Iterator[Fault]:
    stream, output = sections["stream"], sections["output"]
    source, dead = sections["input"], sections["dead_letters"]
    if source is None:
        return
    for topic, times in Counter(source.topics).items():
        if times > 1:
            yield Fault("input.topics", f"found {topic!r} {times} times; give each topic once")
    written = () if stream is None or output is None else output_topics(stream, output)
    for topic in written:
        if topic in source.topics:
            yield Fault("input.topics", f"found {topic!r}, which this stream writes; give another, or an output.prefix")
    if dead is not None and dead.topic in (*written, *source.topics):
        yield Fault("dead_letters.topic", f"found {dead.topic!r}, which this stream reads or writes; give another")


def _owner_faults(sections: Mapping[str, Any]) -> Iterator[Fault]:
    source, privacy = sections["input"], sections["privacy"]
    if source is None:
        return
    if privacy is not None and privacy.records_per_user > 1 and source.record_id is None:
        yield Fault(
            "input.record_id",
            f"missing; with privacy.records_per_user = {privacy.records_per_user} give the field that tells a user's"
            " records apart",
        )
    if source.record_id is not None and source.record_id == source.user_field:
        yield Fault("input.record_id", f"found {source.record_id!r}, which names the user; give another field")
    for key, field in (("user", source.user_field), ("record_id", source.record_id)):
        if field in sections["domain"]:
            yield Fault(
                f"input.{key}", f"found {field!r}, an attribute of the domain; give a field that is not counted"
            )


def _histogram_faults(sections: Mapping[str, Any]) -> Iterator[Fault]:
    histograms, privacy = sections["histogram"], sections["privacy"]
    sound = [histogram for histogram in histograms if not isinstance(histogram, Unsound)]
    names = Counter(histogram.name for histogram in sound)
    taken = sum((histogram.share for histogram in sound if histogram.share is not None), Fraction(0))
    jobs = None if sections["jobs"] is None else sections["jobs"].share
    total = taken + (jobs or 0)
    if taken > 1:
        yield Fault("histogram", f"found shares that sum to {exact_text(taken)}; give shares that sum to at most 1")
    elif jobs is not None and total > 1:
        left = exact_text(1 - taken)
        yield Fault("jobs.share", f"found {exact_text(jobs)}, and the histograms leave {left}; lower one of them")
    can_share = len(sound) == len(histograms) == len(names) and total <= 1
    share_of = shares(sound, jobs) if can_share else {}
    for place, histogram in enumerate(histograms):
        path = f"histogram[{place}]"
        yield from _attribute_faults(path, histogram.attributes or [], sections["domain"])
        yield from _guarantee_faults(path, histogram.strategy, privacy)
        if isinstance(histogram, Unsound):
            continue
        if names[histogram.name] > 1:
            yield Fault(f"{path}.name", f"found {histogram.name!r} {names[histogram.name]} times; give each name once")
        if total == 1 and histogram.share is None:
            yield Fault(f"{path}.share", "missing, and the others leave nothing; lower theirs")
        yield from _strategy_faults(path, histogram, sections["domain"], privacy, share_of.get(histogram.name))


def _preference_faults(sections: Mapping[str, Any]) -> Iterator[Fault]:
    privacy, histograms, source = sections["privacy"], sections["histogram"], sections["input"]
    if privacy is None or privacy.preferences is None:
        return
    preferences, most = privacy.preferences, privacy.epsilon
    levels = preferences.build_levels()
    for level in levels:
        if level.epsilon > most:
            where = "classes" if level.name in preferences.classes else "levels"
            yield Fault(
                f"privacy.preferences.{where}",
                f"found {exact_text(level.epsilon)}; nobody spends more than the privacy.epsilon, {exact_text(most)}",
            )
    taken = (
        ()
        if sections["stream"] is None or sections["output"] is None
        else output_topics(sections["stream"], sections["output"])
    )
    if source is not None and preferences.topic in (*source.topics, *taken):
        yield Fault("privacy.preferences.topic", f"found {preferences.topic!r}, which holds something else")
    jobs = None if sections["jobs"] is None else sections["jobs"].share
    names = {getattr(histogram, "name", None) for histogram in histograms}
    if any(isinstance(histogram, Unsound) for histogram in histograms) or len(names) < len(histograms):
        return
    reserved = sum(shares(histograms, jobs).values()) * most
    if reserved > levels[0].epsilon:
        yield Fault(
            "histogram",
            f"found shares that take epsilon {exact_text(reserved)} of everybody, and {levels[0].name!r} allows"
            f" {exact_text(levels[0].epsilon)}; lower the shares of the histograms",
        )


def _job_faults(jobs: Jobs | None) -> Iterator[Fault]:
    if jobs is None or not jobs.kinds:
        return
    from streamdp.jobs.catalogue import KINDS  # loads every estimator, which most configurations need not wait for

    for place, kind in enumerate(jobs.kinds):
        if kind not in KINDS:
            yield Fault(f"jobs.kinds[{place}]", f"found {kind!r}; give one of: {', '.join(KINDS)}")


def _attribute_faults(path: str, attributes: list[HistogramAttribute], domain: Attributes) -> Iterator[Fault]:
    names = Counter(attribute.name for attribute in attributes)
    for place, attribute in enumerate(attributes):
        where = f"{path}.attributes[{place}]"
        if attribute.name not in domain:
            known = ", ".join(domain) or "none"
            yield Fault(where, f"found {attribute.name!r}, which is not in the domain; give one of: {known}")
            continue
        if names[attribute.name] > 1:
            yield Fault(where, f"found {attribute.name!r} {names[attribute.name]} times; give each attribute once")
        section = domain[attribute.name]
        if section is not None:
            try:
                attribute.build().coarsen(section.build(attribute.name))
            except ValueError as error:
                yield Fault(where, str(error).removeprefix(f"{attribute.name}: "))


def _guarantee_faults(path: str, strategy: str | None, privacy: Privacy | None) -> Iterator[Fault]:
    if privacy is None or strategy not in STRATEGIES:
        return
    given: Guarantee = "horizon" if privacy.window is None else "window"
    able = STRATEGIES[strategy].guarantees
    if given not in able:
        yield Fault(
            f"{path}.strategy",
            f"found {strategy!r}, which is for a privacy.{' or '.join(able)}; with privacy.{given} give one of"
            f" {', '.join(strategies_for(given))}",
        )


def _strategy_faults(
    path: str, histogram: HistogramSection, domain: Attributes, privacy: Privacy | None, share: Fraction | None
) -> Iterator[Fault]:
    """The number of cells, then the strategy's own checks; creating one draws nothing and spends nothing."""
    used = {name: domain.get(name) for name in (attribute.name for attribute in histogram.attributes)}
    try:
        view = build_view(histogram, build_domain({name: section for name, section in used.items() if section}))
    except ValueError:
        return  # an attribute is wrong, and its own fault says so
    if view.cells > MAX_CELLS:
        yield Fault(
            f"{path}.attributes",
            f"found {view.cells:,} cells; give fewer attributes or coarser bins: at most {MAX_CELLS:,} cells",
        )
        return
    if privacy is None or not share or any(_guarantee_faults(path, histogram.strategy, privacy)):
        return
    try:
        make_strategy(**strategy_arguments(histogram, view, privacy, share))
    except WrongParameter as error:
        yield Fault(f"{path}.parameters.{error.name}", error.message)
    except ConfigurationError as error:
        yield Fault(f"{path}.parameters", str(error))
