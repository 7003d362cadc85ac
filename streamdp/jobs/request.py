"""Reading a request: bytes that anybody may have written to the topic of requests.

Everything that can be said about a request by itself is decided here, before data or ledger are looked at. Nothing of
it is repeated in an answer but its id, once that is known to be a plain name. What has no such id is malformed: nobody
could find the answer, and there is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from streamdp.domain import Domain
from streamdp.engine import CancelRequested, JobRequested
from streamdp.jobs.base import ParameterError
from streamdp.jobs.catalogue import KINDS, checked
from streamdp.privacy.exact import as_fraction, decimal_text

MAX_BYTES = 65_536
# The ledger adds epsilons exactly, over a common denominator: one of a thousand digits would slow it down for ever.
LARGEST_DENOMINATOR = 10**12
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
MALFORMED = (
    "id: give 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or a digit; the whole request has at "
    f"most {MAX_BYTES} bytes"
)
_FIELDS = {"id", "kind", "epsilon", "params"}


@dataclass(frozen=True)
class Rules:
    """What a stream lets jobs ask: public, from its configuration."""

    domain: Domain
    records_per_user: int
    kinds: Collection[str]
    max_epsilon: Fraction | None = None
    levels: int = 0
    """How many levels of privacy the stream has."""


class Refused(ParameterError):
    """The request is wrong by itself; the text says how."""


def encode_request(job_id: str, kind: str, epsilon: Any, params: Mapping[str, Any]) -> bytes:
    return json.dumps({"id": job_id, "kind": kind, "epsilon": str(epsilon), "params": dict(params)}).encode()


def encode_cancel(job_id: str) -> bytes:
    return json.dumps({"cancel": job_id}).encode()


def read_request(value: bytes | None, rules: Rules) -> JobRequested | CancelRequested | None:
    """What is asked; a request that is wrong comes back with its refusal, and None is for what is malformed."""
    fields = _fields(value)
    is_cancel = set(fields) == {"cancel"}
    job_id = fields.get("cancel" if is_cancel else "id")
    if not isinstance(job_id, str) or _ID.fullmatch(job_id) is None:
        return None
    if is_cancel:
        return CancelRequested(job_id)
    kind = epsilon = None
    try:
        if unknown := set(fields) - _FIELDS:
            raise Refused(f"{len(unknown)} unknown fields; a request has: id, kind, epsilon, params")
        name = _kind(fields.get("kind"), rules)
        kind = name
        epsilon = _epsilon(fields.get("epsilon"), rules)
        params = fields.get("params", {})
        if not isinstance(params, dict):
            raise Refused("params: give an object")
        checked(KINDS[name], params, epsilon, rules.domain, rules.records_per_user)
        return JobRequested(job_id, kind, epsilon, params, by_level=KINDS[name].is_by_level)
    except ParameterError as error:
        return JobRequested(job_id, kind, epsilon, refusal=str(error))


def _fields(value: bytes | None) -> dict[str, Any]:
    """Of a JSON object; none when it is not one."""
    if value is None or len(value) > MAX_BYTES:
        return {}
    try:
        fields = json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _no_constant(name: str) -> None:
    raise ValueError("not a number of JSON")


def _kind(value: Any, rules: Rules) -> str:
    if not isinstance(value, str) or value not in KINDS:
        raise Refused(f"kind: unknown; there are: {', '.join(KINDS)}")
    if value not in rules.kinds:
        raise Refused(f"kind: this stream does not allow it; it allows: {', '.join(rules.kinds) or 'none'}")
    if KINDS[value].is_by_level and not rules.levels:
        raise Refused("kind: this stream has no [privacy.preferences], so everybody has the same epsilon")
    return value


def _epsilon(value: Any, rules: Rules) -> Fraction:
    try:
        if isinstance(value, str) and len(value) > 64:
            raise ValueError
        epsilon = as_fraction(value)
    except (TypeError, ValueError):
        raise Refused('epsilon: give a number, best as text: "0.3"') from None
    if epsilon <= 0:
        raise Refused("epsilon: nothing is computed from the data for nothing; give more than 0")
    if epsilon.denominator > LARGEST_DENOMINATOR:
        raise Refused("epsilon: give at most 12 decimals")
    if rules.max_epsilon is not None and epsilon > rules.max_epsilon:
        raise Refused(f"epsilon: a job of this stream may ask for at most {decimal_text(rules.max_epsilon)}")
    return epsilon
