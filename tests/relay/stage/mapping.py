"""A relay with ``offsets: mapped`` between two real clusters, and a comparison of its map with both sides."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from mirror.net.cluster import Cluster
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.compare.lockstep import Originals
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.offsetmap.runs import OffsetMap
from mirror.records.header import HEADER_SIZE
from mirror.relay.partition.claim import Committed
from mirror.relay.relay import Relay
from mirror.sandbox import SandboxCluster
from tests.fakes.loop import until
from tests.net.stage.real import create, log_of, opened
from tests.relay.stage.flows import Log, settings
from tests.service.stage.kafka_side import PATIENCE_S

FLOW = "source->destination"


class MappedFlow(NamedTuple):
    """Both clusters, the relay between them, and its log."""

    source: Cluster
    destination: Cluster
    relay: Relay
    log: Log

    async def copied(self, *topics: str, partition: int = 0) -> None:
        """Waits until everything that the source has now of these topics is at the destination and acknowledged."""
        for topic in topics:
            end = await (await log_of(self.source, topic, partition)).visible_end()

            def done(topic: str = topic, end: int = end) -> bool:
                found = self.relay.partitions.get((topic, partition))
                assert found is None or found.halted is None, found.halted
                return found is not None and found.queue.acknowledged >= end

            await until(done, what=f"{topic} to {end}")

    async def halted(self, topic: str, partition: int = 0) -> str:
        """Waits until the partition halts, and returns the reason."""
        await until(
            lambda: self.relay.partitions[topic, partition].halted, what=f"a halt of {topic}; {self.log.lines[-20:]}"
        )
        halted = self.relay.partitions[topic, partition].halted
        assert halted is not None
        return halted.reason


@asynccontextmanager
async def mapping(
    source: SandboxCluster,
    destination: SandboxCluster,
    *topics: str,
    into: Mapping[str, str] | None = None,
    committed: Committed | None = None,
    reads_committed: bool = True,
    **changes: Any,
) -> AsyncIterator[MappedFlow]:
    """A relay that was started, with its own connections. It ends as by kill -9, with nothing drained, unless the block
    drains it.

    Args:
        source, destination: the clusters.
        topics: the source topics to mirror.
        into: source topic -> destination topic, where the names differ.
        committed: what the group at the source has for partition 0 of each topic.
        reads_committed: True for isolation.level read_committed.
        changes: other settings.
    """
    log = Log()
    rename = dict(into or {})
    usual: dict[str, Any] = {
        "flow": FLOW,
        "mapped": True,
        "committed": reads_committed,
        "selects": lambda name: name in topics,
        "wanted": {name: re.compile(re.escape(name)).fullmatch for name in topics},
        "destination_of": lambda name: rename.get(name, name),
        "settle_ms": 200,
        "backoff_max_ms": 100,
        "checkpoint_interval_ms": 600_000,
    }
    async with opened(source) as here, opened(destination) as there:
        relay = Relay(here, there, settings(**usual | changes), log, assigned=committed is not None)
        try:
            await relay.start()
            if relay.assignment is not None and committed is not None:
                keys = [(topic, 0) for topic in topics]
                relay.assignment.assign(keys, dict.fromkeys(keys, committed))
            yield MappedFlow(here, there, relay, log)
            if relay.tasks.failed is not None and relay.tasks.failed.done():
                relay.tasks.failed.result()
        finally:
            await relay.close()
        assert relay.pool.used == 0, "frames that were not given back"


async def written_map(
    destination: SandboxCluster, topic: str, *, into: str | None = None, partition: int = 0, flow: str = FLOW
) -> OffsetMap:
    """Returns the partition's map in the internal topic."""
    async with opened(destination) as there:
        state = InternalTopic(there, flow)
        assert await state.open(create=False)
        return state.ledger.map(Subject(topic, partition, into or topic))


class Content(NamedTuple):
    """What a batch holds, without who wrote it."""

    length: int
    records: bytes


async def payloads(log: PartitionLog, *, committed: bool = False) -> dict[int, tuple[int, Content]]:
    """Returns base offset -> (producer id, content) of each data batch that a consumer would get."""
    walk = Originals(log, await log.start(), committed=committed)
    found = {}
    while (batch := await walk.next()) is not None:
        header = batch.header
        content = Content(header.last_offset_delta + 1, bytes(batch.batch[HEADER_SIZE:]))
        found[header.base_offset] = (header.producer_id, content)
    return found


async def assert_exact(
    source: SandboxCluster,
    destination: SandboxCluster,
    topic: str,
    found: OffsetMap,
    *,
    into: str | None = None,
    partition: int = 0,
) -> int:
    """Checks that every batch of the source is at the destination once, where the map says, and that the map says
    nothing else.

    Returns:
        The number of the destination's batches that are not of this partition.
    """
    async with opened(source) as here, opened(destination) as there:
        originals = await payloads(await log_of(here, topic, partition), committed=True)
        copies = await payloads(await log_of(there, into or topic, partition))
    own = set()
    for base, (_, content) in originals.items():
        place = found.to_destination(base)
        assert place is not None, base
        assert place.exact, base
        producer, copy = copies.pop(place.offset)
        assert copy == content, (base, place)
        own.add(producer)
        back = found.to_source(place.offset)
        assert back is not None
        assert back == (base, True)
    assert sum(run.length for run in found) == sum(content.length for _, content in originals.values())
    assert not [base for base, (producer, _) in copies.items() if producer in own], "copied twice"
    return len(copies)


async def anew(destination: SandboxCluster, topic: str) -> None:
    """Deletes the internal topic and creates it again, unless the mirror creates it first. So this does not wait until
    its name is gone, which may never happen. The controller does one after the other."""

    def act() -> None:
        admin = AdminClient({"bootstrap.servers": destination.bootstrap_servers})
        for future in admin.delete_topics([topic]).values():
            future.result(PATIENCE_S)
        with suppress(KafkaException):
            create(destination, topic, cleanup_policy="compact")

    await asyncio.to_thread(act)
