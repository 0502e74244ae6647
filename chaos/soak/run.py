"""One soak, from its clusters to its verdict."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.table import Table

from chaos.play.stage import Stage
from chaos.soak.plan import Plan
from chaos.soak.play import Soak, scenario
from chaos.soak.samples import Figure, Sample, figures
from chaos.suite.audits import IDENTICAL, audit
from chaos.suite.clusters import Clusters
from lab import commit
from lab.console import Progress
from lab.evidence import missing

__all__ = ["OUT", "Result", "run", "table"]

OUT = Path(__file__).resolve().parent.parent.parent / "build" / "soak"
"""Folder of the results."""


@dataclass(slots=True, kw_only=True)
class Result:
    """The result of a soak.

    Attributes:
        plan: the plan.
        commit: commit of the code.
        struck: name of the evidence -> how often it was seen.
        records: number of the source's records that were compared.
        audit: verdict of ``mirror audit``; empty: the audit was not made.
        figures: figures of memory and descriptors.
        problems: everything that is wrong, in words.
        notes: event of the mirror's log -> how often it was logged.
        samples: all samples.
    """

    plan: Plan
    commit: str
    struck: dict[str, int] = field(default_factory=dict)
    records: int = 0
    audit: str = ""
    figures: list[Figure] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    samples: Sequence[Sample] = ()


def run(plan: Plan, progress: Progress) -> Result:
    """Runs a soak on separate clusters. The result has all problems, and is written to ``OUT`` in any case.

    Raises:
        SandboxError: the clusters could not be started.
    """
    soak, result = Soak(plan), Result(plan=plan, commit=commit.of_now())
    OUT.mkdir(parents=True, exist_ok=True)
    progress.step("starting two clusters")
    try:
        with Clusters() as clusters:
            _play(clusters, soak, result, progress)
    finally:  # also if the soak was interrupted
        (OUT / "soak.json").write_text(json.dumps(asdict(result), indent=1) + "\n")
    return result


def _play(clusters: Clusters, soak: Soak, result: Result, progress: Progress) -> None:
    played, plan = scenario(soak), soak.plan
    pair = clusters.pair(played.shape)
    result.samples = soak.samples
    with Stage(played, pair, prefix="soak") as stage:
        progress.step(f"{plan.reloads} changes of the configuration, one every {plan.reload_s:g} s")
        try:
            outcome = stage.play(progress.step)
        finally:
            for mirror in stage.mirrors:
                (OUT / "mirror.log").write_bytes(mirror.log.read_bytes())
        seen = stage.trials.seen()
        result.notes, result.records, result.struck = outcome.notes, outcome.compared.records, dict(seen)
        result.problems += [*outcome.problems, *missing(played.struck, seen)]
        try:
            result.figures = figures(soak.samples)
            result.problems += [one.problem for one in result.figures if one.problem]
        except ValueError as error:
            result.problems.append(str(error))
        for one in result.figures:
            progress.line(f"{one.what}: {one.first:.1f}, then {one.last:.1f}")
        if not outcome.problems:
            progress.step("auditing")
            result.audit, said = audit(pair, outcome.audited, folder=stage.processes.folder, say=progress.detail)
            if result.audit != IDENTICAL:
                result.problems.append(f"the audit says {result.audit}: {said}")


def table(result: Result) -> Table:
    """Returns a table of the figures, for the console."""
    shown = Table(title=f"{result.plan.minutes} minutes at {result.commit}")
    for head in ("", "first half", "last half", "change"):
        shown.add_column(head, justify="right" if head else "left")
    for one in result.figures:
        change = f"{one.last / one.first - 1:+.1%}" if one.first else "-"
        shown.add_row(one.what, f"{one.first:.1f}", f"{one.last:.1f}", change)
    for what, count in result.struck.items():
        shown.add_row(what, "", "", str(count))
    shown.add_row("records compared", "", "", f"{result.records:,}")
    shown.add_row("audit", "", "", result.audit or "not made")
    return shown
