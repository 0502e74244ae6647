"""The plan as text: a summary, then the findings that need attention."""

from collections.abc import Iterable, Mapping

from mirror.service.commands import Commands
from mirror.service.plan.fix import Act
from mirror.service.plan.model import Level
from mirror.service.plan.report import PlanRow, Prospect, Report
from mirror.service.telemetry.status import size_text
from mirror.service.texts import aligned, duration_text

_WORDS = {Level.REFUSED: "REFUSED", Level.UNKNOWN: "NOT KNOWN", Level.WARNS: "WARNS", Level.TOLD: "-"}
_INDENT = " " * 4


def text(report: Report, acts: Iterable[Act], commands: Commands, *, everything: bool, fixed: bool) -> str:
    """Returns the plan of one flow, as lines of text.

    Args:
        report: the plan.
        acts: the repairs of ``--fix``.
        commands: the mirror's commands as they are typed here.
        everything: True to include findings that need no attention, and a table of all topics.
        fixed: True if the repairs were done; False if they are only shown.
    """
    lines = _summary(report)
    lines += _acts(acts, fixed=fixed)
    shown = [row for row in report.rows if everything or row.finding.level is not Level.TOLD]
    if shown:
        lines += ["", *_table(shown, commands)]
    hidden = len(report.rows) - len(shown)
    if hidden:
        lines += ["", f"{hidden} more rows need no attention: --all shows them"]
    if everything:
        lines += ["", *_topics(report)]
    return "\n".join(lines) + "\n"


def _summary(report: Report) -> list[str]:
    flow, estimate = report.flow, report.estimate
    need, states = estimate.need, report.partitions
    of_topics = [row.state for row in report.topics.values()]
    rows = [
        ("topics", _states({state: of_topics.count(state) for state in Prospect})),
        ("partitions", _states(states)),
        ("to copy", _to_copy(report)),
        ("duration", _duration(report)),
        ("disk", f"about {size_text(need.disk)} at {flow.destination.name}, on all replicas"),
        (
            "read",
            f"{size_text(flow.sampled_bytes)} of {flow.sampled_n:,} partitions"
            + (f"; {flow.unsampled_n:,} were left out (--sample-bytes)" if flow.unsampled_n else ""),
        ),
    ]
    width = max(len(name) for name, _ in rows)
    head = f"flow {flow.name}, offsets: {flow.settings.offsets}"
    return [head, "", *(f"  {name:<{width}}  {value}" for name, value in rows)]


def _states(counts: Mapping[Prospect, int]) -> str:
    words = {
        Prospect.FITS: "fit",
        Prospect.CREATED: "are created",
        Prospect.WARNS: "with warnings",
        Prospect.UNKNOWN: "not known",
        Prospect.REFUSED: "refused",
    }
    told = ", ".join(f"{counts[state]:,} {words[state]}" for state in Prospect if counts.get(state))
    return f"{sum(counts.values()):,}" + (f": {told}" if told else "")


def _to_copy(report: Report) -> str:
    need = report.estimate.need
    parts = [f"{need.offsets:,} offsets, about {size_text(need.size)}"]
    if need.markers >= 1:
        parts.append(f"about {need.markers:,.0f} of them without a record, filled with markers")
    if need.leading:
        parts.append(f"{need.leading:,} leading offsets filled and deleted again")
    return "; ".join(parts)


def _duration(report: Report) -> str:
    estimate = report.estimate
    told = "not known" if estimate.at_least_s is None else f"at least {duration_text(estimate.at_least_s)}"
    return told + (f" ({'; '.join(estimate.rests_on)})" if estimate.rests_on else "")


def _acts(acts: Iterable[Act], *, fixed: bool) -> list[str]:
    found = list(acts)
    if not found:
        return []
    head = "fixed:" if fixed else "--fix would:"
    return ["", head, *(f"  {act.told}" + (f": FAILED, {act.failed}" if act.failed else "") for act in found)]


def _table(rows: Iterable[PlanRow], commands: Commands) -> list[str]:
    head = ("", "line", "topic", "partitions")
    found: list[tuple[tuple[str, str, str, str], list[str]]] = []
    for row in rows:
        finding, where = row.finding, row.only
        more = [commands.rendered(finding.detail, row.topic, where)]
        if finding.remedy:
            more.append(f"do: {commands.rendered(row.remedy, row.topic, where)}")
        reason = f" ({finding.reason})" if finding.reason else ""
        cells = (_WORDS[finding.level], f"{finding.line}{reason}", row.topic or "(the flow)", _partitions(row))
        found.append((cells, more))
    first, *rest = aligned([head, *(cells for cells, _ in found)])
    lines = [first]
    for line, (_, more) in zip(rest, found, strict=True):
        lines += [line, *(f"{_INDENT}{each}" for each in more)]
    return lines


def _partitions(row: PlanRow) -> str:
    if not row.partitions:
        return ""
    named = ", ".join(map(str, row.named[:5]))
    more = ", ..." if row.partitions > 5 else ""
    return f"{row.partitions:,}" + (f" ({named}{more})" if named else "")


def _topics(report: Report) -> list[str]:
    rows = [
        (row.facts.name, row.facts.pair.destination, f"{row.facts.partitions:,}", row.state.value,
         f"{row.need.offsets:,}", size_text(row.need.size))
        for row in report.topics.values()
    ]  # fmt: skip
    head = ("topic", "into", "partitions", "state", "offsets to copy", "bytes")
    return aligned([head, *rows])
