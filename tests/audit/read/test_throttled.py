"""A quota on what the audit may fetch: it waits as long as the broker says, and reads on."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from mirror.audit.prepare.plan import Range
from mirror.audit.read.leaders import Leaders, Throttled
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.read.reader import Reader
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import create, endpoint
from tests.net.stage.real import limited, log_of, opened
from tests.records.builders import Record, kafka_batch

pytestmark = pytest.mark.broker

RATE, SIZE, BATCHES = 20_000, 20_000, 15
"""Brokers let ten seconds' worth through at once: 200 KB of 300 KB."""


def test_answers_without_anything_but_a_time_to_wait(
    source_cluster: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no malformed answers: no connection is closed for one, and none counts as a failed try."""
    create(source_cluster, topic_name)
    seen: Counter[str] = Counter()
    receive = Leaders.receive

    async def received(leaders: Leaders, *args: Any) -> Any:
        try:
            return await receive(leaders, *args)
        except Throttled:
            seen["throttled"] += 1
            raise

    async def recover(*args: Any) -> None:
        seen["failed"] += 1

    monkeypatch.setattr(Leaders, "receive", received)
    monkeypatch.setattr(Reader, "_recover", recover)
    assert asyncio.run(_read(source_cluster, topic_name)) == BATCHES
    assert seen["throttled"] > 0
    assert seen["failed"] == 0


async def _read(sandbox: SandboxCluster, topic: str) -> int:
    at = endpoint(sandbox, "east")
    coverage = RangeCoverage()
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic)
        for _ in range(BATCHES):
            await log.produce(kafka_batch([Record(0, 1_700_000_000_000, b"k", bytes(SIZE))]))
        async with limited(cluster, RATE, of="consumer_byte_rate", client_id=at.client_id):
            reader = Reader(
                at, cluster_id=sandbox.cluster_id, topic_ids={}, digest="xxh3_128", fetch_bytes=SIZE
            )  # fmt: skip
            await reader.open({topic})
            try:
                async for _ in reader.blocks(Range(topic, 0, 0, BATCHES, True, 1_000), coverage):
                    pass
            finally:
                await reader.close()
    return coverage.batches
