"""The report as one HTML page. It begins with the meaning of the verdict, for those who decide. Then it shows the
places of findings and how the result is proved, for those who look closer."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files

from rich.text import Text

from mirror import DISTRIBUTION
from mirror.audit import report
from mirror.audit.certify.contents import root
from mirror.audit.judge.changed.reencoded import counted
from mirror.audit.model.findings import PROVED_OTHERWISE, Finding, Kind
from mirror.audit.model.places import Side
from mirror.audit.model.result import AuditResult, Coverage, Verdict
from mirror.audit.page.maps import offset_map

MOST_FINDINGS = 1_000
MOST_PARTITIONS = 500

_MEANS = {
    Verdict.IDENTICAL: "Nothing is missing, nothing is doubled, nothing is changed.",
    Verdict.ACCEPTED: "Nothing differs but what the configuration accepts by name.",
    Verdict.UNVERIFIABLE: "No difference was found, but not everything can be proved any more.",
    Verdict.OVERSIZE: "Nothing differs but records that the mirror was told to pass over, because they are too large.",
    Verdict.DIFFERENT: "The destination does not hold what the source holds. Where, and what to do, stands below.",
    Verdict.INCOMPLETE: "A topic that should be there could not be audited.",
}
Partition = Mapping[Side, Coverage]


def page(result: AuditResult, remedies: Sequence[str] = ()) -> str:
    """Returns the page as HTML. ``remedies``: lines that say what to do."""
    sides: dict[tuple[str, int], dict[Side, Coverage]] = defaultdict(dict)
    for row in result.coverage:
        sides[row.topic, row.partition][row.side] = row
    names = f"{result.source_alias} and {result.destination_alias}"
    css = (files(__package__) / "page.css").read_text()
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Audit of {escape(names)}: {result.verdict.value}</title><style>{css}</style></head><body>",
            f"<h1>Audit of {escape(names)}</h1>",
            f'<div class="dim">flow {escape(result.flow)}, ended {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, '
            f"mirror {version(DISTRIBUTION)}, took {result.elapsed_s:,.1f} s</div>",
            _verdict(result),
            _listed("What to do", remedies),
            _topics(result, sides),
            _kinds(result),
            _maps(result, sides),
            _findings(result.findings, result),
            _decided(result),
            _listed("Notes", result.notes[:MOST_FINDINGS], max(0, len(result.notes) - MOST_FINDINGS)),
            _proof(result, sides),
            "</body></html>\n",
        ]
    )


def _verdict(result: AuditResult) -> str:
    told = Text.from_markup(report.verdict(result)).plain
    return (
        f'<div class="verdict {result.verdict.value}"><b>{result.verdict.value}</b>'
        f"<div>{escape(_meaning(result))}</div><div>{escape(told.partition(': ')[2])}</div></div>"
    )


def _meaning(result: AuditResult) -> str:
    if result.verdict is Verdict.IDENTICAL and result.all_cleaned.records:
        return (
            f"Nothing is missing but what a log cleaner has removed at {result.destination_alias}. Nothing is doubled, "
            "nothing is changed."
        )
    return _MEANS[result.verdict]


def _listed(title: str, lines: Iterable[str], left: int = 0) -> str:
    """Returns a list with its title; empty without lines. ``left``: how many more lines are only in the summary."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    more = f"<p>{left:,} more are in summary.json.</p>" if left else ""
    return f"<h2>{title}</h2><ul>{items}</ul>{more}" if items else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Returns a table. Cells are HTML. ``numbers``: the columns that are aligned to the right."""

    def line(cells: Sequence[str], tag: str) -> str:
        parts = (f"<{tag}{' class=n' if at in numbers else ''}>{cell}</{tag}>" for at, cell in enumerate(cells))
        return f"<tr>{''.join(parts)}</tr>"

    return f'<div class="scroll"><table>{line(heads, "th")}{"".join(line(row, "td") for row in rows)}</table></div>'


def _topics(result: AuditResult, sides: Mapping[tuple[str, int], Partition]) -> str:
    topics: dict[str, list[Partition]] = defaultdict(list)
    for (topic, _), found in sides.items():
        topics[topic].append(found)
    kinds: dict[str, set[Kind]] = defaultdict(set)
    for finding in result.findings:
        kinds[finding.topic].add(finding.kind)
    most = max((sum(found[Side.SOURCE].bytes for found in each) for each in topics.values()), default=0)
    rows = []
    for topic, each_of in sorted(topics.items()):
        size = sum(each[Side.SOURCE].bytes for each in each_of)
        wrong = "wrong" if kinds[topic] - PROVED_OTHERWISE else "unproved" if kinds[topic] else ""
        rows.append(
            [
                escape(topic),
                f"{len(each_of):,}",
                f"{sum(each[Side.SOURCE].records for each in each_of):,}",
                report.size_text(size),
                report.size_text(sum(each[Side.DESTINATION].bytes for each in each_of)),
                _share(size, most, wrong),
                escape(", ".join(sorted(kind.value for kind in kinds[topic])) or "the same"),
            ]
        )
    here, there = escape(result.source_alias), escape(result.destination_alias)
    heads = ["topic", "partitions", "records", here, there, "", "found"]
    return f"<h2>Topics</h2>{_table(heads, rows, (1, 2, 3, 4))}" if rows else ""


def _share(part: int, whole: int, name: str) -> str:
    width = 100 * part / whole if whole else 0
    return f'<div class="share"><i class="{name}" style="width:{width:.1f}%"></i></div>'


def _kinds(result: AuditResult) -> str:
    """Returns two charts: findings by kind, and rewritten batches by cause."""
    kinds = Counter(finding.kind for finding in result.findings)
    most = max(kinds.values(), default=0)
    found = [
        [kind.value, f"{count:,}", _share(count, most, "unproved" if kind in PROVED_OTHERWISE else "wrong")]
        for kind, count in kinds.most_common()
    ]
    causes = counted(result.reencoded)
    most = max((records for _, records in causes.values()), default=0)
    anew = [
        [escape(cause), f"{batches:,}", f"{records:,}", _share(records, most, "other")]
        for cause, (batches, records) in sorted(causes.items())
    ]
    text = f"<h2>Found, by kind</h2>{_table(['kind', 'findings', ''], found, (1,))}" if found else ""
    if anew:
        text += "<h2>Written anew, with the same records</h2>"
        text += _table(["because", "batches", "records", ""], anew, (1, 2))
    return text


def _maps(result: AuditResult, sides: Mapping[tuple[str, int], Partition]) -> str:
    findings: dict[tuple[str, int | None], list[Finding]] = defaultdict(list)
    for finding in result.findings:
        findings[finding.topic, finding.partition].append(finding)
    shown = sorted(sides, key=lambda key: (not findings[key], key))[:MOST_PARTITIONS]
    rows = [
        [
            f"{escape(topic)} {partition}",
            f"{sides[topic, partition][Side.SOURCE].log.start:,} to {sides[topic, partition][Side.SOURCE].log.end:,}",
            offset_map(sides[topic, partition], findings[topic, partition], result),
        ]
        for topic, partition in sorted(shown)
    ]
    if not rows:
        return ""
    key = "".join(
        f'<span class="{name}"></span>{text}'
        for name, text in (
            ("same", "compared, and the same"), ("wrong", "differs"), ("unproved", "no proof, or passed over"),
            ("open", "behind an open transaction"), ("log", "in the log, not audited"),
        )
    )  # fmt: skip
    left = len(sides) - len(shown)
    wrong = sum(bool(findings[key]) for key in sides.keys() - shown)
    told = f"{wrong:,} of them with findings," if wrong else "without findings,"
    more = f"<p>{left:,} more partitions, {told} are in coverage.json.</p>" if left else ""
    where = "" if result.offsets == "exact" else " Each side has a scale of its own."
    return (
        f'<h2>Offsets</h2><div class="key small dim">{key}</div><p class="small dim">Above: '
        f"{escape(result.source_alias)}; below: {escape(result.destination_alias)}.{where}</p>"
        f"{_table(['partition', 'source offsets', 'map'], rows)}{more}"
    )


def _findings(findings: Sequence[Finding], result: AuditResult) -> str:
    if not findings:
        return ""
    rows = [
        [
            each.kind.value,
            escape(each.topic),
            "all" if each.partition is None else str(each.partition),
            report.span_text(each.source),
            report.span_text(each.destination),
            f"{each.batches:,}" if each.batches else "-",
            escape(each.detail),
        ]
        for each in findings[:MOST_FINDINGS]
    ]
    heads = ["kind", "topic", "part.", escape(result.source_alias), escape(result.destination_alias), "batches", "what"]
    left = len(findings) - len(rows)
    more = f"<p>{left:,} more are in findings.json.</p>" if left else ""
    return f"<h2>Findings</h2>{_table(heads, rows, (2, 3, 4, 5))}{more}"


def _decided(result: AuditResult) -> str:
    lines = [f"skipped: {report.skipped_text(each)}" for each in result.skipped[:MOST_FINDINGS]]
    lines += [report.undecided_text(one, result) for one in result.undecided[: MOST_FINDINGS - len(lines)]]
    left = len(result.skipped) + len(result.undecided) - len(lines)
    return _listed("Not compared", lines, left)


def _proof(result: AuditResult, sides: Mapping[tuple[str, int], Partition]) -> str:
    rows = []
    for (topic, partition), found in sorted(sides.items())[:MOST_PARTITIONS]:
        ours, theirs = (root(result.digest, found[side].contents) for side in Side)
        rows.append(
            [
                f"{escape(topic)} {partition}",
                f"{found[Side.SOURCE].audited.start:,} to {found[Side.SOURCE].audited.end:,}",
                f"<code>{ours}</code>",
                "the same" if ours == theirs else f"<code>{theirs}</code>",
            ]
        )
    heads = ["partition", "audited offsets", escape(result.source_alias), escape(result.destination_alias)]
    left = len(sides) - len(rows)
    more = f"<p>{left:,} more are in certificate.json.</p>" if left else ""
    ids = (
        f"{escape(result.source_alias)} is cluster <code>{escape(result.source_cluster_id)}</code>, "
        f"{escape(result.destination_alias)} is cluster <code>{escape(result.destination_cluster_id)}</code>."
    )
    return (
        f"<h2>Proof</h2><p>{ids} Identity level payload: every header field but the writer's own, and every byte "
        f"behind the header. Isolation level {escape(result.isolation_level)}, offsets {escape(result.offsets)}. The "
        f"root of a partition ({escape(result.digest)}) identifies all its batches; certificate.json has how it is "
        f"made, and <code>mirror audit verify</code> checks it. Roots differ where batches were written anew, or a log "
        f"cleaner "
        f"has worked.</p>{_table(heads, rows)}{more}"
    )
