"""Two things happen to a partition at the same time."""

import pytest

from mirror.reasons import HaltReason
from mirror.relay.halts import Halted
from mirror.relay.life.tasks import Tasks
from mirror.relay.partition.phases import Phase
from tests.fakes import faults
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import batch, batches, clusters, fill, mirroring
from tests.relay.topics.test_verdicts import set_config
from tests.simulation.model.broker import marker_batch


async def halted_while_it_is_located() -> None:
    """The destination topic gets LogAppendTime while the partition is located, and its log's end is not answered. A
    look for topics halts it; at the next one, the topic is as it was, and the partition goes on."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination, rewrites=True) as flow:
            await flow.copied()
            held = destination.next("ListOffsets", faults.held())
            flow.relay.doubt_now(flow.partition(), "test", "as after a lost connection")
            await held.came.wait()
            assert flow.partition().phase is Phase.LOCATING
            set_config(destination, "message.timestamp.type", "LogAppendTime")
            await flow.relay.find_topics()
            assert await flow.halted() == HaltReason.DESTINATION_REWRITES.slug
            set_config(destination, "message.timestamp.type", "CreateTime")
            await flow.relay.find_topics()
            await some_turns()
            assert len(flow.relay.tasks._working[flow.partition()]) == 1, "it is located once"
            held.open()
            source.store("t", 0, batch(15))
            await flow.copied()


async def test_halted_while_it_is_located(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: what locates it goes on, beside what locates it once it is healed."""
    await halted_while_it_is_located()
    monkeypatch.setattr(Tasks, "cancel", lambda self, partition: None)
    with pytest.raises(AssertionError, match="it is located once"):
        await halted_while_it_is_located()


async def test_given_back_while_a_divergence_is_looked_at() -> None:
    """What waits behind a hole is given back (as ``holes.parking`` does). The partition is fetched again."""
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination, rewrites=True) as flow:
            await flow.copied()
            cursor = flow.partition().cursor
            held = source.next("Fetch", faults.held())
            flow.relay.diverged(flow.partition(), Halted.of(HaltReason.SOURCE_TRUNCATED, "as its leader says"))
            cursor.rewind(cursor.due, cursor.identity, None)
            held.open()
            await until(lambda: not cursor.looking)
            source.store("t", 0, *batches(2, first=6))
            await flow.copied()


async def test_markers_that_arrive_behind_those_that_were_written_again() -> None:
    """The answer to markers is lost, and they are written again. Those of the first time come now: with the same
    coordinator epoch, they would take an offset that is a record's."""
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination, rewrites=True) as flow:
            await flow.copied()
            destination.next("WriteTxnMarkers", faults.refuse(7, only=("t", 0)))  # not done, as far as is seen
            source.store("t", 0, marker_batch(6, 77, 0, leader_epoch=0))
            await until(lambda: flow.partition().queue.acknowledged == 7)
            first, *_, last = (sent.request.markers[0] for sent in destination.seen("WriteTxnMarkers"))
            assert first.coordinator_epoch < last.coordinator_epoch
            late = first.producer_id, first.producer_epoch, first.coordinator_epoch
            assert destination.log("t").write_marker(*late) != 0
            assert destination.log("t").end == 7
