"""A relay between two fake clusters, its log, and a comparison of both sides."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from mirror.net.cluster import Cluster
from mirror.net.options import ConnectionOptions
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import producer_id
from mirror.records.restamp import checksum
from mirror.relay.partition.partition import Partition
from mirror.relay.relay import Relay
from mirror.relay.settings import RelaySettings
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.fakes.loop import until
from tests.fakes.state import MemoryState
from tests.records.builders import raw_batch

FLOW = "source->destination"
SETTLE_MS = 5
WAIT_MS = 20


class Logged(NamedTuple):
    """One log line."""

    level: str
    event: str
    fields: dict[str, Any]


class Log:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.lines: list[Logged] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append(Logged("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append(Logged("warning", event, fields))

    def of(self, event: str) -> list[dict[str, Any]]:
        """Returns the fields of each line of this event."""
        return [line.fields for line in self.lines if line.event == event]


def settings(**changes: Any) -> RelaySettings:
    """Returns the settings of a flow that mirrors every topic, with short waits."""
    usual: dict[str, Any] = {
        "flow": FLOW,
        "selects": lambda name: True,
        "wanted": {".*": re.compile(".*").fullmatch},
        "settle_ms": SETTLE_MS,
        "fetch_max_wait_ms": WAIT_MS,
        "backoff_ms": 1,
        "backoff_max_ms": 5,
        "drain_timeout_ms": 60_000,
        "fixed_configs": {"compression.type": "producer", "message.timestamp.type": "CreateTime"},
    }
    return RelaySettings(**(usual | changes))


class Flow(NamedTuple):
    """Both clusters, the relay between them, and its log."""

    source: FakeCluster
    destination: FakeCluster
    relay: Relay
    log: Log

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.relay.partitions[topic, index]

    @property
    def copied_batches(self) -> int:
        """The batches copied of all partitions that the relay holds now."""
        return sum(each.counts.batches for each in self.relay.partitions.values())

    def logs(self, topic: str = "t", index: int = 0) -> tuple[FakeLog, FakeLog]:
        return self.source.log(topic, index), self.destination.log(topic, index)

    async def copied(self, *names: tuple[str, int]) -> None:
        """Waits until these partitions (by default, all of the source) are at the destination and acknowledged, and
        compares them."""
        wanted = names or [(topic.name, index) for topic in self.source.topics.values() for index in topic.logs]

        def done() -> bool:
            return all(
                name in self.relay.partitions
                and self.relay.partitions[name].queue.acknowledged == self.source.log(*name).end
                for name in wanted
            )

        try:
            await until(done)
        except AssertionError:
            states = {
                name: (partition.phase.value, partition.queue.acknowledged, partition.halted)
                for name, partition in self.relay.partitions.items()
            }
            raise AssertionError(f"not copied: {states}; {self.log.lines[-20:]}") from None
        for name in wanted:
            assert_same(self.source.log(*name), self.destination.log(*name))

    async def halted(self, topic: str = "t", index: int = 0) -> str:
        """Waits until the partition halts, and returns the reason."""
        await until(lambda: self.partition(topic, index).halted, what=f"halt; {self.log.lines[-10:]}")
        halted = self.partition(topic, index).halted
        assert halted is not None
        assert halted.remedy
        assert self.log.of("halted")[-1]["reason"]
        return halted.reason


Versions = dict[str, tuple[int, int]]


@asynccontextmanager
async def clusters(
    *, brokers: int = 1, versions: Versions | None = None, there: Versions | None = None
) -> AsyncIterator[tuple[FakeCluster, FakeCluster]]:
    """A fake source and a fake destination. Both report ``versions``; the destination reports ``there`` instead, if
    given."""
    async with (
        FakeCluster("source", brokers=brokers, versions=versions) as source,
        FakeCluster("destination", brokers=brokers, versions=versions if there is None else there) as destination,
    ):
        yield source, destination


@asynccontextmanager
async def mirroring(
    source: FakeCluster,
    destination: FakeCluster,
    *,
    start: bool = True,
    request_timeout_s: float = 30.0,
    assigned: bool = False,
    **changes: Any,
) -> AsyncIterator[Flow]:
    """A relay from one cluster to the other. It is closed at the end, and nothing of it may be left then."""
    options = ConnectionOptions(client_id="mirror", request_timeout_s=request_timeout_s)
    log = Log()
    async with (
        await Cluster.open("source", source.options(connection=options)) as here,
        await Cluster.open("destination", destination.options(connection=options)) as there,
    ):
        state = MemoryState(destination.remembered)
        relay = Relay(here, there, settings(**changes), log, assigned=assigned, state=state)
        flow = Flow(source, destination, relay, log)
        try:
            if start:
                await relay.start()
            yield flow
            if relay.tasks.failed is not None and relay.tasks.failed.done():
                relay.tasks.failed.result()
        finally:
            await relay.close()
        assert relay.pool.used == 0, "frames that were not given back"
        assert all(
            not partition.queue.in_flight and not partition.queue.outbox for partition in relay.partitions.values()
        )


def batch(base: int, count: int = 3, payload: bytes | None = None, **fields: int) -> bytes:
    """Returns a batch of the source; by default, with a payload that no other offset has."""
    fields = {"leader_epoch": 0} | fields
    return raw_batch(
        payload if payload is not None else b"%d," % base * 20,
        base_offset=base,
        last_offset_delta=count - 1,
        record_count=count,
        **fields,
    )


def batches(number: int, *, first: int = 0, count: int = 3, size: int = 0) -> list[bytes]:
    """Returns consecutive batches of ``count`` offsets each, from ``first`` on, with payloads of ``size`` bytes if
    given."""

    def payload(base: int) -> bytes | None:
        return (b"%d," % base * (size // 2 + 1))[:size] if size else None

    return [batch(first + count * at, count, payload(first + count * at)) for at in range(number)]


def fill(source: FakeCluster, partitions: int = 1, count: int = 20, *, size: int = 0) -> None:
    """Adds topic "t", with this many batches of three records in each partition."""
    source.add_topic("t", partitions=partitions)
    for index in range(partitions):
        source.store("t", index, *batches(count, size=size))


def copies(
    of: list[bytes], *, topic: str = "t", partition: int = 0, cluster_id: str, epoch: int = 0, sequence: int = 0
) -> list[bytes]:
    """Returns what a mirror of the same flow would have written to the destination, as Produce requests carry it."""
    owner = producer_id(flow=FLOW, cluster_id=cluster_id, topic=topic, partition=partition)
    out = []
    for one in of:
        header = BatchHeader.read(one)
        new = header._replace(
            base_offset=0, leader_epoch=-1, producer_id=owner, producer_epoch=epoch, base_sequence=sequence, crc=0
        )
        sealed = new._replace(crc=checksum(new.pack() + one[HEADER_SIZE:]))
        out.append(sealed.pack() + one[HEADER_SIZE:])
        sequence += header.last_offset_delta + 1
    return out


def assert_same(source: FakeLog, destination: FakeLog) -> None:
    """Checks that the destination equals the source, batch for batch, except for who wrote it, and that all checksums
    are right."""
    assert destination.end == source.end
    assert len(destination.batches) == len(source.batches)
    for one, other in zip(source.batches, destination.batches, strict=True):
        mine, theirs = BatchHeader.read(one), BatchHeader.read(other)
        assert theirs == mine._replace(
            leader_epoch=theirs.leader_epoch,
            crc=checksum(other),
            producer_id=theirs.producer_id,
            producer_epoch=theirs.producer_epoch,
            base_sequence=theirs.base_sequence,
        )
        assert one[HEADER_SIZE:] == other[HEADER_SIZE:]


Condition = Callable[[], Any]
