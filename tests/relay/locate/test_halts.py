"""Where a partition does not go on: what is there is not ours, or not the source's, or not there at all."""

import uuid
from typing import Any

import pytest

from mirror.net.errors import NetworkError, Unreachable
from mirror.offsetmap.entries.pins import FlowEntry, LastCopied, header_digest
from mirror.offsetmap.fields import id_shown
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.records.identity import Identity
from mirror.relay.halts import PartitionHalted
from mirror.relay.locate.position import MISSING_LOOKS
from mirror.relay.partition.claim import Committed
from mirror.relay.partition.partition import Partition
from tests.fakes import faults
from tests.records.builders import legacy_message, raw_batch
from tests.relay.stage.flows import FLOW, batch, batches, copies
from tests.relay.stage.scenes import scene

# What is there is not ours, or not the source's.


@pytest.mark.parametrize("producer", [-1, 0, 12_345])
async def test_foreign_writer(producer: int) -> None:
    """The last batch is somebody else's: an ordinary producer's. Halt; nothing is written."""
    async with scene() as at:
        at.copy(batches(2))
        at.source.store("t", 0, *batches(5, first=6))
        at.there.produce(raw_batch(b"x", base_offset=0, producer_id=producer, producer_epoch=0, base_sequence=0))
        reason, detail = await at.halts()
        assert reason == "foreign_writer"
        assert f"offset 6 is of producer id {producer}" in detail


async def test_where_foreign_batches_begin() -> None:
    """The detail has all of them, so that somebody can find and save them."""
    async with scene() as at:
        at.copy(batches(2))
        at.source.store("t", 0, *batches(5, first=6))
        for value in (b"x", b"y", b"z"):
            at.there.produce(raw_batch(value, base_offset=0))
        reason, detail = await at.halts()
        assert reason == "foreign_writer"
        assert "offset 16 is of producer id -1" in detail
        assert "offsets 6 to 20 were written by others" in detail


async def test_another_flow_of_the_same_topic() -> None:
    """
    1. The id is the flow's and the partition's: a copy made by another flow is that flow's, whoever that is.
    2. Its id is written down at the destination: the halt names it, and what to set if it is this flow under new names.
    """
    async with scene() as at:
        stored = batches(2)
        at.source.store("t", 0, *stored)
        for one in copies(stored, cluster_id="another-source"):
            at.there.produce(one)
        reason, detail = await at.halts()
        assert reason == "other_flow"
        assert "a mirror whose flow id is not written down" in detail
        state = InternalTopic(at.clusters[1], "elsewhere->destination")
        await state.open()
        await state.put(FlowEntry(flow=FLOW, source_cluster="another-source", destination_cluster=""))
    async with scene() as at:
        at.source.store("t", 0, *stored)
        for one in copies(stored, cluster_id=at.source.cluster_id):
            at.there.produce(one)
        told = at.locator.rules(at.partition)
        assert (await at.locate()).proven, told
        state = InternalTopic(at.clusters[1], FLOW)
        await state.open()
        await state.put(FlowEntry(flow=FLOW, source_cluster=at.source.cluster_id, destination_cluster=""))
        renamed = at.named("renamed->destination")
        with pytest.raises(PartitionHalted) as caught:
            await renamed.locate(Partition("t", 0), takeover=False)
        halted = caught.value.halted
        assert halted.reason == "other_flow"
        assert f'of flow "{FLOW}"' in halted.detail
        assert f'set flow.id: "{FLOW}"' in halted.remedy


@pytest.mark.parametrize("behind", [True, False])
async def test_two_flows_at_the_same_time(*, behind: bool) -> None:
    """Where our own batches stand behind another flow's, the remedy is a copy made anew; else whose copy it is."""
    async with scene() as at:
        stored = batches(4)
        at.source.store("t", 0, *stored)
        at.copy_only(stored[:2])
        for one in copies(stored[2:3], cluster_id="another-source"):
            at.there.produce(one)
        if behind:
            at.copy_only(stored[2:3], sequence=6)
        with pytest.raises(PartitionHalted) as caught:
            await at.locate()
        halted = caught.value.halted
        assert halted.reason == "other_flow"
        assert ("where they do not belong" in halted.detail) is behind
        assert ("records stand at wrong offsets" in halted.remedy) is behind
        assert ("goes on with the copy" in halted.remedy) is not behind


@pytest.mark.parametrize("ours_behind", [1, 5])
async def test_a_foreign_writer_before_our_last_batches(ours_behind: int) -> None:
    """What was under way when somebody else wrote has landed behind it: the other one is named, not our own batches."""
    async with scene() as at:
        stored = batches(8)
        at.source.store("t", 0, *stored)
        at.copy_only(stored[:2])
        at.there.produce(raw_batch(b"x", base_offset=0))
        at.copy_only(stored[2 : 2 + ours_behind], sequence=6)
        reason, detail = await at.halts()
        assert reason == "foreign_writer"
        assert "offset 6 is of producer id -1" in detail


async def test_the_old_formats_are_foreign() -> None:
    async with scene() as at:
        at.copy(batches(2))
        await at.refresh()

        def change(answer: Any) -> None:
            answer.responses[0].partitions[0].records = legacy_message(1)

        at.destination.next("Fetch", faults.alter(change))
        with pytest.raises(PartitionHalted, match="foreign_writer"):
            await at.locator.locate(at.partition, takeover=False)


async def test_a_marker_at_the_end() -> None:
    async with scene() as at:
        at.copy(batches(2))
        at.there.store(raw_batch(b"x", base_offset=6, attributes=0x30, last_offset_delta=0, record_count=1))
        assert (await at.halts())[0] == "overfilled"


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": b"other bytes" * 5},
        {"max_timestamp": 5},
        {"base_timestamp": 5},
        {"attributes": 1},
        {"count": 2},
    ],
)
async def test_not_a_copy(changes: dict[str, Any]) -> None:
    """The last batch there is not the source's at that offset: in its bytes, its times, its codec or its count."""
    async with scene() as at:
        stored = batches(3)
        at.source.store("t", 0, *stored)
        at.copy_only(stored[:1])
        fields: dict[str, Any] = {"base": 3, "payload": b"%d," % 3 * 20} | changes
        at.copy_only([batch(**fields)], sequence=3)
        reason, detail = await at.halts()
        assert reason == "not_a_copy"
        assert "differ" in detail


async def test_what_does_not_make_a_difference() -> None:
    """Who wrote it, the leader epoch and the cleaner's delete-horizon bit are not the payload."""
    async with scene() as at:
        stored = [batch(0, attributes=0x40, leader_epoch=8, producer_id=77, producer_epoch=3, base_sequence=9)]
        at.here.epoch = 8
        at.source.store("t", 0, *stored)
        at.copy_only([batch(0, attributes=0)])
        found = await at.locate()
        assert (found.offset, found.proven, found.last_epoch) == (3, True, 8)


async def test_a_source_leader_that_is_catching_up() -> None:
    """Its first answer is behind, the second is not: no halt."""
    async with scene() as at:
        at.copy(batches(4))

        def behind(answer: Any) -> None:
            answer.topics[0].partitions[0].offset = 9

        at.source.next("ListOffsets", faults.Fault())
        at.source.next("ListOffsets", faults.alter(behind))
        found = await at.locate()
        assert (found.offset, found.source_end) == (12, 12)


async def test_leading_offsets() -> None:
    """More than the flow fills, also when the partition was begun with and nothing was copied yet."""
    async with scene(max_leading_filler=5) as at:
        at.source.store("t", 0, *batches(4))
        at.here.delete_before(6)
        reason, detail = await at.halts(takeover=True)
        assert reason == "leading_offsets"
        assert "begins at offset 6" in detail
        assert (await at.halts())[0] == "leading_offsets"


@pytest.mark.parametrize(
    ("start", "inside"), [(9, ""), (10, " (inside the batch at 9, which is still there as a whole)")]
)
async def test_retention_overtook(start: int, inside: str) -> None:
    """What an operator can look up is named: the log start offset, beside the batch that it is in."""
    async with scene() as at:
        stored = batches(6)
        at.copy(stored[:2])
        at.source.store("t", 0, *stored[2:])
        at.here.delete_before(start)
        reason, detail = await at.halts()
        assert reason == "retention_overtook"
        begins = f"the source's log start offset is {start}{inside}"
        assert detail == f"t-0: offset 6 is due, and {begins}: offsets 6 to 8 cannot be copied"


@pytest.mark.parametrize("start", [6, 7])
async def test_the_source_begins_where_the_destination_ends(start: int) -> None:
    """Everything copied was deleted at the source: nothing can be compared, and nothing is missing. Told is the start
    that consumers find, which may be inside of the next batch."""
    async with scene() as at:
        stored = batches(4)
        at.copy(stored[:2])
        await at.locate(takeover=True)
        at.source.store("t", 0, *stored[2:])
        at.here.delete_before(start)
        found = await at.locate()
        assert (found.offset, found.proven) == (6, False)
        (line,) = at.log.of("prefix_unproven")
        inside = " (inside the batch at 6, which is still there as a whole)" if start > 6 else ""
        begins = f"the source's log start offset is {start}{inside}"
        assert line["detail"] == f"t-0: {begins}, so nothing before offset 6 can be compared"


async def test_the_destination_has_deleted_everything() -> None:
    """
    1. An empty log with an end: retention at the destination. Nothing can be compared, and nothing was written down of
       what was copied last: halt.
    2. It was, and the source has it: unproven, and told. What the broker remembers of the flow's producer gives the
       identity; else it begins anew.
    """
    async with scene() as at:
        stored = batches(4)
        at.copy(stored)
        await at.locate(takeover=True)
        at.there.delete_before(12)
        assert at.there.batches == []
        reason, detail = await at.halts()
        assert reason == "unproven"
        assert "nothing is written down of what was copied last" in detail
        assert at.partition.claim.source_id is not None
        last = LastCopied(12, 0, header_digest(stored[-1]), 12)
        at.partition.claim.committed = Committed(12, at.partition.claim.source_id.hex(), 0, last.digest, last.digest_at)
        found = await at.locate()
        assert (found.offset, found.proven) == (12, False)
        assert found.identity == Identity(at.owner, 0, 12)
        assert "the destination's log holds no record" in at.log.of("prefix_unproven")[0]["detail"]
        at.there.producers.clear()
        assert (await at.locate()).identity == Identity(at.owner, 0, 0)


# Topics and leaders.


@pytest.mark.parametrize("side", ["source", "destination"])
async def test_recreated(side: str) -> None:
    """The topic under the name is another one than it was: halt, on either side."""
    async with scene() as at:
        at.copy(batches(2))
        await at.locate()
        fake = at.source if side == "source" else at.destination
        before = fake.topics["t"].topic_id
        fake.topics["t"].topic_id = uuid.uuid4()
        reason, detail = await at.halts()
        assert reason == "recreated"
        assert before is not None
        assert side in detail
        assert f"before {id_shown(before.bytes)}" in detail


@pytest.mark.parametrize("side", ["source", "destination"])
async def test_topic_missing(side: str) -> None:
    """
    1. A cluster does not know the topic: a broker that has just started knows none for a moment, so it is looked for.
    2. It comes back: all is well, and the count begins anew. It stays away: halt.
    """
    async with scene() as at:
        fake = at.source if side == "source" else at.destination
        topic = fake.topics.pop("t")
        for _ in range(MISSING_LOOKS - 1):
            with pytest.raises(Unreachable, match=f"cluster {side} has no topic t"):
                await at.locate()
        fake.topics["t"] = topic
        await at.locate()
        assert at.partition.claim.missing == 0
        del fake.topics["t"]
        for _ in range(MISSING_LOOKS - 1):
            with pytest.raises(Unreachable):
                await at.locate()
        assert (await at.halts())[0] == "topic_missing"


async def test_no_leader() -> None:
    """A partition that nobody leads is looked for again, not halted."""
    async with scene(brokers=2) as at:
        at.source.lead("t", 0, 2)
        await at.source.stop(2)
        with pytest.raises(NetworkError, match="cluster source: t-0 has no leader at present"):
            await at.locate()


async def test_the_leader_has_gone() -> None:
    """The broker that leads does not answer: an error that says which."""
    async with scene(brokers=2) as at:
        at.destination.lead("t", 0, 2)
        await at.refresh()
        await at.destination.stop(2)
        with pytest.raises(NetworkError, match="destination broker 2"):
            await at.locator.locate(at.partition, takeover=False)
