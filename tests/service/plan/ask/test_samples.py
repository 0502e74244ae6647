"""Pieces of a log, judged: what would halt, what share has no record, how large and how old batches are."""

from typing import Any

import pytest

from mirror.net.errors import Damaged, Refused, StoredInOldFormat, Unreachable
from mirror.net.logs.log import Segment
from mirror.records.admit import Terms
from mirror.records.header import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader
from mirror.service.plan.ask.samples import Budget, Judging, judge, sampled
from mirror.service.plan.model import Sample
from mirror.wire.errors import ErrorCode
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook
from tests.records.builders import RECORDS, kafka_batch, raw_batch

TEN = {"last_offset_delta": 9, "record_count": 10}
COMPACTED = Terms(compacted=True, compacted_there=True)


def batch(base: int, **changes: Any) -> tuple[BatchHeader, memoryview]:
    raw = memoryview(raw_batch(b"x" * 39, base_offset=base, **TEN | changes))
    return BatchHeader.read(raw), raw


def piece(*batches: tuple[BatchHeader, memoryview], end: int = 1_000, aborted: Any = ()) -> Segment:
    return Segment(list(batches), list(aborted), high_watermark=end, last_stable_offset=end, log_start=0)


def by(terms: Terms | None = None, *, committed: bool = True, forgets_before_ms: float = 0.0) -> Judging:
    return Judging(terms=terms or Terms(), committed=committed, forgets_before_ms=forgets_before_ms)


def judged(segment: Segment, due: int | None = None, terms: Terms | None = None, **how: Any) -> Sample:
    sample = Sample()
    judge(segment, due, sample, by(terms, **how))
    return sample


def test_plain_batches() -> None:
    found = judged(piece(batch(0), batch(10, attributes=3, max_timestamp=5)), 0)
    assert (found.batches, found.size, found.offsets, found.records) == (2, 200, 20, 20)
    assert (found.codecs, found.largest) == ({"none", "lz4"}, 100)
    assert (found.oldest_ms, found.newest_ms) == (5, 1_700_000_000_050)
    assert (found.hole_offsets, found.runs, found.halts, found.old, found.null_key) == (0, 0, {}, 0, -1)


@pytest.mark.parametrize(
    ("changes", "terms", "reason"),
    [
        ({"attributes": LOG_APPEND_TIME}, Terms(), "log_append_time"),
        ({"record_count": 9}, Terms(compacted=True), "sparse_batch"),
        ({}, Terms(max_batch_size=99), "too_large"),
        ({"attributes": 7}, Terms(), "unknown_attributes"),
        ({"attributes": TRANSACTIONAL}, Terms(strict=True), "not_strict"),
    ],
)
def test_what_would_halt(changes: dict[str, Any], terms: Terms, reason: str) -> None:
    """Each reason once, with the first batch's values; what is behind it is judged all the same."""
    found = judged(piece(batch(0, **changes), batch(10, **changes), batch(20)), 0, terms)
    assert list(found.halts) == [reason]
    assert "0 to 9" in found.halts[reason].detail
    assert found.batches == 3


def test_holes() -> None:
    """Markers, aborted data, gaps of compaction: offsets and ranges. A gap without a cause halts."""
    marker = batch(20, attributes=CONTROL | TRANSACTIONAL, last_offset_delta=0, record_count=1, producer_id=7)
    data = batch(10, attributes=TRANSACTIONAL, producer_id=7)
    found = judged(piece(batch(0), data, marker, batch(21), aborted=[(7, 10)]), 0)
    assert (found.holes, found.runs) == ({"aborted": 10, "marker": 1}, 1)
    assert (found.offsets, found.records) == (31, 20)
    gaps = judged(piece(batch(5), batch(30), batch(40)), 0, COMPACTED)
    assert (gaps.holes, gaps.runs, gaps.offsets) == ({"compacted": 20}, 2, 50)
    assert list(judged(piece(batch(5)), 0).halts) == ["unexplained_gap"]
    assert not judged(piece(batch(5)), None).halts, "nothing is due there"


def test_what_does_not_weigh() -> None:
    """The last batch of a transactional topic is a marker: it is judged, and counts in no share."""
    sample = Sample()
    marker = batch(20, attributes=CONTROL | TRANSACTIONAL, last_offset_delta=0, record_count=1)
    judge(piece(marker, batch(21, attributes=LOG_APPEND_TIME)), None, sample, by(), weighs=False)
    assert list(sample.halts) == ["log_append_time"]
    assert (sample.batches, sample.offsets, sample.hole_offsets, sample.runs) == (0, 0, 0, 0)


def test_old_batches() -> None:
    assert judged(piece(batch(0, max_timestamp=5), batch(10, max_timestamp=7)), 0, forgets_before_ms=6).old == 1


def test_records_without_a_key() -> None:
    """Looked for only where a compacted destination would refuse them."""
    raw = memoryview(kafka_batch(RECORDS, codec=0, base_offset=40))
    some = piece((BatchHeader.read(raw), raw))
    assert judged(some, 40, Terms(compacted_there=True)).null_key == 41
    assert judged(some, 40, Terms()).null_key == judged(some, 40, COMPACTED).null_key == -1


class Log:
    """A source's log of batches of ten offsets, of which it answers one at a time."""

    name = "t-0 at source"
    floor = 0

    class cluster:
        name = "source"

    def __init__(self, end: int, *, stable: int | None = None, error: Exception | None = None) -> None:
        self.end = end
        self.stable = end if stable is None else stable
        self.error = error
        self.asked: list[int] = []

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        self.asked.append(offset)
        if self.error is not None:
            raise self.error
        limit = self.stable if committed else self.end
        found = [batch(offset // 10 * 10)] if offset < limit else []
        return Segment(found, [], high_watermark=self.end, last_stable_offset=self.stable, log_start=0)


async def look(log: Log, due: int, budget: Budget, **how: Any) -> Sample:
    return await sampled(log, due, log.end, budget, by(**how))  # type: ignore[arg-type]


async def test_places() -> None:
    """The first due, some in between, the last; less where less is there; nothing more once the budget is used up."""
    log = Log(1_000)
    found = await look(log, 100, Budget.of(1 << 20, 1))
    assert log.asked == [100, 332, 554, 776, 999]
    assert (found.batches, found.due_ms) == (4, 1_700_000_000_050)
    last = Log(1_000)
    await look(last, 1_000, Budget.of(1 << 20, 1))
    assert last.asked == [999]
    short = Log(20)
    await look(short, 0, Budget.of(1 << 20, 1))
    assert short.asked == [0, 12], "the batch there is the last"
    spent = Log(1_000)
    budget = Budget(left=150, between=3)
    await look(spent, 0, budget)
    assert spent.asked == [0, 257, 999]
    assert (budget.left, budget.read) == (-150, 300)


async def test_an_open_transaction() -> None:
    """Only what a read_committed consumer gets is looked at."""
    log = Log(1_000, stable=500)
    await look(log, 0, Budget.of(1, 5_000))
    assert log.asked == [0, 499]
    every = Log(1_000, stable=500)
    await look(every, 0, Budget.of(1, 5_000), committed=False)
    assert every.asked == [0, 999]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Damaged("source", "a wrong checksum"), "corrupt"),
        (StoredInOldFormat("source", "t-0 at 0", "magic 0 or 1"), "old_format"),
        (Refused("source: t-0", ErrorCode.TOPIC_AUTHORIZATION_FAILED), "authorization"),
    ],
)
async def test_what_cannot_be_read(error: Exception, reason: str) -> None:
    assert list((await look(Log(100, error=error), 0, Budget(left=1))).halts) == [reason]


async def test_what_is_not_known() -> None:
    """The source deletes on; a broker does not answer."""
    moved = Refused("source: t-0", ErrorCode.OFFSET_OUT_OF_RANGE)
    assert not (await look(Log(100, error=moved), 0, Budget(left=1))).halts
    with pytest.raises(Unreachable):
        await look(Log(100, error=Unreachable("no")), 0, Budget(left=1))


@pytest.mark.parametrize(
    ("partitions", "between", "piece"), [(1, 3, 1 << 20), (200, 3, 16_777), (2_000, 1, 2_796), (10_000, 0, 838)]
)
def test_the_more_partitions_the_less_of_each(partitions: int, between: int, piece: int) -> None:
    budget = Budget.of(16 << 20, partitions)
    assert (budget.between, budget.piece, budget.left) == (between, piece, 16 << 20)
    assert Budget.of(1, 10_000).piece == 1
