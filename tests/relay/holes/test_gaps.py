"""Any bit of any header, turned over on the source's disk: what goes out is a prefix of what was written.

The source is a model of a broker's disk (``disk.py``); what reads it is the real ``forward`` and the real ``Look``.
What goes out counts as the destination's broker takes it: with a checksum that holds.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from mirror.net.buffers import FramePool
from mirror.net.errors import Damaged, Unreachable
from mirror.net.logs.reading import Segment
from mirror.reasons import HaltReason
from mirror.records.admit import Halt, Terms
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.intact import is_intact
from mirror.records.scan import Remainder, measure
from mirror.relay.holes.gaps import Contradiction, Look, Unanswered
from mirror.relay.hot import forward as forward_module
from mirror.relay.hot.forward import Unproven, forward
from mirror.relay.hot.plain import InnerLoop
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Hole
from tests.records.builders import raw_batch
from tests.relay.stage.disk import CannotRead, Disk
from tests.simulation.model.broker import ABORT, COMMIT, marker_batch

LOOP = InnerLoop(9)
MOST_ANSWERS = 200
HEADER_BITS = 8 * HEADER_SIZE
COMMITTED, ABORTED = 5, 6
UNCOVERED = 12 * 8
"""Bits of base offset and length, which no checksum covers."""
BROKER_FAILS = "an error code"
UNDETECTABLE = "undetectable"


class Copied(NamedTuple):
    """What a run of the mirror made of a log."""

    out: dict[int, bytes]
    """Base offset -> payload, of what the destination took."""
    due: int
    halted: str
    """Empty: it went to the end."""


def batch(base: int, count: int, writer: int = -1) -> bytes:
    attributes = 0 if writer < 0 else 0x10
    return raw_batch(
        b"records %d to %d;" % (base, base + count - 1),
        base_offset=base,
        leader_epoch=3,
        attributes=attributes,
        last_offset_delta=count - 1,
        record_count=count,
        producer_id=writer,
    )


def plain() -> Disk:
    return Disk([batch(5 * at, 5) for at in range(10)])


def transactional() -> Disk:
    """Two producers, one of which aborts; no offset is missing."""
    disk = Disk(
        [
            batch(0, 3, COMMITTED),
            batch(3, 2, ABORTED),
            batch(5, 4, ABORTED),
            marker_batch(9, ABORTED, 0, kind=ABORT),
            batch(10, 2, COMMITTED),
            marker_batch(12, COMMITTED, 0, kind=COMMIT),
            batch(13, 7),
            batch(20, 2, ABORTED),
            marker_batch(22, ABORTED, 0, kind=ABORT),
            batch(23, 5),
        ]
    )
    disk.aborted = [(ABORTED, 3), (ABORTED, 20)]
    return disk


def compacted() -> Disk:
    """Gaps of one to many offsets, at the start and the end of files too; neighbours without one as well."""
    bases = [(3, 5), (8, 1), (9, 6), (40, 3), (43, 2), (51, 9), (60, 1), (900, 4), (904, 5), (4_000, 2), (4_002, 3)]
    return Disk([batch(base, count) for base, count in bases])


KINDS: dict[str, Callable[[], Disk]] = {"plain": plain, "transactional": transactional, "compacted": compacted}


def mirror(disk: Disk, kind: str, max_bytes: int) -> Copied:
    """The whole log through ``forward``, answer by answer, as the fetcher does it."""
    partition = Partition("t", 0)
    partition.cursor.due = 0
    partition.terms = Terms(compacted=kind == "compacted")
    out: dict[int, bytes] = {}
    due = nothing = 0
    for _ in range(MOST_ANSWERS):
        if partition.cursor.due >= disk.end:
            return Copied(out, partition.cursor.due, "")
        try:
            records = disk.fetch(partition.cursor.due, max_bytes)
        except CannotRead:
            return Copied(out, partition.cursor.due, BROKER_FAILS)
        if not records:
            nothing += 1
            if look(disk, partition):
                return Copied(out, partition.cursor.due, HaltReason.CORRUPT.slug)
            if nothing > 1:
                return Copied(out, partition.cursor.due, "stalled")
            continue
        pool = FramePool(budget=len(records), frame_size=len(records))
        frame = pool.take(len(records))
        frame.body[:] = records
        found = forward(frame, 0, len(records), partition, LOOP, disk.aborted, disk.end)
        due, taken = take(partition, due, out)
        if not taken:
            return Copied(out, due, HaltReason.CORRUPT.slug)
        if isinstance(found, Halt):
            return Copied(out, due, found.reason.slug)
        if found is None and measure(frame.body, 0, len(records)) is Remainder.PARTIAL:
            return Copied(out, due, HaltReason.CORRUPT.slug)
        if isinstance(found, Unproven) and look(disk, partition):
            return Copied(out, due, HaltReason.CORRUPT.slug)
    return Copied(out, partition.cursor.due, "stalled")


def take(partition: Partition, due: int, out: dict[int, bytes]) -> tuple[int, bool]:
    """The destination takes what waits, from ``due`` on: where it ends, and whether it took all of it."""
    while partition.queue.outbox:
        item = partition.queue.outbox.popleft()
        if not isinstance(item, Hole):
            if not is_intact(item[0][-HEADER_SIZE:] + bytes(item[1])):
                return due, False
            out[due] = bytes(item[1])
        due += item[2]
    return due, True


def look(disk: Disk, partition: Partition) -> bool:
    """As ``relay.holes.gaps`` does; whether it halts."""
    sees = Look(disk, 0, committed=True)  # type: ignore[arg-type]
    try:
        sees.at(partition.cursor.due).send(None)  # the model never waits: no loop is needed
    except StopIteration as done:
        partition.cursor.ahead = done.value
        return False
    except (Contradiction, Damaged):
        return True
    raise AssertionError("the model waited")


def truth(disk: Disk) -> dict[int, bytes]:
    """What a copy of the undamaged log has."""
    dropped = {1, 2, 7} if disk.aborted else set()
    return {
        header.base_offset: data[HEADER_SIZE:]
        for at, (header, data) in enumerate(disk.written)
        if not header.is_control and at not in dropped
    }


def consumed(disk: Disk) -> dict[int, bytes]:
    """What a consumer reads that verifies checksums and knows nothing else."""
    found: dict[int, bytes] = {}
    position = 0
    while position < disk.end:
        try:
            records = memoryview(disk.fetch(position, 1))
            size = measure(records, 0, len(records))
        except (CannotRead, ValueError):
            break
        if not isinstance(size, int) or not is_intact(records[:size]):
            break
        header = BatchHeader.read(records)
        if header.magic != 2 or header.last_offset < position:
            break
        found[header.base_offset] = bytes(records[HEADER_SIZE:size])
        position = header.next_offset
    return found


def check(kind: str, at: int, bit: int, max_bytes: int) -> str:
    """One flip. What went out is right, up to a halt or to the end; what became of it."""
    disk = KINDS[kind]()
    right = truth(disk)
    disk.flip(at, bit)
    copied = mirror(disk, kind, max_bytes)
    where = f"{kind}, batch {at}, byte {bit >> 3}, bit {bit & 7}, {max_bytes} bytes: {copied}"
    if copied.out != {base: data for base, data in right.items() if base < copied.due}:
        # Nobody can tell: every reader of this log is given the same.
        read = consumed(disk)
        assert kind == "compacted", where
        assert bit < UNCOVERED, where
        assert all(read.get(base) == data or right.get(base) == data for base, data in copied.out.items()), where
        return UNDETECTABLE
    return copied.halted or "complete"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
def test_an_undamaged_log_goes_to_its_end(kind: str, max_bytes: int) -> None:
    disk = KINDS[kind]()
    assert mirror(disk, kind, max_bytes) == Copied(truth(disk), disk.end, "")


REASONS = {"corrupt", "complete", "unexplained_gap", BROKER_FAILS}


def outcomes(kind: str, max_bytes: int) -> Counter[str]:
    """Of each bit of base offset and length in each batch, and of each other bit in one batch or another."""
    count = len(KINDS[kind]().written)
    flips = [(at, bit) for bit in range(UNCOVERED) for at in range(count)]
    flips += [(bit % count, bit) for bit in range(UNCOVERED, HEADER_BITS)]
    return Counter(check(kind, at, bit, max_bytes) for at, bit in flips)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
def test_each_bit_of_a_header(kind: str, max_bytes: int) -> None:
    """Nothing is lost, doubled or misplaced that any reader is given right, and what halts has a true reason."""
    seen = outcomes(kind, max_bytes)
    assert set(seen) - {UNDETECTABLE} <= REASONS
    assert (UNDETECTABLE in seen) is (kind == "compacted")


LOW_BITS = range(6 * 8, 10 * 8)
"""Of base offset and length, those that change them by little."""


def unseen(max_bytes: int) -> int:
    """Flips in a compacted log after which the copy is wrong, or other than the log is for any reader."""
    count = 0
    for bit in LOW_BITS:
        for at in range(len(compacted().written)):
            try:
                count += check("compacted", at, bit, max_bytes) == UNDETECTABLE
            except AssertionError:
                count += 1
    return count


async def _no_look(*arguments: object) -> None:
    """A check that is left out."""


def _believed(*arguments: object) -> None:
    """A check that is left out."""


@pytest.mark.parametrize("check_of", ["_check_behind", "_check_before", "_check_same"])
def test_mutation_each_look_finds_something(check_of: str) -> None:
    """Without one of them, more goes wrong unseen."""
    usual = unseen(1)
    with patch.object(Look, check_of, _no_look):
        assert unseen(1) > usual


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_mutation_gaps_are_believed(max_bytes: int) -> None:
    usual = unseen(max_bytes)
    with patch.object(forward_module, "_misplaced", _believed):
        assert unseen(max_bytes) > usual


def test_mutation_without_order_a_reason_is_false() -> None:
    """A batch whose base offset fell is called a destination that ends inside of it, or is passed over."""
    with patch.object(forward_module, "_misplaced", _believed):
        seen = {check("plain", at, bit, 1 << 20) for at in range(10) for bit in LOW_BITS}
    assert seen - REASONS


def undecided(per_segment: int) -> Disk:
    """Compaction took offsets 12 to 29; an open transaction stands behind them."""
    disk = Disk([batch(0, 5), batch(5, 4), batch(9, 3), batch(30, 2, COMMITTED)], per_segment=per_segment)
    disk.stable = 30
    return disk


@pytest.mark.parametrize("per_segment", [3, 4])
def test_a_gap_up_to_an_open_transaction_is_waited_behind(per_segment: int) -> None:
    """A read_committed consumer gets nothing there, below the last stable offset, and nothing is wrong."""
    disk, partition = undecided(per_segment), Partition("t", 0)
    partition.cursor.due = 12
    assert not look(disk, partition)
    assert partition.cursor.ahead is None
    disk.stable = disk.end
    assert not look(disk, partition)
    assert partition.cursor.ahead == (12, 30, True)


@pytest.mark.parametrize("per_segment", [3, 4])
def test_what_is_hidden_before_an_open_transaction_is_damage(per_segment: int) -> None:
    disk, partition = undecided(per_segment), Partition("t", 0)
    disk.flip(2, 8 * 9)  # a length that became too large, at offset 9
    partition.cursor.due = 9
    assert look(disk, partition)


def test_mutation_an_open_transaction_is_taken_for_damage() -> None:
    async def never(*arguments: object) -> bool:
        return False

    disk, partition = undecided(4), Partition("t", 0)
    partition.cursor.due = 12
    with patch.object(Look, "_is_before_undecided", never):
        assert look(disk, partition)


@pytest.mark.parametrize("questions", range(1, 6))
def test_a_cleaner_between_two_questions_is_no_contradiction(questions: int) -> None:
    """The batch behind a gap is taken by the source's log cleaner while the gap is looked at from all sides: it is
    looked at again, whichever question came last before that. Without that rule a healthy log is called damaged."""
    before, after = compacted(), Disk([batch(900, 4), batch(4_000, 2)])
    asked = 0
    read = Disk.read

    async def cleaned(_: Disk, offset: int, **how: Any) -> object:
        nonlocal asked
        asked += 1
        return await read(before if asked <= questions else after, offset, **how)

    partition = Partition("t", 0)
    partition.cursor.due = 15  # up to 39, nothing is there
    with patch.object(Disk, "read", cleaned):
        try:
            assert not look(before, partition)
        except Unreachable:
            assert asked > questions


class Answers:
    """A log that answers each offset as it was told to: with whole batches, or with nothing."""

    def __init__(self, *stored: tuple[range, list[bytes]], end: int) -> None:
        self._stored = stored
        self._end = end
        self.asked: list[int] = []

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        self.asked.append(offset)
        found = next((batches for offsets, batches in self._stored if offset in offsets), [])
        shown = found if max_bytes > len(found[0] if found else b"") else found[:1]
        batches = [(BatchHeader.read(each), memoryview(each)) for each in shown]
        return Segment(batches, [], self._end, self._end, 0)


@pytest.mark.parametrize("committed", [True, False])
def test_nothing_is_answered_where_the_file_goes_on(committed: bool) -> None:
    """
    1. Behind the batch before, the file has one that the broker does not find by its offset: that is said, with both.
    2. Behind it is nothing, or the log begins there: the answer is only empty, which a new leader's may be.
    """
    before, behind = batch(0, 5), batch(7, 3)

    def contradiction(log: Answers, floor: int = 0) -> Contradiction:
        with pytest.raises(Contradiction) as found:
            asyncio.run(Look(log, floor, committed=committed).at(5))  # type: ignore[arg-type]
        return found.value

    found = contradiction(Answers((range(5), [before, behind]), end=10))
    assert not isinstance(found, Unanswered)
    assert "behind offset 4 stands a batch with base offset 7" in str(found)
    assert "does not find at offset 5" in str(found)
    assert isinstance(contradiction(Answers((range(5), [before]), end=10)), Unanswered)
    log = Answers((range(5), [before, behind]), end=10)
    assert isinstance(contradiction(log, floor=5), Unanswered)
    assert set(log.asked) == {5}  # no broker answers a Fetch below its log's start
