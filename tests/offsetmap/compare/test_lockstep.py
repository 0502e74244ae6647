"""Two real logs side by side: the flow's batches among those of others, a source with holes, and what does not fit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.compare.alignment import Differs
from mirror.offsetmap.compare.lockstep import LockStep, Originals, StandingBatch, lost_from
from mirror.offsetmap.runs import Run
from mirror.records.header import HEADER_SIZE, TRANSACTIONAL
from mirror.records.identity import MIRROR_BIT, Identity
from mirror.records.restamp import restamp
from mirror.sandbox import SandboxCluster
from tests.fakes.broker import FakeCluster
from tests.net.stage.real import create, log_of, opened, records, transaction
from tests.records.builders import raw_batch, sealed

pytestmark = pytest.mark.broker
OWN = MIRROR_BIT | 7 << 16
FIRST = Identity(OWN, 0, 0)


class Pair:
    """A topic on both sides, and a hand that copies."""

    def __init__(self, source: PartitionLog, destination: PartitionLog) -> None:
        self.source, self.destination = source, destination
        self.identity = FIRST
        self._originals = Originals(source, 0, committed=True)

    async def copy(self, count: int, *, spoil: bool = False) -> list[StandingBatch]:
        """The next batches of the source; ``spoil`` changes the records, and the checksum with them."""
        copied = []
        for _ in range(count):
            found = await self._originals.next()
            assert found is not None
            await self._put(found, self.identity, spoil=spoil)
            self.identity = self.identity.after(found.header.last_offset_delta + 1)
            copied.append(found)
        return copied

    async def _put(self, found: StandingBatch, identity: Identity, *, spoil: bool) -> None:
        header = restamp(found.header, identity, found.header.attributes & ~TRANSACTIONAL)
        batch = header.pack() + bytes(found.batch[HEADER_SIZE:])
        await self.destination.produce(sealed(batch.replace(b"value", b"VALUE")) if spoil else batch)

    def step(self, source: int = 0, destination: int = 0, **changes: object) -> LockStep:
        fields = {"identity": FIRST, "own": {OWN}, "committed": True} | changes
        return LockStep(
            self.source,
            self.destination,
            source_offset=source,
            destination_offset=destination,
            **fields,  # type: ignore[arg-type]
        )


@asynccontextmanager
async def pair(source: SandboxCluster, destination: SandboxCluster, topic: str) -> AsyncIterator[Pair]:
    """Both with the topic, and ``fill`` at the source."""
    for sandbox in (source, destination):
        create(sandbox, topic)
    await asyncio.to_thread(fill, source, topic)
    async with opened(source) as here, opened(destination) as there:
        yield Pair(await log_of(here, topic), await log_of(there, topic))


def fill(sandbox: SandboxCluster, topic: str) -> None:
    """Seven offsets of data and four of holes: 0-2 data, 3-4 aborted, 5 marker, 6-7 committed, 8 marker, 9-10 data."""
    records(sandbox, topic, ["value 0", "value 1", "value 2"])
    transaction(sandbox, topic, ["aborted 3", "aborted 4"], commit=False, transactional_id=topic)
    transaction(sandbox, topic, ["value 6", "value 7"], commit=True, transactional_id=topic)
    records(sandbox, topic, ["value 9", "value 10"])


async def found(step: LockStep, end: int) -> int:
    """Batches up to there, settled."""
    count = await step.advance(end)
    step.decide()
    return count


async def test_batches_of_others_and_holes_of_the_source_are_passed_over(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. Others write 4, the flow copies a batch, others write 1, the flow copies the rest.
    2. The map has what is on both sides, in as few runs as can be; position and identity go on behind it.
    3. More comes on both sides: it is found when it is looked at again, from there on.
    """
    async with pair(source_cluster, destination_cluster, topic_name) as both:
        records(destination_cluster, topic_name, ["other"] * 4)
        await both.copy(1)
        records(destination_cluster, topic_name, ["other"])
        await both.copy(2)
        step = both.step()
        assert await found(step, await both.destination.visible_end()) == 3
        assert list(step.map) == [Run(0, 4, 3), Run(6, 8, 2), Run(9, 10, 2)]
        assert (step.source_offset, step.destination_offset, step.identity) == (11, 12, both.identity)
        assert step.source_epoch == 0
        assert await step.next_of_source() is None
        records(source_cluster, topic_name, ["value 11"])
        following = await step.next_of_source()
        assert following is not None
        assert following.header.base_offset == 11
        await both.copy(1)
        assert await found(step, await both.destination.visible_end()) == 1
        assert list(step.map)[-1] == Run(9, 10, 3)
        later = both.step(6, 8, identity=Identity(OWN, 0, 3))
        assert await found(later, 13) == 3
        assert list(later.map) == [Run(6, 8, 2), Run(9, 10, 3)]


async def test_without_isolation_aborted_data_is_copied_too(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    async with pair(source_cluster, destination_cluster, topic_name) as both:
        both._originals = Originals(both.source, 0, committed=False)
        await both.copy(4)
        step = both.step(committed=False)
        assert await found(step, 9) == 4
        assert list(step.map) == [Run(0, 0, 5), Run(6, 5, 2), Run(9, 7, 2)]


async def test_what_is_no_copy_is_told(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. Under another first identity the copies do not begin where they have to: offsets are gone, or repeated.
    2. A batch that differs in its records alone.
    3. A batch that the source does not have.
    """
    async with pair(source_cluster, destination_cluster, topic_name) as both:
        await both.copy(1)
        with pytest.raises(Differs, match="repeats"):
            await both.step(identity=Identity(OWN, 0, 5)).advance(3)
        with pytest.raises(Differs, match="differs"):
            await both.step(source=6, identity=FIRST).advance(3)
        with pytest.raises(Differs, match="none from 11 on"):
            await both.step(source=11, identity=None).advance(3)
        await both.copy(1, spoil=True)
        with pytest.raises(Differs, match=r"offset 3 of .* differs from offset 6 of"):
            await both.step().advance(5)


async def test_copies_that_the_destination_cleaned_away_are_counted_by_their_sequences(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """The first copy is gone (here: deleted, as retention would). What comes next says how much there was before it."""
    async with pair(source_cluster, destination_cluster, topic_name) as both:
        await both.copy(3)
        assert await both.destination.visible_end() == 7
        await both.destination.delete_before(3)
        step = both.step(log_start=3)
        assert await found(step, 7) == 2
        assert list(step.map) == [Run(6, 3, 2), Run(9, 5, 2)]
        with pytest.raises(Differs, match="gone before it"):
            await both.step(log_start=3, source=6).advance(7)


async def test_originals_that_the_source_deleted(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """Copies whose originals retention took are passed over, up to the first that the source still has."""
    async with pair(source_cluster, destination_cluster, topic_name) as both:
        await both.copy(3)
        await both.source.delete_before(6)
        step = both.step(source_start=6)
        assert await found(step, 7) == 3
        assert (step.alignment.passed, step.alignment.overtaken) == (1, False)
        assert list(step.map) == [Run(6, 3, 2), Run(9, 5, 2)]
        await both.source.delete_before(11)
        step = both.step(source_start=11)
        assert await found(step, 7) == 3
        assert (step.alignment.passed, step.alignment.overtaken) == (3, True)
        assert (step.source_offset, step.identity) == (7, both.identity)


async def test_a_destination_that_lost_its_end_is_seen(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """By its end; and when others have written there since, by whose batch stands in that place."""
    async with pair(source_cluster, destination_cluster, topic_name) as both:
        await both.copy(2)
        records(destination_cluster, topic_name, ["other"] * 2)
        assert not await lost_from(both.destination, 0, {OWN}, 7)
        assert not await lost_from(both.destination, 5, {OWN}, 7)
        assert await lost_from(both.destination, 7, {OWN}, 7)
        assert await lost_from(both.destination, 8, {OWN}, 7)
        await both.destination.delete_before(7)
        assert not await lost_from(both.destination, 5, {OWN}, 7)


async def test_a_destination_that_shows_less_than_before() -> None:
    """What is behind is there, and cannot be read now: nothing is concluded. If all is to be read, a log cleaner has
    removed what stood there. Mutation: the look ends at an answer without batches."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *(raw_batch(bytes(9), base_offset=5 * at, producer_id=9) for at in range(3)))
        async with await Cluster.open("fake", fake.options()) as cluster:
            await cluster.refresh(["t"])
            leader = cluster.leader("t", 0)
            assert leader is not None
            log = PartitionLog(cluster, cluster.topics["t"], 0, leader)
            step = Pair(log, log).step()
            fake.log("t").hidden = 10
            with pytest.raises(Unreachable, match="t-0 at fake ends at 15, and is to be read to 5 only"):
                await step.advance(15)
            fake.log("t").hidden = 0
            del fake.log("t").batches[1:]
            assert await step.advance(15) == 0
