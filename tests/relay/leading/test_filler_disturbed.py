"""Filler while something else happens: answers are lost, retention runs, others write or are late."""

import asyncio
import time
from typing import Any

import pytest

from mirror.net.errors import RequestTimedOut, Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.records.filler import filler_batch
from mirror.relay.halts import PartitionHalted
from mirror.sandbox import SandboxCluster
from tests.net.stage.real import records
from tests.relay.leading.leads import FORGETFUL, OLD, Leading, leading

pytestmark = pytest.mark.broker

EAGER = {"log.retention.ms": "604800000", "log.retention.check.interval.ms": "700", "log.initial.task.delay.ms": "100"}
"""Records are deleted as soon as they may be: when they are a week old."""


async def test_an_answer_is_lost(sandbox: SandboxCluster, topic_name: str) -> None:
    """The connection breaks with a batch under way, again and again: it ends where it should."""
    async with leading(sandbox, topic_name, 4_999_999) as at:
        await _led_unanswered(at)
        assert await at.bounds() == (4_999_999, 4_999_999)


async def test_retention_takes_filler(topic_name: str) -> None:
    """The same, at a broker whose retention takes the old filler while it is written, and that forgets at once who
    wrote it: an empty log, of which only this process knows what was in it."""
    eager = FORGETFUL | EAGER
    with SandboxCluster(name="eager", quick=True, properties=eager) as sandbox:
        async with leading(sandbox, topic_name, 2_999_999) as at:
            await _led_unanswered(at)
            assert await at.bounds() == (2_999_999, 2_999_999)


async def test_a_late_batch_after_the_look(
    sandbox: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the leader remembers is of after a late batch, the end of before: nothing is written on that."""
    async with leading(sandbox, topic_name, 5_000) as at:
        there = await at.there()
        early, late = (
            filler_batch(producer=at.rules.filler, offset=offset, count=1_000, timestamp=round(time.time() * 1000))
            for offset in (0, 1_000)
        )
        assert await there.produce(early) == 0
        await there.delete_before(1_000)
        looked = PartitionLog.producers

        async def producers(log: PartitionLog) -> Any:
            assert await log.produce(late) == 1_000
            return await looked(log)

        with monkeypatch.context() as patched:
            patched.setattr(PartitionLog, "producers", producers)
            with pytest.raises(Unreachable, match="ended at 1000 and has moved since"):
                await at.lead()
        assert at.sent == 0
        await at.led()
        assert await at.bounds() == (5_000, 5_000)


async def test_displaced_beyond_the_start(
    sandbox: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's filler comes just before ours, which then reaches beyond the source's first record: it halts at
    once, whatever retention leaves for the next look."""
    async with leading(sandbox, topic_name, 1_500) as at:
        appended = PartitionLog.produce
        other = filler_batch(producer=at.rules.filler + 1, offset=0, count=1_000, timestamp=OLD)

        async def produce(log: PartitionLog, batch: bytes) -> int:
            assert await appended(log, other) == 0
            return await appended(log, batch)

        monkeypatch.setattr(PartitionLog, "produce", produce)
        with pytest.raises(PartitionHalted, match="begins at offset 1500, and filler at the destination ends at 2500"):
            await at.lead()


async def test_somebody_else_writes_meanwhile(
    sandbox: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else appends a record between two batches of filler: it halts, and the record is not deleted."""
    async with leading(sandbox, topic_name, 2_500_000) as at:
        appended = PartitionLog.produce

        async def produce(log: PartitionLog, batch: bytes) -> int:
            if at.sent == 2 and not at.log.of("intruded"):
                at.log.info("intruded")
                await asyncio.to_thread(records, sandbox, topic_name, ["of others"])
            return await appended(log, batch)

        monkeypatch.setattr(PartitionLog, "produce", produce)
        with pytest.raises(PartitionHalted, match=r"foreign_writer: .* offset 1000000 is of producer id -1"):
            await at.led()
        assert await at.bounds() == (0, 2_000_001)


async def _led_unanswered(at: Leading) -> None:
    filling = asyncio.get_running_loop().create_task(at.led())
    pause_s = 0.3
    while not filling.done():
        await asyncio.sleep(pause_s)
        pause_s *= 1.1  # where the machine is too slow for one attempt in this time
        for connection in at.cluster._others.values():
            connection.close(RequestTimedOut("as scripted"))
    await filling
