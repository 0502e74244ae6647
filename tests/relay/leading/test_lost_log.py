"""A destination that has lost the whole log of a partition, at scripted clusters: filler replaces nothing that was
copied."""

import pytest

from mirror.relay.partition.phases import Phase
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, clusters, fill, mirroring

END = 12


async def copied(flow: Flow, upto: int) -> None:
    """Waits until the copy is complete, and a note of it is written."""
    await until(lambda: flow.partition().queue.acknowledged == upto)
    assert await flow.relay.drain()
    await flow.relay.durable.write_down()


@pytest.mark.parametrize("left", [0, 3])
async def test_what_was_copied_is_not_taken_for_filler(left: int) -> None:
    """
    1. All is copied. While the mirror is stopped, the destination loses the log, and the source deletes its first
       records. What lay before them is nowhere any more.
    2. The next start says so, and fills nothing: neither does one after it.
    """
    async with clusters() as (source, destination):
        fill(source, count=4)
        async with mirroring(source, destination) as flow:
            await copied(flow, END)
        destination.log("t").truncate(left)
        source.log("t").delete_before(6)
        for _ in range(2):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "retention_overtook"
                halted = flow.partition().halted
                assert halted is not None
                assert ("delete the topic there and resume" in halted.detail) is (not left)
            assert destination.log("t").end == left


async def test_a_topic_that_was_deleted_by_its_operator() -> None:
    """It is another one, by its id: the copy begins where the source begins now."""
    async with clusters() as (source, destination):
        fill(source, count=4)
        async with mirroring(source, destination) as flow:
            await copied(flow, END)
        destination.add_topic("t")
        source.log("t").delete_before(6)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "recreated"
            assert await flow.relay.resume(("t", 0)) == ""
            await until(lambda: flow.partition().phase is Phase.ACTIVE)
            await until(lambda: flow.partition().queue.acknowledged == END)
        assert (destination.log("t").start, destination.log("t").end) == (6, END)
        assert destination.log("t").batches[-1][61:] == source.log("t").batches[-1][61:]
