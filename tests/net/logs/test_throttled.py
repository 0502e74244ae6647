"""A broker that throttles us: it does not read from a connection for as long as it says, and does what was sent there
later. Markers must never be among that, because nothing tells a late one from another."""

import asyncio
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import RequestTimedOut
from mirror.net.logs import leader_requests, reading
from mirror.net.logs.log import Marker
from mirror.net.options import Use
from mirror.records.identity import MIRROR_BIT
from mirror.sandbox import SandboxCluster
from mirror.wire.fetch import read_fetch_response
from tests.net.conftest import BEFORE_KIP_664, NEWEST
from tests.net.stage.real import create, limited, log_of, opened
from tests.records.builders import Record, kafka_batch

# How a broker throttles is the same in all of them; the oldest also stands for a cluster with ZooKeeper, and 3.9 has
# what 4.3 has.
pytestmark = [
    pytest.mark.broker,
    pytest.mark.parametrize("sandbox", [NEWEST, BEFORE_KIP_664], indirect=True),
]

MARKER = Marker(MIRROR_BIT | 9 << 20, 1, 0)
RATE = 20_000
"""Of the quota, in bytes per second."""
TIMEOUT_S = 4.0


def batch(size: int) -> bytes:
    return kafka_batch([Record(0, 1_700_000_000_000, b"k", bytes(size))])


async def throttled(cluster: Cluster, topic: str) -> float:
    """Produces until the broker throttles the connection for longer than a request may take. Returns for how long."""
    log = await log_of(cluster, topic)
    connection = await cluster.control(log.leader.node_id, use=Use.WRITING)
    while not connection.throttled_s:  # brokers hear of a quota soon
        await log.produce(batch(RATE))
    while connection.throttled_s <= 2 * TIMEOUT_S:
        # What came so far was as much as may come in the 10 s that the broker counts: this takes another 9, or more.
        await log.produce(batch(9 * RATE))
    return connection.throttled_s


async def test_what_is_throttled(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. What we produce is throttled for longer than a request may take.
    2. Markers are written and answered at once.
    3. The next request waits as long as the broker says. It would time out otherwise, and the broker would do it all
       the same.
    """
    create(sandbox, topic_name)
    async with opened(sandbox) as patient:
        await log_of(patient, topic_name)
        async with limited(patient, RATE), opened(sandbox, request_timeout_s=TIMEOUT_S) as cluster:
            log = await log_of(cluster, topic_name)
            assert await throttled(cluster, topic_name) > TIMEOUT_S
            connection = await cluster.control(log.leader.node_id, use=Use.WRITING)
            until = connection.throttled_until
            end = await log.true_end()
            await log.write_markers(MARKER, 1)
            assert await log.true_end() == end + 1
            assert connection.throttled_until == until, "nothing of it went over the connection that is throttled"
            await log.delete_before(1)
            assert await log.start() == 1


async def test_on_the_connection_that_is_throttled_a_marker_would_come_late(
    sandbox: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. As above, but markers go over the connection of everything else that is written, and nobody waits.
    2. They time out, and the connection is closed. The log ends where it did; some seconds later it does not.
    """
    create(sandbox, topic_name)
    async with opened(sandbox) as patient:
        calm = await log_of(patient, topic_name)
        async with limited(patient, RATE), opened(sandbox, request_timeout_s=TIMEOUT_S) as cluster:
            pause_s = await throttled(cluster, topic_name)
            log = await log_of(cluster, topic_name)
            connection = await cluster.control(log.leader.node_id, use=Use.WRITING)
            monkeypatch.setattr(leader_requests, "MARKERS_GO_OVER", Use.WRITING)
            connection.throttled_until = 0.0
            end = await calm.true_end()
            with pytest.raises(RequestTimedOut):
                await log.write_markers(MARKER, 1)
            assert await calm.true_end() == end
            for _ in range(100):
                await asyncio.sleep(pause_s / 10)
                if await calm.true_end() > end:
                    break
            assert await calm.true_end() == end + 1


async def test_a_fetch_that_a_quota_leaves_empty(
    sandbox: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker answers it with no partition and the time to wait. It is no broken answer: the same is asked again."""
    create(sandbox, topic_name)
    seen: list[tuple[int, int]] = []

    def read(*args: Any) -> Any:
        fetched = read_fetch_response(*args)
        seen.append((len(fetched.partitions), fetched.throttle_ms))
        return fetched

    monkeypatch.setattr(reading, "read_fetch_response", read)
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        for _ in range(15):
            await log.produce(batch(RATE))
        async with limited(cluster, RATE, of="consumer_byte_rate"):
            while not any(throttle_ms and not count for count, throttle_ms in seen):
                for offset in range(15):
                    assert (await log.read(offset, max_bytes=1)).batches[0][0].base_offset == offset
