"""Requests are bytes from anybody: each is understood or refused, and an answer repeats nothing of it."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdp.domain import Attribute, Domain
from streamdp.engine import CancelRequested, JobRequested
from streamdp.jobs.request import MAX_BYTES, Rules, encode_cancel, encode_request, read_request

DOMAIN = Domain(
    [
        Attribute.categorical("ward", ["north", "south"]),
        Attribute.integer("age", 0, 99, bins=10),
        Attribute.real("weight", 0, 200, bins=20),
    ]
)
RULES = Rules(DOMAIN, records_per_user=1, kinds=("kmeans",), max_epsilon=Fraction(1, 2))


def ask(rules: Rules = RULES, **changed) -> JobRequested:
    fields = {"id": "a-1", "kind": "kmeans", "epsilon": "0.3", "params": {"n_clusters": 3}, **changed}
    request = read_request(json.dumps({k: v for k, v in fields.items() if v is not ...}).encode(), rules)
    assert isinstance(request, JobRequested)
    return request


def test_a_good_request():
    assert ask() == JobRequested("a-1", "kmeans", Fraction(3, 10), {"n_clusters": 3})
    assert ask(epsilon=0.1).epsilon == Fraction(1, 10)
    assert read_request(encode_request("x", "kmeans", "1/3", {"n_clusters": 2}), RULES).epsilon == Fraction(1, 3)
    assert read_request(encode_cancel("x"), RULES) == CancelRequested("x")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kind": "median"}, "kind: unknown; there are: copula, kmeans, personalized, privpfc"),
        ({"kind": ["kmeans"]}, "kind: unknown"),
        ({"kind": ...}, "kind: unknown"),
        ({"epsilon": 0}, "more than 0"),
        ({"epsilon": "-0.1"}, "more than 0"),
        ({"epsilon": ...}, "epsilon: give a number"),
        ({"epsilon": True}, "epsilon: give a number"),
        ({"epsilon": "lots"}, "epsilon: give a number"),
        ({"epsilon": "1e-400"}, "12 decimals"),
        ({"epsilon": "1/1000000000001"}, "12 decimals"),
        ({"epsilon": "0.500001"}, "at most 0.5"),
        ({"epsilon": "0.000001"}, "epsilon must be at least 1e-05"),
        ({"params": []}, "params: give an object"),
        ({"params": {}}, "n_clusters: missing"),
        ({"params": {"n_clusters": 0}}, "n_clusters: give an integer from 1 to 1000"),
        ({"params": {"n_clusters": "3"}}, "n_clusters: give"),
        ({"params": {"n_clusters": 3, "secret-17": 1}}, "a parameter that kmeans does not have"),
        ({"params": {"n_clusters": 3, "method": "secret-17"}}, "method: give one of"),
        ({"params": {"n_clusters": 3, "attributes": ["secret-17"]}}, "numeric attributes are: age, weight"),
        ({"params": {"n_clusters": 3, "attributes": ["ward"]}}, "numeric attributes"),
        ({"params": {"n_clusters": 3, "attributes": ["age", "age"]}}, "each once"),
        ({"params": {"n_clusters": 3, "attributes": []}}, "numeric attributes"),
        ({"params": {"n_clusters": "auto", "method": "dplloyd"}}, "give a number"),
        ({"params": {"n_clusters": "auto", "n_clusters_range": [5, 2]}}, "fewest"),
        ({"secret-17": 1}, "1 unknown fields"),
    ],
)
def test_what_is_wrong_is_said_without_repeating_it(changed, said):
    request = ask(**changed)
    assert said in request.refusal
    assert request.job_id == "a-1"
    assert "secret-17" not in request.refusal


@pytest.mark.parametrize("bad", ["", "-a", "a b", "a/../b", "ä", "a" * 65, "a\n", 7, None, ...])
def test_without_an_id_that_is_a_plain_name_there_is_no_answer(bad):
    fields = {"id": bad, "kind": "kmeans", "epsilon": "0.3", "params": {"n_clusters": 3}}
    assert read_request(json.dumps({k: v for k, v in fields.items() if v is not ...}).encode(), RULES) is None
    assert bad is ... or read_request(json.dumps({"cancel": bad}).encode(), RULES) is None


def test_a_kind_that_the_stream_does_not_allow():
    assert "does not allow" in ask(Rules(DOMAIN, 1, ())).refusal


def test_a_stream_without_numbers_has_nothing_to_cluster():
    words = Domain([Attribute.categorical("ward", ["north", "south"])])
    assert "needs a numeric attribute" in ask(Rules(words, 1, ("kmeans",))).refusal


def test_the_smallest_epsilon_grows_with_the_records_a_user_may_hold():
    rules = Rules(DOMAIN, 10, ("kmeans",))
    assert ask(rules, epsilon="0.0001").refusal is None
    assert "at least 0.0001" in ask(rules, epsilon="0.00009").refusal


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"id": NaN}',
        b'{"id": "a", "epsilon": 1' + b"0" * 5_000 + b"}",
        b" " * (MAX_BYTES + 1),
    ],
)
def test_rubbish_has_no_answer(value):
    assert read_request(value, RULES) is None


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text() | st.floats() | st.integers(), st.lists).map(repr))
def test_any_bytes_can_be_read(value):
    request = read_request(value if isinstance(value, bytes) else value.encode("utf-8", "replace"), RULES)
    assert isinstance(request, JobRequested | CancelRequested | None)


json_values = st.recursive(
    st.none() | st.booleans() | st.text(max_size=20) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.just("a") | json_values,
            "kind": st.just("kmeans") | json_values,
            "epsilon": st.just("0.1") | json_values,
            "params": st.dictionaries(st.sampled_from(["n_clusters", "method", "size", "attributes"]), json_values),
            "cancel": json_values,
        },
    )
)
def test_any_object_with_an_id_has_an_answer(fields):
    request = read_request(json.dumps(fields).encode(), RULES)
    assert isinstance(request, JobRequested | CancelRequested | None)
    assert fields.get("id") != "a" or request is not None
    if isinstance(request, JobRequested) and request.refusal is None:
        assert request.job_id and request.kind == "kmeans" and 0 < request.epsilon <= Fraction(1, 2)
