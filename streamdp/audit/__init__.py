"""The auditor: how much privacy a mechanism really spends, against what it claims.

`exact_loss` and `worst_loss` are exact for rules shaped like the sparse vector; `monte_carlo_lower_bound` bounds
anything that can be run, from below. A black-box audit that finds nothing proves nothing.
"""

from streamdp.audit.catalogue import catalogue
from streamdp.audit.exact import case_loss, exact_loss, log_probability
from streamdp.audit.findings import Finding, Measurement, Method, Subject, Verdict, run_audit
from streamdp.audit.monte_carlo import LowerBound, clopper_pearson, monte_carlo_lower_bound
from streamdp.audit.rules import Case, Noise, Rule, Step
from streamdp.audit.search import Attack, growth, worst_loss

__all__ = [
    "Attack",
    "Case",
    "Finding",
    "LowerBound",
    "Measurement",
    "Method",
    "Noise",
    "Rule",
    "Step",
    "Subject",
    "Verdict",
    "case_loss",
    "catalogue",
    "clopper_pearson",
    "exact_loss",
    "growth",
    "log_probability",
    "monte_carlo_lower_bound",
    "run_audit",
    "worst_loss",
]
