"""The result of an audit on a terminal: coverage, findings, verdict. No Spark."""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from mirror.audit.judge.changed.reencoded import counted
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.result import AuditResult, Coverage, SkippedRange, Undecided, Verdict
from mirror.audit.spark.progress import JobProgress

MOST_SHOWN = 20
"""Default number of findings in the table; the files have all of them."""
_STYLES = dict.fromkeys(
    (Kind.ABSENT, Kind.CORRUPT, Kind.MISSING, Kind.VALUE_CHANGED, Kind.WHOLESALE, Kind.OVERFILLED), "red"
)


def size_text(size: int) -> str:
    """Returns a number of bytes as text, in units of 1000."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def span_text(span: Span | None) -> str:
    """Returns the first and last offset as text, both included."""
    if span is None:
        return "-"
    return f"{span.start}" if span.offsets <= 1 else f"{span.start} to {span.end - 1}"


def _many(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _batches(count: int) -> str:
    return f"{count:,} batch{'' if count == 1 else 'es'}"


def coverage_table(result: AuditResult) -> Table:
    """Returns a table with one line per topic: what was read on each side. The columns "holes" (source) and "filled"
    (destination) count offsets."""
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
            f"{sum(row.filled for row in theirs):,}",
            "all" if complete else "[red]in part[/red]",
        )
    return table


def findings_table(findings: tuple[Finding, ...], limit: int = MOST_SHOWN) -> Table:
    """Returns a table of the first ``limit`` findings, which are ordered by topic, partition and offset."""
    kinds = Counter(finding.kind for finding in findings)
    unproved, passed = kinds[Kind.UNVERIFIABLE], kinds[Kind.OVERSIZE]
    differences = len(findings) - unproved - passed
    told = [
        _many(differences, "difference") if differences or not findings else "",
        _many(unproved, "place") + " without proof" if unproved else "",
        _many(passed, "place") + " passed over" if passed else "",
    ]
    title = " and ".join(filter(None, told))
    table = Table(title=f"{title}, by offsets", title_justify="left")
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


def print_result(
    result: AuditResult, console: Console, *, limit: int = MOST_SHOWN, remedies: Sequence[str] = ()
) -> None:
    """Prints coverage, findings, skipped ranges, open transactions, notes, remedies and the verdict. ``limit``: the
    maximum number of findings, of skipped ranges and of open transactions."""
    if result.coverage:
        console.print(coverage_table(result))
    if result.findings:
        console.print(findings_table(result.findings, limit))
        if len(result.findings) > limit:
            console.print(f"{len(result.findings) - limit:,} more; --out DIR writes all of them")
    for each in result.skipped[:limit]:
        console.print(f"skipped: {skipped_text(each)}", markup=False, highlight=False)
    if len(result.skipped) > limit:
        console.print(f"{len(result.skipped) - limit:,} more skipped; --out DIR writes all of them")
    for one in result.undecided[:limit]:
        console.print(f"note: {undecided_text(one, result)}", markup=False, highlight=False)
    if len(result.undecided) > limit:
        console.print(f"{len(result.undecided) - limit:,} more open transactions; --out DIR writes all of them")
    for note in result.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    if remedies:
        console.print("what to do:")
    for line in remedies:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    console.print(verdict(result), soft_wrap=True)


def skipped_text(each: SkippedRange) -> str:
    """Returns a line on one range that was skipped or taken on trust by decision."""
    when = datetime.fromtimestamp(each.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    offsets = f"source offset{'s' if each.source.offsets > 1 else ''} {span_text(each.source)}"
    return f"{each.topic} partition {each.partition}, {offsets}, at {when}: {each.why}"


def undecided_text(one: Undecided, result: AuditResult) -> str:
    """Returns a line on the offsets that one open transaction hides from read_committed consumers."""
    is_source = one.side is Side.SOURCE
    where = f"{result.source_alias if is_source else result.destination_alias}: {one.topic} partition {one.partition}"
    what = "they were not audited" if is_source else "consumers that read committed do not see them yet"
    return f"{where}, offsets {span_text(one.span)} are behind an open transaction; {what}"


def _but(result: AuditResult) -> str:
    """Returns the reservations to append to the verdict: rewritten batches, what log cleaners have
    changed, skipped offsets and open transactions."""
    said = [
        f"of {_batches(batches)} of {escape(result.source_alias)}, the same "
        f"{_many(records, 'record')} stand in other batches ({cause})"
        for cause, (batches, records) in sorted(counted(result.reencoded).items())
    ]
    cleaned = result.all_cleaned
    if cleaned.records:
        are = "is" if cleaned.records == 1 else "are"
        changed = f"log cleaners have changed or removed {_batches(cleaned.batches)}: " if cleaned.batches else ""
        here, there = escape(result.source_alias), escape(result.destination_alias)
        said.append(f"{changed}{_many(cleaned.records, 'record')} {are} no longer at {there}, and still at {here}")
    elif cleaned.batches:
        said.append(f"log cleaners have rewritten {_batches(cleaned.batches)}, with every record")
    if result.stamped:
        said.append(
            f"{_batches(result.stamped)} of {escape(result.destination_alias)} "
            f"{'has' if result.stamped == 1 else 'have'} append times: its broker has put its own in, as "
            "destination.timestamps: append allows; all else of them is the same"
        )
    if result.skipped:
        offsets = sum(each.source.offsets for each in result.skipped)
        ranges = _many(len(result.skipped), "range")
        said.append(f"{offsets:,} source offsets in {ranges} were skipped or taken on trust")
    for side, alias, what in (
        (Side.SOURCE, result.source_alias, "were not audited"),
        (Side.DESTINATION, result.destination_alias, "are hidden from consumers that read committed"),
    ):
        offsets = sum(one.span.offsets for one in result.undecided if one.side is side)
        if offsets:
            said.append(f"{offsets:,} offsets of {escape(alias)} behind open transactions {what}")
    return "".join(f"; {each}" for each in said)


def verdict(result: AuditResult) -> str:
    """Returns the verdict in one line, with markup."""
    ours = [row for row in result.coverage if row.side is Side.SOURCE]
    theirs = [row for row in result.coverage if row.side is Side.DESTINATION]
    read = f"{size_text(sum(row.bytes for row in (*ours, *theirs)))} read in {result.elapsed_s:.1f} s"
    names = escape(f"{result.source_alias} and {result.destination_alias}")
    if result.verdict in (Verdict.UNVERIFIABLE, Verdict.OVERSIZE, Verdict.ACCEPTED):
        unproved = any(finding.kind is Kind.UNVERIFIABLE for finding in result.findings)
        what = _unverifiable(result, names) if unproved else f"{names} differ nowhere but in {_passed_over(result)}"
        if unproved and _passed_over(result):
            what += f"; and they differ in {_passed_over(result)}"
        accepted = "; the configuration accepts it" if result.verdict is Verdict.ACCEPTED else ""
        return (
            f"[bold yellow]{'unverifiable' if unproved else 'oversize'}[/bold yellow]: {what}{accepted} "
            f"({_many(len(ours), 'partition')}, {read}){_but(result)}"
        )
    if result.identical:
        batches, records = sum(row.batches for row in theirs), sum(row.records for row in theirs)
        markers = sum(row.filled for row in theirs)
        filled = f", and {markers:,} holes filled" if markers and result.offsets == "exact" else ""
        changed = [
            what
            for what, any_are in (
                ("were written anew", bool(result.reencoded)),
                ("log cleaners have changed", any(result.all_cleaned)),
            )
            if any_are
        ]
        but = f" (but for those that {' or that '.join(changed)})" if changed else ""
        where = "at the same offsets" if result.offsets == "exact" else "in the same order"
        return (
            f"[bold green]identical[/bold green]: {names} hold the same {records:,} records in {batches:,} batches, "
            f"byte for byte{but} {where}{filled} ({_many(len(ours), 'partition')}, {read}){_but(result)}"
        )
    kinds = Counter(finding.kind.value for finding in result.findings)
    absent = kinds.pop(Kind.ABSENT.value, 0)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    if absent:
        topics = f"{_many(absent, 'topic')} that the configuration names could not be audited"
        others = f"of the others: {counts}" if counts else "nothing differs in the others"
        return f"[bold red]incomplete[/bold red]: {names}: {topics}; {others} ({read}){_but(result)}"
    return f"[bold red]different[/bold red]: {names}: {counts} ({_many(len(ours), 'partition')}, {read}){_but(result)}"


def _unverifiable(result: AuditResult, names: str) -> str:
    """Returns the text for a result without differences, with what can no longer be proved."""
    found = [finding for finding in result.findings if finding.kind is Kind.UNVERIFIABLE]
    records = sum(finding.records for finding in found)
    size = size_text(sum(finding.bytes for finding in found))
    gaps = sum(finding.source.offsets for finding in found if finding.source and not finding.records)
    what = [f"{records:,} records ({size}) that only {escape(result.destination_alias)} still has"] if records else []
    what += [f"{gaps:,} offsets that {escape(result.source_alias)} lacks without a cause"] if gaps else []
    return f"{names} differ nowhere, but nothing proves {' and '.join(what)}"


def _passed_over(result: AuditResult) -> str:
    """Returns the text for records that were passed over; empty: there are none."""
    found = [finding for finding in result.findings if finding.kind is Kind.OVERSIZE]
    if not found:
        return ""
    size = size_text(sum(finding.bytes for finding in found))
    return (
        f"{_many(sum(finding.records for finding in found), 'record')} ({size}) too large for "
        f"{escape(result.destination_alias)}, which the flow has passed over (oversize.record)"
    )


class BarProgress(JobProgress):
    """Shows a progress bar on a terminal, and nothing elsewhere. A context manager."""

    def __init__(self, console: Console) -> None:
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._size, self._since = 0, time.monotonic()
        self._task = self._bar.add_task("", total=None, rate="")

    def __enter__(self) -> "BarProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def stage(self, text: str, size: int = 0) -> None:
        """Shows the stage that begins now. ``size``: about how many bytes it has to read; 0: not known."""
        self._size, self._since = size, time.monotonic()
        about = f" (about {size_text(size)})" if size else ""
        self._bar.update(self._task, description=text + about, completed=0, total=None, rate="")

    def advance(self, done: int, total: int) -> None:
        """Shows how many of the stage's tasks are done, and at about which rate they read."""
        elapsed_s = time.monotonic() - self._since
        read = self._size * done // max(1, total)
        rate = f"{size_text(int(read / elapsed_s))}/s" if read and elapsed_s > 0 else ""
        self._bar.update(self._task, completed=done, total=total or None, rate=rate)
