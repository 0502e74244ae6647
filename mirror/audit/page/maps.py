"""Offset maps as SVG: which offsets of a partition each side has, which were audited, and which have findings."""

from collections.abc import Iterable, Mapping
from html import escape
from itertools import groupby
from typing import NamedTuple

from mirror.audit.model.findings import PROVED_OTHERWISE, Finding
from mirror.audit.model.places import Side, Span
from mirror.audit.model.result import AuditResult, Coverage

WIDTH = 1_000
"""The number of columns of a map. A column shows the worst mark in it, so a map is small however many findings there
are."""
BAR = 12
GAP = 4


class Mark(NamedTuple):
    """Offsets to mark in a bar. ``name``: the CSS class of their colour. If two marks share a column, the later one is
    shown."""

    name: str
    span: Span


def offset_map(sides: Mapping[Side, Coverage], findings: Iterable[Finding], result: AuditResult) -> str:
    """Returns the map of a partition: the source's bar above the destination's.

    With ``offsets: exact``, both bars have the same scale, so that equal offsets are above each other. With ``offsets:
    mapped``, each has its own scale, and the destination's bar shows its whole log as audited, because the audited
    offsets are the source's.
    """
    found = list(findings)
    logs = {side: row.log for side, row in sides.items()}
    if result.offsets == "exact":
        whole = Span(min(log.start for log in logs.values()), max(log.end for log in logs.values()))
        logs = dict.fromkeys(logs, whole)
    bars = []
    for at, (side, row) in enumerate(sorted(sides.items(), key=lambda item: item[0] is Side.DESTINATION)):
        is_mapped = side is Side.DESTINATION and result.offsets != "exact"
        marks = [Mark("log", row.log), Mark("same", row.log if is_mapped else row.audited)]
        marks += _undecided(row, result)
        marks += sorted(_marks(found, side), key=lambda mark: mark.name == "wrong")
        alias = result.source_alias if side is Side.SOURCE else result.destination_alias
        bars.append(_bar(at * (BAR + GAP), logs[side], marks, f"{alias}: offsets {row.log.start} to {row.log.end}"))
    height = len(bars) * (BAR + GAP) - GAP
    return (
        f'<svg class="map" viewBox="0 0 {WIDTH} {height}" preserveAspectRatio="none" height="{height}">'
        f"{''.join(bars)}</svg>"
    )


def _marks(findings: Iterable[Finding], side: Side) -> Iterable[Mark]:
    for finding in findings:
        span = finding.source if side is Side.SOURCE else finding.destination
        if span is not None:
            yield Mark("unproved" if finding.kind in PROVED_OTHERWISE else "wrong", span)


def _undecided(row: Coverage, result: AuditResult) -> Iterable[Mark]:
    topic = row.topic if row.side is Side.SOURCE else result.renamed.get(row.topic, row.topic)
    for one in result.undecided:
        if one.side is row.side and (one.topic, one.partition) == (topic, row.partition):
            yield Mark("open", one.span)


def _bar(top: int, whole: Span, marks: Iterable[Mark], title: str) -> str:
    """Returns one bar, as rectangles of columns of the same colour."""
    columns = [""] * WIDTH
    for name, span in marks:
        first = _column(span.start, whole)
        last = max(first, _column(span.end, whole, up=True) - 1)
        if span.offsets or name in {"wrong", "unproved"}:
            columns[first : last + 1] = [name] * (last + 1 - first)
    parts, at = [], 0
    for name, same in groupby(columns):
        width = len(list(same))
        if name:
            parts.append(f'<rect class="{name}" x="{at}" y="{top}" width="{width}" height="{BAR}"/>')
        at += width
    return f"<g><title>{escape(title)}</title>{''.join(parts)}</g>"


def _column(offset: int, whole: Span, *, up: bool = False) -> int:
    """Returns the column of an offset. ``up``: rounds up, for the end of a span, to the first column behind it."""
    part = (offset - whole.start) * WIDTH
    size = max(1, whole.offsets)
    column = -(-part // size) if up else part // size
    return min(WIDTH if up else WIDTH - 1, max(0, column))
