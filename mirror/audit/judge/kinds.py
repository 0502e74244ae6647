"""Names rows that differ. Pure: one partition's rows and the places of their contents in, findings out.

The order of the rules matters. A batch with a wrong checksum is corrupt, whatever else it is. A destination batch that
the source has elsewhere was moved, doubled or misrouted. For example, if a batch is doubled and a thousand follow it,
one is a duplicate and a thousand are moved by one; none has "changed". Only a batch that the source has nowhere is
compared with the one in its place: header, value, borders. What then remains on one side only is missing or extra. What
a log cleaner explains is taken out before that comparison (``cleaned``).
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mirror.audit.judge.changed.borders import finding_of, overreaching, told_by_borders
from mirror.audit.judge.changed.cleaned import OpenedBatches, settled
from mirror.audit.judge.changed.old_formats import beside, in_pieces
from mirror.audit.judge.changed.reencoded import Reencoded
from mirror.audit.judge.changed.reencoded import settled as settled_anew
from mirror.audit.judge.fills import Explained, with_fills
from mirror.audit.judge.spans import less, merged
from mirror.audit.model.differences import RecordDifference
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.rows import OLD_FORMAT, UNREAD, BatchRow, Hole, What
from mirror.records.header import CODEC_MASK, LOG_APPEND_TIME, Codec

Content = tuple[object, ...]
"""``BatchRow.content``."""


class PlacedBatch(NamedTuple):
    """A batch and the partition in which it lies."""

    key: TopicPartition
    row: BatchRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One partition's differing rows by base offset, and the other places of their contents.

    ``in_source``: the places at the source with the content of one of these rows. ``in_tail``: the places at the
    destination after the audited offsets. ``holes``, ``markers``, ``odd`` and ``equal`` are those of ``Pairs``.
    ``looked``: the offsets that were examined batch by batch. ``cleaned``: the sides on which a log cleaner works.
    ``opened``: the records that differ in the batches that were opened; None if none were. ``mistimed``: for each
    opened batch of the destination whose max timestamp is not that of its records, the offset of its last record.
    ``mapped``: what the destination has between batches is unknown. ``shift``: the offsets of the destination's rows,
    markers and odd offsets are lower by this number than they are in its log. ``by_record``: a row is a record of a
    batch that was opened. ``ended``: both logs were examined to their ends, so that everything that is missing there is
    named here. ``passed``: the offsets of records that the flow has passed over according to its internal topic, each
    with what became of it. ``codec``: the codec in which the flow compresses batches that it rewrites; None: the
    batch's own. ``rebatches``: the flow makes larger batches of small ones. ``append_times``: the destination's broker
    may have put its own times in. ``source_end``: the end of the source's log; None: not known. ``cut_off_at``: the end
    of what is audited of the destination's log, in the offsets of its rows; None: all of it.
    """

    key: TopicPartition
    audited: Span
    source: Mapping[int, BatchRow]
    destination: Mapping[int, BatchRow]
    in_source: Mapping[Content, Sequence[PlacedBatch]]
    in_tail: Mapping[Content, Sequence[PlacedBatch]]
    holes: Sequence[Hole] = ()
    markers: Sequence[Hole] = ()
    odd: Sequence[Hole] = ()
    equal: Sequence[Hole] = ()
    looked: Sequence[Span] = ()
    cleaned: Set[Side] = frozenset()
    opened: Sequence[RecordDifference] | None = None
    mistimed: Sequence[int] = ()
    mapped: bool = False
    shift: int = 0
    by_record: bool = False
    ended: bool = False
    passed: Mapping[int, str] = field(default_factory=dict)
    codec: int | None = None
    rebatches: bool = False
    append_times: bool = False
    source_end: int | None = None
    cut_off_at: int | None = None

    @property
    def ends(self) -> dict[Side, int]:
        """The end of what is audited of each log, in the offsets of its rows, where it is known."""
        ends = {Side.SOURCE: self.source_end, Side.DESTINATION: self.cut_off_at}
        return {side: end for side, end in ends.items() if end is not None}


def named(scene: Scene) -> list[Finding]:
    """Returns the findings. Each row that differs is in exactly one of them. ``joined`` sorts them and joins
    neighbours.
    """
    source, destination = dict(scene.source), dict(scene.destination)
    damaged, odd = _damaged(scene, source)
    damaged += overreaching(
        scene.key, source, destination, scene.ends, compacted=Side.DESTINATION in scene.cleaned,
        rebatches=scene.rebatches,
    )  # fmt: skip
    broken = _set_aside(source), _set_aside(destination)
    # With rebatches, a batch of the destination may have the same content as a batch elsewhere at the source. So the
    # batches in its place are compared first.
    anew = _anew(scene, source, destination) if scene.rebatches else Reencoded([], [])
    moved = list(_elsewhere(scene, source, destination, broken[0]))
    placed = [*_in_place(scene.key, moved, source, destination, broken), *_in_tail(scene, source)]
    if not scene.rebatches:
        anew = _anew(scene, source, destination)
    inside: list[Hole] = []
    found = [
        *damaged,
        *moved,
        *placed,
        *anew.findings,
        *_cleaned(scene, source, destination, inside),
        *_changed(scene.key, source, destination),
        *told_by_borders(scene.key, source, destination, scene.opened, scene.cleaned),
    ]
    found = with_fills(
        scene.key,
        () if scene.mapped else _known(scene),
        sorted([*scene.holes, *scene.equal, *anew.holes, *inside]),
        sorted([*scene.markers, *scene.equal]),
        odd,
        found,
        cleaned=Side.DESTINATION in scene.cleaned,
    )
    if scene.by_record:
        found = [replace(finding, batches=0) for finding in found]
    return [_shifted(finding, scene.shift) for finding in found]


def _anew(scene: Scene, source: dict[int, BatchRow], destination: dict[int, BatchRow]) -> Reencoded:
    """Takes out the batches that the mirror has rewritten (deep path)."""
    if scene.opened is None or scene.by_record or scene.shift:  # where everything has moved, nothing is excused
        return Reencoded([], [])
    return settled_anew(
        scene.key, source, destination, scene.opened, scene.cleaned, scene.audited, ended=scene.ended,
        passed=scene.passed, codec=scene.codec, rebatches=scene.rebatches, append_times=scene.append_times,
        cut_off_at=scene.cut_off_at, mistimed=scene.mistimed,
    )  # fmt: skip


def _known(scene: Scene) -> Sequence[Span]:
    """Returns the examined offsets at which it is known what the source has. It is not known in a wrapper of an old
    format that cannot be read: it may lack records inside, and its header does not say which."""
    unknown = merged(row.span for row in scene.source.values() if not row.crc_ok and row.flags & OLD_FORMAT)
    return list(less(scene.looked, unknown)) if unknown else scene.looked


def _shifted(finding: Finding, shift: int) -> Finding:
    """Returns the finding with the destination's real offsets."""
    there = finding.destination
    return replace(finding, destination=Span(there.start + shift, there.end + shift)) if there and shift else finding


def _damaged(scene: Scene, source: dict[int, BatchRow]) -> tuple[list[Finding], list[Hole]]:
    """Takes out the source's batches whose copies are damaged and look like control batches. Returns their findings,
    and the odd offsets that remain."""
    found: list[Finding] = []
    rest: list[Hole] = []
    for hole in scene.odd:
        ours = source.get(hole.start)
        if hole.what is not What.DAMAGED or ours is None or ours.span != Span(hole.start, hole.end):
            rest.append(hole)
            continue
        del source[hole.start]
        sides = "destination" if ours.crc_ok else "source and the destination"
        detail = f"checksum does not match the bytes at the {sides}; at the destination it looks like a control batch"
        found.append(replace(finding_of(Kind.CORRUPT, scene.key, [ours], [], detail), destination=ours.span))
    return found, rest


def _set_aside(rows: dict[int, BatchRow]) -> dict[int, BatchRow]:
    """Takes out the rows with a wrong checksum and returns them: their fields cannot be trusted."""
    broken = {base: row for base, row in rows.items() if not row.crc_ok}
    for base in broken:
        del rows[base]
    return broken


def _in_place(
    key: TopicPartition,
    moved: Iterable[Finding],
    source: dict[int, BatchRow],
    destination: dict[int, BatchRow],
    broken: tuple[dict[int, BatchRow], dict[int, BatchRow]],
) -> Iterator[Finding]:
    """Takes out pairs of rows that differ and occupy the same place: at the shift of the moved batches beside them, or
    without a shift if one of them is broken. All rows of ``broken`` (both sides) get a finding, with or without a
    counterpart."""
    runs = sorted(
        (one.destination.start, one.destination.start - one.source.start)
        for one in moved
        if one.kind is Kind.MOVED and one.source and one.destination
    )
    ours, theirs = source | broken[0], destination | broken[1]
    for base in sorted(theirs):
        row = theirs[base]
        for shift in beside(runs, base):
            other = ours.get(base - shift)
            is_broken = other is not None and not (other.crc_ok and row.crc_ok)
            if other is None or not (is_broken or shift) or other.span.offsets != row.span.offsets:
                continue
            del ours[base - shift], theirs[base]
            for rows in (source, broken[0]):
                rows.pop(base - shift, None)
            for rows in (destination, broken[1]):
                rows.pop(base, None)
            yield _corrupt(key, [other], [row]) if is_broken else _changed_pair(key, other, row)
            break
    for mine, others in in_pieces(runs, source, destination, broken):
        yield _corrupt(key, mine, others)
    for base in broken[0].keys() | broken[1].keys():
        mine = [row for row in (broken[0].get(base) or source.pop(base, None),) if row is not None]
        other_side = [row for row in (broken[1].get(base) or destination.pop(base, None),) if row is not None]
        yield _corrupt(key, mine, other_side)


def _corrupt(key: TopicPartition, ours: Sequence[BatchRow], theirs: Sequence[BatchRow]) -> Finding:
    where = [
        side.value
        for side, rows in ((Side.SOURCE, ours), (Side.DESTINATION, theirs))
        if any(not row.crc_ok for row in rows)
    ]
    unread = any(row.flags & UNREAD for row in (*ours, *theirs) if not row.crc_ok)
    what = "it cannot be opened" if unread else "checksum does not match the bytes"
    detail = f"{what} at the {' and the '.join(where)}"
    return finding_of(Kind.CORRUPT, key, ours, theirs, detail)


def _elsewhere(
    scene: Scene, source: dict[int, BatchRow], destination: dict[int, BatchRow], broken: Mapping[int, BatchRow]
) -> Iterator[Finding]:
    """Takes out destination rows that the source has at another place, and the source rows that match them. A row whose
    origin in this partition is ``broken`` is left, although the contents match."""
    shift = 0
    for base in sorted(destination):
        row = destination[base]
        place = _origin(scene, source, row, shift)
        if place is None or (place.key == scene.key and place.row.base_offset in broken):
            continue
        del destination[base]
        if place.key != scene.key:
            topic = f"topic {place.key.topic} " if place.key.topic != scene.key.topic else ""
            detail = f"at the source in {topic}partition {place.key.partition}, offset {place.row.base_offset}"
            yield finding_of(Kind.MISROUTED, scene.key, [], [row], detail)
            continue
        origin = place.row
        shift = base - origin.base_offset
        if shift + scene.shift == 0 and origin.base_offset in source:
            del source[origin.base_offset]  # it is in its place; only its neighbours have moved
        elif origin.base_offset in source or not scene.audited.start <= origin.base_offset < scene.audited.end:
            source.pop(origin.base_offset, None)
            yield finding_of(Kind.MOVED, scene.key, [origin], [row], f"by {shift + scene.shift:+,} offsets")
        else:
            yield finding_of(Kind.DUPLICATE, scene.key, [origin], [row], "the source has it once, at its own place")


def _origin(scene: Scene, source: Mapping[int, BatchRow], row: BatchRow, shift: int) -> PlacedBatch | None:
    """Returns the place at the source from which this row most likely came; None if the source has it nowhere.

    A place in the same partition is preferred. Among several, the best one continues the shift of the previous batch.
    The next best is one whose copy the destination lacks, then the nearest one.
    """
    before = source.get(row.base_offset - shift)
    if before is not None and before.content == row.content:
        return PlacedBatch(scene.key, before)

    def unlikeliness(place: PlacedBatch) -> tuple[bool, bool, bool, int]:
        distance = row.base_offset - place.row.base_offset
        vacant = place.row.base_offset in source
        return place.key != scene.key, distance != shift or not vacant, not vacant, abs(distance)

    return min(near(scene.in_source.get(row.content, ()), row.base_offset), key=unlikeliness, default=None)


MOST_COMPARED = 64
"""Maximum number of places of one payload in one partition that are compared: those with the nearest offsets."""


def near(places: Sequence[PlacedBatch], offset: int) -> Sequence[PlacedBatch]:
    """Returns the ``MOST_COMPARED`` places nearest to the offset, for each partition separately. ``places``: in
    order."""
    if len(places) <= MOST_COMPARED:
        return places
    by_partition = (list(group) for _, group in itertools.groupby(places, key=lambda place: place.key))
    found: list[PlacedBatch] = []
    for group in by_partition:
        at = bisect_left(group, offset, key=lambda place: place.row.base_offset)
        found += group[max(0, at - MOST_COMPARED // 2) : at + MOST_COMPARED // 2]
    return found


def _in_tail(scene: Scene, source: dict[int, BatchRow]) -> Iterator[Finding]:
    """Takes out source rows that the destination has after its audited offsets."""
    for base in sorted(source):
        row = source[base]
        place = next((place for place in scene.in_tail.get(row.content, ()) if place.key == scene.key), None)
        if place is not None:
            del source[base]
            shift = place.row.base_offset - base
            span = place.row.span
            there = place.row._replace(base_offset=span.start - scene.shift, last_offset=span.end - 1 - scene.shift)
            yield finding_of(Kind.MOVED, scene.key, [row], [there], f"by {shift:+,} offsets")


def _cleaned(
    scene: Scene, source: dict[int, BatchRow], destination: dict[int, BatchRow], holes: list[Hole]
) -> Iterator[Finding]:
    """Takes out what a log cleaner explains. ``holes``: see ``cleaned.settled``."""
    if scene.opened is not None and scene.cleaned:
        opened = OpenedBatches(
            differences=scene.opened,
            cleaned=scene.cleaned,
            here=Explained([*scene.holes, *(scene.equal if scene.mapped else ())]),
            there=None if scene.mapped else Explained(scene.odd),
            copied_to=scene.audited.end,
            append_times=scene.append_times,
            mistimed=[Span(offset, offset + 1) for offset in scene.mistimed],
        )
        yield from settled(scene.key, source, destination, opened, holes)


def _changed(key: TopicPartition, source: dict[int, BatchRow], destination: dict[int, BatchRow]) -> Iterator[Finding]:
    """Takes out pairs of rows with the same offsets but different bytes."""
    for base in sorted(source.keys() & destination.keys()):
        ours, theirs = source[base], destination[base]
        if ours.last_offset != theirs.last_offset:
            continue
        del source[base], destination[base]
        yield _changed_pair(key, ours, theirs)


def _changed_pair(key: TopicPartition, ours: BatchRow, theirs: BatchRow) -> Finding:
    fields = header_changes(ours, theirs)
    stamped = theirs._replace(flags=theirs.flags ^ LOG_APPEND_TIME, max_timestamp=ours.max_timestamp)
    if theirs.flags & LOG_APPEND_TIME and stamped.content == ours.content:
        return finding_of(Kind.APPEND_TIMES, key, [ours], [theirs], "the destination's broker has put its own times in")
    if ours.digest == theirs.digest:
        return finding_of(Kind.HEADER_CHANGED, key, [ours], [theirs], ", ".join(fields))
    return finding_of(Kind.VALUE_CHANGED, key, [ours], [theirs], ", ".join(["the payload's bytes", *fields]))


def header_changes(ours: BatchRow, theirs: BatchRow) -> list[str]:
    """Returns the compared header fields in which two batches differ, as text with both values and without payload."""
    changes = [
        f"{name} {mine:,} → {other:,}"
        for name, mine, other in (
            ("record count", ours.records, theirs.records),
            ("size", ours.size, theirs.size),
        )
        if mine != other
    ]
    changes += [
        f"{name} {mine} → {other}"
        for name, mine, other in (
            ("base timestamp", ours.base_timestamp, theirs.base_timestamp),
            ("max timestamp", ours.max_timestamp, theirs.max_timestamp),
        )
        if mine != other
    ]
    if (ours.flags ^ theirs.flags) & CODEC_MASK:
        changes.append(f"codec {codec_name(ours.flags)} → {codec_name(theirs.flags)}")
    if (ours.flags ^ theirs.flags) & OLD_FORMAT:
        changes.append("a format from before Kafka 0.11 at the destination")
    elif (ours.flags ^ theirs.flags) & ~CODEC_MASK:
        changes.append(f"attributes {ours.flags:#06x} → {theirs.flags:#06x}")
    return changes


def codec_name(flags: int) -> str:
    """Returns the name of the codec in these attributes."""
    bits = flags & CODEC_MASK
    return Codec(bits).name.lower() if bits in set(Codec) else f"unknown {bits}"


# -- runs ----------------------------------------------------------------------------------------------------


def joined(findings: Iterable[Finding], holes: Iterable[Hole] = ()) -> list[Finding]:
    """Returns the findings in offset order, with neighbours of the same kind and detail joined into runs. Only
    ``holes`` of the source may lie between neighbours."""
    over = {hole.start: hole.end for hole in holes}
    runs: list[Finding] = []
    for finding in sorted(findings, key=_order):
        # Not only the last run is tried: in offset order, the findings of a moved run and missing ones may alternate.
        at = next(
            (i for i in range(len(runs) - 1, max(-1, len(runs) - 4), -1) if _continues(runs[i], finding, over)), None
        )
        if at is None:
            runs.append(finding)
        else:
            runs[at] = _extended(runs[at], finding)
    return runs


def _order(finding: Finding) -> tuple[str, int, int, str]:
    span = finding.destination or finding.source
    partition = -1 if finding.partition is None else finding.partition
    return finding.topic, partition, span.start if span else -1, finding.kind.value


def _continues(run: Finding, finding: Finding, over: Mapping[int, int]) -> bool:
    same = (run.kind, run.topic, run.partition, run.detail) == (
        finding.kind, finding.topic, finding.partition, finding.detail
    )  # fmt: skip
    # Re-segmented groups are not joined: their details count their own batches.
    return (
        same
        and run.batches > 0
        and finding.batches > 0
        and run.kind is not Kind.RESEGMENTED
        and _follows(run, finding, over)
    )


def _follows(run: Finding, finding: Finding, over: Mapping[int, int]) -> bool:
    """Returns True if only holes lie between the two, with the same number of offsets on both sides. ``over``: start ->
    end of each hole."""
    if run.source is None or finding.source is None:
        return run.source is finding.source and _gap(run.destination, finding.destination) == 0
    at = run.source.end
    while at < finding.source.start and at in over:
        at = over[at]
    if at != finding.source.start:
        return False
    if run.destination is None or finding.destination is None:
        return run.destination is finding.destination
    return _gap(run.destination, finding.destination) == _gap(run.source, finding.source)


def _gap(before: Span | None, after: Span | None) -> int | None:
    return after.start - before.end if before and after else None


def _extended(run: Finding, finding: Finding) -> Finding:
    return replace(
        run,
        source=Span(run.source.start, finding.source.end) if run.source and finding.source else None,
        destination=(
            Span(run.destination.start, finding.destination.end) if run.destination and finding.destination else None
        ),
        batches=run.batches + finding.batches,
        records=run.records + finding.records,
        bytes=run.bytes + finding.bytes,
    )
