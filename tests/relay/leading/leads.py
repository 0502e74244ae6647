"""A partition to lead, on a real broker: a source that begins anywhere, and a new topic."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.internal.memory import Memory
from mirror.records.filler import filler_id
from mirror.records.header import NO_LEADER_EPOCH, BatchHeader
from mirror.records.identity import producer_id
from mirror.relay.leading.cleanup import Cleanup
from mirror.relay.leading.filler import Begun, Lead, lead
from mirror.sandbox import SandboxCluster
from tests.fakes.loop import some_turns
from tests.fakes.state import MemoryState
from tests.net.stage.real import create, log_of, opened
from tests.patience import PATIENT
from tests.records.builders import Record, kafka_batch
from tests.relay.stage.flows import Log

SETTLE_S = 1.0
SOON_S = 30.0
OLD = 1_700_000_000_000
SYNCED = ("cleanup.policy", "retention.ms")


class Source:
    """A source's log, as far as leading looks at it."""

    def __init__(self, start: int, timestamp: int = OLD) -> None:
        self.begin = start
        self.timestamp = timestamp

    async def start(self) -> int:
        return self.begin

    async def batch_at(self, offset: int) -> Any:
        batch = kafka_batch([Record(0, self.timestamp, b"k", b"v")], base_offset=offset)
        return BatchHeader.read(batch), batch


class Leading:
    """One partition to lead."""

    def __init__(
        self,
        sandbox: SandboxCluster,
        cluster: Cluster,
        topic: str,
        source: Source,
        partition: int = 0,
        state: Memory | None = None,
    ) -> None:
        self.sandbox = sandbox
        self.cluster = cluster
        self.topic = topic
        self.partition = partition
        self.source = source
        self.log = Log()
        parts: dict[str, Any] = {"flow": "a->b", "cluster_id": "c", "topic": topic, "partition": partition}
        self.rules = Lead(
            name=f"{topic}-{partition}", owner=producer_id(**parts), filler=filler_id(**parts), most=10**9
        )
        self.cleanup = Cleanup(cluster, cluster, topic, SYNCED, MemoryState([]) if state is None else state, Log())
        self.begun = Begun()
        self.owned = True
        self.sent = 0

    async def there(self) -> PartitionLog:
        return await log_of(self.cluster, self.topic, self.partition)

    async def lead(self) -> None:
        """One pass, as at a start."""
        there = await self.there()

        async def settled() -> int:
            end = -1
            while (again := await barrier()) != end:
                end = again
                await asyncio.sleep(SETTLE_S)
            return end

        async def barrier() -> int:
            while (end := await there.true_end()) != await there.visible_end():
                await some_turns()
            return end

        async def owns() -> bool:
            self.sent += 1
            return self.owned

        await lead(
            self.source,
            there,
            self.rules,
            self.begun,
            settled=settled,
            owns=owns,
            cleanup=self.cleanup,
            log=self.log,
        )

    async def led(self) -> None:
        """Again until it is not in doubt."""
        while True:
            try:
                await self.lead()
                return
            except NetworkError as error:
                self.log.info("doubt", error=error)
                await asyncio.sleep(0.05)

    async def bounds(self) -> tuple[int, int]:
        there = await self.there()
        return await there.start(), await there.visible_end()

    async def append(self, offset: int, *, sequence: int = 0, timestamp: int = OLD) -> None:
        """A batch of three records of the flow's own, where it has to land."""
        batch = kafka_batch(
            [Record(number, timestamp, b"k", b"data") for number in range(3)],
            leader_epoch=NO_LEADER_EPOCH,
            producer_id=self.rules.owner,
            producer_epoch=0,
            base_sequence=sequence,
        )
        assert await (await self.there()).produce(batch) == offset


@asynccontextmanager
async def leading(sandbox: SandboxCluster, topic: str, start: int, **configs: str) -> AsyncIterator[Leading]:
    """A new topic at the destination, and a source that begins at ``start``."""
    create(sandbox, topic, 1, replicas=1, **configs)
    async with opened(sandbox) as cluster:
        yield Leading(sandbox, cluster, topic, Source(start))


async def await_configs(sandbox: SandboxCluster, topic: str, wanted: Mapping[str, str | None]) -> None:
    """Waits until the topic has these values: the controller has answered before the broker has heard of them."""
    deadline = time.monotonic() + SOON_S
    while (found := configs_of(sandbox, topic)) != wanted and time.monotonic() < deadline:  # noqa: ASYNC110 - a broker has no event
        await asyncio.sleep(0.05)
    assert found == wanted


def configs_of(sandbox: SandboxCluster, topic: str) -> dict[str, str | None]:
    """The topic's own values of what is suspended."""
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entries = future.result()
    names = ("cleanup.policy", "retention.ms", "retention.bytes")
    return {name: entries[name].value for name in names if entries[name].source == 1}


FORGETFUL = {**PATIENT, "producer.id.expiration.check.interval.ms": "500"}
"""Producers are forgotten as soon as they may be: when their records are a day old."""
