"""Topics that compact: cleanup is suspended while filler is written and deleted, and is then as it was."""

import asyncio

import pytest

from mirror.net.errors import Unreachable
from mirror.offsetmap.internal.batches import KeyValue
from mirror.relay.leading.cleanup import Cleanup, Cleanups
from mirror.relay.topics.syncing import FOR_EVER
from mirror.sandbox import SandboxCluster
from tests.fakes.state import MemoryState
from tests.net.stage.real import create, opened
from tests.relay.leading.leads import SYNCED, Leading, Source, await_configs, configs_of, leading
from tests.relay.stage.flows import Log

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_compacted(sandbox: SandboxCluster, topic_name: str, policy: str) -> None:
    """Suspended while it is filled and trimmed, and as it was afterwards."""
    async with leading(sandbox, topic_name, 1_500_000, cleanup_policy=policy, retention_ms="777") as at:
        before = configs_of(sandbox, topic_name)
        assert before == {"cleanup.policy": policy, "retention.ms": "777"}
        await at.led()
        assert await at.bounds() == (1_500_000, 1_500_000)
        await await_configs(sandbox, topic_name, before)
        await at.append(1_500_000)
        await at.led()


async def test_compacted_and_left_suspended(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. A predecessor died before it restored the topic, and wrote nothing down: the next process finishes it, as the
       source has it.
    2. While somebody in the process still leads, it stays suspended.
    """
    suspended = {"cleanup.policy": "delete", "retention.ms": FOR_EVER, "retention.bytes": FOR_EVER}
    source = f"{topic_name}-source"
    create(sandbox, source, cleanup_policy="compact,delete", retention_ms="12345")
    async with leading(
        sandbox, topic_name, 0, cleanup_policy="delete", retention_ms=FOR_EVER, retention_bytes=FOR_EVER
    ) as at:
        cleanups = Cleanups(at.cluster, at.cluster, SYNCED, MemoryState([]), Log())
        at.cleanup = cleanups.of(topic_name)
        assert cleanups.of(topic_name) is at.cleanup
        assert configs_of(sandbox, topic_name) == suspended
        async with at.cleanup.suspended():
            await at.cleanup.finish()
            assert configs_of(sandbox, topic_name) == suspended
        # The source of this one is itself, and is suspended, too: that it compacts is sure, the rest is not.
        await await_configs(sandbox, topic_name, {"cleanup.policy": "compact"})


async def test_left_suspended_it_gets_back_what_it_had(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. A process dies before it restores the topic: the next one finishes it, by what was written down.
    2. What was written of another topic of that name says nothing.
    """
    rows: list[KeyValue] = []
    had = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "5000000000"}
    wanted = {name.replace(".", "_"): value for name, value in had.items()}
    async with leading(sandbox, topic_name, 0, **wanted) as at:
        await at.cluster.refresh([topic_name])

        async def die() -> None:
            async with Cleanup(at.cluster, at.cluster, topic_name, SYNCED, MemoryState(rows), Log()).suspended():
                raise Unreachable("killed")

        with pytest.raises(Unreachable):
            await die()
        assert configs_of(sandbox, topic_name)["retention.ms"] == FOR_EVER
        await Cleanup(at.cluster, at.cluster, topic_name, SYNCED, MemoryState(rows), Log()).finish()
        await await_configs(sandbox, topic_name, had)
        with pytest.raises(Unreachable):
            await die()
        (*_, (key, value)) = rows
        assert value is not None
        mine = at.cluster.topics[topic_name].topic_id
        assert mine is not None
        other = value.replace(mine.hex().encode(), bytes(16).hex().encode())
        assert other != value
        await Cleanup(at.cluster, at.cluster, topic_name, SYNCED, MemoryState([(key, other)]), Log()).finish()
        await await_configs(sandbox, topic_name, {"cleanup.policy": "compact"})


async def test_let_go_meanwhile(sandbox: SandboxCluster, topic_name: str) -> None:
    """The partition is revoked, or its flow is removed: the topic is left suspended, and the line has what to set back.
    A topic that does not compact is left as it is, without a line."""
    log = Log()
    async with leading(sandbox, topic_name, 0, cleanup_policy="compact", retention_ms="777") as at:
        plain = f"{topic_name}-plain"
        create(sandbox, plain)
        await at.cluster.refresh([topic_name, plain])
        begun = asyncio.Event()

        async def lead(topic: str) -> None:
            async with Cleanup(at.cluster, at.cluster, topic, SYNCED, MemoryState([]), log).suspended():
                begun.set()
                await asyncio.Event().wait()

        for topic in (plain, topic_name):
            begun.clear()
            leads = asyncio.create_task(lead(topic))
            await begun.wait()
            leads.cancel()
            await asyncio.gather(leads, return_exceptions=True)
        (line,) = log.of("cleanup_left_suspended")
        assert line["topic"] == topic_name
        assert "before: cleanup.policy compact, retention.ms 777, retention.bytes not set" in line["remedy"]
        assert configs_of(sandbox, topic_name)["retention.ms"] == FOR_EVER


async def test_compacted_by_two(sandbox: SandboxCluster, topic_name: str) -> None:
    """Two processes lead a partition of the topic each; the first that is done is in the other's way for a moment."""
    create(sandbox, topic_name, partitions=2, cleanup_policy="compact")
    async with opened(sandbox) as one, opened(sandbox) as two:
        workers = [
            Leading(sandbox, cluster, topic_name, Source(start), partition)
            for partition, (cluster, start) in enumerate(((one, 1_000), (two, 4_000_000)))
        ]
        await asyncio.gather(*(worker.led() for worker in workers))
        assert [await worker.bounds() for worker in workers] == [(1_000, 1_000), (4_000_000, 4_000_000)]
        await await_configs(sandbox, topic_name, {"cleanup.policy": "compact"})
