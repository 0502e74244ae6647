"""No pass without full coverage: every way in which something was not read is refused."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from mirror.audit import job
from mirror.audit.errors import AuditError
from mirror.audit.job import MOST_NOTES, _Audit
from mirror.audit.judge.coverage import (
    AGAIN,
    BUG,
    EXCUSED,
    CoverageKey,
    broken_logs,
    causeless_gaps,
    check_chunks,
    check_contents,
    check_fills,
    check_named,
    check_plan,
    check_side,
    cleaned_of,
    coverage_of,
    damaged,
)
from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import APART, Finding, Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.model.request import Endpoint
from mirror.audit.model.result import Cleaned, Coverage
from mirror.audit.model.rows import BatchRow
from mirror.audit.prepare.plan import Range, Task
from mirror.audit.read.ranges import LISTED_GAPS, RangeCoverage

KEY = TopicPartition("t", 0)
BOUNDS = Bounds(topic="t", partition=0, source=Span(0, 30), destination=Span(0, 25))
EMPTY = Bounds(topic="t", partition=1, source=Span(7, 7), destination=Span(0, 0))
TASKS: tuple[Task, ...] = ((Range("t", 0, 0, 10, True, 5),), (Range("t", 0, 10, 25, False, 5),))


def read() -> dict[CoverageKey, RangeCoverage]:
    """All of it."""
    return {
        ("t", 0, 0, 10): RangeCoverage(
            batches=2, records=10, bytes=200, rows=2, row_bytes=200, offsets=10, next_offset=10
        ),
        ("t", 0, 10, 25): RangeCoverage(
            batches=1, records=4, bytes=90, rows=1, row_bytes=90, offsets=4, control=2, aborted=5, empty=1,
            gap_offsets=3, gaps=[(20, 23)],
            next_offset=25,
        ),
    }  # fmt: skip


def check(found: dict[CoverageKey, RangeCoverage], clusters: set[str] | None = None, counted: int = 3) -> None:
    """Against the plan."""
    check_side(Side.SOURCE, "id", TASKS, found, {"id"} if clusters is None else clusters, (counted, 290))


def test_full_coverage_passes_and_adds_up() -> None:
    ranges = check_plan([BOUNDS, EMPTY], TASKS)
    check(read())
    rows = coverage_of(Side.DESTINATION, "id", [BOUNDS, EMPTY], ranges, read())
    assert [(row.partition, row.ranges, row.batches, row.records, row.bytes, row.gaps) for row in rows] == [
        (0, 2, 3, 14, 290, 3),
        (1, 0, 0, 0, 0, 0),
    ]
    assert (rows[0].offsets, rows[0].control, rows[0].aborted, rows[0].empty, rows[0].holes) == (14, 2, 5, 1, 11)
    assert rows[0].offsets + rows[0].holes == rows[0].audited.offsets
    assert [(row.log, row.audited, row.complete) for row in rows] == [
        (Span(0, 25), Span(0, 25), True),
        (Span(0, 0), Span(7, 7), True),
    ]


@pytest.mark.parametrize("tasks", [(), TASKS[:1], TASKS[1:], ((Range("t", 0, 0, 24, True, 5),),)])
def test_a_hole_in_the_plan(tasks: tuple[Task, ...]) -> None:
    with pytest.raises(AuditError, match="hole in t partition 0"):
        check_plan([BOUNDS], tasks)


def test_a_range_that_was_not_read() -> None:
    found = read()
    del found["t", 0, 10, 25]
    with pytest.raises(AuditError, match="source: offsets 10 to 25 of t partition 0 were not read"):
        check(found)


def test_a_range_that_was_not_asked_for() -> None:
    with pytest.raises(AuditError, match="offsets 25 to 30"):
        check({**read(), ("t", 0, 25, 30): RangeCoverage(next_offset=30)})


def test_a_range_that_was_left_early() -> None:
    found = read()
    found["t", 0, 10, 25].next_offset = 24
    with pytest.raises(AuditError, match="was read to offset 24, not 25"):
        check(found)


def test_offsets_of_which_nobody_knows_what_they_are() -> None:
    found = read()
    found["t", 0, 10, 25].control -= 1
    with pytest.raises(AuditError, match="of 15 offsets of t partition 0, read from 10 on, 14 are accounted for"):
        check(found)


def test_counts_that_differ_where_nothing_was_found() -> None:
    ranges = check_plan([BOUNDS], TASKS)
    rows = [row for side in Side for row in coverage_of(side, "id", [BOUNDS], ranges, read())]
    with pytest.raises(AuditError, match="no difference was found"):
        check_fills(rows, [])
    filled = [rows[0], replace(rows[1], control=11, aborted=0, empty=0, gaps=0)]
    check_fills(filled, [])
    check_fills([rows[0], replace(filled[1], control=6, aborted=5)], [])  # these were there before the flow
    with pytest.raises(AuditError, match="no difference was found"):
        check_fills([rows[0], replace(filled[1], records=13)], [])
    read_in_part = replace(broken_logs(Side.SOURCE, "a", {("t", 0, 0, 9): RangeCoverage(broken="x")})[0], detail="")
    check_fills(rows, [read_in_part])


def rows(ours: int, theirs: int, *, partition: int = 0, cut: bool = False) -> list[Coverage]:
    """Of both sides, with so many records."""
    (row,) = coverage_of(Side.SOURCE, "id", [EMPTY], {}, {})
    return [
        replace(row, side=side, partition=partition, records=records, cut=cut)
        for side, records in ((Side.SOURCE, ours), (Side.DESTINATION, theirs))
    ]


def told(kind: Kind, *, partition: int = 0, batches: int = 1, records: int = 3) -> Finding:
    """A finding."""
    return Finding(
        kind=kind, topic="t", partition=partition, source=Span(0, 5), destination=None, batches=batches,
        records=records, detail="",
    )  # fmt: skip


def test_what_was_written_anew_has_as_many_records() -> None:
    """
    1. Everything was written anew, in other batches: the sides have as many records, or a difference got lost.
    2. Nobody can count where a cleaner works, or where a batch reaches over what was audited.
    3. Mutation: such a partition is left out.
    """
    anew = [told(Kind.REENCODED)]
    check_fills(rows(50, 50), anew)
    with pytest.raises(AuditError, match="50 records at the source and 49 at the destination"):
        check_fills(rows(50, 49), anew)
    check_fills(rows(50, 49), anew, cleaned={"t"})
    check_fills(rows(50, 49, cut=True), anew)
    for other in (Kind.CLEANED, Kind.UNVERIFIABLE, Kind.OVERSIZE, Kind.MISSING):
        check_fills(rows(50, 49), [*anew, told(other)])


def test_what_log_cleaners_have_removed_is_what_the_sides_had_apart() -> None:
    """
    1. Two findings say six records of three batches. Four were apart when both sides were read: the destination's
       cleaner took two more before the batches were opened.
    2. Where a batch reaches over what was audited, or anything else was found, the counts say nothing.
    3. Partitions that no cleaner has changed are not named. Mutation: the findings' number is always taken.
    """
    some = [told(Kind.CLEANED), told(Kind.CLEANED, batches=2), told(Kind.REENCODED)]
    assert cleaned_of(rows(100, 96), some) == {KEY: Cleaned(3, 4)}
    assert cleaned_of([*rows(100, 94), *rows(7, 7, partition=1)], some) == {KEY: Cleaned(3, 6)}
    assert cleaned_of(rows(100, 96, cut=True), some) == {KEY: Cleaned(3, 6)}
    for other in (Kind.UNVERIFIABLE, Kind.MISSING):
        assert cleaned_of(rows(100, 96), [*some, told(other)]) == {KEY: Cleaned(3, 6)}
    assert cleaned_of(rows(100, 96), [*some, told(Kind.MISSING, partition=1)]) == {KEY: Cleaned(3, 4)}
    assert cleaned_of(rows(100, 96), [told(Kind.REENCODED)]) == {}
    with pytest.raises(AuditError, match="t partition 0: a log cleaner removed records while they were compared"):
        cleaned_of(rows(95, 96), some)


def test_what_differs_is_named() -> None:
    damaged = broken_logs(Side.SOURCE, "east", {("t", 0, 0, 10): RangeCoverage(next_offset=4, broken="length")})
    check_named([KEY], damaged)
    with pytest.raises(AuditError, match="t partition 1 differs, and no difference was named"):
        check_named([KEY, TopicPartition("t", 1)], damaged)


def chunk(start: int) -> Range:
    """Of ten offsets."""
    return Range("t", 0, start, start + 10, start == 0, 10)


@pytest.mark.parametrize("kind", sorted(EXCUSED, key=str))
def test_what_is_excused_is_said_of_each_chunk(kind: Kind) -> None:
    """
    1. One batch was written anew, or cleaned. Another chunk differs as well, and nothing says of it why: no pass.
    2. Mutation: one finding is enough for the whole partition.
    """
    here = replace(told(kind), source=Span(12, 15))
    there = replace(told(kind), source=None, destination=Span(12, 15))
    for one in (here, there):
        check_chunks({KEY: [chunk(10)]}, [one])
        with pytest.raises(AuditError, match="t partition 0 differs between offsets 30 and 40, and nothing"):
            check_chunks({KEY: [chunk(10), chunk(30)]}, [one])
        check_chunks({KEY: [chunk(10), chunk(30)]}, [one, replace(one, source=Span(39, 50))])


def test_a_folded_finding_says_nothing_of_each_chunk() -> None:
    """It is around all of them. Those that it is about are known besides."""
    one = replace(told(Kind.CLEANED), source=Span(12, 95), detail="gone" + APART)
    chunks = [chunk(10), chunk(30), chunk(90)]
    check_chunks({KEY: chunks}, [one], {KEY: [Span(10, 20), Span(30, 40), Span(90, 100)]})
    with pytest.raises(AuditError, match="t partition 0 differs between offsets 30 and 40, and nothing"):
        check_chunks({KEY: chunks}, [one], {KEY: [Span(10, 20), Span(90, 100)]})


def test_where_something_differs_in_earnest_runs_may_be_left_out() -> None:
    """What has moved is told by its cause. No pass depends on it."""
    check_chunks({KEY: [chunk(10), chunk(30)]}, [replace(told(Kind.CLEANED), source=Span(12, 15)), told(Kind.MOVED)])
    with pytest.raises(AuditError, match="t partition 0 differs between offsets 10 and 20, and nothing"):
        check_chunks({KEY: [chunk(10)]}, [told(Kind.MOVED, partition=1)])


@pytest.mark.parametrize("certain", [True, False])
def test_the_job_asks_for_each_chunk(monkeypatch: pytest.MonkeyPatch, *, certain: bool) -> None:
    """Of those that certainly differ: a chunk that damage cuts may be the same up to there."""
    row = BatchRow(0, 9, 3, 0, 0, 0, 300, True, b"")
    differing = {KEY: Pairs({0: row, 10: row._replace(base_offset=10)})}
    compared = Mock(differing=differing, coverage={side: {} for side in Side})
    scope = Mock(bounds={KEY: BOUNDS}, ranges={KEY: [Range("t", 0, 0, 25, True, 10)]})
    audit = Mock(scope=scope, frozen=Mock(mapped={}))
    looked = Mock(broken=[], ended=set(), said={})
    looked.run.return_value = [told(Kind.REENCODED)]
    looked.holes.return_value = []
    monkeypatch.setattr(job, "Differences", lambda *_, **__: looked)
    broken = [] if certain else [replace(told(Kind.CORRUPT), source=Span(14, 25))]
    if certain:
        with pytest.raises(AuditError, match="between offsets 10 and 20"):
            _Audit._differences(audit, compared, broken)
    else:
        _Audit._differences(audit, compared, broken)


@pytest.mark.parametrize("side", Side)
def test_whoever_looks_closer_knows_which_partitions_are_damaged(side: Side) -> None:
    """On either side: of each there will be a finding."""
    parts = {
        ("t", 0, 0, 10): RangeCoverage(),
        ("t", 1, 0, 10): RangeCoverage(damaged=2),
        ("u", 1, 0, 9): RangeCoverage(),
    }
    whole = {key: RangeCoverage() for key in parts}
    coverage = {each: parts if each is side else whole for each in Side}
    assert damaged(coverage) == {TopicPartition("t", 1)}
    audit = Mock()
    audit.scope.bounds, audit.scope.ranges = {KEY: BOUNDS}, {KEY: []}
    _Audit._differences(audit, Mock(differing={}, coverage=coverage), [])
    assert audit.looking.begin.call_args.args == ({}, [], {TopicPartition("t", 1)})


def contents(source: str, destination: str) -> dict[Side, dict[CoverageKey, RangeCoverage]]:
    """What identifies the batches of the second range of the partition, at both sides; of the first one, they are the
    same."""
    return {
        side: {("t", 0, 0, 10): RangeCoverage(content="a"), ("t", 0, 10, 25): RangeCoverage(content=each)}
        for side, each in ((Side.SOURCE, source), (Side.DESTINATION, destination))
    }


def test_what_differs_comes_out_of_the_join() -> None:
    """
    1. Both sides have the same in a range, or a chunk of it differs.
    2. They do not, and no chunk of it differs, be there some of another range: the join has lost it.
    """
    row = BatchRow(0, 9, 3, 0, 0, 0, 300, True, b"")
    check_contents({}, contents("b", "b"))
    check_contents({KEY: Pairs(source={10: row})}, contents("b", "c"))
    check_contents({KEY: Pairs(destination={24: row})}, contents("b", "c"))
    for pairs in ({}, {KEY: Pairs(source={0: row, 9: row, 25: row})}, {("t", 1): Pairs(source={10: row})}):
        with pytest.raises(AuditError, match=r"t partition 0: .* between offsets 10 and 25 .* no difference") as raised:
            check_contents(pairs, contents("b", "c"))  # type: ignore[arg-type]
        assert BUG in str(raised.value)


def test_the_job_asks_what_came_out_of_the_join() -> None:
    """A chunk was dropped behind the join."""
    looking = Mock(looking=Mock(notes=[]))
    audit = Mock(_endpoints=(), looking=looking, frozen=Mock(mapped={}))
    audit._differences.return_value = ([], Mock())
    compared = Mock(differing={}, coverage=contents("b", "c"))
    with pytest.raises(AuditError, match="between offsets 10 and 25"):
        _Audit._found(audit, compared)


def test_a_batch_that_was_passed_over_may_begin_before_its_record() -> None:
    """In an earlier chunk: it has no record at its own first offset, and the one that it has was too large."""
    passed = replace(told(Kind.OVERSIZE), source=Span(23, 24))
    check_chunks({KEY: [chunk(10)]}, [passed])
    with pytest.raises(AuditError, match="between offsets 0 and 10"):
        check_chunks({KEY: [chunk(0), chunk(10)]}, [passed])


def test_rows_from_another_cluster() -> None:
    """An audit of one cluster against itself finds nothing, whatever the other holds."""
    with pytest.raises(AuditError, match="came from cluster id, other"):
        check(read(), clusters={"id", "other"})


@pytest.mark.parametrize(("counted", "remedy"), [(2, BUG), (6, AGAIN)])
def test_rows_lost_on_the_way(counted: int, remedy: str) -> None:
    """Or counted twice, as Spark does if an executor is lost whose tasks had ended."""
    with pytest.raises(AuditError, match=f"readers counted 3 batches and 290 bytes, Spark {counted}") as caught:
        check(read(), counted=counted)
    assert remedy in str(caught.value)


def test_damage_is_a_finding_and_no_full_coverage() -> None:
    found = read()
    found["t", 0, 10, 25].next_offset = 15
    found["t", 0, 10, 25].offsets = 5
    found["t", 0, 10, 25].control = found["t", 0, 10, 25].aborted = 0
    found["t", 0, 10, 25].empty = found["t", 0, 10, 25].gap_offsets = 0
    found["t", 0, 10, 25].broken = "batch length -1"
    check(found)
    (finding,) = broken_logs(Side.DESTINATION, "west", found)
    assert (finding.kind, finding.source, finding.destination) == (Kind.CORRUPT, None, Span(15, 25))
    assert "west" in finding.detail
    assert "batch length -1" in finding.detail
    assert broken_logs(Side.SOURCE, "west", found)[0].source == Span(15, 25)
    (row,) = coverage_of(Side.DESTINATION, "id", [BOUNDS], check_plan([BOUNDS], TASKS), found)
    assert not row.complete


def test_a_gap_without_a_cleaner() -> None:
    """Each of the first is named; more of them are one. Of a compacted topic there is nothing to say."""
    gaps = [(at, at + 2) for at in range(0, 4 * LISTED_GAPS, 4)]
    found = RangeCoverage(gaps=gaps, gap_offsets=2 * len(gaps) + 7, next_offset=100)
    told = causeless_gaps("a", {("t", 0, 0, 100): found}, frozenset())
    assert [finding.source for finding in told[:-1]] == [Span(*gap) for gap in gaps]
    assert (told[-1].source, told[-1].detail) == (Span(gaps[-1][1], 100), "7 more such offsets")
    assert {finding.kind for finding in told} == {Kind.UNVERIFIABLE}
    assert causeless_gaps("a", {("t", 0, 0, 100): found}, frozenset({"t"})) == []
    assert causeless_gaps("a", {("t", 0, 0, 100): RangeCoverage(next_offset=100)}, frozenset()) == []


@pytest.mark.parametrize("count", [1, MOST_NOTES, MOST_NOTES + 3])
def test_why_records_cannot_be_read_is_told_a_few_times(count: int) -> None:
    """On both sides, in order; of many places, how many more there are."""
    east, west = (Endpoint(alias=alias, bootstrap=()) for alias in ("east", "west"))
    audit = Mock(_endpoints=((Side.SOURCE, east), (Side.DESTINATION, west)))
    spoiled = {("t", 0, at, at + 1): RangeCoverage(spoiled=[f"why {at}"]) for at in reversed(range(count))}
    found = _Audit._spoiled(audit, Mock(coverage={Side.SOURCE: {}, Side.DESTINATION: spoiled}))
    assert found[:MOST_NOTES] == [f"west: t partition 0: why {at}" for at in range(min(count, MOST_NOTES))]
    assert found[MOST_NOTES:] == ([] if count <= MOST_NOTES else ["and 3 more such places"])
