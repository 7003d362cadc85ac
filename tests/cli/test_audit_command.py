"""`streamdp audit` as a person and as a program see it."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from streamdp import audit
from streamdp.cli import main
from streamdp.privacy import sparse_vector


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Audit these subjects, the real ones, and leave the rest to the one slow test."""
    chosen = [subject for subject in audit.catalogue() if subject.name in names]
    assert len(chosen) == len(names)
    monkeypatch.setattr(audit, "catalogue", lambda: chosen)


def test_a_table_a_legend_and_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    only(monkeypatch, "SparseVector c=1, general", "Li 2017 Alg. 7, C-1 positives")
    assert main(["audit"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert "1.3000 exact" in output.out and "exceeds its claim" in output.out
    assert "never that there is none" in output.out
    assert output.out.rstrip().splitlines()[-1].startswith("All 2 verdicts are as expected")


def test_json_for_machines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    only(monkeypatch, "SparseVector c=1, general", "Alg. 21, Stoddard et al. 2014")
    assert main(["audit", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["as_expected"] is True
    ours, infinite = report["findings"]
    assert ours["loss"] == pytest.approx(1, rel=0.01) and ours["method"] == "exact"
    assert infinite["loss"] is None and infinite["verdict"] == "infinite"


def test_halved_noise_ends_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only(monkeypatch, "SparseVector c=1, general", "Li 2017 Alg. 7, C-1 positives")
    scales = sparse_vector.noise_scales

    def wrong(*arguments: Any) -> tuple[Fraction, Fraction]:
        threshold, query = scales(*arguments)
        return threshold / 2, query

    monkeypatch.setattr(sparse_vector, "noise_scales", wrong)
    assert main(["audit"]) == 1
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert last == "1 of 2 verdicts are not what they must be: SparseVector c=1, general."


@pytest.mark.slow
def test_the_whole_audit_is_as_expected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    verdicts = {finding["mechanism"]: finding for finding in report["findings"]}
    assert all(finding["as_expected"] for finding in verdicts.values())
    assert sum(finding["group"] == "streamdp" for finding in verdicts.values()) == 13
    assert [name for name in verdicts if name.startswith("Alg. ")] == [
        "Alg. 17, Lyu, Su, Li 2017",
        "Alg. 18, Dwork, Roth 2014",
        "Alg. 19, Roth 2011",
        "Alg. 20, Lee, Clifton 2014",
        "Alg. 21, Stoddard et al. 2014",
        "Alg. 22, Chen et al. 2015",
    ]
