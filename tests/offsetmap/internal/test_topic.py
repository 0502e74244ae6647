"""The internal topic, mostly on a real broker: what is saved is there for the next life, and for other workers."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, NotSent, Refused, Unreachable
from mirror.offsetmap.entries.checkpoint import Checkpoint, SkippedOffsets
from mirror.offsetmap.entries.chunks import MapChunk, Order
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import KeptHalt, Pin
from mirror.offsetmap.internal.batches import BATCH_BYTES
from mirror.offsetmap.internal.memory import StateUnusable, state_topic
from mirror.offsetmap.internal.topic import InternalTopic, Shared
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.records.identity import Identity
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.net.stage.real import create, opened, records
from tests.service.stage.kafka_side import delete_topic

broker = pytest.mark.broker
ORDER = Order(1, 2000, 0)


def checkpoint(partition: int, source: int, writer: str = "a") -> Checkpoint:
    return Checkpoint(
        subject=Subject("t", partition, "t"),
        writer=writer,
        order=ORDER,
        source_offset=source,
        source_epoch=0,
        destination_offset=source,
        identity=Identity(2000, 0, source),
    )


@asynccontextmanager
async def state(sandbox: SandboxCluster, flow: str, *, lean: bool = False) -> AsyncIterator[InternalTopic]:
    """Opened, over connections of its own."""
    async with opened(sandbox) as cluster:
        found = InternalTopic(cluster, flow, lean=lean)
        assert await found.open()
        yield found


@broker
async def test_what_is_saved_is_there_for_the_next_life(destination_cluster: SandboxCluster, topic_name: str) -> None:
    """The last of each key, in the order written, also what takes several batches; and what is forgotten is not."""
    flow = f"{topic_name}->there"
    runs = [Run(at * 1000, at * 10_000, 500) for at in range(1000)]
    chunks = [
        MapChunk(subject=Subject("t", 0, "t"), writer=writer, order=ORDER, number=0, since=0, map=OffsetMap(runs))
        for writer in ("a", *(f"w{at}" for at in range(1, 50)))
    ]
    assert sum(len(one.value()) for one in chunks) > 2 * BATCH_BYTES
    async with state(destination_cluster, flow) as first:
        assert first.topic == f"mirror-internal.{topic_name}_to_there"
        await first.save([checkpoint(0, 1), *chunks])
        await first.save([checkpoint(0, 2), checkpoint(1, 5)])
        await first.save([], forget=[one.key() for one in chunks[1:]])
        skipped = SkippedOffsets(subject=Subject("t", 1, "t"), start=3, end=9, cause="unexplained_gap", at_ms=7)
        await first.save([skipped])
    async with state(destination_cluster, flow) as second:
        ledger = second.ledger
        assert ledger.checkpoints(Subject("t", 0, "t")) == [checkpoint(0, 2)]
        assert ledger.checkpoint(Subject("t", 1, "t")) == checkpoint(1, 5)
        assert ledger.chunks(Subject("t", 0, "t")) == [chunks[0]]
        assert ledger.map(Subject("t", 0, "t")) == OffsetMap(runs)
        assert list(ledger.skipped()) == [skipped]


@broker
@pytest.mark.parametrize("rule", [True, False])
async def test_a_topic_that_no_cluster_can_have(
    destination_cluster: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """Nothing is written down about it. If it was once, whoever reads it passes over it: it kept a flow from starting,
    with all its other topics."""
    if not rule:
        monkeypatch.setattr("mirror.offsetmap.internal.topic._can_be", lambda _: True)
    flow = f"{topic_name}->there"
    long = Subject("t" * 249, 0, "west." + "t" * 249)
    halted = KeptHalt(subject=long, reason="invalid_topic", detail="", remedy="", at_ms=1)
    pin = Pin(subject=long, source_id="ab" * 16, destination_id=None)
    async with state(destination_cluster, flow) as first:
        await first.save([halted, pin, checkpoint(0, 2)])
        assert (first.ledger.halt(long) is None) is rule
    async with state(destination_cluster, flow) as second:
        assert (second.ledger.pin(long) is None) is rule
        found = second.ledger.checkpoint(Subject("t", 0, "t"))
        assert found is not None
        assert found.source_offset == 2


@broker
async def test_what_others_write_meanwhile_is_seen_at_the_next_load(
    destination_cluster: SandboxCluster, topic_name: str
) -> None:
    async with state(destination_cluster, topic_name) as one, state(destination_cluster, topic_name) as other:
        await one.save([checkpoint(0, 7)])
        assert other.ledger.checkpoint(Subject("t", 0, "t")) is None
        await other.load()
        assert other.ledger.checkpoint(Subject("t", 0, "t")) == checkpoint(0, 7)


@broker
async def test_it_can_be_looked_for_without_being_created(destination_cluster: SandboxCluster, topic_name: str) -> None:
    async with opened(destination_cluster) as cluster:
        assert not await InternalTopic(cluster, topic_name).open(create=False)
        await cluster.refresh(None)
        assert state_topic(topic_name) not in cluster.topics


@broker
async def test_a_topic_that_forgets_is_refused(destination_cluster: SandboxCluster, topic_name: str) -> None:
    create(destination_cluster, state_topic(topic_name), cleanup_policy="delete")
    async with opened(destination_cluster) as cluster:
        with pytest.raises(StateUnusable, match=r"cleanup\.policy=delete"):
            await InternalTopic(cluster, topic_name).open()


@broker
async def test_records_of_others(destination_cluster: SandboxCluster, topic_name: str) -> None:
    """Under keys of their own they do no harm; under ours, nothing that is there can be trusted."""
    async with state(destination_cluster, topic_name) as found:
        await found.save([checkpoint(0, 7)])
        records(destination_cluster, found.topic, ["no key"], key="theirs")
        await found.load()
        assert found.ledger.checkpoint(Subject("t", 0, "t")) == checkpoint(0, 7)
        records(destination_cluster, found.topic, ["not ours"], key=checkpoint(0, 7).key().decode())
        with pytest.raises(StateUnusable, match="nobody but a mirror"):
            await found.load()


@broker
async def test_a_topic_made_anew_says_nothing(destination_cluster: SandboxCluster, topic_name: str) -> None:
    """What was remembered went with the old one: it must not be mixed with what the new one says."""
    async with state(destination_cluster, topic_name) as found:
        await found.save([checkpoint(0, 7)])
        delete_topic(destination_cluster.bootstrap_servers, found.topic)
        create(destination_cluster, found.topic, cleanup_policy="compact")
        await found.load()
        assert found.ledger.subjects == []


@broker
async def test_without_the_topic_there_is_an_error_in_the_end(source_cluster: SandboxCluster, topic_name: str) -> None:
    async with opened(source_cluster) as cluster:
        cluster.options = type(cluster.options)(bootstrap=cluster.options.bootstrap, backoff_ms=1, backoff_max_ms=2)
        with pytest.raises(Unreachable, match=state_topic(topic_name)):
            await InternalTopic(cluster, topic_name).load()


@broker
async def test_many_partitions_share_their_batches_and_loads(
    destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """A thousand pins at once make a few batches; a thousand loads read them once."""
    pins = [Pin(subject=Subject("t", at, "t"), source_id="ab" * 16, destination_id=None) for at in range(1000)]
    async with state(destination_cluster, topic_name) as one, state(destination_cluster, topic_name) as other:
        await asyncio.gather(*(one.put(pin) for pin in pins))
        end = await one._log().true_end()
        assert end == len(pins)
        segment = await one._log().read(0, max_bytes=1 << 24)
        assert len(segment.batches) <= 4
        await asyncio.gather(*(other.load() for _ in pins))
        assert [other.ledger.pin(pin.subject) for pin in pins] == pins


async def test_what_is_shared_began_after_it_was_asked_for() -> None:
    """
    1. Ten ask while a turn is under way: one more turn, for all of them.
    2. It fails: all of them are told, and whoever asks later has a turn of its own.
    3. One who waits gives up: the others do not.
    """
    turns = 0
    failing = asyncio.Event()
    gate = asyncio.Event()

    async def work() -> None:
        nonlocal turns
        turns += 1
        await gate.wait()
        await asyncio.sleep(0)
        if failing.is_set():
            raise NetworkError("lost")

    shared = Shared(work)
    first = asyncio.create_task(shared.run())
    await asyncio.sleep(0)
    rest = [asyncio.create_task(shared.run()) for _ in range(10)]
    await asyncio.sleep(0)
    rest[0].cancel()
    gate.set()
    await first
    await asyncio.gather(*rest[1:])
    assert turns == 2
    failing.set()
    results = await asyncio.gather(*(shared.run() for _ in range(3)), return_exceptions=True)
    assert [str(one) for one in results] == ["lost"] * 3
    assert turns == 4
    failing.clear()
    await shared.run()
    assert turns == 5


@pytest.mark.parametrize("given_up", [{"b"}, {"a"}, {"c"}, {"a", "c"}, {"b", "c"}, {"a", "b", "c"}])
async def test_what_its_caller_gave_up_is_not_written_later(given_up: set[str]) -> None:
    """
    1. A pin is to be written, and two more while that waits: for a broker, or for another write.
    2. Some callers give up (a partition that was taken away), whether it is theirs to write or not.
    3. Only the other pins are written, also when somebody writes again: a later owner may have written another by then.
    """
    pins = {each: Pin(subject=Subject(each, 0, "t"), source_id="ab" * 16, destination_id=None) for each in "abcd"}
    async with FakeCluster() as fake, await Cluster.open("destination", fake.options()) as cluster:
        topic = InternalTopic(cluster, "west->east")
        assert await topic.open()
        async with topic._lock:
            puts = {each: asyncio.create_task(topic.put(pins[each])) for each in "abc"}
            for each in "abc":
                if each in given_up:
                    await asyncio.sleep(0)
                    puts[each].cancel()
            await asyncio.sleep(0)
        ended = await asyncio.gather(*puts.values(), return_exceptions=True)
        assert [one is None for one in ended] == [each not in given_up for each in "abc"]
        await topic.put(pins["d"])
        written = {each for each in "abcd" if topic.ledger.pin(pins[each].subject)}
        assert written == {*"abcd"} - given_up


async def test_nor_what_is_given_up_while_it_waits_for_another_write() -> None:
    """Two pins go together, and wait for another write. Both callers give up, first the one that does not write."""
    pins = {each: Pin(subject=Subject(each, 0, "t"), source_id="ab" * 16, destination_id=None) for each in "abcd"}
    async with FakeCluster() as fake, await Cluster.open("destination", fake.options()) as cluster:
        topic = InternalTopic(cluster, "west->east")
        assert await topic.open()
        for writes in (True, False):
            await topic._lock.acquire()
            first = asyncio.create_task(topic.put(pins["a"]))
            await asyncio.sleep(0)
            another = asyncio.create_task(topic._lock.acquire())
            puts = {each: asyncio.create_task(topic.put(pins[each])) for each in "bc"}
            await asyncio.sleep(0)
            topic._lock.release()
            await first
            await another
            await asyncio.sleep(0)
            assert not topic._waiting, "they were taken together"
            puts["c"].cancel()
            if not writes:
                await asyncio.sleep(0)
                puts["b"].cancel()
            await asyncio.sleep(0)
            topic._lock.release()
            await asyncio.gather(*puts.values(), return_exceptions=True)
            await topic.put(pins["d"])
            written = {each for each in "abcd" if topic.ledger.pin(pins[each].subject)}
            assert written == ({*"abd"} if writes else {*"ad"})
            await topic.save((), forget=[each.key() for each in pins.values()])


async def test_it_is_asked_before_each_try_whether_it_may_be_written() -> None:
    """
    1. A halt that may be written: a try that fails is not repeated by itself, since nobody has been asked anew.
    2. It waits for another write, and may not be written any more when its turn comes: it is not sent.
    3. What nobody asks about is repeated, as ever.
    """
    subject = Subject("t", 0, "t")
    halt = KeptHalt(
        subject=subject, reason="corrupt", detail="", remedy="", at_ms=1, source_id=None, destination_id=None
    )
    pin = Pin(subject=subject, source_id="ab" * 16, destination_id=None)
    async with FakeCluster() as fake, await Cluster.open("destination", fake.options()) as cluster:
        topic = InternalTopic(cluster, "west->east")
        assert await topic.open()
        allowed, asked = True, 0

        def may() -> bool:
            nonlocal asked
            asked += 1
            return allowed

        fake.next("Produce", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(Refused):
            await topic.save([halt], may=may)
        assert (asked, len(fake.seen("Produce"))) == (1, 1)
        async with topic._lock:
            waits = asyncio.create_task(topic.save([halt], may=may))
            await asyncio.sleep(0)
            allowed = False
        with pytest.raises(NotSent):
            await waits
        assert (asked, len(fake.seen("Produce"))) == (2, 1)
        assert topic.ledger.halt(subject) is None
        fake.next("Produce", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await topic.save([pin])
        assert len(fake.seen("Produce")) == 3
        allowed = True
        await topic.save([halt], may=may)
        assert topic.ledger.halt(subject) == halt


async def test_an_id_that_appears_is_of_the_same_topic() -> None:
    """
    1. The cluster is upgraded across 2.8 while the mirror runs: nothing is lost. Nor if an older broker tells none.
    2. Another id is another topic, whichever was told last.
    """
    pin = Pin(subject=Subject("t", 0, "t"), source_id="ab" * 16, destination_id=None)
    async with FakeCluster() as fake, await Cluster.open("destination", fake.options()) as cluster:
        topic = InternalTopic(cluster, "west->east")
        assert await topic.open()
        known, first = fake.topics[topic.topic], fake.topics[topic.topic].topic_id
        known.topic_id = None
        topic._topic_id = None
        await topic.load()
        await topic.save([pin])
        await topic.load()
        for topic_id in (first, None, first):
            known.topic_id = topic_id
            fetches = len(fake.seen("Fetch"))
            await topic.look()
            await topic.save([pin])
            assert topic.lost is None
            assert topic.ledger.pin(pin.subject) == pin
            assert len(fake.seen("Fetch")) == fetches
        known.topic_id = None
        await topic.look()
        known.topic_id = uuid.uuid4()
        await topic.look()
        assert topic.lost is not None
