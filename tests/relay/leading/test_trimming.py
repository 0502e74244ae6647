"""Filler on scripted brokers: written up to the source's start, and deleted again when a kill -9 brings it back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.net.logs.log import PartitionLog
from mirror.records.filler import filler_batch, filler_id
from mirror.records.identity import producer_id
from mirror.relay.halts import PartitionHalted
from mirror.relay.leading.cleanup import Cleanup
from mirror.relay.leading.filler import Begun, Lead, lead, trim
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook
from tests.fakes.state import MemoryState
from tests.records.builders import raw_batch
from tests.relay.stage.flows import Log

PARTS: dict[str, Any] = {"flow": "a->b", "cluster_id": "c", "topic": "t", "partition": 0}
FILLER = filler_id(**PARTS)
RULES = Lead(name="t-0", owner=producer_id(**PARTS), filler=FILLER, most=10**9)
STEP = 20


def fill(log: FakeLog, count: int, *, ahead: int = 0) -> None:
    """So many batches of filler, whose sequences are so much ahead of their offsets."""
    for _ in range(count):
        batch = filler_batch(producer=FILLER, offset=log.end + ahead, count=STEP, timestamp=0)
        log.store(log.end.to_bytes(8) + batch[8:])


@asynccontextmanager
async def destination() -> AsyncIterator[tuple[FakeLog, PartitionLog, Cleanup]]:
    """An empty log, the mirror's view of it, and its topic's cleanup."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        async with await Cluster.open("destination", fake.options()) as cluster:
            await cluster.refresh(["t"])
            leader = cluster.leader("t", 0)
            assert leader is not None
            there = PartitionLog(cluster, cluster.topics["t"], 0, leader)
            yield fake.log("t"), there, Cleanup(cluster, cluster, "t", (), MemoryState([]), Log())


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("back", [0, 5, 45])
async def test_filler_that_came_back_is_deleted(count: int, back: int, copied: bool) -> None:
    """All of it, and no copy behind it; also if the source begins earlier by now than it did."""
    async with destination() as (log, there, cleanup):
        fill(log, count)
        end = log.end
        if copied:
            log.store(raw_batch(b"copy", base_offset=log.end))
        told = Log()
        start = await trim(
            there, RULES, 0, log.end, source_start=max(0, end - back), cleanup=cleanup, log=told
        )  # fmt: skip
        assert start == log.start == end
        assert len(log.batches) == copied
        assert [line["detail"] for line in told.of("leading_offsets_trimmed")] == (
            [f"{there.name}: from 0 to {end}"] if count else []
        )


@pytest.mark.parametrize("writer", ["ours", "others"])
async def test_filler_that_came_back_before_a_copy_that_the_source_has_overtaken(writer: str) -> None:
    """The source has deleted what is due behind the copy. That the copy is no filler is no other's doing: the resync
    finds out what is gone. What others have written behind the filler halts as ever."""
    async with destination() as (log, there, cleanup):
        fill(log, 2)
        log.store(raw_batch(b"copy", base_offset=40, producer_id=RULES.owner if writer == "ours" else 4_711))
        source: Any = SimpleNamespace(start=_sixty)

        async def settled() -> int:
            return log.end

        looking = lead(source, there, RULES, Begun(), settled=settled, owns=_owns, cleanup=cleanup, log=Log())
        if writer == "ours":
            assert not await looking
        else:
            with pytest.raises(PartitionHalted, match="others have written offsets 40 to"):
                await looking
        assert log.start == 0


async def _sixty() -> int:
    return 60


async def _owns() -> bool:
    return True


@pytest.mark.parametrize("ahead", [7, -7])
async def test_filler_that_was_displaced_stands_where_the_source_has_a_record(ahead: int) -> None:
    """Its sequences say that it does not belong there."""
    async with destination() as (log, there, cleanup):
        fill(log, 1)
        fill(log, 2, ahead=ahead)
        with pytest.raises(PartitionHalted, match=r"the source begins at offset 50, and filler .* ends at 60"):
            await trim(there, RULES, 0, 60, source_start=50, cleanup=cleanup, log=Log())
        assert log.start == 0


async def test_what_others_wrote_among_filler_is_not_deleted() -> None:
    async with destination() as (log, there, cleanup):
        fill(log, 1)
        log.store(raw_batch(b"other", base_offset=log.end))
        fill(log, 2, ahead=-5)
        with pytest.raises(PartitionHalted, match="others have written offsets 20 to 24, before the source's first"):
            await trim(there, RULES, 0, log.end, source_start=65, cleanup=cleanup, log=Log())
        assert log.start == 0
