"""A copy that the destination's log cleaner has rewritten, on a real broker: the mirror starts again and goes on."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from mirror.net.cluster import Cluster
from mirror.offsetmap.entries.pins import halt_key
from mirror.records.header import DELETE_HORIZON, BatchHeader
from mirror.relay.locate import tails
from mirror.relay.locate.cleaned import survivors
from mirror.relay.locate.tails import batches
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import create
from tests.fakes.loop import some_turns, until
from tests.net.stage.real import alter, consumed, log_of, marked, opened, records
from tests.patience import PATIENT
from tests.relay.stage.mapping import mapping

pytestmark = pytest.mark.broker

HOUR_MS = 3_600_000
SEGMENT_MS = "60000"
"""Less than the age of the test's records: a marker of today goes into a segment of its own, and theirs is cleaned."""
LONG = "value " * 20
"""Worth compressing."""

Written = Sequence[tuple[str, str | None]]
"""Key and value of each record of a batch."""


@pytest.fixture(scope="module")
def destination() -> Iterator[SandboxCluster]:
    """A broker that cleans at once."""
    with SandboxCluster(
        name="destination", quick=True, properties={**PATIENT, "log.cleaner.backoff.ms": "100"}
    ) as cluster:
        yield cluster


def write(
    sandbox: SandboxCluster, topic: str, *written: Written, name: str, codec: str = "none", commit: bool = True
) -> None:
    """Batches of old records in one transaction, and so a marker behind them."""
    producer = Producer(
        {
            "bootstrap.servers": sandbox.bootstrap_servers,
            "transactional.id": f"{topic}-{name}",
            "compression.type": codec,
            "linger.ms": 30_000,
            "log_level": 0,
        }
    )
    producer.list_topics(topic)
    producer.init_transactions()
    producer.begin_transaction()
    for batch in written:
        for key, value in batch:
            producer.produce(topic, value, key, partition=0, timestamp=round(time.time() * 1000) - HOUR_MS)
        producer.flush()
    with marked(sandbox, topic):
        producer.commit_transaction() if commit else producer.abort_transaction()


async def headers(cluster: Cluster, topic: str) -> list[BatchHeader]:
    """Of all batches that the log has."""
    log = await log_of(cluster, topic)
    return [header async for header, _ in batches(log, await log.start(), await log.visible_end())]


async def until_cleaned(destination: SandboxCluster, topic: str, done: Callable[[list[BatchHeader]], Any]) -> None:
    async with opened(destination) as there:
        while not done(await headers(there, topic)):
            await some_turns()


def make(source: SandboxCluster, destination: SandboxCluster, topic: str, *, delete_retention_ms: str) -> None:
    """Compacted on both sides; only the destination's brokers come to it."""
    create(source, topic, cleanup_policy="compact")
    create(
        destination,
        topic,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.0001",
        segment_ms=SEGMENT_MS,
        delete_retention_ms=delete_retention_ms,
    )


async def copy(source: SandboxCluster, destination: SandboxCluster, topic: str) -> None:
    """One life of the mirror."""
    async with mapping(source, destination, topic, mapped=False) as flow:
        await flow.copied(topic)
        assert not flow.log.of("halted")


async def halts(source: SandboxCluster, destination: SandboxCluster, topic: str) -> str:
    """One life that ends at once; the reason, which is taken back before the next one."""
    async with mapping(source, destination, topic, mapped=False) as flow:
        reason = await flow.halted(topic)
        state = flow.relay.durable.state
        side = flow.relay.partitions[topic, 0].subject
        await until(lambda: state.ledger.halt(side), what="the halt to be written down")
        await state.save([], forget=[halt_key(side)])
    return reason


async def goes_on(source: SandboxCluster, destination: SandboxCluster, topic: str) -> None:
    """Another life: it finds its place, and what comes next stands at the same offset on both sides."""
    async with mapping(source, destination, topic, mapped=False) as flow:
        await flow.copied(topic)
        records(source, topic, ["new"], key="new")
        await flow.copied(topic)
        assert not flow.log.of("prefix_unproven")
        end = await (await log_of(flow.source, topic)).visible_end()
    for sandbox in (source, destination):
        assert (await consumed(sandbox, topic, end, isolation="read_committed"))[-1] == (end - 1, "new")


@pytest.mark.parametrize(
    ("last", "rewritten", "codec"),
    [
        ([("key", LONG), ("key", LONG * 2)], lambda header: header.record_count == 1, "lz4"),
        ([("key", LONG), ("gone", None)], lambda header: header.attributes & DELETE_HORIZON, "snappy"),
    ],
    ids=["two records of one key", "a tombstone"],
)
async def test_the_last_batch_is_rewritten(
    source_cluster: SandboxCluster,
    destination: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    last: Written,
    rewritten: Callable[[BatchHeader], Any],
    codec: str,
) -> None:
    """
    1. Copied, and cleaned at the destination: its last data batch has other bytes than the source's.
    2. Mutation: compared by bytes, it is no copy.
    3. Compared by the records that are left, it is; and goes on.
    """
    make(source_cluster, destination, topic_name, delete_retention_ms=str(HOUR_MS))
    write(source_cluster, topic_name, last, name="last", codec=codec)
    await copy(source_cluster, destination, topic_name)
    await until_cleaned(destination, topic_name, lambda found: found[0].codec_bits and rewritten(found[0]))
    with monkeypatch.context() as patched:
        patched.setattr(survivors, "cleaned", lambda header: False)
        assert await halts(source_cluster, destination, topic_name) == "not_a_copy"
    await goes_on(source_cluster, destination, topic_name)


async def test_the_last_batch_is_removed(
    source_cluster: SandboxCluster, destination: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. The last data batch is a tombstone, which the destination's cleaner removes in its second pass, while the source
       still has it. Only our markers are left behind the batch before.
    2. Mutation: what has no data is taken for a marker, and a marker stands where the source has a record.
    3. It goes on; the identity follows from the markers.
    """
    make(source_cluster, destination, topic_name, delete_retention_ms="1")
    write(source_cluster, topic_name, [("kept", "value")], [("gone", None)], name="both")
    await copy(source_cluster, destination, topic_name)
    await until_cleaned(
        destination, topic_name, lambda found: any(header.attributes & DELETE_HORIZON for header in found)
    )
    # The cleaner comes again once there is another segment behind what it has cleaned.
    alter(destination, topic_name, "segment.ms", "1")
    for number in range(2):
        write(source_cluster, topic_name, [("aborted", "x")], name=f"aborted {number}", commit=False)
        await copy(source_cluster, destination, topic_name)
    await until_cleaned(
        destination, topic_name, lambda found: [header.base_offset for header in found if not header.is_control] == [0]
    )
    with monkeypatch.context() as patched:

        async def always(*_: object) -> bool:
            return True

        patched.setattr(tails.Markers, "within", always)
        assert await halts(source_cluster, destination, topic_name) == "overfilled"
    await goes_on(source_cluster, destination, topic_name)
