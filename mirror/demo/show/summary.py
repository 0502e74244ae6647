"""The demo's summary: a row per topic, the verdict, and the cost. Reads the audit's files; draws tables."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mirror.demo.data.topics import TopicPlan
from mirror.demo.errors import DemoError
from mirror.demo.show import units

__all__ = ["Cost", "TopicResult", "read_results", "render"]

IDENTICAL = "identical"
UNREAD = "not all read"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """One topic as the audit saw it on the source's side, and its verdict."""

    plan: TopicPlan
    records: int
    batches: int
    bytes: int
    verdict: str

    @property
    def identical(self) -> bool:
        """True if everything was read and nothing differs."""
        return self.verdict == IDENTICAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The resources that the mirror's worker used for the copy; its supervisor copies nothing.

    Attributes:
        cpu_s: user and system time of the whole run.
        start_cpu_s: the part of ``cpu_s`` before the first batch was copied: imports, metadata, positions.
        peak_rss_bytes: the most memory that the worker held.
        forwarded_bytes: bytes that the worker copied.
        opened: number of batches that the worker had to open.
    """

    cpu_s: float
    start_cpu_s: float
    peak_rss_bytes: int
    forwarded_bytes: int
    opened: int

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU seconds per 10^9 bytes, without the start; 0 if nothing was copied."""
        return (self.cpu_s - self.start_cpu_s) / (self.forwarded_bytes / 1e9) if self.forwarded_bytes else 0.0


def read_results(folder: Path, topics: Sequence[TopicPlan]) -> list[TopicResult]:
    """Returns the audit's coverage and findings, per topic.

    Raises:
        DemoError: a file is missing or is not what the audit writes.
    """
    try:
        coverage = json.loads((folder / "coverage.json").read_text())
        findings = json.loads((folder / "findings.json").read_text())
        return [_result(plan, coverage, findings) for plan in topics]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DemoError(
            f"the audit's files in {folder} cannot be read: {type(error).__name__}: {error}", "run the demo again"
        ) from error


def _result(
    plan: TopicPlan, coverage: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]]
) -> TopicResult:
    sides = {
        side: [row for row in coverage if row["topic"] == plan.name and row["side"] == side]
        for side in ("source", "destination")
    }
    kinds = Counter(str(finding["kind"]) for finding in findings if finding["topic"] == plan.name)
    read = all(
        sorted(row["partition"] for row in rows) == list(range(plan.partitions))
        and all(row["complete"] for row in rows)
        for rows in sides.values()
    )
    if kinds:
        verdict = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    else:
        verdict = IDENTICAL if read else UNREAD
    source = sides["source"]
    return TopicResult(
        plan=plan,
        records=sum(row["records"] for row in source),
        batches=sum(row["batches"] for row in source),
        bytes=sum(row["bytes"] for row in source),
        verdict=verdict,
    )


def render(results: Sequence[TopicResult], cost: Cost, *, identical: bool, took_s: float) -> RenderableType:
    """Returns the table, with the verdict and the cost under it."""
    return Group(_table(results), Text(), _verdict(results, identical=identical), *_cost(cost, took_s))


def _table(results: Sequence[TopicResult]) -> Table:
    table = Table(box=ROUNDED, show_footer=True, header_style="bold", footer_style="bold")
    sums = [sum(getattr(result, name) for result in results) for name in ("records", "batches", "bytes")]
    table.add_column("topic", "all")
    table.add_column("client")
    table.add_column("codec")
    for name, footer in (
        ("partitions", units.count(sum(result.plan.partitions for result in results))),
        ("records", units.count(sums[0])),
        ("batches", units.count(sums[1])),
        ("stored", units.size(sums[2])),
    ):
        table.add_column(name, footer, justify="right")
    different = sum(not result.identical for result in results)
    table.add_column(
        "verdict", Text(IDENTICAL, "bold green") if not different else Text(f"{different} differ", "bold red")
    )
    for result in results:
        plan = result.plan
        table.add_row(
            plan.name, plan.client, plan.codec, units.count(plan.partitions), units.count(result.records),
            units.count(result.batches), units.size(result.bytes),
            Text(result.verdict, "green" if result.identical else "bold red"),
        )  # fmt: skip
    return table


def _verdict(results: Sequence[TopicResult], *, identical: bool) -> Text:
    if not identical:
        return Text(
            "DIFFERENT: the destination does not hold what the source holds; see the audit's findings above.",
            "bold red",
        )
    records, batches = (sum(getattr(result, name) for result in results) for name in ("records", "batches"))
    return Text.assemble(
        ("IDENTICAL", "bold green"),
        f"  {units.count(records, 'record')} in {units.count(batches, 'batch')}: the same bytes at the same offsets.",
    )


def _cost(cost: Cost, took_s: float) -> list[Text]:
    opened = (
        f"{units.count(cost.opened, 'batch')} had to be opened."
        if cost.opened
        else "No batch was opened: compressed bytes went through as they were."
    )
    return [
        Text(
            f"The mirror's worker copied {units.size(cost.forwarded_bytes)} with {cost.cpu_s:.1f} CPU-seconds, "
            f"{cost.start_cpu_s:.1f} of them for its start ({cost.cpu_s_per_gb:.1f} per GB after that),"
        ),
        Text(f"and at most {units.size(cost.peak_rss_bytes)} of memory. {opened}"),
        Text(f"The demo took {units.elapsed(took_s)}."),
    ]
