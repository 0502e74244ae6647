"""``--accept-gap`` over a gap without a cause: the one where the partition goes on, once, and no further."""

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from mirror.net.logs.log import Marker, PartitionLog
from mirror.offsetmap.internal.memory import Memory
from mirror.relay.locate import position
from mirror.relay.mapped import locate as mapped_mode
from mirror.relay.relay import Relay
from mirror.sandbox import SandboxCluster
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.net.stage.real import alter, create, log_of, opened, records
from tests.patience import PATIENT
from tests.relay.locate.test_cleaned import headers
from tests.relay.stage.flows import Log, batches, clusters, mirroring
from tests.relay.stage.mapping import mapping, payloads
from tests.relay.stage.noting import ledger
from tests.simulation.model.broker import marker_batch

FIRST = ("t", 0)


@pytest.fixture
def fills(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeCluster]]:
    """Markers are taken by the destination that is put in here."""
    there: list[FakeCluster] = []

    async def write_markers(self: PartitionLog, marker: Marker, count: int) -> None:
        log = there[0].log("t")
        for _ in range(count):
            log.store(marker_batch(log.end, marker.producer_id, marker.epoch))

    monkeypatch.setattr(PartitionLog, "write_markers", write_markers)
    return iter([there])


async def _nothing(*_: object, **__: object) -> None:
    """No gap is gone over."""


def _halted_again(log: Log) -> bool:
    return len(log.of("halted")) > 1


def _skipped(state: Memory, more_than: int) -> bool:
    return len([*state.ledger.skipped()]) > more_than


def two_gaps(source: FakeCluster) -> None:
    """Offsets 6 to 19 and 26 to 29 have no batch."""
    source.add_topic("t")
    source.store("t", 0, *batches(2), *batches(2, first=20), *batches(2, first=30))


@pytest.mark.parametrize("killed", [False, True, "filling"])
async def test_one_at_a_time(
    fills: Iterator[list[FakeCluster]], monkeypatch: pytest.MonkeyPatch, *, killed: bool | str
) -> None:
    """
    1. Halts at the first gap; resumed so, it goes on behind it, also if it is killed before the next data, before or in
       the middle of the filling.
    2. Halts at the second one; resumed as before. Both are written down as skipped, and told: the first by the process
       that was killed behind that, because the next one finds it written down.
    """
    async with clusters() as (source, destination):
        next(fills).append(destination)
        two_gaps(source)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "unexplained_gap"
            await until(lambda: ledger(destination).halts)
            if killed:
                with monkeypatch.context() as patches:
                    if killed == "filling":
                        patches.setattr(PartitionLog, "write_markers", _three_of(destination))
                    else:
                        patches.setattr(Relay, "place", lambda *_: None)
                    assert await flow.relay.resume(FIRST, accept_gap=True) == ""
                    await until(
                        lambda: (
                            destination.log("t").end == 9 if killed == "filling" else [*ledger(destination).skipped()]
                        )
                    )
            else:
                assert await flow.relay.resume(FIRST, accept_gap=True) == ""
                await until(lambda: len(flow.log.of("halted")) > 1)
            (skipped,) = flow.log.of("skipped")
            assert "offsets 6 to 19" in skipped["detail"]
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "unexplained_gap"
            (told,) = flow.log.of("halted")
            assert "offset 26 is due, the next batch has offsets 30 to 32" in told["detail"]
            assert await flow.relay.resume(FIRST) == ""
            assert await flow.halted() == "unexplained_gap"
            assert await flow.relay.resume(FIRST, accept_gap=True) == ""
            await until(lambda: flow.partition().queue.acknowledged == 36)
            assert [(each.start, each.end) for each in ledger(destination).skipped()] == [(6, 20), (26, 30)]
            (skipped,) = flow.log.of("skipped")
            assert "offsets 26 to 29" in skipped["detail"]


async def test_it_is_written_down_before_it_is_filled(
    fills: Iterator[list[FakeCluster]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a gap that ``on.gap: continue`` goes over, nothing is to be seen any more behind its markers. So a process
    that is killed in the middle of the filling has told it, and written it down."""
    async with clusters() as (source, destination):
        next(fills).append(destination)
        two_gaps(source)
        monkeypatch.setattr(PartitionLog, "write_markers", _three_of(destination))
        async with mirroring(source, destination, accept_gaps=True) as flow:
            await until(lambda: destination.log("t").end == 9)
            assert [(each.start, each.end) for each in ledger(destination).skipped()] == [(6, 20)]
            (skipped,) = flow.log.of("skipped")
            assert "offsets 6 to 19" in skipped["detail"]


def _three_of(destination: FakeCluster) -> Any:
    async def write_markers(self: PartitionLog, marker: Marker, count: int) -> None:
        log = destination.log("t")
        if log.end == 6:
            for _ in range(3):
                log.store(marker_batch(log.end, marker.producer_id, marker.epoch))
        await asyncio.Event().wait()

    return write_markers


async def test_without_the_rule(fills: Iterator[list[FakeCluster]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: what was accepted is forgotten when the position is found, and it halts at the same gap again."""
    monkeypatch.setattr(position, "gap_behind", _nothing)
    async with clusters() as (source, destination):
        next(fills).append(destination)
        two_gaps(source)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "unexplained_gap"
            assert await flow.relay.resume(FIRST, accept_gap=True) == ""
            await until(lambda: len(flow.log.of("halted")) > 1)
            assert destination.log("t").end == 6


@pytest.fixture
def cleaning() -> Iterator[SandboxCluster]:
    """A source whose cleaner works at once."""
    properties = {**PATIENT, "log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "500"}
    with SandboxCluster(name="cleaning", quick=True, properties=properties) as sandbox:
        yield sandbox


@pytest.mark.broker
async def test_a_topic_that_was_compacted(
    cleaning: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. The source's cleaner has left gaps; then the topic is not compacted any more. It halts at each of them.
    2. Resumed with ``--accept-gap``, killed right behind that, and so once more: all is copied, in both modes.
    3. Mutation: with ``offsets: mapped``, too, it halts at the same place without the rule.
    """
    create(
        cleaning,
        topic_name,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.0001",
        segment_ms="1000",
    )
    for key, times in (("first", 1), ("hot", 4), ("mid", 1), ("hot", 3), ("last", 1)):
        for at in range(times):
            records(cleaning, topic_name, [f"{key} {at}"], key=key)
    async with opened(cleaning) as here:
        while len(await headers(here, topic_name)) > 4:  # first, mid, the last hot one, last
            await asyncio.sleep(1.1)
            records(cleaning, topic_name, ["roll"], key="last")
            await asyncio.sleep(0.5)
            if sum(header.record_count for header in await headers(here, topic_name)) <= 6:
                break
        alter(cleaning, topic_name, "cleanup.policy", "delete")
        await asyncio.sleep(1)
        found = await headers(here, topic_name)
        gaps = sum(one.next_offset < other.base_offset for one, other in pairwise(found))
        assert gaps >= 2
        wanted = [content.records for _, content in (await payloads(await log_of(here, topic_name))).values()]
    for is_mapped in (True, False):
        into = f"{topic_name}-{is_mapped}" if is_mapped else topic_name
        create(destination_cluster, into)
        told: dict[str, Any] = {"into": {topic_name: into}, "mapped": is_mapped, "flow": f"{topic_name}->{is_mapped}"}
        for gap in range(gaps):
            async with mapping(cleaning, destination_cluster, topic_name, **told) as flow:
                assert await flow.halted(topic_name) == "unexplained_gap", gap
                if is_mapped and not gap:
                    with monkeypatch.context() as patches:
                        patches.setattr(mapped_mode, "gap_behind", _nothing)
                        assert await flow.relay.resume((topic_name, 0), accept_gap=True) == ""
                        await until(partial(_halted_again, flow.log))
                with monkeypatch.context() as patches:
                    patches.setattr(Relay, "place", lambda *_: None)
                    assert await flow.relay.resume((topic_name, 0), accept_gap=True) == ""
                    await until(partial(_skipped, flow.relay.pins.state, gap))
                    await asyncio.sleep(0.5)
        async with mapping(cleaning, destination_cluster, topic_name, **told) as flow:
            await flow.copied(topic_name)
            there = await log_of(flow.destination, into)
            assert [content.records for _, content in (await payloads(there)).values()] == wanted
