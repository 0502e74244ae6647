"""The fake broker keeps fetch sessions as a real one does: the same requests get responses with the same partitions."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kafka.protocol.consumer import FetchRequest

from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.fakes.broker import FakeCluster
from tests.fakes.test_fakes import Client, batch
from tests.net.stage.real import create, records

VERSION = 12
"""The last version that has topic names."""


class Answered(NamedTuple):
    """What a response shows of a session."""

    error: int
    session_id: int
    named: list[tuple[int, bool]]
    """The partitions in it, each with True if it has records."""
    refused: bool
    """True if a partition has an error."""


class Play:
    """Requests of one client about three partitions of a topic."""

    def __init__(self, client: Client, topic: str, write: Callable[[int], None]) -> None:
        self._client = client
        self._topic = topic
        self.write = write

    async def until_led(self, wanted: dict[int, int]) -> None:
        """Waits until the broker has heard which partitions it leads."""
        answered = await self.fetch(0, -1, wanted)
        if answered.refused:
            await asyncio.sleep(0.05)
            await self.until_led(wanted)

    async def fetch(
        self, session_id: int, epoch: int, wanted: dict[int, int], forgotten: list[int] | None = None
    ) -> Answered:
        """``wanted``: partition -> offset."""
        topic = FetchRequest.FetchTopic
        partitions = [
            topic.FetchPartition(
                partition=partition, current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=-1,
                log_start_offset=-1, partition_max_bytes=1 << 20,
            )
            for partition, offset in wanted.items()
        ]  # fmt: skip
        gone = [FetchRequest.ForgottenTopic(topic=self._topic, partitions=forgotten)] if forgotten else []
        request = FetchRequest(
            replica_id=-1, max_wait_ms=1, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=session_id,
            session_epoch=epoch, topics=[topic(topic=self._topic, partitions=partitions)] if partitions else [],
            forgotten_topics_data=gone, rack_id="",
        )  # fmt: skip
        answer = await self._client.ask(request, VERSION)
        named = [(one.partition_index, bool(one.records)) for each in answer.responses for one in each.partitions]
        refused = any(one.error_code for each in answer.responses for one in each.partitions)
        return Answered(answer.error_code, answer.session_id, named, refused)


async def steps(play: Play) -> list[Any]:
    """Returns which partitions each step's response has, or its error. Session ids are checked here."""
    await play.until_led({0: 0, 1: 0, 2: 0})
    first = await play.fetch(0, 0, {0: 0, 1: 0, 2: 0})
    assert first.session_id > 0
    kept = first.session_id
    seen: list[Any] = [first.named]
    seen.append((await play.fetch(kept, 1, {})).named)
    play.write(1)
    seen.append((await play.fetch(kept, 2, {})).named)
    seen.append((await play.fetch(kept, 3, {1: 1})).named)
    play.write(1)
    play.write(2)
    seen.append((await play.fetch(kept, 4, {})).named)  # partition 1 had data before, so it comes after 2 now
    seen.append((await play.fetch(kept, 5, {1: 2, 2: 1}, [0])).named)
    play.write(0)
    seen.append((await play.fetch(kept, 6, {}, [1])).named)
    seen.append((await play.fetch(kept, 7, {0: 0, 1: 0}, [1])).named)  # requested and forgotten in the same request
    seen.append((await play.fetch(kept, 8, {0: 77})).named)
    seen.append((await play.fetch(kept, 9, {})).named)  # an error is named in every response
    seen.append((await play.fetch(kept, 5, {})).error)
    seen.append((await play.fetch(kept + 1, 1, {})).error)
    next_one = await play.fetch(kept, 0, {0: 0})
    assert next_one.session_id not in (0, kept)
    seen.append((await play.fetch(kept, 10, {})).error)
    seen.append((await play.fetch(next_one.session_id, -1, {0: 0})).session_id)
    seen.append((await play.fetch(next_one.session_id, 1, {})).error)
    return seen


EXPECTED = [
    [(0, False), (1, False), (2, False)],
    [],
    [(1, True)],
    [],
    [(2, True), (1, True)],
    [],
    [],
    [(0, True)],
    [(0, False)],
    [(0, False)],
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    0,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
]


async def played(port: int, topic: str, write: Callable[[int], None]) -> list[Any]:
    """Returns the result of ``steps`` at a broker. ``write``: puts a batch of one record into a partition."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await steps(Play(Client(reader, writer), topic, write))
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def test_the_fake_broker() -> None:
    async with FakeCluster() as cluster:
        topic = cluster.add_topic("t", partitions=3)

        def write(partition: int) -> None:
            cluster.store("t", partition, batch(base=topic.logs[partition].end))

        assert await played(cluster.brokers[1].port, "t", write) == EXPECTED


@pytest.mark.broker
async def test_a_real_broker(source_cluster: SandboxCluster, topic_name: str) -> None:
    create(source_cluster, topic_name, 3)
    port = int(source_cluster.bootstrap_servers.rpartition(":")[2])

    def write(partition: int) -> None:
        records(source_cluster, topic_name, ["v"], partition=partition)

    assert await played(port, topic_name, write) == EXPECTED
