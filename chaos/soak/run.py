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
"""Where the results go."""


@dataclass(slots=True, kw_only=True)
class Result:
    """What came of it.

    Attributes:
        plan: what was to be done.
        commit: of the code.
        struck: evidence -> how often it was seen.
        records: how many of the source's were compared.
        audit: the verdict of `mirror audit`; empty: it was not made.
        figures: of memory and descriptors.
        problems: everything that is wrong, in words.
        notes: events of the mirror -> how many.
        samples: all looks.
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
    """Do it, on clusters of its own. Whatever goes wrong is in the result, which is written to ``OUT`` in any case.

    Raises:
        SandboxError: the clusters could not be started.
    """
    soak, result = Soak(plan), Result(plan=plan, commit=commit.of_now())
    OUT.mkdir(parents=True, exist_ok=True)
    progress.step("starting two clusters")
    try:
        with Clusters() as clusters:
            _play(clusters, soak, result, progress)
    finally:  # also of one that was interrupted
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
    """Returns the figures, to be shown."""
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
