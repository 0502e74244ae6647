"""What goes to the destination, and in which requests.

Through the whole relay, against a fake destination that refuses what real ones refuse: a partition twice in a request,
two batches, sequences out of order. What it holds at the end is compared with the source, batch for batch.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.connection import Connection
from mirror.relay.partition.queue import Queue
from tests.fakes import faults
from tests.fakes.broker import FakeCluster, Seen
from tests.fakes.loop import until
from tests.relay.stage.flows import batch, batches, clusters, fill, mirroring

DATA = 20
"""Batches of three records in most tests."""


def sent(destination: FakeCluster) -> list[dict[tuple[str, int], int]]:
    """Each Produce request so far, in order: partition -> size of its batch."""
    return [_partitions_of(destination, seen) for seen in destination.seen("Produce")]


def _partitions_of(destination: FakeCluster, seen: Seen) -> dict[tuple[str, int], int]:
    out = {}
    for topic in seen.request.topic_data:
        found = destination.find(topic.name, topic.topic_id)
        assert found is not None
        for data in topic.partition_data:
            out[found.name, data.index] = len(data.records)
    return out


# Requests.


async def test_many_partitions_one_batch_each() -> None:
    """
    1. While a request is under way, batches of sixteen partitions of two topics come together.
    2. The next request has one batch of each of them; so it goes on, and each partition keeps its order.
    """
    async with clusters() as (source, destination):
        for name in ("a", "b"):
            source.add_topic(name, partitions=8)
            for index in range(8):
                source.store(name, index, *batches(DATA))
        held = destination.next("Produce", faults.held())
        async with mirroring(
            source, destination, connections_per_broker=1, max_in_flight=1, buffer_memory=1 << 27
        ) as flow:
            await until(lambda: sum(bool(one.queue.outbox) for one in flow.relay.partitions.values()) == 16)
            held.open()
            await flow.copied()
        requests = sent(destination)
        # The fake broker raises if one partition is twice in a request or has two batches.
        assert max(map(len, requests)) == 16
        assert len(requests) < 8 * DATA
        total = Counter(name for request in requests for name in request)
        assert set(total.values()) == {DATA}


async def test_the_first_batch_goes_alone() -> None:
    """
    1. After a position was found one batch of the partition goes, and no other before its answer.
    2. Then up to five are under way, and no more.
    """
    async with clusters() as (source, destination):
        fill(source)
        first, second = destination.next("Produce", faults.held()), destination.next("Produce", faults.held())
        async with mirroring(source, destination) as flow:
            await first.came.wait()
            partition = flow.partition()
            await until(lambda: len(partition.queue.outbox) == DATA - 1)
            assert (partition.queue.window, len(partition.queue.in_flight)) == (1, 1)
            first.open()
            await second.came.wait()
            await until(lambda: len(partition.queue.in_flight) == 5)
            assert (partition.queue.window, len(partition.queue.outbox)) == (5, DATA - 6)
            second.open()
            await flow.copied()


@pytest.mark.parametrize("rule", [True, False])
async def test_nothing_is_sent_behind_the_first_batch_until_it_is_read_back(
    monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """
    1. The first batch after a position was found is acknowledged, and reading it back takes its time. A broker knows
       repeats by their sequences only: it may be another worker's batch, with other records.
    2. Nothing is sent until then. If this process dies now, the next one compares the log's last batch: this one.
    """
    if not rule:
        monkeypatch.setattr(Queue, "first_answered", _sends_on)
    async with clusters() as (source, destination):
        fill(source)
        first = destination.next("Produce", faults.held())
        async with mirroring(source, destination) as flow:
            await first.came.wait()
            queue = flow.partition().queue
            await until(lambda: len(queue.outbox) == DATA - 1)
            read_back = destination.next("Fetch", faults.held())
            first.open()
            await read_back.came.wait()
            if rule:
                await asyncio.sleep(0.2)
                assert (queue.window, len(queue.in_flight), len(sent(destination))) == (0, 0, 1)
            else:
                await until(lambda: len(sent(destination)) == DATA)
            assert not queue.proven
            read_back.open()
            await flow.copied()
            await until(lambda: queue.proven)


def _sends_on(queue: Queue) -> bool:
    first, queue.checking = queue.checking, False
    queue.window = 1
    return first


@pytest.mark.parametrize("max_in_flight", [1, 2, 4])
async def test_fewer_in_flight(max_in_flight: int) -> None:
    """``max.in.flight.requests.per.connection`` bounds a partition's unacknowledged batches."""
    most = 0
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, max_in_flight=max_in_flight, connections_per_broker=1) as flow:
            partition = None
            while not (partition and partition.queue.acknowledged == 3 * DATA):
                partition = flow.relay.partitions.get(("t", 0))
                most = max(most, len(partition.queue.in_flight) if partition else 0)
                await asyncio.sleep(0)
            await flow.copied()
    assert 0 < most <= max_in_flight


@pytest.mark.parametrize("connections", [1, 3])
async def test_a_partition_keeps_its_connection(connections: int) -> None:
    """Partitions are spread over the connections, evenly, and each always uses the same one."""
    async with clusters() as (source, destination):
        fill(source, partitions=6)
        async with mirroring(source, destination, connections_per_broker=connections) as flow:
            await flow.copied()
        used: dict[tuple[str, int], set[int]] = {}
        for seen in destination.seen("Produce"):
            for name in _partitions_of(destination, seen):
                used.setdefault(name, set()).add(seen.connection)
        assert all(len(each) == 1 for each in used.values())
        assert sorted(Counter(min(each) for each in used.values()).values()) == [6 // connections] * connections


async def test_max_request_size() -> None:
    """
    1. Batches of 1,000 bytes and a limit of 3,500: at most three of them in a request.
    2. A batch that is larger than the limit by itself goes alone.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=8, size=939)
        source.store("t", 7, batch(3 * DATA, payload=bytes(5_000)))
        async with mirroring(source, destination, max_request_size=3_500, connections_per_broker=1) as flow:
            await flow.copied()
        for request in sent(destination):
            assert sum(request.values()) <= 3_500 or len(request) == 1
        assert max(map(len, sent(destination))) == 3
        assert any(request.get(("t", 7)) == 5_061 for request in sent(destination))


async def test_every_partition_gets_its_turn() -> None:
    """With room for one batch per request, no partition is far ahead of the others."""
    async with clusters() as (source, destination):
        fill(source, partitions=5, size=939)
        async with mirroring(source, destination, max_request_size=1_024, connections_per_broker=1) as flow:
            await flow.copied()
        order = [index for request in sent(destination) for _, index in request]
        for index in range(5):
            turns = [at for at, each in enumerate(order) if each == index]
            assert max(later - earlier for earlier, later in itertools.pairwise(turns)) <= 30


@pytest.mark.parametrize(("size", "gathered"), [(300_000, True), (900, False)])
async def test_large_batches_are_not_copied_into_one_buffer(size: int, gathered: bool) -> None:
    """They are sent from where they were received; small ones are joined. Both ways put the same bytes on the wire."""
    pieces: list[object] = []
    write = Connection.write

    def watched(self: Connection, some: Sequence[Any]) -> None:
        pieces.extend(piece for piece in some if len(piece) >= size)
        write(self, some)

    async with clusters() as (source, destination):
        fill(source, partitions=3, count=4, size=size)
        with patch.object(Connection, "write", watched):
            async with mirroring(source, destination) as flow:
                await flow.copied()
    assert pieces
    assert {isinstance(piece, memoryview) for piece in pieces} == {gathered}
