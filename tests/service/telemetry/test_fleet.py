"""What the supervisor makes of its workers' words: sums, survival of counters, metrics, lag."""

import inspect
import re
import time
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.typing import FilteringBoundLogger

from mirror.reasons import REASONS, HaltReason
from mirror.records import admit
from mirror.relay.hot import forward
from mirror.relay.stats import GivenUp
from mirror.service.flows.overview import late_workers
from mirror.service.telemetry import fleet as module
from mirror.service.telemetry.backlog import MOST_ENDS, Backlog
from mirror.service.telemetry.families import flows
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.reports import Reports
from mirror.service.telemetry.rows import Gone
from mirror.service.telemetry.status import as_text
from tests.relay.stage.flows import Log
from tests.service.telemetry.stage.alerts import firing, samples
from tests.service.telemetry.stage.fleets import NOW_MS, fleet, sample, snapshot, told
from tests.service.telemetry.stage.rows import row, stint
from tests.service.telemetry.stage.showing import exposed_of


def settled(found: Fleet) -> bool:
    return found.settled


def caught_up(found: Fleet) -> bool:
    return found.caught_up


def all_halted(found: Fleet) -> bool:
    return found.all_halted


def test_counters_survive_their_worker_and_gauges_do_not() -> None:
    """
    1. A worker copies a partition, and dies.
    2. The other takes it over, and the dead one comes back with another: everything adds up.
    """
    found = fleet()
    counters: dict[str, Any] = {"resyncs/timeout": 2, "throttled_s/source": 0.5}
    found.heard(1, snapshot(row(), **counters))
    found.heard(2, snapshot(row(partition=1)))
    assert found.is_whole
    assert settled(found)
    found.ended(1)
    assert not settled(found)
    assert found.states == {"active": 1}
    assert sample(found, "mirror_replicated_records_total", partition="0") == 50
    assert sample(found, "mirror_replication_lag_records", partition="0") is None
    assert sample(found, "process_resident_memory_bytes", worker="1") is None
    assert sample(found, "mirror_worker_up", worker="1") == 0
    found.heard(2, snapshot(row(partition=1), row(stint=stint(50, 57, batches=1)), **counters))
    found.started(1, 2_000)
    found.heard(1, snapshot())
    assert sample(found, "mirror_replicated_records_total", partition="0") == 57
    assert sample(found, "mirror_replicated_bytes_total", partition="0") == 570
    assert sample(found, "mirror_resyncs_total", cause="timeout") == 4
    assert sample(found, "mirror_throttled_seconds_total", cluster="source") == 1.0
    assert sample(found, "process_cpu_seconds_total", worker="1") == 3.0
    assert sample(found, "mirror_worker_restarts_total", worker="1") == 1
    assert sample(found, "mirror_build_info", version="1.2.3") == 1


def test_the_log_counts_as_the_status_does() -> None:
    """They have one account of what was copied: what was in doubt and had landed is in it."""
    found, log = fleet(), Log()
    reports = Reports(found, cast(FilteringBoundLogger, log))
    found.heard(1, snapshot(row()))
    found.ended(1)
    found.started(1, 2_000)
    found.heard(1, snapshot())
    found.heard(2, snapshot(row(stint=stint(60, 80)), row(partition=1)))
    reports.look(started=True)
    reports.progress()
    now, (line,), (caught_up,) = told(found), log.of("progress"), log.of("caught_up")
    assert (line["bytes"], line["batches_forwarded"]) == (500 + 200 + 500, 5 + 2 + 5)
    assert (line["bytes"], line["batches_forwarded"]) == (now["replicated_bytes"], now["replicated_batches"])
    assert sample(found, "mirror_batches_total", path="shallow") == line["batches_forwarded"]
    assert line["bytes_per_s"] > 0
    assert caught_up["bytes"] == line["bytes"]


def test_a_partition_that_moves_is_counted_once() -> None:
    """What a worker had before stays counted while another has it, and when it comes back."""
    found = fleet()
    found.heard(1, snapshot(row()))
    found.heard(1, snapshot(gone=(Gone("t", 0, stint(0, 53, records=50, filled=3)),)))
    assert not list(found.rows)
    found.heard(2, snapshot(row(stint=stint(53, 64, records=10, filled=1))))
    assert found.totals() == {("t", 0): (60, 6, 640, 4)}
    found.heard(2, snapshot(gone=(Gone("t", 0, stint(53, 64, records=10, filled=1)),)))
    found.heard(1, snapshot(row(stint=stint(64, 94, number=2))))
    assert found.totals() == {("t", 0): (90, 9, 940, 4)}


def test_shallow_batches_never_go_back() -> None:
    """Batches are counted when they are built, and once more when they are built again, before the destination has
    them: a counter that falls looks as if it had begun anew, and ``rate()`` adds it all."""
    found, shallow = fleet(), "mirror_batches_total"
    found.heard(1, snapshot(row(stint=stint(50, 60, batches=10)), built_batches=2))
    assert sample(found, shallow, path="shallow") == 8
    found.heard(1, snapshot(row(stint=stint(50, 60, batches=10)), built_batches=6))
    assert sample(found, shallow, path="shallow") == 8
    found.heard(1, snapshot(row(stint=stint(50, 70, batches=15)), built_batches=6))
    assert sample(found, shallow, path="shallow") == 9


def test_reasons_to_rewrite_begin_at_0() -> None:
    """All for which ``Rewriter`` counts: a rate does not see a counter that begins with 1."""
    refused = re.findall(r"HaltReason\.(\w+)", inspect.getsource(admit._refused))
    counted = re.findall(r"count\(HaltReason\.(\w+)", inspect.getsource(forward))
    assert len(refused) > 3
    assert counted == ["OLD_FORMAT"]
    slugs = {HaltReason[name].slug for name in (*refused, *counted)} | {each.slug for each in admit.RewriteWish}
    assert {slug for slug in slugs if sample(fleet(), "mirror_batches_total", path="deep", reason=slug) == 0} == slugs


def test_partitions_that_are_long_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Topics come and go. What was counted of them stays in the flow's account, and nothing is kept of each.
    2. Not while somebody here has the partition, nor while the group does not say that every partition has an owner: a
       source that is away for hours is no topic that is gone.
    3. One that comes back is counted on.
    """
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)
    found = fleet(1)
    found.heard(1, snapshot(row("old"), row("new")))
    before = found.replicated
    monkeypatch.setattr(module, "FORGET_S", -1.0)
    found.heard(1, snapshot())
    assert found.totals().keys() == {("old", 0), ("new", 0)}
    found.heard(1, snapshot(gone=(Gone("old", 0, stint()),)))
    for unassigned, kept in ((None, True), (1, True), (0, False)):
        found.heard(1, snapshot() | {"unassigned": unassigned})
        assert (("old", 0) in found.totals()) is kept
        assert (("old", 0) in found._backlogs) is kept
        assert found.replicated == before
    assert found.totals().keys() == {("new", 0)}
    assert found._away_since == {}
    found.heard(1, snapshot(row("old", stint=stint(50, 57, number=2))))
    assert found.replicated == before.plus(stint(50, 57).totals)


def test_partitions_that_are_gone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, before the hour is over."""
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)
    found = fleet(1)
    found.heard(1, snapshot(row("old")))
    for _ in range(3):
        found.heard(1, snapshot(gone=(Gone("old", 0, stint()),)) | {"unassigned": 0})
    assert found.totals().keys() == {("old", 0)}


def test_caught_up() -> None:
    """Not before every worker is in the group, nothing is sought, and nothing lags. Halted ones do not count."""
    found = fleet()
    assert not caught_up(found)
    found.heard(1, snapshot(row()))
    assert not caught_up(found)
    found.heard(2, snapshot(row(partition=1, state="locating")))
    assert not caught_up(found)
    found.heard(2, snapshot(row(partition=1, lag_records=3)))
    assert not caught_up(found)
    found.heard(2, snapshot(row(partition=1, state="halted", reason="foreign_writer")))
    assert caught_up(found)
    assert not all_halted(found)
    found.heard(1, snapshot(row(state="halted", reason="foreign_writer")))
    assert all_halted(found)
    assert not caught_up(found), "nothing is copied"


def test_lag_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. The source grows, and nothing is copied: the oldest record waits longer and longer, also while the worker is
       another one, and while the partition is located or halted.
    2. What was seen first is copied: what came later has not waited so long.
    3. All is copied: 0. Where the lag is not known, there are no seconds either.
    """
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    found = fleet()

    def seconds() -> float | None:
        return sample(found, "mirror_replication_lag_seconds", partition="0")

    found.heard(1, snapshot(row()))
    assert seconds() == 0
    found.heard(1, snapshot(row(source_end=60, lag_records=10)))
    now += 100
    assert seconds() == 100
    found.heard(1, snapshot(row(source_end=70, lag_records=20, state="locating")))
    now += 50
    found.ended(1)
    assert seconds() is None
    found.heard(2, snapshot(row(source_end=70, lag_records=20, state="halted", reason="foreign_writer")))
    assert seconds() == 150
    found.heard(2, snapshot(row(source_end=70, lag_records=10, position=60)))
    assert seconds() == 50
    found.heard(2, snapshot(row(source_end=70, lag_records=None, position=70)))
    assert seconds() is None
    found.heard(2, snapshot(row(source_end=70, position=70)))
    assert seconds() == 0


def test_a_backlog_is_bounded() -> None:
    """
    1. A copy that is always 1,000 s behind a source that grows each second: the answer stays that, more or less.
    2. The source loses what was not copied: nothing waits for what will never come.
    """
    backlog = Backlog()
    for second in range(10_000):
        backlog.seen(second, second - 1_000, float(second))
        if second > 1_000:
            assert 950 <= backlog.seconds(float(second)) <= 1_000
    assert len(backlog._ends) <= MOST_ENDS
    backlog.seen(8_999, 8_999, 10_000.0)
    assert backlog.seconds(20_000.0) == 0


def test_lag_that_is_not_known_is_never_0() -> None:
    """
    1. Of one of two partitions the lag is not known: there is no sample of it, and it is said how many there are.
    2. Nothing is known to lag, and not everything is known: the sum is not known either.
    """
    found = fleet(1)
    found.heard(1, snapshot(row(lag_records=3_000), row(partition=1, state="locating", lag_records=None, position=-1)))
    assert sample(found, "mirror_replication_lag_records", partition="0") == 3_000
    for name in ("mirror_replication_lag_records", "mirror_replication_lag_seconds", "mirror_target_end_offset"):
        assert sample(found, name, partition="1") is None
    now = told(found)
    assert (now["lag_records"], now["lag_unknown_partitions"]) == (3_000, 1)
    assert "lag:        3,000 records; unknown for 1 partition\n" in as_text(now)
    assert [one["lag_records"] for one in now["partitions"]] == [3_000, None]
    found.heard(1, snapshot(row()))
    now = told(found)
    assert (now["lag_records"], now["partitions"][1]["position"]) == (None, None)
    assert "lag:        unknown (1 partition)\n" in as_text(now)
    assert not caught_up(found)


def test_names_and_units() -> None:
    """Help on everything, base units, no family twice, totals are counters."""
    found = fleet()
    found.heard(1, snapshot(row(), skipped=(GivenUp("t", 0, 10, 20, "on.gap", NOW_MS),)))
    families = list(text_string_to_metric_families(exposed_of(found, "1").decode()))
    names = [family.name for family in families]
    assert len(set(names)) == len(names) > 25
    for family in families:
        assert family.documentation.endswith("."), family.name
        assert not family.name.endswith(("_ms", "_milliseconds", "_kb", "_mb", "_created")), family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
    assert sample(found, "mirror_skipped_offsets_total", reason="on.gap") == 10


def test_a_skipped_range_counts_once() -> None:
    """Each worker tells of what was skipped before it began, with the time of the decision as it knows it."""
    found = fleet()
    early, late = GivenUp("t", 0, 10, 20, "on.gap", NOW_MS - 5), GivenUp("t", 1, 0, 5, "on.gap", NOW_MS - 9)
    older = GivenUp("t", 0, 0, 10, "on.gap", NOW_MS - 20)
    for worker in (1, 2):
        found.heard(worker, snapshot(skipped=(early._replace(at_ms=NOW_MS + worker), early, older, late)))
    assert found.skipped == [older, late, early]
    assert sample(found, "mirror_last_skip_timestamp_seconds", partition="0") == early.at_ms / 1000
    assert sample(found, "mirror_skipped_offsets_total", partition="0") == 20
    scraped = samples(exposed_of(found, "1").decode())
    assert "MirrorOffsetsSkipped" in firing(scraped, at_s=early.at_ms / 1000 + 60)
    assert "MirrorOffsetsSkipped" not in firing(scraped)


def test_a_worker_that_is_not_heard_of() -> None:
    """Stuck or stopped: health says so, whatever brokers do. One that is down is the supervisor's concern."""
    found = fleet()
    assert late_workers(found.workers, time.time()) == []
    assert late_workers(found.workers, time.time() + 61) == [1, 2]
    found.ended(1)
    assert late_workers(found.workers, time.time() + 61) == [2]


def counters(found: Fleet) -> dict[str, float]:
    """By name and what else they are labelled with."""
    here: dict[str, float] = {}
    for family in text_string_to_metric_families(exposed_of(found, "1").decode()):
        for each in family.samples if family.type == "counter" else ():
            others = [value for name, value in each.labels.items() if name not in ("source", "target")]
            here["/".join([each.name, *others])] = each.value
    return here


def test_counters_are_there_from_the_start() -> None:
    """Before anything was heard of anybody: a counter that begins with 1 has no increase."""
    found = Fleet("a->b")
    found.started(1, 11)
    before = counters(found)
    names = [f"mirror_halts_total/{reason}" for reason in (*REASONS, "foreign_writer", "corrupt", "too_large")]
    names += ["mirror_resyncs_total/connection_lost", "mirror_worker_restarts_total/1"]
    names += ["mirror_rebalances_total/lost", "mirror_offset_commits_total/failed", "mirror_throttled_seconds_total/b"]
    assert [before[name] for name in names] == [0.0] * len(names)
    told = snapshot()
    told["counters"] = {"halts/corrupt": 1, "halts/a_new_one": 2, "throttled_s/b": 3.0}
    found.heard(1, told)
    after = counters(found)
    assert after["mirror_halts_total/corrupt"] == 1
    assert after["mirror_halts_total/a_new_one"] == 2
    assert after["mirror_throttled_seconds_total/b"] == 3


def test_counters_that_begin_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, the rule taken away."""
    unknown = tuple((*each[:3], (), each[4]) for each in flows._FLOW_LABELLED)
    monkeypatch.setattr(flows, "_FLOW_LABELLED", unknown)
    found = Fleet("a->b")
    found.started(1, 11)
    assert "mirror_halts_total/corrupt" not in counters(found)


def test_records_that_were_passed_over_count_once() -> None:
    """A row of them grows: the newest word counts, of whichever worker, and only the records in it."""
    found = fleet()
    before = GivenUp("t", 0, 10, 11, "oversize", NOW_MS, 1)
    grown = GivenUp("t", 0, 10, 900, "oversize", NOW_MS + 5, 7)
    other = GivenUp("t", 0, 10, 20, "on.gap", NOW_MS + 9)
    for worker, rows in ((1, (before, other)), (2, (grown,))):
        found.heard(worker, snapshot(skipped=rows))
    assert found.skipped == [grown, other]
    found.ended(2)
    assert found.skipped == [grown, other]
    assert sample(found, "mirror_skipped_offsets_total", reason="oversize") == 7
    assert sample(found, "mirror_skipped_offsets_total", reason="on.gap") == 10


def test_the_source_s_retention() -> None:
    """Kept while a worker says nothing new, gone with the worker; one series for a topic, whoever tells of it."""
    found = fleet()
    found.heard(1, snapshot() | {"retention_s": {"t": 60.0}})
    found.heard(2, snapshot() | {"retention_s": {"t": 60.0, "u": 120.0}})
    found.heard(1, snapshot())
    told = samples(exposed_of(found, "1").decode())["mirror_source_retention_seconds"]
    assert sorted((labels["source"], labels["topic"], value) for labels, value in told) == [
        ("source", "t", 60.0), ("source", "u", 120.0),
    ]  # fmt: skip
    found.ended(2)
    assert found.retention_s == {"t": 60.0}
    found.heard(1, snapshot() | {"retention_s": {}})
    assert sample(found, "mirror_source_retention_seconds") is None
