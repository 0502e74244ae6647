"""The records that may excuse what a log cleaner changed are read once, and are not used for what has moved."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.judge.coverage import broken_logs
from mirror.audit.judge.mapped import MappedPartition
from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole, What
from mirror.audit.prepare.bounds import Frozen
from mirror.audit.prepare.moving import Scope
from mirror.audit.prepare.plan import Range, ReadingEstimate, from_json, to_json
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.spark import compare as compared
from mirror.audit.spark import looking as module
from mirror.audit.spark.by_record import LaterRecords, Limits
from mirror.audit.spark.compare import ROW, Compared, Located, taken
from mirror.audit.spark.looking import Looking
from mirror.audit.spark.options import BATCHES, OPENED, WHOLE
from mirror.audit.spark.progress import JobProgress
from mirror.offsetmap.runs import OffsetMap, Run

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Counting(Looking):
    """Reads nothing, and keeps what it was asked to read."""

    def __init__(self) -> None:
        scope = Mock()
        scope.frozen.compacted = {Side.SOURCE: {"t"}}
        super().__init__(Mock(), scope, (), Mock(), 1, JobProgress())
        self.read: list[tuple[list[TopicPartition], dict[TopicPartition, int]]] = []
        self.kept: list[Any] = []

    def _read_later(self, keys: Iterable[TopicPartition], shifts: Mapping[TopicPartition, int]) -> LaterRecords:
        self.read.append((list(keys), dict(shifts)))
        self.kept.append(Mock())
        one: LaterRecords = self.kept[-1]
        return one

    def looked(self, *keys: TopicPartition, shift: int = 0) -> Any:
        """One look at these, at that shift; what it got."""
        with self._later(keys, dict.fromkeys(keys, shift)) as later:
            assert later is not None
            assert not later.forget.called  # type: ignore[attr-defined]
        return later


def test_read_once_for_all_rounds() -> None:
    """
    1. All partitions that differ and are compacted, for every look.
    2. Begun anew, because a log's start has moved: read again, and what was read before is let go.
    """
    looking = Counting()
    looking.begin({KEY: 10, OTHER: 5, TopicPartition("plain", 0): 3})
    assert looking.looked(KEY) is looking.looked(KEY, OTHER)
    assert looking.read == [([KEY, OTHER], {})]
    looking.begin({KEY: 20})
    assert looking.kept[0].forget.called
    looking.looked(KEY)
    assert looking.read[1:] == [([KEY], {})]
    looking.end()
    assert looking.kept[1].forget.called


def test_read_to_where_the_logs_end_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A cleaner may have taken a record for one that was written behind the frozen end: each log is read up to where it
       ends by now, from where it begins, be it before the audited offsets.
    2. What the destination has by now is as much as a tombstone at the source can have been copied.
    3. Mutation: read to the frozen end.
    """
    spans: list[tuple[int, int]] = []
    copied: list[dict[TopicPartition, Limits]] = []

    def read(_: object, source: Any, destination: Any, limits: dict[TopicPartition, Limits]) -> None:
        spans.extend(_spans((source, destination)))
        copied.append(limits)

    monkeypatch.setattr(LaterRecords, "read", read)
    for now, reach in (({Side.SOURCE: {KEY: 150}, Side.DESTINATION: {KEY: 140}}, (150, 140)), ({}, (100, 90))):
        looking = reading_later(monkeypatch, bounds(Span(10, 100), Span(5, 90)), now)
        looking._read_later([KEY], {})
        assert spans == [(10, reach[0]), (5, reach[1])]
        assert copied.pop()[KEY].copied == reach[1]
        spans.clear()


@pytest.mark.parametrize(("damaged", "audited"), [([KEY], 10), ([OTHER], 1 << 62), ([], 1 << 62)])
def test_damage_that_nothing_is_told_of_may_hide_a_record(
    monkeypatch: pytest.MonkeyPatch, damaged: list[TopicPartition], audited: int
) -> None:
    """
    1. Of a batch whose checksum was wrong when both logs were compared, there is a finding. What it held excuses
       nothing and forbids nothing, from the audited offsets on.
    2. If none was, one that cannot be opened now has been damaged since: the key of a tombstone may live there.
    3. Mutation: whatever stands among the audited offsets was told.
    """
    limits: list[Mapping[TopicPartition, Limits]] = []
    monkeypatch.setattr(LaterRecords, "read", lambda _, source, destination, found: limits.append(found))
    looking = reading_later(monkeypatch, bounds(Span(10, 100), Span(5, 90)), {})
    looking.begin({KEY: 10}, damaged=damaged)
    looking._read_later([KEY], {})
    assert limits == [{KEY: Limits(copied=90, audited=audited)}]


def test_what_is_kept_is_let_go_if_a_log_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Nothing is kept yet: it will be read as the logs are then.
    2. They end where they did when it was read: nothing was written that a cleaner may have taken a record for.
    3. One of them goes on, at either side: it is read anew. Mutation: it is kept.
    """
    kept: list[Any] = []

    def read(*_: object) -> Any:
        kept.append(Mock())
        return kept[-1]

    monkeypatch.setattr(LaterRecords, "read", read)
    now = {Side.SOURCE: {KEY: 100}, Side.DESTINATION: {KEY: 90}}
    looking = reading_later(monkeypatch, bounds(Span(10, 100), Span(5, 90)), now)
    monkeypatch.setattr(looking.scope, "ends_now", AsyncMock(side_effect=lambda _: copy.deepcopy(now)))
    looking.scope.frozen = replace(looking.frozen, compacted={Side.SOURCE: frozenset({"t"})})
    looking.begin({KEY: 10})
    assert not looking.renew([KEY])
    for side in Side:
        with looking._later([KEY], {KEY: 0}):
            assert not looking.renew([KEY])
        assert not kept[-1].forget.called
        now[side] = {KEY: now[side][KEY] + 1}
        assert looking.renew([KEY])
        assert kept[-1].forget.called
        assert not looking.renew([KEY])


def bounds(source: Span, destination: Span) -> Bounds:
    return Bounds(topic="t", partition=0, source=source, destination=destination)


def reading_later(
    monkeypatch: pytest.MonkeyPatch,
    known: Bounds,
    now: Mapping[Side, Mapping[TopicPartition, int]],
    mapped: MappedPartition | None = None,
) -> Looking:
    """Reads nothing. ``now``: the ends of both logs by now."""
    places = {KEY: mapped} if mapped else {}
    request = Mock(mapped=mapped is not None, committed=True)
    frozen = Frozen(
        source_cluster_id="a", destination_cluster_id="b", bounds=(known,), findings=(), source_topic_ids={},
        destination_topic_ids={}, mapped=places,
    )  # fmt: skip
    scope = Scope(frozen, {KEY: [Range("t", 0, *known.audited, True, 5)]}, request)
    monkeypatch.setattr(scope, "ends_now", AsyncMock(return_value=now))
    looking = Looking(request, scope, [ReadingEstimate(KEY, known.audited, 80)], Mock(), 1, Mock())
    monkeypatch.setattr(looking, "_options", lambda side, tasks, rows: tasks)
    monkeypatch.setattr(looking, "_spark", lambda action: action())
    return looking


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What is read of both sides for the records that may excuse others."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(LaterRecords, "read", lambda _, source, destination, limits: found.extend(
        _spans((from_json(to_json(source)), from_json(to_json(destination))))
    ))  # fmt: skip
    return found


def test_read_from_where_the_map_begins(monkeypatch: pytest.MonkeyPatch, spans: list[tuple[int, int]]) -> None:
    """The source begins at 1000. Its consumers do not see what it had before, those of the destination do: a value
    there that a lost tombstone has deleted is no excuse. Mutation: read from the audited offsets on."""
    place = MappedPartition("t", OffsetMap([Run(500, 40, 600), Run(1200, 700, 300)]), Span(40, 1000), (7,))
    known = bounds(Span(1000, 1500), Span(1000, 1500))
    for shift in (0, 5):
        looking = reading_later(monkeypatch, known, {}, place)
        looking._read_later([KEY], {KEY: shift})
        assert [start for start, _ in spans] == [1000, 500]
        spans.clear()
    empty = place._replace(offsets=OffsetMap())
    reading_later(monkeypatch, known, {}, empty)._read_later([KEY], {})
    assert [start for start, _ in spans] == [1000, 1000]


@pytest.mark.parametrize(("side", "starts"), [(Side.SOURCE, [60, 5]), (Side.DESTINATION, [10, 60])])
def test_each_log_is_read_from_its_own_start(
    monkeypatch: pytest.MonkeyPatch, spans: list[tuple[int, int]], side: Side, starts: list[int]
) -> None:
    """One side deletes up to 60 while the audit runs. Both are compared from there on, and the other log still has what
    lies before. Mutation: by the bounds that are compared."""
    looking = reading_later(monkeypatch, bounds(Span(10, 100), Span(5, 90)), {})
    compared = Compared(
        differing={}, coverage={each: {} for each in Side}, clusters={}, batches={}, bytes={}
    )  # fmt: skip
    looking.scope.begin_later(compared, {side: {KEY: 60}})
    assert looking.scope.bounds[KEY].audited == Span(60, 90)
    looking._read_later([KEY], {})
    assert [start for start, _ in spans] == starts


def test_what_moved_towards_the_end_is_read_from_the_first_offset_on(
    monkeypatch: pytest.MonkeyPatch, spans: list[tuple[int, int]]
) -> None:
    """By source offsets, such a log begins before 0. Data sources get this as text."""
    looking = reading_later(monkeypatch, bounds(Span(0, 100), Span(0, 105)), {})
    looking._read_later([KEY], {KEY: 5})
    assert [start for start, _ in spans] == [0, -5]


def _spans(sides: Iterable[Iterable[Sequence[Range]]]) -> list[tuple[int, int]]:
    ranges = [[where for task in tasks for where in task] for tasks in sides]
    return [(min(where.start for where in some), max(where.end for where in some)) for some in ranges]


def test_read_for_itself() -> None:
    """What has moved is not in what is kept: it is read, and let go behind the look."""
    looking = Counting()
    looking.begin({KEY: 10})
    kept = looking.looked(KEY)
    moved = looking.looked(KEY, shift=3)
    assert looking.read[1:] == [([KEY], {KEY: 3})]
    assert moved.forget.called
    assert not kept.forget.called
    assert looking.looked(KEY) is kept


def test_readers_know_all_ids_of_the_flow() -> None:
    """Also those of copies that are not audited. Those of the source need none."""
    frozen = Frozen(
        source_cluster_id="a", destination_cluster_id="b", bounds=(), findings=(), source_topic_ids={},
        destination_topic_ids={}, compacted={side: frozenset() for side in Side}, flow_ids=frozenset({9, 7}),
    )  # fmt: skip
    request = Mock(mapped=True, committed=True, append_times=False, fill="mirror")
    looking = Looking(request, Scope(frozen, {}, request), (), Mock(), 1, Mock())
    ids = {side: looking._options(side, (), BATCHES).rules.flow_ids for side in Side}
    assert ids == {Side.SOURCE: (), Side.DESTINATION: (7, 9)}


READ = RangeCoverage(next_offset=40)


@pytest.mark.parametrize(
    ("part", "is_read", "damaged"),
    [
        (READ, True, None),
        (RangeCoverage(next_offset=40, log_start=35), False, None),
        (RangeCoverage(next_offset=33, broken="length"), False, Span(36, 43)),
        (RangeCoverage(next_offset=33, broken="nothing", unreadable=True), False, Span(36, 43)),
    ],
)
def test_a_tail_counts_if_it_was_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, part: RangeCoverage, is_read: bool, damaged: Span | None
) -> None:
    """A log that begins later by now, or is damaged there, has not said everything. Damage is told at the destination's
    own offsets: it has all of this 3 further. Each rule that is left out lets a lag pass for a copy."""
    coverage = {("t", 0, 30, 40): part, ("t", 1, 30, 40): READ}
    compared = Mock(differing={OTHER: Pairs()}, coverage={Side.DESTINATION: coverage})
    monkeypatch.setattr(module, "compare", lambda *_: compared)
    looking = Looking(Mock(), Mock(), (), Mock(), 1, Mock())
    looking.request.destination.alias = "east"  # type: ignore[misc]
    monkeypatch.setattr(looking, "_options", lambda *_: None)
    monkeypatch.setattr(looking, "_spark", lambda action: action())
    ranges = [Range(*key, 30, 40, False, 5, shift=3) for key in (KEY, OTHER)]
    found = looking.tails(Side.DESTINATION, ranges, by_record=False)
    assert found.read == ({KEY, OTHER} if is_read else {OTHER})
    kinds = {part.unreadable: Kind.UNREADABLE, not part.unreadable: Kind.CORRUPT}
    assert [(one.kind, one.partition, one.source, one.destination) for one in found.broken] == (
        [(kinds[True], 0, None, damaged)] if damaged else []
    )


RANGES = [Range("t", 0, 0, 10, True, 5), Range("t", 0, 10, 20, False, 5)]


def damage(side: Side, start: int, end: int) -> Finding:
    """As the first read has found it."""
    part = RangeCoverage(next_offset=start, broken="length")
    (found,) = broken_logs(side, "west", {("t", 0, 0, end): part})
    return found


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Looking:
    """Of one partition, which was read in two ranges."""
    known = Bounds(topic="t", partition=0, source=Span(0, 20), destination=Span(0, 20))
    scope = Mock(bounds={KEY: known}, ranges={KEY: RANGES}, check=AsyncMock())
    scope.frozen.compacted = {}
    found = Looking(Mock(), scope, [ReadingEstimate(KEY, Span(0, 20), 20)], Mock(), 1, JobProgress())
    for endpoint, alias in ((found.request.source, "west"), (found.request.destination, "east")):
        endpoint.alias = alias  # type: ignore[misc]
    monkeypatch.setattr(found, "_options", lambda _side, tasks, *_: tasks)
    monkeypatch.setattr(found, "_spark", lambda action: action())
    return found


def row(base: int) -> BatchRow:
    return BatchRow(base, base + 4, 5, 0, 0, 0, 100, True, b"")


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("shift", [0, 3])
def test_what_one_side_cannot_read_is_not_compared(
    monkeypatch: pytest.MonkeyPatch, looking: Looking, side: Side, shift: int
) -> None:
    """
    1. A look at both ranges. One side's log is damaged in the first one, as is known by now: what the other has behind
       is dropped, up to the next range. That one is read by itself, and counts.
    2. It could be read there before: then nobody knows what differs, and there is no verdict.
    3. Mutations: all is read as one range; what is behind counts; new damage counts as known.
    """
    torn, whole = RangeCoverage(next_offset=5, broken="length"), RangeCoverage(next_offset=10)
    last = RangeCoverage(next_offset=20)
    holes = [Hole(2, 12, What.GAP)]
    coverage = {each: {("t", 0, 0, 10): torn if each is side else whole, ("t", 0, 10, 20): last} for each in Side}
    pairs = Pairs({base: row(base) for base in (0, 10)}, {base: row(base) for base in (0, 5, 10, 15)}, holes)
    monkeypatch.setattr(looking, "compare", lambda *_: Mock(differing={KEY: pairs}, coverage=coverage))
    there = 5 + shift * (side is Side.DESTINATION)
    looking.begin({KEY: 0}, [damage(side, there, 10)])
    wanted = [Range("t", 0, 0, 20, True, 5, shift=shift)]
    found = looking.rows(wanted, by_record=False)[KEY]
    assert ([*found.source], [*found.destination]) == ([0, 10], [0, 10, 15])
    assert found.holes == [Hole(2, 5, What.GAP), Hole(10, 12, What.GAP)]
    for others in ([], [damage(side, there + 1, 10)], [damage(side, 0, there)]):
        looking.begin({KEY: 0}, others)
        with pytest.raises(AuditError, match=f": t partition 0 at offset {there} cannot be read any more: length"):
            looking.rows(wanted, by_record=False)


@pytest.mark.parametrize(
    ("units", "counted", "lost"),
    [(WHOLE, (3, 300), False), (WHOLE, (2, 300), True), (WHOLE, (3, 200), True), (WHOLE, (6, 600), False),
     (OPENED, (2, 200), False)],
)  # fmt: skip
def test_rows_that_spark_loses_in_a_closer_look(
    monkeypatch: pytest.MonkeyPatch, looking: Looking, units: str, counted: tuple[int, int], lost: bool
) -> None:
    """What differs could be among them: no verdict. Those of an executor that died may come twice, which says nothing
    else; and records that are compared by themselves are not counted by the readers."""
    part = RangeCoverage(rows=3, row_bytes=300, next_offset=10)
    both = Compared(
        differing={}, coverage={side: {("t", 0, 0, 10): part} for side in Side}, clusters={},
        batches={Side.SOURCE: 3, Side.DESTINATION: counted[0]}, bytes={Side.SOURCE: 300, Side.DESTINATION: counted[1]},
    )  # fmt: skip
    monkeypatch.setattr(module, "compare", lambda *_: both)
    if not lost:
        assert looking.compare((), BATCHES, units) is both
        return
    with pytest.raises(AuditError, match=r"destination: readers counted 3 batches and 300 bytes, Spark \d and \d00"):
        looking.compare((), BATCHES, units)


def test_ranges_are_cut_where_they_were_before(monkeypatch: pytest.MonkeyPatch, looking: Looking) -> None:
    """The first piece alone owns a batch that begins before it."""
    read: list[Range] = []

    def compare(tasks: Sequence[Sequence[Range]], *_: object) -> Any:
        read.extend(where for task in tasks for where in task)
        coverage = {(where.topic, where.partition, where.start, where.end): READ for where in read}
        return Mock(differing={}, coverage=dict.fromkeys(Side, coverage))

    monkeypatch.setattr(looking, "compare", compare)
    looking.rows([Range("t", 0, 3, 17, True, 5), Range("t", 0, 17, 20, False, 5)], by_record=True)
    assert [(where.start, where.end, where.first) for where in read] == [
        (3, 10, True), (10, 17, False), (17, 20, False),
    ]  # fmt: skip


def test_records_are_read_in_the_ranges_of_the_batches(monkeypatch: pytest.MonkeyPatch, looking: Looking) -> None:
    """
    1. Batches that differ in two ranges, with others in between; and some over the border.
    2. What is read begins and ends with them in each range. A batch over the border is read once.
    3. A side whose records cannot be read any more: no verdict, unless it is known to be damaged. Whether another
       partition is, or the other side, is no matter.
    """
    read: list[list[Range]] = []
    broken: dict[Side, list[TopicPartition]] = {}

    def compared(_: object, *sides: Any, **__: object) -> Any:
        read.extend([where for task in tasks for where in task] for tasks in sides[:2])
        return {}, broken

    monkeypatch.setattr(module, "record_differences", compared)
    for bases, due in (
        ((0, 14), [(0, 5, True), (14, 19, True)]),
        ((0, 4, 8, 15), [(0, 10, True), (10, 20, False)]),
        ((5,), [(5, 10, True)]),
    ):
        differing = {KEY: Pairs({base: row(base) for base in bases}, {})}
        looking.begin({KEY: 0})
        broken.clear()
        looking.records(differing, {KEY: 0}, digests=False)
        for side in (read.pop(), read.pop()):
            assert [(where.start, where.end, where.first) for where in side] == due
        broken[Side.DESTINATION] = [KEY]
        for known in ([], [damage(Side.SOURCE, 5, 10)], [replace(damage(Side.DESTINATION, 5, 10), partition=1)]):
            looking.begin({KEY: 0}, known)
            with pytest.raises(AuditError, match="east: t partition 0 cannot be read any more"):
                looking.records(differing, {KEY: 0}, digests=False)
        broken[Side.DESTINATION] = [KEY, OTHER]
        looking.begin({KEY: 0}, [damage(Side.DESTINATION, 5, 10)])
        with pytest.raises(AuditError, match="east: t partition 1 cannot be read any more"):
            looking.records(differing, {KEY: 0}, digests=False)
        broken[Side.DESTINATION] = [KEY]
        looking.begin({KEY: 0}, [damage(Side.DESTINATION, 5, 10)])
        looking.records(differing, {KEY: 0}, digests=False)
        read.clear()


def test_what_stands_behind_damage_is_not_found_elsewhere(monkeypatch: pytest.MonkeyPatch, looking: Looking) -> None:
    """Nor are more places than are looked at. It is said once, of the side that was looked at."""
    monkeypatch.setattr(module, "locate", lambda *_: Located([], False))
    looking.frozen.bounds = (looking.scope.bounds[KEY],)  # type: ignore[misc]
    said = "not every place was looked at where the source may have what differs: "
    looking.begin({KEY: 0}, [damage(Side.DESTINATION, 5, 10)])
    looking.in_source([b"digest"])
    assert looking.notes == [f"{said}there are too many"]
    looking.begin({KEY: 0}, [damage(Side.SOURCE, 5, 10)])
    for _ in range(2):
        looking.in_source([b"digest"])
    assert looking.notes == [f"{said}there are too many", f"{said}a log is damaged"]


def test_a_payload_that_stands_everywhere_is_not_searched_for_in_silence(
    monkeypatch: pytest.MonkeyPatch, looking: Looking
) -> None:
    """
    1. Of one that a partition has again and again, the first places are taken. It is said that there are more.
    2. So it is if there are more places in all than are taken. Mutation: both in silence.
    """
    monkeypatch.setattr(compared, "MOST_ALIKE", 2)
    monkeypatch.setattr(compared, "MOST_LOCATED", 3)
    rows = [
        {"topic": "t", "partition": 0, **dict(zip(ROW, row(base)[1:], strict=True)), "base_offset": base, "nth": nth}
        for base, nth in ((0, 1), (5, 2), (10, 3), (15, 1), (20, 1))
    ]
    places = [(KEY, row(base)) for base in (0, 5, 15)]
    assert taken(rows[:2]) == Located(places[:2], True)
    assert taken(rows[:3]) == Located(places[:2], True, alike=True)
    assert taken(rows[:4]) == Located(places, False, alike=True)
    assert taken([*rows[:2], *rows[3:]]) == Located(places, False)
    monkeypatch.setattr(module, "locate", lambda *_: Located([], True, alike=True))
    looking.frozen.bounds = (looking.scope.bounds[KEY],)  # type: ignore[misc]
    looking.begin({KEY: 0})
    looking.in_destination([b"digest"])
    assert looking.notes == [
        "not every place was looked at where the destination may have what differs: of batches with the same payload, "
        "the first 100 in a partition only"
    ]


def test_a_search_may_be_of_some_offsets_only(monkeypatch: pytest.MonkeyPatch, looking: Looking) -> None:
    """Nothing else of the log is read, and no other partition."""
    read: list[tuple[int, int]] = []

    def locate(_: object, tasks: Sequence[Sequence[Range]], __: object) -> Located:
        read.extend((where.start, where.end) for task in tasks for where in task)
        return Located([], True)

    monkeypatch.setattr(module, "locate", locate)
    looking.frozen.bounds = (looking.scope.bounds[KEY],)  # type: ignore[misc]
    looking.begin({KEY: 0})
    for search in (looking.in_source, looking.in_destination):
        search([b"digest"], {KEY: [Span(3, 7), Span(12, 20), Span(20, 20)]})
        assert read == [(3, 7), (12, 20)]
        read.clear()
        search([b"digest"])
        assert read == [(0, 20)]
        read.clear()
