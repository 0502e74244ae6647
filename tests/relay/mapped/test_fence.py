"""What the destination's leader remembers outlives a takeover that gets no further than its fence."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from mirror.net.coordinator import Ownership
from mirror.net.errors import Unreachable
from mirror.net.logs.log import PartitionLog, Producer
from mirror.net.logs.reading import Segment
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.chunks import Order
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import Remembered
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import Memory
from mirror.records.header import BatchHeader
from mirror.records.identity import Identity
from mirror.relay.locate.tails import SCAN_BYTES
from mirror.relay.mapped import takeover
from mirror.relay.mapped.fence import Before, Looking, _until_marked, note, noted
from mirror.relay.mapped.takeover import Takeover
from mirror.relay.partition.partition import Partition
from tests.records.builders import raw_batch
from tests.simulation.model.broker import marker_batch

SIDE = Subject("orders", 0, "all")
CHECKPOINT = Checkpoint(
    subject=SIDE,
    writer="w",
    order=Order(1, 1000, 4),
    source_offset=7,
    source_epoch=0,
    destination_offset=20,
    identity=Identity(1000, 4, 3),
)
SEEN = Before(30, [Producer(1000, 4, 8)])
FENCED = Before(40, [Producer(1000, 5, -1)])
"""What a look behind the fence sees: the leader has forgotten epoch 4."""


class Topic:
    """The internal topic."""

    def __init__(self, *entries: Entry) -> None:
        self.ledger = Ledger()
        for entry in entries:
            self.ledger.put(entry)

    async def load(self) -> None:
        """Nobody else writes."""

    async def put(self, entry: Entry) -> None:
        self.ledger.put(entry)


class Ending:
    """The destination's log ends here now."""

    def __init__(self, end: int) -> None:
        self._end = end

    async def true_end(self) -> int:
        return self._end


async def taken_over(topic: Memory, before: Before, *, looked_at: int | None = None, end: int | None = None) -> Before:
    """``looked_at``: where the log ended at the look; ``end``: now."""
    at = before.end if looked_at is None else looked_at
    return await noted(topic, SIDE, before, Ending(at if end is None else end), end=at)


def state(*entries: Entry) -> Memory:
    return cast(Memory, cast(Any, Topic(*entries)))


def test_the_next_takeover_knows_what_the_one_before_has_seen() -> None:
    async def takeovers() -> Before:
        topic = state(CHECKPOINT)
        assert await taken_over(topic, SEEN) == SEEN
        return await taken_over(topic, FENCED)

    found = asyncio.run(takeovers())
    assert found.last_sequence(1000, 4) == 8
    assert found.end == SEEN.end, "what was appended up to the fence is yet to be looked at"


def test_behind_the_fence_nothing_is_left_to_look_at() -> None:
    async def takeovers() -> Before:
        topic = state(CHECKPOINT)
        await taken_over(topic, SEEN)
        await note(topic, SIDE, Before(35, [Producer(1000, 4, 9)], complete=True))
        return await taken_over(topic, FENCED)

    found = asyncio.run(takeovers())
    assert (found.last_sequence(1000, 4), found.end) == (9, FENCED.end)


@pytest.mark.parametrize(
    "checkpoint",
    [
        replace(CHECKPOINT, closed=True),
        replace(CHECKPOINT, identity=Identity(1000, 5, 0), order=Order(2, 1000, 5)),
        replace(CHECKPOINT, identity=Identity(1001, 4, 0), order=Order(2, 1001, 4)),
    ],
    ids=["closed", "later epoch", "another id"],
)
def test_of_other_checkpoints_a_note_says_nothing(checkpoint: Checkpoint) -> None:
    async def takeovers() -> Before:
        topic = state(replace(CHECKPOINT, closed=checkpoint.closed))
        await taken_over(topic, SEEN)
        known = topic.ledger.remembered(SIDE)
        return await taken_over(state(checkpoint, *([known] if known else [])), FENCED)

    assert asyncio.run(takeovers()).last_sequence(1000, 4) is None


def test_a_note_of_an_end_that_the_log_has_lost_says_nothing() -> None:
    async def takeovers() -> Before:
        topic = state(CHECKPOINT)
        await taken_over(topic, SEEN)
        return await taken_over(topic, FENCED._replace(end=SEEN.end - 1))

    assert asyncio.run(takeovers()).last_sequence(1000, 4) is None


def test_a_look_that_is_older_than_a_note_does_not_replace_it() -> None:
    """A worker looks, and is stopped; another looks meanwhile, and notes what the first one's predecessor sent late."""

    async def takeovers() -> tuple[Before, Ledger]:
        topic = state(CHECKPOINT)
        await taken_over(topic, SEEN)
        earlier = Before(SEEN.end - 2, [Producer(1000, 4, 6)])
        return await taken_over(topic, earlier, end=FENCED.end), topic.ledger

    found, ledger = asyncio.run(takeovers())
    assert (found.last_sequence(1000, 4), found.end) == (8, SEEN.end)
    known = ledger.remembered(SIDE)
    assert known is not None
    assert (known.last_sequence, known.end) == (8, SEEN.end)


def test_what_is_final_outlives_earlier_looks() -> None:
    """
    1. A worker looks, fences nothing, and waits. Another fences meanwhile, has seen all before its fence, and stops.
    2. The first one goes by that, not by its own earlier look; and its next note does not replace it.
    """

    async def takeovers() -> tuple[Before, Ledger]:
        topic = state(CHECKPOINT)
        await note(topic, SIDE, Before(35, [Producer(1000, 4, 9)], complete=True))
        found = await taken_over(topic, SEEN, looked_at=FENCED.end)
        await note(topic, SIDE, found)
        return found, topic.ledger

    found, ledger = asyncio.run(takeovers())
    assert (found.last_sequence(1000, 4), found.end) == (9, FENCED.end)
    known = ledger.remembered(SIDE)
    assert known is not None
    assert (known.last_sequence, known.end, known.fenced) == (9, 35, True)


class Marked:
    """The destination's log: batches of others, one of the flow's old epoch perhaps, and the fence's marker."""

    name = "t-0 at dest"

    def __init__(self, *batches: bytes, start: int = 0) -> None:
        self._batches, self._start = [(BatchHeader.read(one), memoryview(one)) for one in batches], start

    async def start(self) -> int:
        return self._start

    async def read(self, offset: int, **_: int) -> Segment:
        there = [one for one in self._batches if one[0].last_offset >= offset]
        return Segment(there, [], 40, 40, self._start)


@pytest.mark.parametrize(("stands_at", "start", "complete"), [(32, 0, True), (None, 0, False), (None, 33, False)])
def test_what_is_gone_before_the_marker_was_not_seen(stands_at: int | None, start: int, complete: bool) -> None:
    """Whether the last batch of the old epoch is there still, or a log cleaner or DeleteRecords has taken it."""
    batches = [raw_batch(b"others", base_offset=30, last_offset_delta=1)] if not start else []
    if stands_at is not None:
        fields = {"producer_id": 1000, "producer_epoch": 4, "base_sequence": 9}
        batches.append(raw_batch(b"ours", base_offset=stands_at, last_offset_delta=0, **fields))
    batches.append(marker_batch(33, 1000, 5))
    log = cast(PartitionLog, cast(Any, Marked(*batches, start=start)))
    kept: list[Before] = []
    found = asyncio.run(_until_marked(log, Ownership(1000, 5), SEEN, Looking({1000}, kept.append)))
    seen_to = SEEN.end if start else 32
    assert (found.end, found.complete) == ((34, True) if complete else (seen_to, False))
    assert found.last_sequence(1000, 4) == (9 if complete else 8)


class Taking:
    """The coordinator of a worker that takes the partition over, and that nobody takes it from."""

    def __init__(self) -> None:
        self._epoch = -1

    async def take_over(self, _: object) -> Ownership:
        self._epoch += 1
        return Ownership(2000, self._epoch)

    async def owns(self, _: object) -> bool:
        return True


@pytest.mark.parametrize("rule", [True, False])
def test_a_try_is_complete_only_when_all_predecessors_are_fenced(*, rule: bool) -> None:
    """
    1. A worker has fenced its own producer id. Before the predecessor's marker is there, whose id is another one, the
       connection is lost. The predecessor sends a batch, and a third worker notes that, fences it, and is killed.
    2. The first worker looks again. What it saw at first does not stand for all that the log has by now: else the note
       would be replaced, and a batch that was deleted meanwhile would be copied a second time.
    """
    topic = state(CHECKPOINT)
    looks = iter([SEEN, FENCED])
    tries = []

    async def look_before(*_: object) -> Before:
        return next(looks)

    async def fence_others(there: object, before: Before, *_: object) -> Before:
        tries.append(before)
        if len(tries) == 1:
            await topic.put(Remembered(subject=SIDE, producer_id=1000, epoch=4, last_sequence=9, end=38, fenced=False))
            raise Unreachable("dest: cut")
        return before

    async def fence_own(_: object, before: Before) -> Before:
        """Is there at once, and all before it was seen."""
        return before._replace(end=before.end + 1, complete=True)

    def kept(self: Any, before: Before, *, complete: bool = False) -> Before:
        self._partition.claim.remember_before(before)
        return before

    async def takeovers() -> Before:
        partition, there = Partition(*SIDE), Ending(FENCED.end)
        arguments: list[Any] = [Taking(), topic, partition, there, 4711, None]
        with pytest.raises(Unreachable):
            await Takeover(*arguments).fence()
        before, _ = await Takeover(*arguments).fence()
        return before

    with (
        patch.object(takeover, "look_before", look_before),
        patch.object(takeover, "fence_others", fence_others),
        patch.object(Takeover, "_fence_own", fence_own),
        patch.object(Takeover, "_keep", Takeover._keep if rule else kept),
    ):
        found = asyncio.run(takeovers())
    noted_last = topic.ledger.remembered(SIDE)
    assert noted_last is not None
    assert found.last_sequence(1000, 4) == noted_last.last_sequence == (9 if rule else 8)


class Busy:
    """The destination's log: others write to it all the time, in small batches of idempotent producers. A read takes
    ten seconds, and returns ten batches."""

    name = "t-0 at dest"
    topic = SimpleNamespace(name="t")
    index = 0

    def __init__(self) -> None:
        self.batches: list[tuple[BatchHeader, memoryview]] = []
        self.end = 0
        self.now = 0.0
        self.asked: list[int] = []

    def append(self, batch: bytes) -> None:
        """Appends a batch of one offset."""
        self.batches.append((BatchHeader.read(batch), memoryview(batch)))
        self.end += 1

    def write(self, count: int) -> None:
        """Appends so many batches of another producer."""
        for _ in range(count):
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": self.end}
            self.append(raw_batch(b"others", base_offset=self.end, last_offset_delta=0, **fields))

    async def start(self) -> int:
        return 0

    async def true_end(self) -> int:
        return self.end

    async def read(self, offset: int, *, max_bytes: int) -> Segment:
        assert max_bytes == SCAN_BYTES
        self.now += 10
        self.asked.append(offset)
        there = [one for one in self.batches if one[0].last_offset >= offset]
        return Segment(there[:10], [], self.end, self.end, 0)


async def looked_at(log: Busy, _: object) -> Before:
    return Before(log.end, [Producer(7, 0, log.end), Producer(2000, 0, -1)])


async def all_fenced(_: object, before: Before, *rest: object, **others: object) -> Before:
    return before


async def tries(log: Busy, partition: Partition, *, most: int) -> Before:
    """Takes the partition over, with more tries if need be. Others write meanwhile."""
    arguments: list[Any] = [Marking(log), state(CHECKPOINT), partition, log, 4711, None]
    with (
        patch.object(takeover, "look_before", looked_at),
        patch.object(takeover, "fence_others", all_fenced),
        patch("mirror.relay.mapped.fence.time.monotonic", lambda: log.now),
    ):
        for _ in range(most):
            log.write(5)
            with suppress(Unreachable):
                return (await Takeover(*arguments).fence())[0]
    raise Unreachable("dest: the marker was never reached")


class Marking(Taking):
    """The coordinator writes its marker at once."""

    def __init__(self, log: Busy) -> None:
        super().__init__()
        self._log = log
        self.coordinator = self

    def name_of(self, _: object) -> str:
        return "id"

    async def take_over(self, partition: object) -> Ownership:
        owner = await super().take_over(partition)
        cast(Partition, partition).claim.own(owner)
        return owner

    async def abort_empty(self, _: str, owner: Ownership, *rest: object) -> None:
        self._log.append(marker_batch(self._log.end, *owner))


@pytest.mark.parametrize("kept", [True, False])
def test_a_try_reads_on_where_the_one_before_had_to_stop(*, kept: bool) -> None:
    """
    1. A worker's try to take over has looked at the log up to its end, and got no further than its fence: the internal
       topic was away, for long. Others have written more meanwhile than can be read in the time of a try.
    2. Each of the next tries reads on, so that one reaches its marker. It knows what the predecessor wrote last; of the
       others, who wrote most of it, it keeps nothing.
    3. Else no try would ever get there.
    """
    log, partition = Busy(), Partition(*SIDE)
    log.write(SEEN.end)
    fields = {"producer_id": 1000, "producer_epoch": 4, "base_sequence": 9}
    log.append(raw_batch(b"ours", base_offset=log.end, last_offset_delta=0, **fields))
    log.write(90)
    partition.claim.remember_before(SEEN)

    def forgets(self: Takeover, before: Before, *, complete: bool = False) -> Before:
        return before

    if not kept:
        with patch.object(Takeover, "_keep", forgets), pytest.raises(Unreachable, match="never reached"):
            asyncio.run(tries(log, partition, most=9))
        return
    found = asyncio.run(tries(log, partition, most=9))
    assert found.last_sequence(1000, 4) == 9
    assert (found.end, found.complete) == (log.end, True)
    assert len(log.asked) == len(set(log.asked)), "nothing is read twice"
    assert sorted(found.known or ()) == [Producer(1000, 4, 9), Producer(2000, 0, -1)]


def test_what_is_gone_stays_unseen_for_the_next_try() -> None:
    """A try reads beyond offsets that are gone, and has to stop there. The next one reads on from there, and does not
    claim that all before it was seen."""
    log, partition = Busy(), Partition(*SIDE)
    log.write(130)
    del log.batches[SEEN.end + 5 : SEEN.end + 9]
    partition.claim.remember_before(SEEN)
    found = asyncio.run(tries(log, partition, most=9))
    assert (found.end, found.complete) == (SEEN.end + 5, False)
    assert len(log.asked) == len(set(log.asked)), "nothing is read twice"
