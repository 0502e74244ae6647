"""Names what rounds have found: turns the rows of windows, and the other places of the same rows, into findings."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from mirror.audit.errors import AuditError
from mirror.audit.judge.changed.borders import is_overlaid
from mirror.audit.judge.changed.reencoded import suspects
from mirror.audit.judge.kinds import Content, PlacedBatch, Scene, joined, named
from mirror.audit.judge.rounds.drill import by_content
from mirror.audit.judge.rounds.looks import Looks
from mirror.audit.judge.rounds.regions import MOST_RECORDS, Places, Window, most_records
from mirror.audit.judge.rounds.runs import folded
from mirror.audit.judge.rounds.searching import Elsewhere
from mirror.audit.judge.spans import less, merged, overlapping
from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Span, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole

MOST_OPENED = 100_000
"""Maximum number of records per round in batches that are opened only because of their borders."""
MADE_EQUAL = "log cleaners have worked on both sides since these were compared; by now, they have the same here"
MOST_LOOKS = 3
"""After so many looks in which something has changed, a place that a log cleaner works on is given up."""


class Round(NamedTuple):
    """Windows that were read together. ``ended``: those of their partitions of which both logs had been examined to
    their ends by then."""

    windows: Sequence[Window]
    ended: Set[TopicPartition]

    @property
    def rows(self) -> int:
        """The number of rows and holes in the windows."""
        return sum(
            len(some)
            for one in (window.pairs for window in self.windows)
            for some in (one.source, one.destination, one.holes, one.markers, one.odd, one.equal)
        )


@dataclass(slots=True, kw_only=True)
class Namer:
    """Names what differs in windows.

    ``again``: reads windows of one round once more, and returns those in which other rows differ now. ``mapped``: the
    destination has offsets of its own. ``passed``: the offsets of records that the flow has passed over according to
    its internal topic, each with what became of it. ``codec``: the codec in which the flow compresses batches that it
    rewrites; None: the batch's own. ``rebatches``: the flow makes larger batches of small ones. ``append_times``: the
    destination's broker may have put its own times in.

    ``said``: the chunks that had a finding, in windows whose findings were folded into fewer; and the chunks that
    cleaners have made equal since. ``unexplained``: the number of batches that no shift and no cleaner explains.
    ``holes``: the source's, from windows with unexplained differences.
    """

    looks: Looks
    bounds: Mapping[TopicPartition, Bounds]
    again: Callable[[Sequence[Window], Set[TopicPartition]], list[Window]]
    mapped: bool
    passed: Mapping[TopicPartition, Mapping[int, str]]
    codec: int | None
    rebatches: bool
    append_times: bool
    unexplained: int = 0
    said: dict[TopicPartition, list[Span]] = field(default_factory=lambda: defaultdict(list))
    holes: dict[TopicPartition, list[Hole]] = field(default_factory=lambda: defaultdict(list))
    _passed: dict[TopicPartition, list[int]] = field(default_factory=dict)
    _far: dict[tuple[Kind, TopicPartition], list[Span]] = field(default_factory=lambda: defaultdict(list))
    """Where batches that were moved lie outside of the windows that found them: neither missing nor extra there."""
    _stale: set[TopicPartition] = field(default_factory=set)
    """Partitions with windows that may have been read after the records that may excuse theirs."""

    def findings(self, rounds: Sequence[Round]) -> list[Finding]:
        """Returns the findings of these rounds. Both clusters are searched once for all that differs in them."""
        self._stale = _unshifted(window for one in rounds for window in one.windows)
        elsewhere = Elsewhere(self.looks)
        elsewhere.search(window.pairs for one in rounds for window in one.windows if not window.by_record)
        return [finding for one in rounds for finding in self._findings(one.windows, one.ended, elsewhere)]

    def _findings(self, windows: Sequence[Window], ended: Set[TopicPartition], elsewhere: Elsewhere) -> list[Finding]:
        findings: list[Finding] = []
        for window, found in zip(windows, self._settled(windows, ended, elsewhere), strict=True):
            key = window.region.key
            self._note_far(window, found)
            explained = joined([one for one in found if one.kind in _EXPLAINED], window.pairs.holes)
            others = [one for one in found if one.kind not in _EXPLAINED]
            # A run that moved is one fault, however long it is. But there may be an endless series of runs, so each run
            # counts as one batch.
            self.unexplained += sum(one.batches or one.records for one in others)
            self.unexplained += sum(one.kind is Kind.MOVED for one in explained)
            self.holes[key] += window.pairs.holes if others and not self.mapped else []
            few = folded(explained)
            findings += [*few, *others]
            if len(few) < len(explained):
                self.said[key] += _said(window, explained)
        return findings

    def _note_far(self, window: Window, found: Iterable[Finding]) -> None:
        """Notes the places of moved batches that do not lie in the window: another one has them alone on one side."""
        pairs, shift, key = window.pairs, window.region.shift, window.region.key
        moved = [(one.source, one.destination) for one in found if one.kind is Kind.MOVED]
        here = [ours for ours, _ in moved if ours and ours.start not in pairs.source]
        there = [theirs for _, theirs in moved if theirs and theirs.start - shift not in pairs.destination]
        for kind, spans in ((Kind.MISSING, here), (Kind.EXTRA, there)):
            if spans:
                self._far[kind, key] += merged(spans)

    def told_once(self, findings: Iterable[Finding]) -> list[Finding]:
        """Returns these findings without those that a batch is missing, or extra, of which another window has found
        that it was moved."""
        far = {key: merged(spans) for key, spans in self._far.items()}

        def is_told(one: Finding) -> bool:
            spans = far.get((one.kind, TopicPartition(one.topic, one.partition or 0)), ())
            span = one.source or one.destination
            return bool(spans) and span is not None and not list(less([span], spans))

        return [one for one in findings if not is_told(one)]

    def _settled(
        self, windows: Sequence[Window], ended: Set[TopicPartition], elsewhere: Elsewhere
    ) -> list[list[Finding]]:
        """Returns the findings of each window. A log cleaner may work between the reading of batches and the reading of
        their records. So a window with something that a cleaner does not explain is read again, until nothing has
        changed in it.

        Raises:
            AuditError: a window has changed at each of ``MOST_LOOKS`` looks, and a cleaner still does not explain
                everything in it.
        """
        named = dict(zip(map(id, windows), self._named(windows, ended, elsewhere), strict=True))
        some, looks = windows, 0
        while doubtful := [one for one in some if self._is_doubtful(one, named[id(one)])]:
            where = doubtful[0].where
            if looks == MOST_LOOKS:
                raise AuditError(
                    f"a log cleaner changed {where.topic} partition {where.partition} between offsets {where.start} "
                    f"and {where.end}, each time that it was looked at",
                    "run the audit again, while the topic's cleaner is idle",
                )
            changed = self.again(doubtful, ended)
            looks += bool(changed)
            self._stale |= _unshifted(changed)
            is_renewed = self._renew(_unshifted(doubtful))
            elsewhere.search(one.pairs for one in changed)
            some = doubtful if is_renewed else changed
            named |= zip(map(id, some), self._named(some, ended, elsewhere), strict=True)
        for window in windows:
            self.said[window.region.key] += window.equal
        return [[*named[id(one)], *_made_equal(one)] for one in windows]

    def _renew(self, keys: Set[TopicPartition]) -> bool:
        """Renews the records that may excuse others of these partitions, where they were read before the windows.
        Returns True if the logs have grown since: then such records are read again for all partitions."""
        stale = keys & self._stale
        is_renewed = bool(stale) and self.looks.renew(stale)
        self._stale = set() if is_renewed else self._stale - stale
        return is_renewed

    def _is_doubtful(self, window: Window, found: Iterable[Finding]) -> bool:
        cleaned = bool(self.looks.cleaned(window.region.key)) and not window.by_record
        return cleaned and any(one.kind not in _EXPLAINED for one in found)

    def _named(
        self, windows: Sequence[Window], ended: Set[TopicPartition], elsewhere: Elsewhere
    ) -> Iterator[list[Finding]]:
        wanted = self._to_be_opened(windows, elsewhere)
        for some in _groups(windows):
            inside = self._records_inside([one for one in some if id(one) in wanted])
            for window in some:
                yield self._named_one(window, inside.get(id(window)), ended, elsewhere)

    def _named_one(
        self,
        window: Window,
        opened: Sequence[RecordDifference] | None,
        ended: Set[TopicPartition],
        elsewhere: Elsewhere,
    ) -> list[Finding]:
        key, known = window.region.key, self.bounds[window.region.key]
        local = by_content((key, row) for row in window.pairs.source.values())
        far = _places_of(window.pairs.destination, elsewhere.source)
        return named(
            Scene(
                key=key,
                audited=known.audited,
                source=window.pairs.source,
                destination=window.pairs.destination,
                in_source={**far, **local},
                in_tail=_behind_audited(window, elsewhere, known) if key not in ended else {},
                holes=window.pairs.holes,
                markers=window.pairs.markers,
                odd=window.pairs.odd,
                equal=window.pairs.equal,
                looked=[Span(window.where.start, window.where.end)],
                cleaned=self.looks.cleaned(key),
                opened=None if opened is None else [one for one in opened if not one.mistimed],
                mistimed=[one.offset for one in opened or () if one.mistimed],
                mapped=self.mapped,
                shift=window.region.shift,
                by_record=window.by_record,
                ended=key in ended,
                passed=self.passed.get(key, {}),
                codec=self.codec,
                rebatches=self.rebatches,
                append_times=self.append_times,
                source_end=known.source.end,
                cut_off_at=known.destination.end - window.region.shift,
            )
        )

    def _to_be_opened(self, windows: Sequence[Window], elsewhere: Elsewhere) -> set[int]:
        """Returns the ids of the windows whose batches have to be opened."""
        wanted = {id(window) for window in windows if self.opens(window)}
        room = MOST_OPENED
        for window in windows:
            if id(window) not in wanted and not window.by_record and _is_overlaid(window.pairs, elsewhere):
                room -= sum(row.records for row in window.pairs.rows)
                if room >= 0:
                    wanted.add(id(window))
        return wanted

    def _records_inside(self, wanted: Sequence[Window]) -> dict[int, Sequence[RecordDifference]]:
        """Returns the records that differ in these windows, by the windows' ids."""
        opened: dict[TopicPartition, list[RecordDifference]] = {}
        for is_cleaned in (True, False):
            pairs: dict[TopicPartition, Pairs] = defaultdict(Pairs)
            for window in wanted:
                if bool(self.looks.cleaned(window.region.key)) is is_cleaned:
                    pairs[window.region.key].add(window.pairs)
            shifts = {window.region.key: window.region.shift for window in wanted if window.region.key in pairs}
            # Cleaners may have removed very many records, and their digests are not needed.
            opened |= self.looks.records(pairs, shifts, digests=not is_cleaned) if pairs else {}
        return {id(window): _within(window.pairs, opened.get(window.region.key, [])) for window in wanted}

    def is_anew(self, window: Window) -> bool:
        """Returns True if most source batches of a window may have been rewritten by the mirror. Then they are compared
        one by one, not as a stream of records."""
        return 2 * len(self._suspects(window)) > len(window.pairs.source)

    def opens(self, window: Window) -> bool:
        """Returns True if the window's batches have to be opened, because log cleaners or the mirror may have rewritten
        them."""
        anew = not window.by_record and bool(self._suspects(window))
        return anew or bool(self.looks.cleaned(window.region.key))

    def _suspects(self, window: Window) -> Sequence[BatchRow]:
        """Returns the source's batches in the window that the mirror may have rewritten."""
        key = window.region.key
        if key not in self._passed:
            self._passed[key] = [*self.passed.get(key, ())]
        return suspects(window.pairs, self._passed[key], codec=self.codec, rebatches=self.rebatches)


def _made_equal(window: Window) -> Iterator[Finding]:
    """Yields findings for the window's chunks that cleaners have made the same on both sides."""
    key, shift = window.region.key, window.region.shift
    for span in merged(window.equal):
        there = Span(span.start + shift, span.end + shift)
        yield Finding(
            kind=Kind.CLEANED, topic=key.topic, partition=key.partition, source=span, destination=there, batches=0,
            records=0, detail=MADE_EQUAL,
        )  # fmt: skip


def _unshifted(windows: Iterable[Window]) -> set[TopicPartition]:
    """Returns the partitions of windows without a shift. With a shift, the records that may excuse others are read for
    each look anyway."""
    return {window.region.key for window in windows if not window.region.shift}


def _is_overlaid(pairs: Pairs, elsewhere: Elsewhere) -> bool:
    """Returns True if batches of both sides that are not found elsewhere overlap and have different borders."""
    ours, theirs = ({row.content for row in rows.values()} for rows in (pairs.source, pairs.destination))
    return is_overlaid(
        [row for row in pairs.source.values() if row.crc_ok and not _is_in(row, theirs, elsewhere.destination)],
        [row for row in pairs.destination.values() if row.crc_ok and not _is_in(row, ours, elsewhere.source)],
    )


def _is_in(row: BatchRow, contents: Set[Content], places: Places) -> bool:
    return row.content in contents or row.content in places


def _within(pairs: Pairs, opened: Sequence[RecordDifference]) -> Sequence[RecordDifference]:
    """Returns those of a partition's differences (in order) that lie in one of these batches, or between them."""
    rows = pairs.rows
    if not opened or not rows:
        return []
    offset = attrgetter("offset")
    start, end = min(row.base_offset for row in rows), max(row.span.end for row in rows)
    return opened[bisect_left(opened, start, key=offset) : bisect_left(opened, end, key=offset)]


def _groups(windows: Iterable[Window]) -> Iterator[list[Window]]:
    """Yields the windows in groups whose records are compared together. Few batches may have very many records, so a
    group has at most ``MOST_RECORDS`` of them, or is a single window."""
    group: list[Window] = []
    room = MOST_RECORDS
    for window in windows:
        records = most_records(window.pairs)
        if group and records > room:
            yield group
            group, room = [], MOST_RECORDS
        group.append(window)
        room -= records
    if group:
        yield group


def _said(window: Window, explained: Iterable[Finding]) -> list[Span]:
    """Returns the window's chunks that one of these findings touches, and those of their spans that reach beyond the
    window's chunks."""
    told = merged(span for one in explained for span in (one.source, one.destination) if span)
    chunks = [Span(chunk.where.start, chunk.where.end) for chunk in window.chunks]
    found = [chunk for chunk in chunks if next(overlapping(told, chunk), None) is not None]
    return found + [span for span in told if span.start < chunks[0].start or span.end > chunks[-1].end]


_EXPLAINED = (Kind.MOVED, Kind.CLEANED, Kind.REENCODED, Kind.UNVERIFIABLE, Kind.OVERSIZE)


def _places_of(rows: Mapping[int, BatchRow], places: Places) -> dict[Content, Sequence[PlacedBatch]]:
    """Returns the places of these rows' contents."""
    contents = {row.content for row in rows.values()}
    return {content: places[content] for content in contents if content in places}


def _behind_audited(window: Window, elsewhere: Elsewhere, known: Bounds) -> dict[Content, list[PlacedBatch]]:
    """Returns the places of the window's batches in this partition at the destination, after its audited offsets."""
    tails = {
        content: [place for place in some if place.key == known.key and place.row.base_offset >= known.audited.end]
        for content, some in _places_of(window.pairs.source, elsewhere.destination).items()
    }
    return {content: some for content, some in tails.items() if some}
