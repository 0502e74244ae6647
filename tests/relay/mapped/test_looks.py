"""``offsets: mapped``: what happens to the destination, or to the partition, while both logs are looked at."""

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.errors import Refused
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.compare.lockstep import LockStep
from mirror.offsetmap.entries.chunks import MapChunk
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity
from mirror.records.restamp import restamp
from mirror.relay.locate.owners import Owners
from mirror.relay.mapped import copied, fence
from mirror.relay.mapped import locate as mapped
from mirror.relay.mapped.copied import CopiedRuns
from mirror.relay.mapped.fence import Before
from mirror.relay.mapped.reading import Reading
from mirror.relay.mapped.takeover import Takeover
from mirror.relay.outcome import NotOurs
from mirror.wire.errors import ErrorCode
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.fakes.state import MemoryState
from tests.relay.stage.flows import Flow, batch, clusters, fill, mirroring
from tests.relay.stage.noting import SIDE, ledger

END = 60
_settle = Reading.settle
_look_before = fence.look_before
_confirm = Takeover.confirm


def copy_of(original: bytes, identity: Identity) -> bytes:
    """As it is sent."""
    return restamp(BatchHeader.read(original), identity, 0).pack() + original[HEADER_SIZE:]


def landed(destination: FakeCluster, *copies: bytes) -> None:
    """Somebody's requests arrive."""
    for one in copies:
        error, _ = destination.log("t").produce(one)
        assert not error


async def doubted(flow: Flow) -> None:
    """Its position is sought again, until it is found or it halts."""
    flow.relay.doubt_now(flow.partition(), "test", "looked for again")
    await until(lambda: len(flow.log.of("located")) > 1 or flow.log.of("halted"))


@pytest.mark.parametrize("asked", [True, False])
async def test_another_owner_that_comes_while_it_is_settled(asked: bool) -> None:
    """
    1. All is copied, and the position is sought again. While nothing of ours must be on its way, another worker takes
       the partition over, and copies.
    2. The first one goes by that one's batches, and leaves the partition to it.
    3. Else it would go on under the other's identity, which no fence keeps out: both would copy the same.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await flow.copied()
            ours = flow.partition().cursor.identity
            theirs = Identity(ours.producer_id, ours.epoch + 1, 0)

            async def settle(self: Any, step: LockStep) -> None:
                if destination.log("t").end == END:
                    source.store("t", 0, batch(END))
                    landed(destination, copy_of(batch(END), theirs))
                await _settle(self, step)

            def believed(self: Any, step: LockStep, copied: CopiedRuns) -> Identity | None:
                return step.identity

            flow.partition().claim.unsettled = True
            with (
                patch.object(Reading, "settle", settle),
                patch.object(mapped._Look, "_still_ours", mapped._Look._still_ours if asked else believed),
            ):
                await doubted(flow)
            assert ("not_owner" in [line["cause"] for line in flow.log.of("resync")]) is asked


@pytest.mark.parametrize("asked", [True, False])
async def test_what_goes_while_it_is_looked_at_is_known_at_the_next_look(asked: bool) -> None:
    """
    1. The answer to a batch is lost. It arrives behind the first request of the next look, and is deleted before the
       second: what the leader was asked does not have it, and it is not in the log.
    2. Nobody has fenced anything, so the leader is asked once more.
    3. Else the partition halts, and says that the leader remembers nothing.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await flow.copied()
            identity = flow.partition().cursor.identity

            async def look_before(*arguments: Any) -> Before:
                before = await _look_before(*arguments)
                if destination.log("t").end == END:
                    source.store("t", 0, batch(END), batch(END + 3))
                    landed(destination, copy_of(batch(END), identity))
                    destination.log("t").delete_before(END + 3)
                return before

            gone_to = LockStep.gone_to if asked else _gone_to_but_at_first()
            with patch.object(mapped, "look_before", look_before), patch.object(LockStep, "gone_to", gone_to):
                await doubted(flow)
            if not asked:
                assert await flow.halted() == "checkpoint_behind"
                return
            await until(lambda: flow.partition().queue.acknowledged == END + 6)
            assert "has gone while it was looked at" in flow.log.of("position_unknown")[-1]["detail"]
            log = destination.log("t")
            assert (log.start, log.end) == (END + 3, END + 6)


async def test_what_an_account_replaces_goes_when_it_is_confirmed() -> None:
    """
    1. All is copied. The next worker writes down its account, and has lost the partition by then.
    2. It counts for nothing; so the one that it would have replaced is there still, with its map.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await flow.copied()
            assert await flow.relay.drain()
        (before,) = ledger(destination).checkpoints(SIDE)
        seen: list[tuple[set[str], list[MapChunk]]] = []

        async def confirm(self: Any) -> None:
            if not seen:
                accounts = ledger(destination)
                seen.append(({one.writer for one in accounts.checkpoints(SIDE)}, accounts.chunks(SIDE)))
                raise NotOurs("t-0")
            await _confirm(self)

        with patch.object(Takeover, "confirm", confirm):
            async with mirroring(source, destination, mapped=True) as flow:
                await flow.copied()
        ((writers, chunks),) = seen
        assert before.writer in writers
        assert len(writers) == 2
        assert before.writer in {one.writer for one in chunks}
        assert before.writer not in {one.writer for one in ledger(destination).checkpoints(SIDE)}


@pytest.mark.parametrize("asked", [True, False])
async def test_the_next_owner_is_not_fenced(asked: bool) -> None:
    """
    1. A worker has fenced its predecessor, and finds an account of another producer id: an older one, or that of an
       owner who came since.
    2. It writes a marker for that id only if the partition is its own still. A leader forgets by a marker what the
       owner has written, and nobody has noted it.
    """
    calls: list[str] = []

    async def owns(*_: object) -> bool:
        calls.append("owns")
        return len(calls) > 1

    async def write_markers(*_: object) -> None:
        calls.append("markers")
        raise Refused("WriteTxnMarkers", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    async def unasked(*_: object) -> None:
        """It fences whatever it finds."""

    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await flow.copied()
            assert await flow.relay.drain()
        another_id(destination)
        with (
            patch.object(Owners, "owns", owns),
            patch.object(PartitionLog, "write_markers", write_markers),
            patch.object(Takeover, "_check_owner", Takeover._check_owner if asked else unasked),
        ):
            async with mirroring(source, destination, mapped=True) as flow:
                await flow.copied()
        assert "markers" in calls
        assert (calls[0] == "owns") is asked


def another_id(destination: FakeCluster) -> None:
    """The checkpoints are of a producer id that the coordinator gave."""
    for at, (key, value) in enumerate(destination.remembered):
        if value is not None and json.loads(key)["kind"] == "checkpoint":
            fields = json.loads(value)
            fields["own"] = [*fields["own"], 4711]
            fields["identity"][0] = 4711
            destination.remembered[at] = key, json.dumps(fields).encode()


def _gone_to_but_at_first() -> Callable[[LockStep, int], int]:
    """When it is asked for the first time, nothing has gone."""
    asked: list[int] = []
    gone_to = LockStep.gone_to

    def first_none(self: LockStep, end: int) -> int:
        asked.append(end)
        return gone_to(self, end) if len(asked) > 1 else 0

    return first_none


@pytest.mark.parametrize(("ahead", "ours"), [(-1, True), (0, True), (1, False)])
async def test_only_a_later_epoch_is_somebody_else_s(ahead: int, ours: bool) -> None:
    """A leader that has lost what it had last remembers an earlier one of ours."""
    looked: list[int] = []

    async def look(there: Any, log: Any) -> Before:
        before = await _look_before(there, log)
        known = [one._replace(epoch=one.epoch + ahead) for one in before.known or ()]
        looked.append(len(known))
        return before._replace(known=known) if len(looked) == 1 else before

    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await flow.copied()
            with patch.object(mapped, "look_before", look):
                await doubted(flow)
            causes = [line["cause"] for line in flow.log.of("resync")]
    assert looked[0]
    assert causes == ["test", *([] if ours else ["not_owner"])]


@pytest.mark.parametrize("waits", [True, False])
async def test_a_map_that_cannot_be_written_holds_the_partition_up(waits: bool) -> None:
    """
    1. The internal topic takes no more, and the source goes on. Each range that its cleaner has taken costs a run of
       the map: as many as may wait in memory, or more, are yet to be written down.
    2. The partition waits. When the topic takes entries again, it goes on, and the map is whole.
    3. Else it is located by what is in memory, and copies on until the next write fails, and so on.
    """

    def sparse(first: int, count: int) -> list[bytes]:
        return [batch(10 * at, 3) for at in range(first, first + count)]

    def all_sent_or_waiting(flow: Flow, end: int) -> bool:
        return flow.partition().queue.acknowledged == end or bool(flow.log.of("position_unknown"))

    refused = asyncio.Event()
    save = MemoryState.save

    async def maybe(self: MemoryState, *arguments: Any, **rest: Any) -> None:
        if refused.is_set():
            raise Refused("destination: Produce", ErrorCode.NOT_ENOUGH_REPLICAS)
        await save(self, *arguments, **rest)

    async with clusters() as (source, destination):
        source.add_topic("t", configs={"cleanup.policy": "compact"})
        source.store("t", 0, *sparse(0, 2))
        with ExitStack() as patches:
            patches.enter_context(patch.object(copied, "CHUNK_RUNS", 2))
            patches.enter_context(patch.object(copied, "UNWRITTEN_CHUNKS", 4))
            patches.enter_context(patch.object(MemoryState, "save", maybe))
            if not waits:
                patches.enter_context(patch.object(mapped.MappedLocator, "_check_written", lambda *_: None))
            async with mirroring(source, destination, mapped=True, checkpoint_interval_ms=50) as flow:
                await until(lambda: flow.partition().queue.acknowledged == 13)
                await flow.relay.durable.write_down()
                refused.set()
                for turn in range(1, 20):
                    source.store("t", 0, *sparse(2 * turn, 2))
                    await until(partial(all_sent_or_waiting, flow, 20 * turn + 13))
                    await flow.relay.durable.write_down()
                waiting = flow.log.of("position_unknown")
                assert bool(waiting) is waits
                assert all("has yet to take its offset map" in each["detail"] for each in waiting)
                kept = flow.partition().queue.copied
                assert kept is not None
                assert kept.open_map.overflows
                assert (len(kept.open_map.unwritten()) < 12) is waits
                refused.clear()
                await until(lambda: flow.partition().queue.acknowledged == 393)
                await flow.relay.durable.write_down()
        assert [run.source for chunk in ledger(destination).chunks(SIDE) for run in chunk.map][-1] == 390


async def test_where_the_copy_begins_changes_with_each_look() -> None:
    """The source deletes all the time, and each look finds that out: it looks a few times, and then waits. It looked
    without an end, and fenced each time."""
    looks = 0

    async def anew(_: object) -> None:
        nonlocal looks
        looks += 1
        assert looks <= mapped.LOOKS

    async with clusters() as (source, destination):
        fill(source)
        with patch.object(mapped._Look, "anew", anew):
            async with mirroring(source, destination, mapped=True, backoff_ms=60_000, backoff_max_ms=60_000) as flow:
                await until(lambda: flow.log.of("position_unknown"))
                assert "changes with each look" in flow.log.of("position_unknown")[0]["detail"]
                assert looks == mapped.LOOKS
