"""What a worker tells of a partition's lag: what is known, and nothing else."""

import time

import pytest

from mirror.reasons import HaltReason
from mirror.relay.assignment import Key
from mirror.relay.halts import Halted
from mirror.relay.partition import partition
from mirror.relay.partition.partition import Partition
from mirror.relay.relay import Relay
from mirror.relay.topics import recreated
from mirror.service.telemetry import snapshot
from mirror.service.telemetry.families.flows import _FLOW_COUNTERS
from mirror.service.telemetry.rows import PartitionRow
from mirror.service.telemetry.snapshot import FRESH_S, Snapshots
from mirror.service.telemetry.usage.gc_stats import Pauses
from tests.fakes.loop import until
from tests.relay.stage.flows import batches, clusters, fill, mirroring
from tests.relay.stage.noting import recreate


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


async def test_a_partition_at_rest_costs_nothing_and_is_told_as_it_is() -> None:
    """
    1. Rows of quiet partitions are made once, and not again while nothing changes.
    2. Whatever changes is told: data, a commit, an end not heard of for long, a halt. What was told in all is what a
       new snapshot tells.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=20)
        async with mirroring(source, destination) as flow:
            relay, partitions = flow.relay, flow.relay.partitions
            taken, made = Snapshots(Pauses()), list[int]()
            make = taken._row

            def row_of(key: Key, partition: Partition, committed: int, fresh_from: float) -> PartitionRow:
                made.append(key[1])
                return make(key, partition, committed, fresh_from)

            setattr(taken, "_row", row_of)  # noqa: B010 (a method)
            told: dict[Key, PartitionRow] = {}
            committed: dict[Key, int] = {}

            def look() -> list[int]:
                """The partitions of which rows were made."""
                made.clear()
                told.update({row.key: row for row in taken.take(relay, committed, joined=1)["partitions"]})
                fresh = Snapshots(Pauses()).take(relay, committed, joined=1)["partitions"]
                # Stints are numbered by whoever takes the snapshots.
                assert [row._replace(stint=row.stint._replace(number=0)) for row in told.values()] == [
                    row._replace(stint=row.stint._replace(number=0)) for row in fresh
                ]
                return sorted(made)

            await flow.copied()
            await until(lambda: all(each.cursor.is_quiet for each in partitions.values()))
            assert look() == list(range(20))
            assert look() == []
            source.store("t", 7, *batches(1, first=60))
            await flow.copied()
            await until(lambda: all(each.cursor.is_quiet for each in partitions.values()))
            assert look() == [7]
            assert told["t", 7].position == 63
            committed["t", 8] = 60
            assert look() == [8]
            hearing = partitions["t", 0].cursor._hearing
            assert hearing is not None
            hearing.at_s = time.monotonic() - FRESH_S - 1
            for each in partitions.values():
                each.cursor.forget_hearing()
            assert look() == list(range(20))
            assert {row.lag_records for row in told.values()} == {None}
            relay.halt(partitions["t", 9], Halted.of(HaltReason.FOREIGN_WRITER, "planted"))
            assert 9 in look()
            assert told["t", 9].reason == "foreign_writer"


@pytest.mark.parametrize("rule", [True, False])
async def test_a_topic_that_was_made_anew(monkeypatch: pytest.MonkeyPatch, *, rule: bool) -> None:
    """
    1. All is copied. The destination topic is made anew: nothing of that is in there. Position and lag are unknown.
    2. Without the rule (the mutation): 60, and 0.
    3. Resumed, the topic of now counts.
    """
    monkeypatch.setattr(recreated, "LOOK_EVERY_S", 0.02)
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


async def test_the_source_s_retention_is_told_when_it_changes() -> None:
    """
    1. Told with the first report, and not again: of thousands of topics, every second.
    2. Told anew when a look for topics found it changed. What is never deleted by time is left out.
    3. Another process's first report has it all.
    """
    async with clusters() as (source, destination):
        fill(source)
        source.topics["t"].configs["retention.ms"] = "7200000"
        source.add_topic("kept", configs={"retention.ms": "-1"})
        source.add_topic("compacted", configs={"cleanup.policy": "compact"})
        async with mirroring(source, destination, refresh_topics_interval_ms=10) as flow:
            await flow.copied()
            taken = Snapshots(Pauses())
            assert [taken.take(flow.relay, {})["retention_s"] for _ in range(2)] == [{"t": 7_200}, None]
            source.topics["t"].configs["retention.ms"] = "3600000"
            found: list[dict[str, float]] = []

            def told() -> bool:
                found.extend(each for each in [taken.take(flow.relay, {})["retention_s"]] if each is not None)
                return bool(found)

            await until(told)
            assert found == [{"t": 3_600}]
            assert Snapshots(Pauses()).take(flow.relay, {})["retention_s"] == {"t": 3_600}


async def test_counters_of_a_flow_are_reported() -> None:
    """Each that is shown of a flow is told by a worker: one that nobody tells would stay at 0."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            told = Snapshots(Pauses()).take(flow.relay, {}, joined=1)["counters"]
        assert {counter for _, counter, _ in _FLOW_COUNTERS} <= told.keys()


async def test_histograms_have_their_names() -> None:
    """Each under its own name, with its own sum."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            stats = flow.relay.stats
            expected = {
                "record_age_s": stats.record_age, "replication_latency_s": stats.replication_latency,
                "batch_bytes": stats.batch_bytes, "produce_request_bytes": stats.request_bytes,
                "produce_request_batches": stats.request_batches,
            }  # fmt: skip
            for at, histogram in enumerate(expected.values(), start=1):
                histogram.note(at)
            told = Snapshots(Pauses()).take(flow.relay, {}, joined=1)["counters"]
            sums = {name: told[f"{name}/sum"] for name in expected}
            assert sums == {name: histogram.total for name, histogram in expected.items()}
            assert len(set(sums.values())) == len(sums)
