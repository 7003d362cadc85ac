"""The auditor runs per class, and sees it when a personalised release has half of its noise."""

from __future__ import annotations

import pytest

from streamdp.audit import by_class
from streamdp.audit.catalogue import PERSONALISED, catalogue
from streamdp.audit.findings import Finding, Verdict
from streamdp.jobs.personalized import mechanisms
from streamdp.privacy import mechanisms as laplace
from streamdp.privacy.noise import discrete_laplace

SUBJECTS = [subject for subject in catalogue() if subject.group == PERSONALISED]


def test_every_mechanism_is_audited_for_every_class() -> None:
    assert set(by_class.MECHANISMS) == set(mechanisms.MECHANISMS)
    assert len(SUBJECTS) == len(mechanisms.MECHANISMS) * len(by_class.CLASSES)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_a_neighbour_of_a_class_loses_at_most_the_class_epsilon(subject) -> None:
    finding = Finding(subject, subject.measure())
    assert finding.as_expected, finding.as_dict()


@pytest.mark.parametrize("mechanism", by_class.MECHANISMS)
def test_halved_noise_is_found_out(mechanism, monkeypatch) -> None:
    monkeypatch.setattr(laplace, "discrete_laplace", lambda scale, *more: discrete_laplace(scale / 2, *more))
    (subject,) = [each for each in SUBJECTS if each.name == f"{mechanism}, normal"]
    assert Finding(subject, subject.measure()).verdict is Verdict.NOT_AS_DESCRIBED
