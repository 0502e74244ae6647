"""Checks that everything was read. Pure: the plan and the readers' own reports in, coverage rows or an error out.

Nothing passes without full coverage. Each range must have been read to its end on both sides, by a reader that was
connected to the right cluster, with the nature of every offset known. The readers must have counted as many batches as
Spark did before the join. Offsets that a reader could not read, and gaps that no cleaner can have left, are findings
(``broken_logs``, ``causeless_gaps``).
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType

from mirror.audit.errors import AuditError
from mirror.audit.judge.spans import merged, overlapping
from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import APART, Finding, Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.model.result import Cleaned, Coverage, RangeContent
from mirror.audit.prepare.plan import Range, Task
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.read.witness import check_chain

BUG = "this is a defect of the audit: please report it; nothing was proved"
AGAIN = (
    "run the audit again: Spark counts the rows of a task twice if its executor is lost after the task has ended; "
    "nothing was proved"
)

CoverageKey = tuple[str, int, int, int]
"""Topic, partition, start and end of a range."""


def key_of(wanted: Range) -> CoverageKey:
    """Returns the key of a range's coverage."""
    return wanted.topic, wanted.partition, wanted.start, wanted.end


def check_plan(bounds: Iterable[Bounds], tasks: Iterable[Task]) -> dict[TopicPartition, list[Range]]:
    """Returns the ranges of each partition, in the order of the tasks, and checks that together they are exactly the
    audited offsets.

    Raises:
        AuditError: they are not.
    """
    ranges: dict[TopicPartition, list[Range]] = defaultdict(list)
    for task in tasks:
        for wanted in task:
            ranges[wanted.key].append(wanted)
    for known in bounds:
        at = known.audited.start
        for wanted in sorted(ranges[known.key], key=lambda found: found.start):
            if wanted.start != at:
                break
            at = wanted.end
        if at != known.audited.end:
            raise AuditError(f"the plan leaves a hole in {known.topic} partition {known.partition} at {at}", BUG)
    return ranges


def check_side(
    side: Side,
    cluster_id: str,
    tasks: Iterable[Task],
    read: dict[CoverageKey, RangeCoverage],
    clusters: set[str],
    counted: tuple[int, int],
) -> None:
    """Checks that one side was read in full.

    Args:
        side: the side, for the error.
        cluster_id: the id that all rows must name, or the cluster's alias if it has no id.
        tasks: what was to be read.
        read: what the readers report.
        clusters: what the rows name.
        counted: the numbers of rows and bytes that Spark saw.

    Raises:
        AuditError: the side was not read in full; the error says where.
    """
    wanted = {key_of(found): found for task in tasks for found in task}
    if clusters - {cluster_id}:
        raise AuditError(
            f"rows of the {side.value} came from cluster {', '.join(sorted(clusters))}, not {cluster_id}", BUG
        )
    if wanted.keys() != read.keys():
        topic, partition, start, end = min(wanted.keys() ^ read.keys())
        raise AuditError(f"{side.value}: offsets {start} to {end} of {topic} partition {partition} were not read", BUG)
    for (topic, partition, _, end), found in read.items():
        if found.next_offset != end and not found.broken:
            raise AuditError(
                f"{side.value}: {topic} partition {partition} was read to offset {found.next_offset}, not {end}", BUG
            )
    for (topic, partition, start, _), found in read.items():
        offsets = found.next_offset - start
        if found.accounted != offsets:
            raise AuditError(
                f"{side.value}: of {offsets} offsets of {topic} partition {partition}, read from {start} on, "
                f"{found.accounted} are accounted for",
                BUG,
            )
    _check_counted(side, read.values(), counted, least=False)


def check_none_lost(side: Side, read: Iterable[RangeCoverage], counted: tuple[int, int]) -> None:
    """Checks that Spark saw all batches of a closer look, since a difference could be in one that is missing. Spark may
    count batches twice if an executor is lost, and that is no error here.

    Raises:
        AuditError: Spark saw fewer batches or bytes than the readers report.
    """
    _check_counted(side, read, counted, least=True)


def _check_counted(side: Side, read: Iterable[RangeCoverage], counted: tuple[int, int], *, least: bool) -> None:
    parts = list(read)
    told = sum(part.rows for part in parts), sum(part.row_bytes for part in parts)
    is_more = counted[0] >= told[0] and counted[1] >= told[1]
    if told != counted and not (least and is_more):
        raise AuditError(
            f"{side.value}: readers counted {told[0]} batches and {told[1]} bytes, Spark {counted[0]} and {counted[1]}",
            AGAIN if counted > told else BUG,
        )


def check_transactions(
    alias: str, ranges: Mapping[TopicPartition, Sequence[Range]], read: dict[CoverageKey, RangeCoverage]
) -> None:
    """Checks across all ranges of one side that no marker contradicts data that was taken for committed.

    Raises:
        AuditError: a marker does; the error says where.
    """
    for key, wanted in ranges.items():
        where = f"{alias}: {key.topic} partition {key.partition}"
        check_chain(where, (read[key_of(found)].witness for found in sorted(wanted, key=lambda found: found.start)))


def coverage_of(
    side: Side,
    cluster_id: str,
    bounds: Sequence[Bounds],
    ranges: dict[TopicPartition, list[Range]],
    read: dict[CoverageKey, RangeCoverage],
) -> list[Coverage]:
    """Returns a coverage row of this side for each partition. ``read``: the readers' coverage of each range."""
    rows = []
    for known in bounds:
        wanted = sorted(ranges.get(known.key, ()), key=lambda one: one.start)
        found = [read[key_of(one)] for one in wanted]
        rows.append(
            Coverage(
                side=side,
                topic=known.topic,
                partition=known.partition,
                cluster_id=cluster_id,
                log=known.source if side is Side.SOURCE else known.destination,
                audited=known.audited,
                ranges=len(found),
                batches=sum(part.batches for part in found),
                records=sum(part.records for part in found),
                bytes=sum(part.bytes for part in found),
                gaps=sum(part.gap_offsets + part.inside for part in found),
                offsets=sum(part.offsets for part in found),
                control=sum(part.control for part in found),
                aborted=sum(part.aborted for part in found),
                empty=sum(part.empty for part in found),
                odd=sum(part.odd for part in found),
                stamped=sum(part.stamped for part in found),
                cut=bool(found) and (found[0].begins_before or found[-1].ends_behind),
                complete=not any(part.broken for part in found),
                contents=tuple(
                    RangeContent(one.start, one.end, one.width, part.content)
                    for one, part in zip(wanted, found, strict=True)
                ),
            )
        )
    return rows


def check_contents(
    differing: Mapping[TopicPartition, Pairs], coverage: Mapping[Side, Mapping[CoverageKey, RangeCoverage]]
) -> None:
    """Checks the result of the join: if no chunk of a range differs, the readers' digests of the whole range must be
    equal, too.

    Args:
        differing: the chunks that differ.
        coverage: the readers' coverage of both sides, for the same ranges.

    Raises:
        AuditError: the digests of such a range differ, so a difference got lost.
    """
    starts = {key: pairs.starts for key, pairs in differing.items()}
    theirs = coverage[Side.DESTINATION]
    for (topic, partition, start, end), ours in coverage[Side.SOURCE].items():
        known = starts.get(TopicPartition(topic, partition), [])
        if bisect_left(known, start) == bisect_left(known, end):
            other = theirs[topic, partition, start, end]
            if ours.content != other.content:
                raise AuditError(
                    f"{topic} partition {partition}: the batches between offsets {start} and {end} are not the same, "
                    "and no difference was found",
                    BUG,
                )


def check_named(differing: Iterable[TopicPartition], findings: Iterable[Finding]) -> None:
    """Checks that each of these partitions has a finding, so that no difference got lost.

    Raises:
        AuditError: a partition has none.
    """
    named = {(finding.topic, finding.partition) for finding in findings}
    for key in sorted(differing):
        if key not in named:
            raise AuditError(f"{key.topic} partition {key.partition} differs, and no difference was named", BUG)


EXCUSED = frozenset({Kind.CLEANED, Kind.REENCODED, Kind.UNVERIFIABLE, Kind.OVERSIZE})
"""Kinds of findings about differences that have a cause: a partition that has no others may pass."""


def check_chunks(
    chunks: Mapping[TopicPartition, Sequence[Range]],
    findings: Iterable[Finding],
    said: Mapping[TopicPartition, Sequence[Span]] = MappingProxyType({}),
) -> None:
    """Checks that in each partition that may pass, every chunk that differs has a finding that says why.

    A partition with a finding of a kind that is not ``EXCUSED`` does not pass anyway. It is not checked, because moved
    runs are not named chunk by chunk.

    Args:
        chunks: the chunks that certainly differ, in order.
        findings: the findings before consequences are folded, with destination offsets as the chunks have them.
        said: the chunks that had a finding before neighbouring findings were joined into one (``folded``), and the
            chunks that cleaners have made equal since.

    Raises:
        AuditError: a chunk has no finding.
    """
    spans: dict[TopicPartition, list[Span]] = defaultdict(list)
    lost: set[TopicPartition] = set()
    for finding in findings:
        key = TopicPartition(finding.topic, -1 if finding.partition is None else finding.partition)
        if finding.kind not in EXCUSED:
            lost.add(key)
        if finding.detail.endswith(APART):
            continue  # it does not cover every chunk between its offsets
        for span in (finding.source, finding.destination):
            if span and finding.kind is Kind.OVERSIZE:
                # The batch of such a record may begin in an earlier chunk, without a record there.
                some = chunks.get(key, ())
                at = bisect_right(some, span.start, key=attrgetter("start"))
                span = Span(some[at - 1].start if at else span.start, span.end)
            spans[key] += [span] if span else []
    for key in sorted(chunks.keys() - lost):
        told = merged([*spans[key], *said.get(key, ())])
        for chunk in chunks[key]:
            if next(overlapping(told, chunk), None) is None:
                raise AuditError(
                    f"{key.topic} partition {key.partition} differs between offsets {chunk.start} and {chunk.end}, and "
                    "nothing says how",
                    BUG,
                )


def check_fills(
    coverage: Iterable[Coverage],
    findings: Iterable[Finding],
    *,
    mapped: bool = False,
    cleaned: Collection[str] = (),
) -> None:
    """Checks that in partitions without findings, the destination has as many records and markers as the source has
    records and holes. In partitions whose only findings are rewritten batches (``Kind.REENCODED``), the numbers of
    records must be equal.

    This follows from the comparison. It is checked nevertheless, like all coverage.

    Args:
        coverage: the coverage of both sides.
        findings: all findings.
        mapped: holes are not filled, so only records count.
        cleaned: topics on which a log cleaner works on either side: it may have changed a batch after it was counted.

    Raises:
        AuditError: the numbers differ.
    """
    findings = list(findings)
    anew = {(one.topic, one.partition) for one in findings if one.kind is Kind.REENCODED}
    told = {(one.topic, one.partition) for one in findings if one.kind is not Kind.REENCODED}
    sides: dict[tuple[str, int], dict[Side, tuple[int, int, int]]] = defaultdict(dict)
    for row in coverage:
        key = row.topic, row.partition
        if key in anew and (row.cut or row.topic in cleaned):
            told.add(key)
        holes = row.holes if row.side is Side.SOURCE else row.filled
        counted = (row.records, 0, 0) if mapped or key in anew else (row.records, row.offsets, holes)
        sides[key][row.side] = counted
    for (topic, partition), found in sides.items():
        if (topic, partition) not in told and len(set(found.values())) > 1:
            ours, theirs = found[Side.SOURCE], found[Side.DESTINATION]
            if (topic, partition) in anew:
                raise AuditError(
                    f"{topic} partition {partition}: there are {ours[0]} records at the source and {theirs[0]} at the "
                    "destination, and all of them were taken for the same in other batches",
                    BUG,
                )
            raise AuditError(
                f"{topic} partition {partition}: records, their offsets and holes are {ours} at the source and "
                f"{theirs} at the destination, and no difference was found",
                BUG,
            )


def cleaned_of(coverage: Iterable[Coverage], findings: Iterable[Finding]) -> dict[TopicPartition, Cleaned]:
    """Returns the changes of log cleaners, for each partition with such a finding.

    The number of batches is that of the findings. If nothing else was found in a partition, its number of records is by
    how many the destination had fewer than the source when both were read, since a cleaner may have worked again before
    the findings were made. Otherwise it is that of the findings.

    Raises:
        AuditError: the destination had more records than the source, and a cleaner has removed these since.
    """
    batches: Counter[TopicPartition] = Counter()
    records: Counter[TopicPartition] = Counter()
    others: set[TopicPartition] = set()
    for finding in findings:
        key = TopicPartition(finding.topic, -1 if finding.partition is None else finding.partition)
        if finding.kind is Kind.CLEANED:
            batches[key] += finding.batches
            records[key] += finding.records
        elif finding.kind is not Kind.REENCODED:
            others.add(key)
    read: dict[TopicPartition, int] = defaultdict(int)
    for row in coverage:
        key = TopicPartition(row.topic, row.partition)
        if row.cut:
            others.add(key)
        read[key] += row.records if row.side is Side.SOURCE else -row.records
    for key in batches.keys() - others:
        if read[key] < 0:
            raise AuditError(
                f"{key.topic} partition {key.partition}: a log cleaner removed records while they were compared",
                "run the audit again, while the topic's cleaner is idle",
            )
        records[key] = read[key]
    return {key: Cleaned(count, records[key]) for key, count in sorted(batches.items())}


def damaged(coverage: Mapping[Side, Mapping[CoverageKey, RangeCoverage]]) -> set[TopicPartition]:
    """Returns the partitions in which a batch of either side has a wrong checksum, or cannot be opened."""
    return {
        TopicPartition(topic, partition)
        for read in coverage.values()
        for (topic, partition, _, _), part in read.items()
        if part.damaged
    }


def unmapped(alias: str, read: dict[CoverageKey, RangeCoverage]) -> list[Finding]:
    """Returns findings for batches of the flow at the destination that its offset map does not have: one for each batch
    that a range lists, and one for all further ones of the range."""
    found = []
    for (topic, partition, _, _), part in sorted(read.items()):
        which = f"of the flow at {alias} that its offset map does not have"
        why = "copied twice, or into the wrong partition"
        some = [(Span(*span), 1, span[1] - span[0], f"a batch {which}: {why}") for span in part.unmapped]
        more = part.unlisted
        if more.batches:
            several = f"{more.batches:,} more batch{'' if more.batches == 1 else 'es'} {which}, up to there: {why}"
            some.append((Span(more.start, more.end), more.batches, more.offsets, several))
        found += [
            Finding(
                kind=Kind.EXTRA, topic=topic, partition=partition, source=None, destination=span, batches=batches,
                records=records, detail=detail,
            )
            for span, batches, records, detail in some
        ]  # fmt: skip
    return found


def causeless_gaps(alias: str, read: dict[CoverageKey, RangeCoverage], compacted: frozenset[str]) -> list[Finding]:
    """Returns findings for offsets without a batch in source topics that are not compacted, where nothing explains
    them.
    """
    found = []
    for (topic, partition, start, _), part in sorted(read.items()):
        if topic in compacted or not part.gap_offsets:
            continue
        listed = [Span(*gap) for gap in part.gaps]
        more = part.gap_offsets - sum(span.offsets for span in listed)
        detail = f"{alias} has no batch here, and no log cleaner works on the topic: cleaned before, or not readable"
        found += [_gap(topic, partition, span, detail) for span in listed]
        if more:
            span = Span(listed[-1].end if listed else start, part.next_offset)
            found.append(_gap(topic, partition, span, f"{more:,} more such offsets"))
    return found


def _gap(topic: str, partition: int, span: Span, detail: str) -> Finding:
    return Finding(
        kind=Kind.UNVERIFIABLE, topic=topic, partition=partition, source=span, destination=None, batches=0, records=0,
        detail=detail,
    )  # fmt: skip


def broken_logs(side: Side, alias: str, read: dict[CoverageKey, RangeCoverage]) -> list[Finding]:
    """Returns findings for ranges in which the log is damaged, or the broker shows nothing. Each has the offsets that
    could not be read because of that."""
    found = []
    for (topic, partition, _, end), part in sorted(read.items()):
        if part.broken:
            span = Span(part.next_offset, end)
            found.append(
                Finding(
                    kind=Kind.UNREADABLE if part.unreadable else Kind.CORRUPT,
                    topic=topic,
                    partition=partition,
                    source=span if side is Side.SOURCE else None,
                    destination=span if side is Side.DESTINATION else None,
                    batches=0,
                    records=0,
                    detail=f"the log of {alias} is damaged and cannot be read on from here: {part.broken}",
                )
            )
    return found
