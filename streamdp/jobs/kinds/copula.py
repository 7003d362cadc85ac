"""`kind = "copula"`: synthetic rows of a snapshot's attributes, by a private Gaussian copula."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from streamdp.domain import Domain
from streamdp.fields import Settings
from streamdp.jobs import progress
from streamdp.jobs.base import SMALLEST_EPSILON, ParameterError
from streamdp.jobs.copula import Copula
from streamdp.jobs.kind import MAX_ROWS, Kind, Output, check_rows, max_rows
from streamdp.population import Snapshot
from streamdp.privacy.exact import to_text


class CopulaParameters(Settings):
    """Parameters of `streamdp.jobs.Copula`; the domain is the stream's."""

    attributes: list[str] | None = None
    """The attributes of the synthetic rows; all of the stream's when left out."""
    method: Literal["auto", "hybrid", "kendall", "mle"] = "auto"
    """How the dependence is found; `"auto"` decides by public facts and a paid number of records."""
    margin: Literal["auto", "efpa", "hierarchical", "laplace", "merged", "php", "privelet", "psd"] = "auto"
    """The histogram method of the margins; `"auto"` is laplace below 32 values, merged to 4096, psd beyond."""
    ratio: Annotated[float, Field(ge=0.001, le=1000)] = 8.0
    """Epsilon for the margins over epsilon for the dependence."""
    rows: Annotated[int, Field(ge=0, le=MAX_ROWS)] | None = None
    """How many synthetic rows, for free, up to 20 MB of them; the noisy number of records when left out."""


def _estimator(params: CopulaParameters, epsilon: Fraction, domain: Domain) -> Copula:
    names = domain.names if params.attributes is None else params.attributes
    if not names or len(set(names)) < len(names) or not set(names) <= set(domain.names):
        raise ParameterError(f"attributes: name some of these, each once: {', '.join(domain.names)}")
    chosen = Domain(domain[name] for name in names)
    return Copula(epsilon, chosen, params.method, params.margin, params.ratio, nullable=())


def check(params: CopulaParameters, epsilon: Fraction, domain: Domain, records_per_user: int) -> None:
    if epsilon / records_per_user < SMALLEST_EPSILON:
        raise ParameterError(f"epsilon must be at least {float(SMALLEST_EPSILON * records_per_user):g}")
    chosen, _ = _estimator(params, epsilon / records_per_user, domain).checked()
    check_rows(params.rows, chosen.attributes)


def run(params: CopulaParameters, epsilon: Fraction, snapshot: Snapshot) -> Output:
    """Costs `epsilon`: the estimator protects one row, so with up to m rows a user is protected at m times its own."""
    progress.report(0, 2)
    model = _estimator(params, epsilon / snapshot.records_per_user, snapshot.domain)
    model.fit_codes(snapshot.columns)
    progress.report(1, 2)
    chosen, _ = model.checked()
    rows = model.sample(min(model.n_rows_, max_rows(chosen.attributes)) if params.rows is None else params.rows)
    progress.report(2, 2)
    result: dict[str, Any] = {
        "attributes": list(model.margins_),
        "margins": {name: probabilities.tolist() for name, probabilities in model.margins_.items()},
        "correlation": model.correlation_.tolist(),
        "parts": model.parts_,
        "size": model.n_rows_,
        "epsilon_spent": to_text(model.epsilon_spent_ * snapshot.records_per_user),
        "method_used": model.method_used_,
        "reason": model.reason_,
    }
    return Output(result, rows)


KIND = Kind(
    name="copula",
    summary="synthetic rows with the margins and the dependence of the records, by a private Gaussian copula",
    parameters=CopulaParameters,
    check=check,
    run=run,
    makes_rows=True,
)
