"""`[jobs]`: what is set aside for jobs, and what they may use."""

from __future__ import annotations

from fractions import Fraction

import pytest

from streamdp.config.load import parse
from streamdp.errors import ConfigurationError

BASE = """\
[stream]
name = "s"
[domain.age]
type = "integer"
low = 0
high = 99
bins = 10
[time]
length = "1m"
[privacy]
epsilon = "2"
window = 10
[input]
topics = ["in"]
"""
HISTOGRAM = '[[histogram]]\nname = "{}"\nattributes = ["age"]\nstrategy = "baseline"\n{}\n'


def config(jobs: str = "", **shares: str):
    histograms = "".join(HISTOGRAM.format(name, share and f'share = "{share}"') for name, share in shares.items())
    return parse(BASE + histograms + f"[jobs]\n{jobs}\n")


def test_without_a_share_jobs_get_what_histograms_leave():
    assert config(a="0.25", b="0.5").share_left == Fraction(1, 4)
    assert config(a="").share_left == 0


def test_histograms_without_a_share_divide_what_jobs_leave():
    made = config('share = "0.4"', a="", b="", c="0.2")
    assert [made.share(name) for name in "abc"] == [Fraction(1, 5)] * 3
    assert made.share_left == Fraction(2, 5)


def test_a_share_that_does_not_fit():
    with pytest.raises(ConfigurationError, match=r"jobs\.share: found 0\.6, and the histograms leave 0\.5"):
        config('share = "0.6"', a="0.5")
    with pytest.raises(ConfigurationError, match=r"histogram\[1\]\.share: missing, and the others leave nothing"):
        config('share = "0.5"', a="0.5", b="")


def test_defaults():
    jobs = config(a="").jobs
    assert (jobs.workers, jobs.time_limit_seconds, jobs.memory_mb, jobs.kinds, jobs.max_epsilon) == (
        1,
        600.0,
        4_096,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("jobs", "path"),
    [
        ('kinds = ["kmeans", "median"]', r"jobs\.kinds\[1\]: found 'median'"),
        ('max_epsilon = "0"', r"jobs\.max_epsilon"),
        ("workers = 0", r"jobs\.workers"),
        ('time_limit = "0s"', r"jobs\.time_limit"),
        ("memory_mb = 100", r"jobs\.memory_mb"),
    ],
)
def test_faults_are_named(jobs, path):
    with pytest.raises(ConfigurationError, match=path):
        config(jobs, a="")
