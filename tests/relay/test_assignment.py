"""Partitions that a group shares out, adopted when assigned, drained when revoked, dropped when lost."""

import asyncio
import json
from typing import Any

import pytest

from mirror.offsetmap.entries.pins import header_digest
from mirror.records.header import BatchHeader
from mirror.relay.assignment import Assignment, Committable, read_committed
from mirror.relay.partition.phases import Phase
from mirror.relay.relay import Relay
from tests.fakes import faults
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import Flow, batches, clusters, copies, fill, mirroring

FIRST, SECOND = ("t", 0), ("t", 1)


def assignment(relay: Relay) -> Assignment:
    assert relay.assignment is not None
    return relay.assignment


async def test_only_what_is_assigned_is_copied() -> None:
    """
    1. Nothing is copied before anything is assigned.
    2. One partition is: only that one is copied. Then the other as well.
    """
    async with clusters() as (source, destination):
        fill(source, 2)
        async with mirroring(source, destination, assigned=True) as flow:
            await some_turns()
            assert flow.relay.partitions == {}
            assert flow.relay.keys == [FIRST, SECOND]
            assignment(flow.relay).assign({SECOND})
            await flow.copied(SECOND)
            assert destination.log("t", 0).end == 0
            assignment(flow.relay).assign({FIRST})
            await flow.copied()


async def test_a_partition_that_is_not_known_yet() -> None:
    """The group may know of a topic before we do: it is adopted once the topics were looked at."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, assigned=True) as flow:
            assignment(flow.relay).assign({("u", 0)})
            assert assignment(flow.relay).unknown == [("u", 0)]
            source.add_topic("u")
            source.store("u", 0, *batches(3))
            await flow.copied(("u", 0))


async def test_revoked_is_drained_and_can_be_committed() -> None:
    """
    1. A batch is under way, and its answer is held back. The partition is revoked: nothing more is fetched.
    2. The answer comes: all that was under way is acknowledged, the partition is gone, its position can be committed.
    3. What is written after that stays uncopied until it is assigned again; the other one goes on all the time.
    """
    async with clusters() as (source, destination):
        fill(source, 2)
        async with mirroring(source, destination, assigned=True, max_in_flight=1) as flow:
            assignment(flow.relay).assign({FIRST, SECOND})
            await flow.copied()
            held = destination.next("Produce", faults.held())
            source.store("t", 0, *batches(2, first=60))
            await held.came.wait()
            revoking = asyncio.create_task(assignment(flow.relay).revoke({FIRST}, 60.0))
            await some_turns()
            assert not revoking.done()
            held.open()
            done = await revoking
            assert done.keys() == {FIRST}
            assert done[FIRST].offset == 66 == destination.log("t", 0).end
            assert flow.relay.partitions.keys() == {SECOND}
            source.store("t", 0, *batches(1, first=66))
            source.store("t", 1, *batches(1, first=60))
            await flow.copied(SECOND)
            assert destination.log("t", 0).end == 66
            assignment(flow.relay).assign({FIRST})
            await flow.copied()


async def test_a_drain_is_bounded() -> None:
    """
    1. The destination does not answer. The partition is let go when the time is over, with what is known of it.
    2. It is assigned again while the old answer is still due: a new partition, found anew; nothing is there twice.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, assigned=True) as flow:
            assignment(flow.relay).assign({FIRST})
            await flow.copied()
            before = flow.partition()
            held = destination.next("Produce", faults.held())
            source.store("t", 0, *batches(2, first=60))
            await held.came.wait()
            done = await assignment(flow.relay).revoke({FIRST}, 0.01)
            assert done[FIRST].offset in (60, 63)
            assert before.phase is Phase.STOPPED
            assert before.queue.in_flight
            assignment(flow.relay).assign({FIRST})
            assert flow.partition() is not before
            held.open()
            await until(lambda: not before.queue.in_flight)
            await flow.copied()
            await until(lambda: before.queue.lane is None)


@pytest.mark.parametrize("sent", [True, False])
async def test_revoked_by_a_call_that_nobody_waits_for_any_more(sent: bool) -> None:
    """
    1. The event loop hangs. The group revokes the partition, gives up waiting, and assigns it again.
    2. The loop goes on, and does all of that in this order: the partition is ours at the end, and copied.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, assigned=True) as flow:
            assignment(flow.relay).assign({FIRST})
            await flow.copied()
            held = destination.next("Produce", faults.held())
            before = flow.partition()
            if sent:
                source.store("t", 0, *batches(1, first=60))
                await held.came.wait()
            loop = asyncio.get_running_loop()
            waiting: list[asyncio.Task[Any]] = []
            loop.call_soon(lambda: waiting.append(loop.create_task(assignment(flow.relay).revoke({FIRST}, 60.0))))
            loop.call_soon(lambda: loop.call_soon(waiting[0].cancel))
            loop.call_soon(assignment(flow.relay).assign, {FIRST})
            await until(lambda: waiting and waiting[0].done())
            assert before.phase is Phase.STOPPED
            assert flow.partition() is not before
            assert assignment(flow.relay).keys == {FIRST}
            held.open()
            if not sent:
                source.store("t", 0, *batches(1, first=60))
            await flow.copied()


async def test_lost_is_dropped() -> None:
    """Somebody else has it already: it ends at once, whatever is under way."""
    async with clusters() as (source, destination):
        fill(source)
        held = destination.next("Produce", faults.held())
        async with mirroring(source, destination, assigned=True) as flow:
            assignment(flow.relay).assign({FIRST})
            await held.came.wait()
            partition = flow.partition()
            revoking = asyncio.create_task(assignment(flow.relay).revoke({FIRST}, 60.0))
            await some_turns()
            assignment(flow.relay).lose({FIRST})
            assert await revoking == {}
            assert partition.phase is Phase.STOPPED
            assert flow.relay.partitions == {}
            held.open()
            await until(lambda: not partition.queue.in_flight)


async def test_revoked_while_it_is_sought() -> None:
    """Looking for the position ends with the partition: nothing of it is sent afterwards."""
    async with clusters() as (source, destination):
        fill(source)
        held = destination.next("ListOffsets", faults.held())
        async with mirroring(source, destination, assigned=True) as flow:
            assignment(flow.relay).assign({FIRST})
            await held.came.wait()
            assert await assignment(flow.relay).revoke({FIRST}, 60.0) == {}
            held.open()
            await some_turns()
            assert not destination.seen("Produce")
            assert flow.relay.states == {}


async def test_revoked_while_it_is_sought_beside_one_that_drains() -> None:
    """What drains is waited for. What is looked for would be found meanwhile, and begin to copy: it goes at once."""
    async with clusters() as (source, destination):
        fill(source, 2)
        async with mirroring(source, destination, assigned=True) as flow:
            assignment(flow.relay).assign({FIRST})
            await flow.copied(FIRST)
            drains = destination.next("Produce", faults.held())
            source.store("t", 0, *batches(2, first=source.log("t").end))
            await drains.came.wait()
            sought = destination.next("ListOffsets", faults.held())
            assignment(flow.relay).assign({SECOND})
            await sought.came.wait()
            revoking = asyncio.create_task(assignment(flow.relay).revoke({FIRST, SECOND}, 60.0))
            await some_turns()
            assert flow.partition("t", 0).phase is Phase.ACTIVE
            assert SECOND not in flow.relay.partitions
            sought.open()
            await some_turns()
            drains.open()
            assert (await revoking).keys() == {FIRST}
            assert destination.log("t", 1).end == 0


# Committing.


async def test_what_can_be_committed() -> None:
    """A batch boundary, with the topic's id, and epoch and digest of the last batch copied as the source has it."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, assigned=True) as flow:
            assignment(flow.relay).assign({FIRST})
            await flow.copied()
            found = flow.relay.committable()[FIRST]
            last = source.log("t").batches[-1]
            topic_id = source.topics["t"].topic_id
            assert found == Committable(
                60,
                topic_id.hex if topic_id else "",
                BatchHeader.read(last).leader_epoch,
                header_digest(last[:61]),
                60,
                0,
            )
            assert list(read_committed(60, found.metadata)) == list(found)
            assert set(json.loads(found.metadata)) == {"v", "id", "epoch", "digest", "at", "leader"}


@pytest.mark.parametrize("metadata", ["", "{}", "[1]", "null", '{"id": 1}', "x" * 100])
def test_foreign_metadata(metadata: str) -> None:
    """Another tool may have committed for the group: only the offset counts."""
    assert read_committed(7, metadata) == (7, "", -1, "", -1, -1)


def test_the_digest_covers_what_brokers_keep() -> None:
    """Not the offset, the length and the leader epoch; everything behind them."""
    header = bytes(range(61))
    assert len(header_digest(header)) == 16
    assert header_digest(bytes(16) + header[16:]) == header_digest(header)
    assert header_digest(header[:60] + b"\xff") != header_digest(header)


# Counting.


async def test_counts_survive_doubt() -> None:
    """
    1. A partition is copied; a connection breaks with batches under way that landed and were never answered.
    2. In the end every record, batch and byte is counted once.
    """
    async with clusters() as (source, destination):
        fill(source, count=50)
        async with mirroring(source, destination, assigned=True) as flow:
            assignment(flow.relay).assign({FIRST})
            await flow.copied()
            destination.next("Produce", faults.disconnect())
            source.store("t", 0, *batches(30, first=150))
            await flow.copied()
            stored = source.log("t").batches
            assert flow.relay.stats.resyncs
            counts = flow.partition().counts
            assert counts == (240, 80, sum(map(len, stored)))


async def test_counts_begin_where_it_was_taken_over() -> None:
    """What was copied before is not counted again."""
    async with clusters() as (source, destination):
        fill(source, count=20)
        destination.add_topic("t")
        earlier = copies(source.log("t").batches[:15], cluster_id=source.cluster_id)
        for batch in earlier:
            destination.log("t").produce(batch)
        async with mirroring(source, destination, assigned=True) as flow:
            assignment(flow.relay).assign({FIRST})
            await flow.copied()
            assert flow.partition().counts[:2] == (15, 5)


# Resuming.


async def halted(flow: Flow) -> None:
    assignment(flow.relay).assign({FIRST})
    assert await flow.halted() == "foreign_writer"


async def test_a_halted_partition_is_resumed() -> None:
    """
    1. A foreign batch at the destination: halted. Resumed as it is, it halts again with the same reason.
    2. The destination topic is deleted and made anew: resumed, everything is copied.
    """
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        destination.store("t", 0, *batches(1))
        async with mirroring(source, destination, assigned=True) as flow:
            await halted(flow)
            assert await flow.relay.resume(FIRST) == ""
            assert flow.partition().phase is Phase.LOCATING
            assert await flow.halted() == "foreign_writer"
            destination.topics.pop("t")
            assert await flow.relay.resume(FIRST, accept_gap=True) == ""
            assert flow.partition().claim.accept_gap
            await flow.copied()


async def test_what_cannot_be_resumed() -> None:
    """A partition that is not ours, or not halted."""
    async with clusters() as (source, destination):
        fill(source, 2)
        async with mirroring(source, destination, assigned=True) as flow:
            assignment(flow.relay).assign({FIRST})
            await flow.copied(FIRST)
            assert await flow.relay.resume(SECOND) == "not copied here"
            assert await flow.relay.resume(FIRST) == "it is active, not halted"
