"""Partitions' metrics by topic: what becomes of several partitions' figures, and what ten thousand of them cost."""

import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mirror.relay.stats import GivenUp
from mirror.service.telemetry.families.partitions import PARTITION, TOPIC
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.rows import PartitionRow
from tests.service.telemetry.stage.fleets import fleet, snapshot
from tests.service.telemetry.stage.rows import row, stint
from tests.service.telemetry.stage.showing import exposed_of

MANY_TOPICS, MANY_PARTITIONS = 100, 100
OF_TOPIC = {
    "replicated_records_total", "replicated_batches_total", "replicated_bytes_total", "filled_offsets_total",
    "replication_lag_records", "replication_lag_seconds", "source_end_offset", "target_end_offset",
    "committed_offset", "partition_halted", "skipped_offsets_total", "last_skip_timestamp_seconds",
}  # fmt: skip


def told(*rows: PartitionRow, **more: Any) -> Fleet:
    """A flow of one worker with these partitions."""
    found = fleet(1)
    found.heard(1, snapshot(*rows, **more))
    return found


def values(found: Fleet, granularity: str = TOPIC) -> dict[tuple[str, ...], float]:
    """(name without "mirror_", topic, reason) -> value, of all metrics of partitions; a reason where there is one."""
    made = {}
    for family in text_string_to_metric_families(exposed_of(found, "1", granularity=granularity).decode()):
        for each in family.samples:
            name = each.name.removeprefix("mirror_")
            if name in OF_TOPIC:
                labels = [each.labels[key] for key in ("topic", "reason") if key in each.labels]
                made[(name, *labels)] = each.value
    return made


def waiting(topic: str, partition: int, lag: int | None, **changes: Any) -> PartitionRow:
    return row(topic, partition, lag_records=lag, position=50, source_end=50 + (lag or 0), **changes)


def test_a_topic_has_the_sums_of_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts and offsets are added up; of times, the worst counts. Another topic has nothing to do with it."""
    found = told(
        waiting("t", 0, 7, stint=stint(filled=1)),
        waiting("t", 1, 5, state="halted", reason="corrupt", stint=stint(10, 50, filled=2)),
        waiting("t", 2, 0, state="halted", reason="corrupt"),
        waiting("u", 0, 3),
        skipped=(
            GivenUp("t", 0, 0, 4, "unexplained_gap", 1_700_000_005_000),
            GivenUp("t", 1, 0, 3, "unexplained_gap", 1_700_000_002_000),
            GivenUp("t", 1, 9, 10, "compacted", 1_700_000_001_000),
        ),
    )
    monkeypatch.setattr(Fleet, "lag_seconds", lambda _, each, __: float(each.lag_records))
    assert {key: value for key, value in values(found).items() if key[1] == "t"} == {
        ("replicated_records_total", "t"): 50 + 40 + 50,
        ("replicated_batches_total", "t"): 5 + 4 + 5,
        ("replicated_bytes_total", "t"): 500 + 400 + 500,
        ("filled_offsets_total", "t"): 3,
        ("replication_lag_records", "t"): 12,
        ("replication_lag_seconds", "t"): 7,
        ("source_end_offset", "t"): 57 + 55 + 50,
        ("target_end_offset", "t"): 150,
        ("committed_offset", "t"): 120,
        ("partition_halted", "t", "corrupt"): 2,
        ("skipped_offsets_total", "t", "unexplained_gap"): 7,
        ("skipped_offsets_total", "t", "compacted"): 1,
        ("last_skip_timestamp_seconds", "t"): 1_700_000_005,
    }
    assert values(found)["replication_lag_records", "u"] == 3


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Not known of one: a lag says something, a 0 does not, and a sum of offsets would be wrong.
        ([waiting("t", 0, 7), row("t", 1, lag_records=None, position=-1, source_end=-1, committed=-1)], (7, None)),
        ([waiting("t", 0, 0), row("t", 1, lag_records=None, position=-1, source_end=-1, committed=-1)], (None, None)),
        ([waiting("t", 0, 0), waiting("t", 1, 0)], (0, 100)),
    ],
    ids=["a lag", "no lag", "all known"],
)
def test_what_is_not_known_of_one_partition(rows: list[PartitionRow], expected: tuple[float | None, ...]) -> None:
    found = values(told(*rows))
    lag, end = expected
    assert found.get(("replication_lag_records", "t")) == lag
    assert (("replication_lag_seconds", "t") in found) is (lag is not None)
    assert found.get(("target_end_offset", "t")) == found.get(("source_end_offset", "t")) == end
    assert (("committed_offset", "t") in found) is (end is not None)


def test_a_paused_partition_does_not_hide_the_others() -> None:
    """It has no age, and that is no age that is not known. What it lacks counts as records."""
    found = values(told(waiting("t", 0, 0), waiting("t", 1, 9, state="paused"), waiting("u", 0, 9, state="paused")))
    assert found["replication_lag_seconds", "t"] == 0
    assert found["replication_lag_records", "t"] == 9
    assert ("replication_lag_seconds", "u") not in found


def test_no_series_has_a_partition() -> None:
    """Every family that has partitions by default has them by topic, and nothing else changes."""
    found = told(
        waiting("t", 0, 7, state="halted", reason="corrupt"),
        skipped=(GivenUp("t", 0, 0, 4, "unexplained_gap", 1_700_000_005_000),),
    )

    def families(granularity: str) -> dict[str, set[str]]:
        text = exposed_of(found, "1", granularity=granularity).decode()
        samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
        return {each.name: each.labels.keys() - {"topic"} for each in samples}

    by_partition, by_topic = families(PARTITION), families(TOPIC)
    assert by_partition.keys() == by_topic.keys()
    changed = {name.removeprefix("mirror_") for name in by_topic if by_topic[name] != by_partition[name]}
    assert changed == OF_TOPIC
    assert not any("partition" in labels for labels in by_topic.values())


def cpu_s(found: Fleet, granularity: str) -> float:
    """The least of three times."""
    took = []
    for _ in range(3):
        before = time.process_time()
        exposed_of(found, "1", granularity=granularity)
        took.append(time.process_time() - before)
    return min(took)


def test_ten_thousand_partitions() -> None:
    """By topic, a scrape of them costs less than half of what it costs by partition: most of that is text."""
    found = told(*(waiting(f"topic-{topic}", at, at) for topic in range(MANY_TOPICS) for at in range(MANY_PARTITIONS)))
    by_topic, by_partition = cpu_s(found, TOPIC), cpu_s(found, PARTITION)
    print(f"10,000 partitions: {by_topic:.3f} s by topic, {by_partition:.3f} s by partition")
    assert by_topic < by_partition / 2
