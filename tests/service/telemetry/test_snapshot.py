"""What a worker tells of a partition's lag: what is known, and nothing else."""

import time

import pytest

from mirror.relay.partition import partition
from mirror.relay.partition.partition import Partition
from mirror.relay.relay import Relay
from mirror.relay.topics import ids
from mirror.service.telemetry import snapshot
from mirror.service.telemetry.gc_stats import Pauses
from mirror.service.telemetry.snapshot import FRESH_S, Snapshots
from tests.fakes.loop import until
from tests.relay.flows import batches, clusters, fill, mirroring
from tests.relay.noting import recreate


def lag(relay: Relay) -> int | None:
    """As a new snapshot has it."""
    (row,) = Snapshots(Pauses()).take(relay, {}, joined=1)["partitions"]
    told: int | None = row.lag_records
    return told


def unheard(partition: Partition) -> None:
    """The source's end was heard of too long ago."""
    partition.cursor.hear_by(None)
    partition.cursor.heard(partition.cursor.high_watermark, time.monotonic() - FRESH_S - 1)


async def test_nothing_to_copy_as_far_as_was_heard() -> None:
    """
    1. All is copied: 0, while the source's end is heard of.
    2. It was not heard of for a while: not known.
    3. What is known to wait goes on waiting, whatever else there may be.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert lag(flow.relay) == 0
            unheard(flow.partition())
            assert lag(flow.relay) is None
            flow.partition().cursor.heard(100, time.monotonic())
            unheard(flow.partition())
            assert lag(flow.relay) == 40


async def test_mutation_an_end_counts_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were an end that was heard of once good for ever, lag would be 0 while the source is away."""
    monkeypatch.setattr(snapshot, "FRESH_S", float("inf"))
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            unheard(flow.partition())
            assert lag(flow.relay) == 0


async def test_what_an_open_transaction_keeps_back() -> None:
    """
    1. Nothing is open. 2. A transaction is, and others write behind it: lag is 0, and what is kept back is told, with
       the time since which it is. 3. More behind it changes nothing of that time. 4. It ends.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            taken = Snapshots(Pauses())

            def held() -> tuple[int, float]:
                row = taken._row(("t", 0), flow.partition(), -1, 0.0)
                assert row.lag_records == 0
                return row.held_back, row.held_since

            assert held() == (0, 0.0)
            log = source.log("t")
            log.open_from = log.end
            source.store("t", 0, *batches(2, first=60))
            await until(lambda: held()[0] == 6)
            _, since = held()
            assert 0 < since <= time.time()
            source.store("t", 0, *batches(1, first=66))
            await until(lambda: held()[0] == 9)
            assert held() == (9, since)
            log.open_from = None
            source.changed()
            await flow.copied()
            assert held() == (0, 0.0)


@pytest.mark.parametrize("rule", [True, False])
async def test_a_topic_that_was_made_anew(monkeypatch: pytest.MonkeyPatch, *, rule: bool) -> None:
    """
    1. All is copied. The destination topic is made anew: nothing of that is in there. Position and lag are unknown.
    2. Without the rule (the mutation): 60, and 0.
    3. Resumed, the topic of now counts.
    """
    monkeypatch.setattr(ids, "LOOK_EVERY_S", 0.02)
    if not rule:
        monkeypatch.setattr(partition, "UNPLACED", frozenset())
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            recreate(destination)
            assert await flow.halted() == "recreated"
            flow.partition().cursor.heard(60, time.monotonic())
            (row,) = Snapshots(Pauses()).take(flow.relay, {}, joined=1)["partitions"]
            assert (row.position, row.lag_records) == ((-1, None) if rule else (60, 0))
            assert await flow.relay.resume(("t", 0)) == ""
            await flow.copied()
            (row,) = Snapshots(Pauses()).take(flow.relay, {}, joined=1)["partitions"]
            assert (row.position, row.lag_records) == (60, 0)
