"""What this process and others know of a copy that the destination cannot show any more, and of which topic they do."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.coordinator import Ownership
from mirror.offsetmap.entries.pins import LastCopied
from mirror.relay.durable.pins import Pins
from mirror.relay.locate.owners import Owners
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from tests.fakes.loop import until
from tests.fakes.state import MemoryState
from tests.records.builders import raw_batch
from tests.relay.stage.flows import Flow, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, empty, ledger, noted, recreate


def look_again(flow: Flow) -> Partition:
    """Its position is not certain, and the destination's log empty."""
    partition = flow.partition()
    empty(flow.destination)
    flow.relay.doubt_now(partition, "test", "")
    return partition


async def test_what_was_acknowledged_here_counts() -> None:
    """Also in the middle of a record set, of whose last batch there is no acknowledgement: it goes on."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            flow.partition().cursor.marks.clear()
            partition = look_again(flow)
            await until(lambda: partition.phase in (Phase.ACTIVE, Phase.HALTED))
            assert (partition.queue.acknowledged, partition.halted) == (60, None)


@pytest.mark.parametrize("recalled", [True, False])
async def test_what_others_have_written_down_since_counts(recalled: bool) -> None:
    """
    1. Another owner has noted what was copied last, behind this one's back; this one remembers nothing.
    2. It reads what is written down before it says that nothing is known; without that, healthy data halts.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            flow.partition().cursor.forget_source()
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            await MemoryState(destination.remembered).put(replace(pin, copied=LastCopied(60, 0)))
            with patch.object(Pins, "recall", Pins.recall if recalled else _nothing):
                partition = look_again(flow)
                await until(lambda: partition.phase in (Phase.ACTIVE, Phase.HALTED))
            assert (partition.halted is None) == recalled


async def _nothing(*_: Any) -> None:
    """Is read."""


async def test_nothing_copied_is_known_once_the_log_stands_still() -> None:
    """The source was made anew before anything was copied, as it seems: a predecessor's first batch is on its way."""
    take_over = Owners.take_over

    async def late(self: Owners, partition: Partition) -> Ownership | None:
        destination.log("t").produce(raw_batch(b"late", base_offset=0))
        return await take_over(self, partition)

    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination) as flow:
            await until(lambda: FIRST in flow.relay.partitions and flow.partition().phase is Phase.ACTIVE)
        recreate(source, *batches(3))
        with patch.object(Owners, "take_over", late):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "recreated"


async def test_a_resumed_partition_knows_nothing_of_the_new_topic() -> None:
    """The source was made anew while this process ran, and an operator resumes: what it remembers of the topic before
    neither proves nor disproves anything."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
            recreate(source, *batches(30))
            empty(destination)
            assert await flow.halted() == "recreated"
            assert await flow.relay.resume(FIRST) == ""
            assert await flow.halted() == "unproven"
