"""`streamdp audit`: measure what the mechanisms really cost, against what they claim."""

from __future__ import annotations

import argparse
import itertools
import json
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamdp.audit import Finding, Subject

HELP = "measure the privacy loss of every mechanism against its claim"
DESCRIPTION = """\
Measure the privacy loss of every mechanism against the epsilon it claims.

Audited are streamdp's own mechanisms, which must stay within their claim, and rules as printed in the literature whose
true loss is known, which show that the auditor can see a leak. It takes well under a minute, needs no data and no
configuration, and draws with fixed seeds, so that it says the same each time.

Exit code: 0 when every verdict is the expected one, 1 otherwise."""
ORDER = 80

LEGEND = """\
claim     the epsilon the mechanism promises.
loss      what it costs in its worst case: one user's presence changes the odds of an output by up to e^loss.
          "exact" is computed; "at least" is a bound from draws, with 99.9 % confidence; four figures are the exact
          losses on 8, 16, 32 and 64 answers, for rules that cost more the longer they run.
ratio     loss / claim: up to 1.00 the promise is kept.
expected  the ratio that theory gives, and under ok whether ratio and verdict are what they must be. The
          rules that break their claim are printed in papers and audited to show that the auditor sees it; streamdp
          does not run them.
"no violation found" is weaker than "within its claim": draws can show a leak, never that there is none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object, for machines")


def run(arguments: argparse.Namespace) -> int:
    from streamdp.audit import catalogue

    findings = _audit(catalogue())
    unexpected = [finding for finding in findings if not finding.as_expected]
    if arguments.json:
        report = {
            "version": 1,
            "as_expected": not unexpected,
            "findings": [finding.as_dict() for finding in findings],
            "summary": summary(findings),
        }
        print(json.dumps(report, indent=2, allow_nan=False))
    else:
        _print_table(findings)
    return 1 if unexpected else 0


def summary(findings: list[Finding]) -> str:
    """The outcome in one sentence."""
    unexpected = [finding.subject.name for finding in findings if not finding.as_expected]
    if unexpected:
        return f"{len(unexpected)} of {len(findings)} verdicts are not what they must be: {'; '.join(unexpected)}."
    return (
        f"All {len(findings)} verdicts are as expected: streamdp's mechanisms cost no more than they claim, "
        "and every leak known in the published rules was found."
    )


def _audit(subjects: list[Subject]) -> list[Finding]:
    """Measure everything, and show on standard error how far it is when somebody is there to see it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from streamdp.audit import run_audit

    console = Console(stderr=True)
    columns = (TextColumn("auditing"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    findings: list[Finding] = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(subjects))
        for subject in subjects:
            progress.update(task, description=subject.name)
            findings += run_audit([subject])
            progress.advance(task)
    return findings


def _print_table(findings: list[Finding]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)  # a pipe has no width of its own, and a wrapped table is hard to search
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("mechanism")
    table.add_column("claim", justify="right")
    table.add_column("loss")
    table.add_column("ratio", justify="right")
    table.add_column("expected", justify="right")
    table.add_column("verdict")
    table.add_column("ok")
    for group, rows in itertools.groupby(findings, key=lambda finding: finding.subject.group):
        table.add_section()
        table.add_row(Text(group, style="bold"))
        for finding in rows:
            answer = Text("yes", style="green") if finding.as_expected else Text("NO", style="bold red")
            table.add_row(f"  {finding.subject.name}", *_cells(finding), answer)
    console.print(table)
    console.print(LEGEND, highlight=False, soft_wrap=True)
    console.print()
    console.print(summary(findings), highlight=False, soft_wrap=True)


def _cells(finding: Finding) -> tuple[str, str, str, str, str]:
    subject, measured = finding.subject, finding.measurement
    if math.isinf(measured.loss):
        loss, ratio = "infinite", "infinite"
    elif measured.growth:
        loss, ratio = ", ".join(f"{value:.1f}" for _, value in measured.growth), f"{finding.ratio:.2f}"
    elif measured.method == "exact":
        loss, ratio = f"{measured.loss:.4f} exact", f"{finding.ratio:.2f}"
    else:
        loss, ratio = f"at least {measured.loss:.2f}", f"{finding.ratio:.2f}"
    expected = (
        _EXPECTED_WITHOUT_RATIO.get(subject.expected.name, "") if subject.ratio is None else f"{subject.ratio:.2f}"
    )
    verdict = str(finding.verdict) if measured.problem is None else f"{finding.verdict}: {measured.problem}"
    return f"{subject.claim:g}", loss, ratio, expected, verdict


_EXPECTED_WITHOUT_RATIO = {"UNBOUNDED": "growing", "INFINITE": "infinite", "NOTHING_FOUND": "<= 1.00"}
