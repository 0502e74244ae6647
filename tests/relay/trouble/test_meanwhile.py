"""Two things happen to a partition at the same time."""

import pytest

from mirror.reasons import HaltReason
from mirror.relay.halts import Halted
from mirror.relay.locate.seeking import Seeking
from tests.fakes import faults
from tests.fakes.loop import until
from tests.relay.stage.flows import batch, batches, clusters, fill, mirroring
from tests.relay.topics.test_verdicts import set_config
from tests.simulation.model.broker import marker_batch


async def to_append_times() -> None:
    """The destination topic gets LogAppendTime while one batch is under way. Its answer is doubt, and has the configs
    looked at: that halts the partition, which is being located meanwhile, and finds the same."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination, rewrites=True) as flow:
            await flow.copied()
            set_config(destination, "message.timestamp.type", "LogAppendTime")
            source.store("t", 0, batch(15))
            assert await flow.halted() == HaltReason.DESTINATION_REWRITES.slug
            tasks, failed = flow.relay.tasks, flow.relay.tasks.failed
            assert failed is not None
            await until(lambda: flow.partition() not in tasks._working or failed.done())


async def test_halted_while_it_is_located(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: it halts a second time, and that ends the worker."""
    await to_append_times()
    monkeypatch.setattr(Seeking, "_halt", lambda self, partition, halted: self._relay.halt(partition, halted))
    with pytest.raises(AssertionError, match="halted while halted"):
        await to_append_times()


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
