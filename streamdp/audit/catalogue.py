"""What `streamdp audit` audits: our own mechanisms, and published rules whose true loss is known.

The published ones keep the auditor honest: if it no longer sees what is wrong with them, it would not see it in ours.
They are descriptions for the auditor and cannot be run. All claim epsilon 1, but for those by class, and have
sensitivity 1.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from streamdp.audit import by_class, own, traced
from streamdp.audit.findings import Measurement, Subject, Verdict
from streamdp.audit.rules import Noise, Rule
from streamdp.audit.search import growth, worst_loss

CLAIM = 1.0
LENGTHS = (8, 16, 32, 64)

OURS = "streamdp"
TRACED = "streamdp, traced on neighbouring data"
PERSONALISED = "streamdp, by class"
VARIANTS = "published sparse vectors"
STREAM_RULES = "published stream rules"

# Where a class pays all of its epsilon, so that halved noise shows here too.
_TIGHT = {("minimum", "strict"), ("sampling", "strict"), ("weighted", "strict")}

# Whose neighbours here use up the claim, so that a wrong scale, split or sensitivity shows in either direction.
_USED_UP = {
    *("auto, horizon", "auto, window", "baseline, window", "fixed, window"),
    *("dsft, horizon", "dsat, horizon", "dsat_w, window", "ba, window"),
    *("efpa", "hierarchical", "laplace", "merged", "privelet", "psd"),
    *("kmeans, dplloyd", "kmeans, dplloyd_impr", "kmeans, eugkm", "kmeans, hybrid", "kmeans, mkm", "kmeans, pruned"),
    *("kmeans, ugkm", "personalized, histogram", "personalized, range_counts", "personalized, mean"),
    *("personalized, sum", "personalized, kmeans"),
}

# Positives of the variants, and most releases of the stream rules: small, so that the figures are easy to check.
_POSITIVES = 4
_RELEASES = 5


def catalogue() -> list[Subject]:
    """Every subject, in the order of the table."""
    return [*_ours(), *_traced(), *_personalised(), *_variants(), *_stream_rules()]


def _ours() -> list[Subject]:
    subjects = []
    for positives in (1, 4, 20):
        for monotone in (False, True):
            kind = "monotone" if monotone else "general"
            subjects.append(
                Subject(
                    OURS,
                    f"SparseVector c={positives}, {kind}",
                    CLAIM,
                    _later(own.sparse_vector, positives, monotone),
                    Verdict.WITHIN,
                    ratio=1,
                )
            )
    for monotone, kind in ((False, "general"), (True, "monotone")):
        subjects.append(
            Subject(
                OURS,
                f"exponential mechanism, {kind}",
                CLAIM,
                _later(own.exponential_law, monotone),
                Verdict.WITHIN,
                ratio=1,
            )
        )
    return [
        *subjects,
        Subject(OURS, "discrete Laplace", CLAIM, own.laplace_law, Verdict.WITHIN, ratio=1),
        Subject(OURS, "discrete Laplace, drawn", CLAIM, own.laplace_drawn, Verdict.NOTHING_FOUND),
        Subject(OURS, "exponential mechanism, drawn", CLAIM, own.exponential_drawn, Verdict.NOTHING_FOUND),
        Subject(OURS, "permute and flip, drawn", CLAIM, own.permute_and_flip_drawn, Verdict.NOTHING_FOUND),
        Subject(OURS, "strategy auto, whole runs drawn", CLAIM, own.auto_drawn, Verdict.NOTHING_FOUND),
    ]


def _traced() -> list[Subject]:
    """Strategies, histogram methods and the estimators of jobs, whole."""
    from streamdp.histograms import method_names

    measured = {
        **{
            f"{kind}, {guarantee}": _later(traced.strategy, kind, guarantee, parameters)
            for kind, guarantee, parameters in traced.STRATEGIES
        },
        **{method: _later(traced.histogram, method) for method in method_names()},
        **{f"kmeans, {method}": _later(traced.kmeans, method) for method in traced.KMEANS_METHODS},
        **{f"copula, {method}": _later(traced.copula, method) for method in traced.COPULA_METHODS},
        **{f"privpfc, {name}": _later(traced.privpfc, name) for name in ("permute_and_flip", "exponential")},
        **{f"personalized, {target}": _later(traced.personalized, target) for target in traced.TARGETS},
    }
    return [
        Subject(TRACED, name, CLAIM, measure, Verdict.WITHIN, ratio=1 if name in _USED_UP else None)
        for name, measure in measured.items()
    ]


def _personalised() -> list[Subject]:
    """For each class its own claim. How much of it a mechanism uses is its own affair."""
    return [
        Subject(
            PERSONALISED,
            f"{mechanism}, {name}",
            float(epsilon),
            _later(by_class.personalised, mechanism, name),
            Verdict.WITHIN,
            ratio=1 if (mechanism, name) in _TIGHT else None,
        )
        for mechanism in by_class.MECHANISMS
        for name, epsilon in by_class.CLASSES.items()
    ]


def _variants() -> list[Subject]:
    c = _POSITIVES
    rows: list[tuple[str, Rule, Verdict, float | None]] = [
        ("Alg. 17, Lyu, Su, Li 2017", _rule(2, 4 * c, c), Verdict.WITHIN, 1),
        ("Alg. 18, Dwork, Roth 2014", _rule(2 * c, 4 * c, c, fresh_threshold=True), Verdict.WITHIN, 1),
        ("Alg. 19, Roth 2011", _rule(2, 2 * c, c, values=True), Verdict.UNBOUNDED, None),
        ("Alg. 20, Lee, Clifton 2014", _rule(4, Fraction(4, 3), c), Verdict.EXCEEDS, (1 + 6 * c) / 4),
        ("Alg. 21, Stoddard et al. 2014", _rule(2, 0, None), Verdict.INFINITE, None),
        ("Alg. 22, Chen et al. 2015", _rule(2, 2, None), Verdict.UNBOUNDED, None),
    ]
    return [_printed(VARIANTS, *row) for row in rows]


def _stream_rules() -> list[Subject]:
    C = _RELEASES
    both = 2 * C
    rows: list[tuple[str, Rule, Verdict, float | None]] = [
        ("Li 2017 Alg. 7, C-1 positives", _rule(2, both, C - 1), Verdict.EXCEEDS, 1.5 - 1 / C),
        ("Li 2017 Alg. 7, C positives", _rule(2, both, C), Verdict.EXCEEDS, 1.5),
        ("Li 2015 Alg. 1, C-1 positives", _rule(both, both, C - 1), Verdict.WITHIN, 1 - 1 / (2 * C)),
        ("Li 2015 Alg. 1, C positives", _rule(both, both, C), Verdict.EXCEEDS, 1 + 1 / (2 * C)),
        ("Li 2015 Alg. 2, clamped", _rule(both, both, C - 1, clamp=(0.0, 1000.0)), Verdict.UNBOUNDED, None),
        ("Li 2015 Alg. 2, uncut", _rule(both, both, None), Verdict.UNBOUNDED, None),
    ]
    single = Subject(STREAM_RULES, "Li 2015 Alg. 3, one rho", CLAIM, _single_threshold_noise, Verdict.UNBOUNDED)
    return [*(_printed(STREAM_RULES, *row) for row in rows), single]


def _rule(
    threshold_scale: int,
    query_scale: int | Fraction,
    positives: int | None,
    *,
    clamp: tuple[float, float] | None = None,
    fresh_threshold: bool = False,
    values: bool = False,
) -> Rule:
    return Rule(
        Noise(Fraction(threshold_scale)),
        Noise(Fraction(query_scale)),
        positives,
        clamp=clamp,
        fresh_threshold=fresh_threshold,
        values=values,
    )


def _printed(group: str, name: str, rule: Rule, expected: Verdict, ratio: float | None) -> Subject:
    has_worst_length = rule.positives is not None and rule.clamp is None and not rule.values
    return Subject(group, name, CLAIM, _later(_bounded if has_worst_length else _growing, rule), expected, ratio)


def _bounded(rule: Rule) -> Measurement:
    return Measurement(worst_loss(rule, sensitivity=1).loss)


def _growing(rule: Rule) -> Measurement:
    losses = [attack.loss for attack in growth(rule, 1, LENGTHS)]
    return Measurement(losses[-1], growth=tuple(zip(LENGTHS, losses, strict=True)))


def _single_threshold_noise() -> Measurement:
    """The window is a parameter of this rule, and its loss grows with that."""
    scale = Noise(Fraction(2 * _RELEASES))
    losses = [worst_loss(Rule(scale, scale, _RELEASES, window=window), 1, window).loss for window in LENGTHS]
    return Measurement(losses[-1], growth=tuple(zip(LENGTHS, losses, strict=True)))


def _later(measure: Callable[..., Measurement], *arguments: object) -> Callable[[], Measurement]:
    return lambda: measure(*arguments)
