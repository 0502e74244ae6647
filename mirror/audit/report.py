"""An audit's result on a terminal: what was read, what differs, the verdict. No Spark."""

from collections import Counter, defaultdict

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from mirror.audit.model import AuditResult, Coverage, Finding, Kind, Side, Span
from mirror.audit.progress import Progress

MOST_SHOWN = 20
"""Findings in the table; the files have them all."""
_STYLES = dict.fromkeys((Kind.CORRUPT, Kind.MISSING, Kind.VALUE_CHANGED, Kind.WHOLESALE, Kind.OVERFILLED), "red")


def size_text(size: int) -> str:
    """Bytes for people, in units of 1000."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def span_text(span: Span | None) -> str:
    """First and last offset, both included."""
    if span is None:
        return "-"
    return f"{span.start}" if span.offsets <= 1 else f"{span.start} to {span.end - 1}"


def coverage_table(result: AuditResult) -> Table:
    """One line for each topic: what was really read on each side. Holes and what is filled are offsets."""
    table = Table(title=f"read of flow {escape(result.flow)}", title_justify="left")
    table.add_column("topic", overflow="fold")
    columns = (
        "partitions",
        "records",
        "batches",
        result.source_alias,
        result.destination_alias,
        "holes",
        "filled",
        "read",
    )
    for name in columns:
        table.add_column(escape(name), justify="right")
    topics: dict[str, dict[Side, list[Coverage]]] = defaultdict(lambda: {side: [] for side in Side})
    for row in result.coverage:
        topics[row.topic][row.side].append(row)
    for topic, sides in sorted(topics.items()):
        ours, theirs = sides[Side.SOURCE], sides[Side.DESTINATION]
        complete = all(row.complete for row in (*ours, *theirs))
        table.add_row(
            escape(topic),
            f"{len(ours):,}",
            f"{sum(row.records for row in ours):,}",
            f"{sum(row.batches for row in ours):,}",
            size_text(sum(row.bytes for row in ours)),
            size_text(sum(row.bytes for row in theirs)),
            f"{sum(row.holes for row in ours):,}",
            f"{sum(row.control for row in theirs):,}",
            "all" if complete else "[red]in part[/red]",
        )
    return table


def findings_table(findings: tuple[Finding, ...], limit: int = MOST_SHOWN) -> Table:
    """The first findings, in the order of topic, partition and offset."""
    table = Table(title=f"{len(findings):,} differences, by offsets", title_justify="left")
    table.add_column("difference", no_wrap=True)
    table.add_column("topic", overflow="fold")
    for name in ("part.", "source", "destination", "batches"):
        table.add_column(name, justify="right")
    table.add_column("what", overflow="fold", ratio=1)
    for finding in findings[:limit]:
        style = _STYLES.get(finding.kind, "yellow")
        table.add_row(
            f"[{style}]{finding.kind.value}[/{style}]",
            escape(finding.topic),
            "all" if finding.partition is None else str(finding.partition),
            span_text(finding.source),
            span_text(finding.destination),
            f"{finding.batches:,}" if finding.batches else "-",
            escape(finding.detail),
        )
    return table


def print_result(result: AuditResult, console: Console, *, limit: int = MOST_SHOWN) -> None:
    """Coverage, findings, notes, verdict."""
    if result.coverage:
        console.print(coverage_table(result))
    if result.findings:
        console.print(findings_table(result.findings, limit))
        if len(result.findings) > limit:
            console.print(f"{len(result.findings) - limit:,} more; --out DIR writes all of them")
    for note in result.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    console.print(verdict(result), soft_wrap=True)


def verdict(result: AuditResult) -> str:
    """One line, with markup."""
    ours = [row for row in result.coverage if row.side is Side.SOURCE]
    theirs = [row for row in result.coverage if row.side is Side.DESTINATION]
    read = f"{size_text(sum(row.bytes for row in (*ours, *theirs)))} read in {result.elapsed_s:.1f} s"
    names = escape(f"{result.source_alias} and {result.destination_alias}")
    if result.identical:
        batches, records = sum(row.batches for row in ours), sum(row.records for row in ours)
        holes = sum(row.holes for row in ours)
        filled = f", and {holes:,} holes filled" if holes and result.offsets == "exact" else ""
        where = "at the same offsets" if result.offsets == "exact" else "in the same order"
        return (
            f"[bold green]identical[/bold green]: {names} hold the same {records:,} records in {batches:,} batches, "
            f"byte for byte {where}{filled} ({len(ours):,} partitions, {read})"
        )
    kinds = Counter(finding.kind.value for finding in result.findings)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    return f"[bold red]different[/bold red]: {names}: {counts} ({len(ours):,} partitions, {read})"


class BarProgress(Progress):
    """A bar on a terminal; nothing elsewhere. A context manager."""

    def __init__(self, console: Console) -> None:
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> "BarProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def stage(self, text: str) -> None:
        """What is done now."""
        self._bar.update(self._task, description=text, completed=0, total=None)

    def advance(self, done: int, total: int) -> None:
        """How far that is."""
        self._bar.update(self._task, completed=done, total=total or None)
