"""`[observe]`: what the daemon shows of itself, and where."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from streamdp.fields import Settings

LOOPBACK = "127.0.0.1"
# A listener. A browser opens six connections, Prometheus and a probe one each. Three listeners full of strangers stay
# far below 1,024 descriptors, the usual soft limit.
MAX_CONNECTIONS = 64
_HELP = 'give "HOST:PORT", or a port alone, which listens on this machine only'


class Address(NamedTuple):
    """Where to listen. Port 0 takes any that is free; the log says which."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _read_address(value: Any) -> Address:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(_HELP)
    host, _, port = str(value).rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ValueError(_HELP)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError('give an IPv6 address in brackets: "[::1]:9464"')
    return Address(host or LOOPBACK, int(port))


Listen = Annotated[
    Address,
    PlainValidator(_read_address),
    PlainSerializer(str),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": r"^(.+:)?\d+$"}, {"type": "integer"}]}),
]


class Observe(Settings):
    """What the daemon shows of itself (docs/metrics.md, docs/operations.md). Nothing listens unless it is named here,
    so that two daemons on one machine do not clash; `9464`, a port alone, means `"127.0.0.1:9464"`."""

    metrics: Listen | None = None
    """Public Prometheus metrics, `/live` and `/ready`: released data and public parameters only. By habit port 9464."""
    operator_metrics: Listen | None = None
    """Metrics that describe raw data: input rates, lag, dead letters, population, memory. As private as the input: let
    nobody but the operator's Prometheus reach it. By habit port 9465."""
    operator_hosts: list[str] = Field(default_factory=list)
    """Names by which the operator's Prometheus asks for `operator_metrics`, such as `"streamdp"`. A request to any
    other name is refused. IP addresses, `localhost` and the host that `operator_metrics` names need no entry."""
    page: Listen | None = None
    """The status page: the latest releases drawn, the budget, recent jobs. Shows nothing unreleased. By habit port
    9466."""

    @model_validator(mode="after")
    def _apart(self) -> Observe:
        given = [where for where in (self.metrics, self.operator_metrics, self.page) if where is not None]
        fixed = [where for where in given if where.port]
        if len(set(fixed)) != len(fixed):
            raise ValueError("metrics, operator_metrics and page each need an address of their own")
        return self
