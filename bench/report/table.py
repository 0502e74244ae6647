"""Results as tables, for a terminal and as Markdown. Pure."""

from rich.table import Table

from bench.goals import Verdict
from bench.goals import verdicts as judged
from bench.plan import FAR_MS
from bench.report.results import Cost, Latency, Ratio, Results, Row, paired, shown

__all__ = ["TITLES", "costs", "goals", "latency", "markdown", "workloads"]

TITLES = {
    "floor": "byte relay",
    "mirror": "mirror",
    "mm2": "MirrorMaker 2",
    "mm1": "MirrorMaker 1",
    "source": "source itself",
}
_HEADINGS = ("workload", "batch", "system", "CPU-s/GB", "x floor", "x mirror", "MB/s", "peak MB", "start CPU-s")
_COST_HEADINGS = (
    "case",
    "what",
    "partitions",
    "MB/s",
    "offsets/s",
    "CPU-s/GB",
    "active after s",
    "% of a core",
    "99 % ms",
    "peak MB",
)
_GOAL_HEADINGS = ("bound", "workload", "found", "single turns")
_LATENCY_HEADINGS = ("system", "median ms", "99 % ms", "slowest ms", "records")


def workloads(results: Results) -> Table:
    """Returns a table of CPU, throughput and memory of every system on every workload."""
    table = Table(title=f"What copying costs ({results.kind} run)")
    for number, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if number in (0, 2) else "right", no_wrap=number != 2)
    for name in results.workloads():
        for cells in _rows_of(results, name):
            table.add_row(*cells)
        table.add_section()
    return table


def latency(rows: list[Latency]) -> Table:
    """Returns a table of the latency of every system."""
    table = Table(title=f"Record timestamp to consumer, at a steady {rows[0].mb_per_s:g} MB/s" if rows else "Latency")
    for number, heading in enumerate(_LATENCY_HEADINGS):
        table.add_column(heading, justify="right" if number else "left")
    for row in rows:
        table.add_row(*_latency_cells(row))
    return table


def costs(rows: list[Cost]) -> Table:
    """Returns a table of the cases."""
    table = Table(title="What exactness costs, and what a long way does (mirror)")
    for number, heading in enumerate(_COST_HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=number != 1)
    for row in rows:
        table.add_row(*_cost_cells(row))
    return table


def goals(verdicts: list[Verdict]) -> Table:
    """Returns a table of the bounds that were kept and missed."""
    table = Table(title="Bounds")
    for heading in (*_GOAL_HEADINGS, ""):
        table.add_column(heading, justify="right" if heading in _GOAL_HEADINGS[2:] else "left")
    for verdict in verdicts:
        mark = "[green]kept[/]" if verdict.kept else "[red]missed[/]"
        table.add_row(*_goal_cells(verdict), mark)
    return table


def markdown(results: Results) -> str:
    """Returns all tables as Markdown."""
    lines = [f"{results.machine.sentence()}.", ""]
    lines += _markdown_table(_HEADINGS, [cells for name in results.workloads() for cells in _rows_of(results, name)])
    if results.latency:
        rate = results.latency[0].mb_per_s
        lines += ["", f"Time from a record's timestamp until a consumer has it, at a steady {rate:g} MB/s:", ""]
        lines += _markdown_table(_LATENCY_HEADINGS, [_latency_cells(row) for row in results.latency])
    if results.costs:
        lines += ["", "What exactness costs, and what a long way does (mirror):", ""]
        lines += _markdown_table(_COST_HEADINGS, [_cost_cells(row) for row in results.costs])
    if verdicts := judged(results):
        cells = [(*_goal_cells(verdict), "kept" if verdict.kept else "**missed**") for verdict in verdicts]
        lines += ["", "Bounds:", "", *_markdown_table((*_GOAL_HEADINGS, "kept?"), cells)]
    if any("-tls" in name for name in results.workloads()):
        lines += ["", "`-tls`: over TLS to both clusters; `-tls-source`: to the source only."]
    if any("-far" in name for name in results.workloads()):
        lines += ["", f"`-far-source`: a round trip to the source takes {FAR_MS:.0f} ms."]
    lines += ["", results.definition]
    return "\n".join(lines) + "\n"


def _rows_of(results: Results, workload: str) -> list[tuple[str, ...]]:
    rows = [row for system in results.systems() if (row := results.find(system, workload))]
    return [_cells(results, row, first=number == 0) for number, row in enumerate(rows)]


def _cells(results: Results, row: Row, *, first: bool) -> tuple[str, ...]:
    head = (row.workload if first else "", _size(row.batch_mean_bytes) if first else "", TITLES[row.system])
    if row.error is not None:
        return (*head, "failed", "", "", "", "", "")
    floor, mirror = results.times_floor(row), results.find("mirror", row.workload)
    times = paired(row.costs, mirror.costs) if mirror else None
    return (
        *head,
        shown(row.cpu_s_per_gb),
        _times(floor, 1),
        _times(times, 0),
        shown(row.speed, 0),
        shown(row.peak_rss_mb, 0),
        "" if row.system == "floor" else shown(row.start_cpu_s, 1),
    )


def _latency_cells(row: Latency) -> tuple[str, ...]:
    if row.error is not None:
        return (TITLES[row.system], "failed", "", "", "")
    return (
        TITLES[row.system], shown(row.median_ms, 0), shown(row.p99_ms, 0), shown(row.max_ms, 0), str(row.samples)
    )  # fmt: skip


def _cost_cells(row: Cost) -> tuple[str, ...]:
    head = (row.case, row.what, str(row.partitions))
    if row.error is not None:
        return (*head, "failed", "", "", "", "", "", "")
    figures = (shown(row.mb_per_s, 1), shown(row.offsets_per_s, 0), shown(row.cpu_s_per_gb))
    many = (shown(row.active_s, 0), shown(row.core_percent, 1), shown(row.p99_ms, 0))
    return (*head, *figures, *many, shown(row.peak_rss_mb, 0))


def _goal_cells(verdict: Verdict) -> tuple[str, ...]:
    spread = f"{verdict.spread[0]:.2f} to {verdict.spread[1]:.2f}" if verdict.spread else ""
    return (verdict.what, verdict.workload, shown(verdict.found) or "not measured", spread)


def _times(ratio: Ratio | None, digits_from_ten: int) -> str:
    return "" if ratio is None else f"{ratio.median:.{digits_from_ten if ratio.median >= 10 else 2}f}"


def _size(size: float) -> str:
    """Returns a number of bytes as text, in B, KB or MB."""
    if size >= 1e6:
        return f"{size / 1e6:.2f} MB"
    return f"{size / 1e3:.1f} KB" if size >= 10_000 else f"{size:.0f} B"


def _markdown_table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    rule = [":--" if heading in ("workload", "system", "case", "what", "bound") else "--:" for heading in headings]
    return [f"| {' | '.join(cells)} |" for cells in (headings, rule, *rows)]
