"""Where a partition goes on: the state of the destination's log, and how it becomes certain."""

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.errors import Refused, Unreachable
from mirror.net.metadata import Leader
from mirror.records.identity import Identity
from mirror.relay.locate import resync
from mirror.relay.partition import clock
from mirror.relay.partition.location import Location
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.log import FakeLog
from tests.fakes.loop import until
from tests.records.builders import raw_batch
from tests.relay.stage.flows import batch, batches, copies
from tests.relay.stage.scenes import scene

# Fresh and resumed.


async def test_fresh() -> None:
    """Nothing at the destination: from 0, with the flow's own identity, nothing to prove."""
    async with scene() as at:
        at.source.store("t", 0, *batches(4))
        found = await at.locate(takeover=True)
        assert found._replace(ended_at=math.inf) == Location(
            offset=0,
            identity=Identity(at.owner, 0, 0),
            last_epoch=-1,
            destination_leader=Leader(1, 0),
            source_leader=Leader(1, 0),
            source_end=12,
            log_start=0,
            proven=True,
            coordinator_epoch=0,
            source_start=0,
            holes_from=0,
            fill_to=0,
        )


async def test_resumed() -> None:
    """Behind what is there: the next offset, the next sequence, the epoch of the source's last batch, proven."""
    async with scene() as at:
        stored = [batch(0), batch(3, leader_epoch=2), batch(6, leader_epoch=2)]
        at.here.epoch = 5
        at.copy(stored[:2])
        at.source.store("t", 0, stored[2])
        found = await at.locate(takeover=True)
        assert found.offset == 6
        assert found.identity == Identity(at.owner, 0, 6)
        assert found.last_epoch == 2
        assert found.source_leader == Leader(1, 5)
        assert found.source_end == 9
        assert found.proven


async def test_the_sequence_wraps() -> None:
    async with scene() as at:
        at.copy(batches(1), sequence=(1 << 31) - 2)
        assert (await at.locate()).identity == Identity(at.owner, 0, 1)


async def test_resumed_with_an_empty_tail_of_the_source() -> None:
    """Both sides end alike."""
    async with scene() as at:
        at.copy(batches(3))
        found = await at.locate()
        assert (found.offset, found.source_end) == (9, 9)


# Certainty: barrier, settle, armed.


async def test_armed_means_no_settling() -> None:
    """
    1. The broker remembers the batch that we continue from: one barrier is enough.
    2. After a restart it has forgotten it, or it cannot tell, or it is a takeover: two, apart.
    """
    async with scene() as at:
        at.copy(batches(2))
        await at.locate()
        assert at.barriers() == 1
        await at.locate(takeover=True)
        assert at.barriers() == 3
        at.there.producers.clear()
        await at.locate()
        assert at.barriers() == 5
        del at.destination.versions["DescribeProducers"]
    async with scene(there={"DescribeProducers": (-1, -1)}) as at:
        at.copy(batches(2))
        await at.locate()
        assert at.barriers() == 2


async def test_the_broker_remembers_another_sequence() -> None:
    """Of our producer id it knows something else than the log's tail: not armed."""
    async with scene() as at:
        at.copy(batches(2))
        at.there.producers[at.owner].batches.append((6, 8, 6))
        await at.locate()
        assert at.barriers() == 2


@pytest.mark.parametrize("takeover", [True, False])
async def test_an_end_counts_from_when_it_was_asked_for(takeover: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may be stopped before it reads the answer, while the connection lives."""
    now, usual = [1_000.0], resync.barrier
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def stopped(*args: Any) -> int:
        end = await usual(*args)
        now[0] += 60
        return end

    monkeypatch.setattr(resync, "barrier", stopped)
    async with scene() as at:
        at.copy(batches(2))
        found = await at.locate(takeover=takeover)
        assert found.offset == 6
        assert found.ended_at == now[0] - 60


async def test_the_barrier_waits_for_the_replicas() -> None:
    """
    1. The destination's last batch is not replicated: it could vanish, so no position is given. It is told once.
    2. It is replicated: the position is behind it.
    """
    async with scene() as at:
        at.copy(batches(2))
        at.there.hidden = 3
        locating = asyncio.create_task(at.locate())
        await until(lambda: at.barriers() >= 3)
        assert not locating.done()
        at.there.hidden = 0
        assert (await locating).offset == 6
        (line,) = at.log.of("under_replicated")
        assert "ends at 6 and is replicated to 3" in line["detail"]


async def test_a_high_watermark_that_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Behind the barrier, the destination's high watermark goes back, below the last batch or below all of them: what
       cannot be read is no damage, and not left out.
    2. It is back: the position is behind what was copied.
    """
    original = resync.barrier
    for hidden in (3, 6):
        async with scene() as at:
            at.copy(batches(2))

            async def barrier(*args: Any, log: FakeLog = at.there, hidden: int = hidden) -> int:
                end = await original(*args)
                log.hidden = hidden
                return end

            with monkeypatch.context() as patched:
                patched.setattr(resync, "barrier", barrier)
                with pytest.raises(Unreachable, match=f"ends at 6, and is to be read to {6 - hidden} only"):
                    await at.locate()
            at.there.hidden = 0
            assert (await at.locate()).offset == 6


async def test_the_high_watermark_is_not_known_yet() -> None:
    """OFFSET_NOT_AVAILABLE after an election: asked again."""
    async with scene() as at:
        at.copy(batches(1))
        await at.refresh()

        def change(answer: Any) -> None:
            answer.topics[0].partitions[0].error_code = ErrorCode.OFFSET_NOT_AVAILABLE

        at.destination.next("ListOffsets", faults.Fault())
        at.destination.next("ListOffsets", faults.Fault())
        at.destination.next("ListOffsets", faults.alter(change))
        found = await at.locator.locate(at.partition, takeover=False)
        assert found.offset == 3


async def test_other_errors_are_for_the_caller() -> None:
    async with scene() as at:
        await at.refresh()
        at.destination.next("ListOffsets", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(Refused):
            await at.locator.locate(at.partition, takeover=False)
        for _ in range(2):
            at.destination.next("ListOffsets", faults.Fault())
        at.destination.next("ListOffsets", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(Refused):
            await at.locator.locate(at.partition, takeover=False)


async def test_the_end_moves_while_it_settles() -> None:
    """
    1. A takeover: the predecessor's last request is still on its way, and lands between the two barriers.
    2. The end is looked at again, with its new tail; the position and the sequence are behind the late batch.
    """
    async with scene() as at:
        stored = batches(3)
        at.source.store("t", 0, *stored)
        at.copy_only(stored[:1])
        late = copies(stored[1:2], cluster_id=at.source.cluster_id, sequence=3)[0]
        # Answered third: the second barrier's first question, after settling.
        for _ in range(3):
            at.destination.next("ListOffsets", faults.Fault())
        landing = at.destination.next("ListOffsets", faults.held())
        locating = asyncio.create_task(at.locate(takeover=True))
        await landing.came.wait()
        at.there.produce(late)
        landing.open()
        found = await locating
        assert found.offset == 6
        assert found.identity == Identity(at.owner, 0, 6)
        assert at.barriers() >= 3


async def test_somebody_writes_all_the_time() -> None:
    """An end that never stands still is no reason to wait for ever: the foreign batch at it is."""
    async with scene() as at:
        at.source.store("t", 0, *batches(50))
        locating = asyncio.create_task(at.halts(takeover=True))
        while not locating.done():
            at.there.produce(raw_batch(b"", base_offset=0))
            await asyncio.sleep(0.001)
        assert (await locating)[0] == "foreign_writer"
