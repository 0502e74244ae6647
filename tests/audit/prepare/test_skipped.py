"""What the audit knows of offsets that somebody went on without: from the flow's internal topic, on a broker."""

import asyncio
from dataclasses import replace
from unittest.mock import Mock, patch

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.model.places import Adopted, Bounds, Side, Span, TopicPartition
from mirror.audit.model.request import AuditRequest, Endpoint
from mirror.audit.model.result import SkippedRange, Undecided
from mirror.audit.prepare.bounds import cluster_options, freeze
from mirror.audit.prepare.skipped import Decisions, decided, skipped
from mirror.net.cluster import Cluster
from mirror.net.errors import Refused, Unreachable
from mirror.offsetmap.entries.checkpoint import SkippedOffsets as Written
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.passed import PassedOverOffsets
from mirror.offsetmap.entries.pins import Pin
from mirror.offsetmap.internal.memory import state_topic
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.audit.clusters import create, endpoint, faked
from tests.fakes.broker import FakeCluster


def test_a_destination_that_does_not_answer_is_asked_again() -> None:
    """Whoever asks does that: without an answer, what was passed over would count as lost."""
    there = Endpoint(alias="b", bootstrap=(("127.0.0.1", 1),))
    request = AuditRequest(flow="a->b", source=there, destination=there, topics=("t",))
    with patch.object(InternalTopic, "open", side_effect=Unreachable("no answer")), pytest.raises(Unreachable):
        asyncio.run(skipped(Mock(), [], request))


@pytest.mark.parametrize("mapped", [False, True])
async def test_an_internal_topic_that_may_not_be_described(mapped: bool) -> None:
    """Nobody knows whether there is one: that is no "nothing was decided". Without the offset map, there is no verdict.
    Mutation: what is not in the metadata is not there."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for fake in (west, east):
            fake.add_topic("t")
        topic = east.add_topic(state_topic("a->b"), configs={"cleanup.policy": "compact"})
        request = AuditRequest(
            flow="a->b", source=faked(west), destination=faked(east), topics=("t",), catch_up_s=0,
            offsets="mapped" if mapped else "exact",
        )  # fmt: skip
        topic.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        async with (
            await Cluster.open("west", west.options()) as source,
            await Cluster.open("east", east.options()) as destination,
        ):
            found = await skipped(destination, [], request)
            assert f"topic {topic.name} of cluster east cannot be read: " in found.unknown
            assert "TOPIC_AUTHORIZATION_FAILED" in found.unknown
            if mapped:
                with pytest.raises(AuditError, match=r"offset map .* cannot be read: .*TOPIC_AUTHORIZATION_FAILED"):
                    await freeze(source, destination, request)
            topic.error = ErrorCode.UNKNOWN_SERVER_ERROR
            with pytest.raises(Refused, match="UNKNOWN_SERVER_ERROR"):
                await freeze(source, destination, request)
            del east.topics[topic.name]
            assert await skipped(destination, [], request) == Decisions()


def pinned(partition: int) -> Pin:
    """Of a flow that leads nowhere back."""
    return Pin(subject=Subject("t", partition, "t"), source_id="1" * 32, destination_id="2" * 32)


async def test_what_was_written_when_topics_had_no_ids() -> None:
    """The clusters were upgraded to Kafka 2.8 since: these are the same topics, and it counts. What is known to be of
    another topic does not. Mutation: ids are compared with ``==``."""
    async with FakeCluster("east") as east:
        there = faked(east)
        request = AuditRequest(flow="a->b", source=there, destination=there, topics=("t",))
        audited = [Bounds(topic="t", partition=index, source=Span(0, 9), destination=Span(0, 9)) for index in range(2)]
        ids = {"t": "1" * 32}, {"t": "2" * 32}
        async with await Cluster.open("east", east.options()) as cluster:
            state = InternalTopic(cluster, "a->b")
            await state.open()
            await state.save(
                PassedOverOffsets(
                    subject=Subject("t", partition, "t"), writer="w", offsets=(3,), leader_epoch=0,
                    source_id=None, destination_id=known, cause="oversize", at_ms=0,
                )
                for partition, known in enumerate((None, "3" * 32))
            )  # fmt: skip
            await state.save(
                Pin(subject=Subject("t", at, "t"), source_id=None, destination_id=known, adopted=7, adopted_epoch=3)
                for at, known in enumerate((None, "3" * 32))
            )
            found = await skipped(cluster, audited, request, ids)
        assert {key: [*offsets] for key, offsets in found.passed.items()} == {TopicPartition("t", 0): [3]}
        assert found.adopted == {TopicPartition("t", 0): Adopted(7, 3, committed=True)}


def test_adopted_up_to_an_open_transaction() -> None:
    """None was open in it: of what is behind one, nothing can be said. One at the source is no matter."""
    there = Endpoint(alias="b", bootstrap=())
    request = AuditRequest(flow="a->b", source=there, destination=there, topics=("t",))
    adopted = {TopicPartition("t", at): Adopted(9, 2, committed=False) for at in range(3)}
    undecided = [
        Undecided(Side.DESTINATION, "t", 0, Span(5, 20)),
        Undecided(Side.SOURCE, "t", 1, Span(5, 20)),
        Undecided(Side.DESTINATION, "t", 2, Span(15, 20)),
    ]
    assert decided(adopted, undecided, request) == adopted | {TopicPartition("t", 0): Adopted(5, 2, committed=False)}


@pytest.mark.broker
def test_decisions_of_the_audited_partitions(destination_cluster: SandboxCluster, topic_name: str) -> None:
    """
    1. The flow has no internal topic: nothing was decided, as far as is known.
    2. Ranges are written down: those of audited partitions are told, in words; not one of another destination topic.
    3. A topic that is no internal topic: that is told, instead of nothing.

    What was adopted counts if that was of these very topics, and if offsets are the source's.
    """
    flow, there = f"a->{topic_name}", endpoint(destination_cluster, "b")
    request = AuditRequest(flow=flow, source=there, destination=there, topics=("t",))
    audited = [Bounds(topic="t", partition=index, source=Span(0, 9), destination=Span(0, 9)) for index in range(2)]
    asyncio.run(_decisions(destination_cluster, flow, there, request, audited))


async def _decisions(
    sandbox: SandboxCluster, flow: str, there: Endpoint, request: AuditRequest, audited: list[Bounds]
) -> None:
    async with await Cluster.open("b", cluster_options(there)) as cluster:
        assert await skipped(cluster, audited, request) == Decisions()
        state = InternalTopic(cluster, flow)
        await state.open()
        sides = (Subject("t", 1, "t"), Subject("t", 2, "t"), Subject("t", 0, "renamed"))
        written, *others = (Written(subject=side, start=3, end=5, cause="on.gap", at_ms=0) for side in sides)
        await state.save([written, *others])
        assert await skipped(cluster, audited, request) == Decisions(
            (
                SkippedRange(
                    "t", 1, Span(3, 5), "could not be copied; going on without them was accepted", written.at_ms
                ),
            )
        )
        ids = {"t": "1" * 32}, {"t": "2" * 32}
        of_now, of_another = (
            PassedOverOffsets(
                subject=Subject("t", 1, "t"), writer="w", offsets=(offset, offset + 4), leader_epoch=0,
                source_id="1" * 32, destination_id=there, cause="oversize", at_ms=0,
            )
            for offset, there in ((3, "2" * 32), (4, "3" * 32))
        )  # fmt: skip
        await state.save([of_now, of_another])
        passed = (await skipped(cluster, audited, request, ids)).passed
        words = "records too large for the destination; dropped, as the configuration says"
        assert passed == {TopicPartition("t", 1): {3: words, 7: words}}
        create(sandbox, state_topic(f"{flow}-2"), cleanup_policy="delete")
        pins = (
            Pin(subject=Subject("t", at, "t"), source_id="1" * 32, destination_id=there, adopted=7, adopted_epoch=3)
            for at, there in ((0, "2" * 32), (1, "3" * 32))
        )
        await state.save([*pins, pinned(2)])
        found = await skipped(cluster, audited, request, ids)
        assert found.adopted == {TopicPartition("t", 0): Adopted(7, 3, committed=True)}
        uncommitted = replace(request, isolation_level="read_uncommitted")
        assert (await skipped(cluster, audited, uncommitted, ids)).adopted == {
            TopicPartition("t", 0): Adopted(7, 3, committed=False)
        }
        assert (await skipped(cluster, audited, replace(request, offsets="mapped"), ids)).adopted == {}
        await state.save([pinned(0)])
        assert (await skipped(cluster, audited, request, ids)).adopted == {}
        other = AuditRequest(flow=f"{flow}-2", source=there, destination=there, topics=("t",))
        found = await skipped(cluster, audited, other)
        assert found.ranges == ()
        assert "whether offsets were skipped or taken on trust, or were there before the flow, is not known" in (
            found.unknown
        )
        assert found.adopted == {}
