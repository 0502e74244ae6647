"""What the supervisor makes of its workers' words: sums, survival of counters, metrics, status."""

import time
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.typing import FilteringBoundLogger

from mirror.reasons import REASONS
from mirror.relay.stats import Skipped
from mirror.service.flows.overview import late_workers
from mirror.service.telemetry import metrics
from mirror.service.telemetry.backlog import MOST_ENDS, Backlog
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.readiness import unready
from mirror.service.telemetry.reports import Reports
from mirror.service.telemetry.rows import Gone, Row
from mirror.service.telemetry.status import LEFT_HALTED, as_html, as_text
from tests.relay.flows import Log
from tests.service.alerts import firing, samples
from tests.service.rows import row, stint
from tests.service.telemetry.showing import exposed_of, status_of

NOW_MS = 1_700_000_000_000


def snapshot(*rows: Row, gone: tuple[Gone, ...] = (), skipped: tuple[Skipped, ...] = (), **counters: float) -> Any:
    return {
        "at": time.time(),
        "counters": {"cpu_s": 1.5, **counters},
        "gauges": {"rss_bytes": 1_000, "joined": 1},
        "flow_partitions": 2,
        "clusters": {"source": True, "destination": True},
        "unassigned": None,
        "silent": [],
        "unreached": {},
        "partitions": [list(each) for each in rows],
        "gone": [list(each) for each in gone],
        "skipped": [list(each) for each in skipped],
        "unmatched": [],
        "gone_topics": [],
    }


def fleet(count: int = 2) -> Fleet:
    found = Fleet("source->destination")
    for number in range(1, count + 1):
        found.started(number, 1_000 + number)
    return found


def settled(found: Fleet) -> bool:
    return found.settled


def caught_up(found: Fleet) -> bool:
    return found.caught_up


def all_halted(found: Fleet) -> bool:
    return found.all_halted


def sample(found: Fleet, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(exposed_of(found, "1.2.3").decode()):
        for each in family.samples:
            if each.name == name and labels.items() <= each.labels.items():
                return each.value
    return None


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


def test_readiness_is_a_metric() -> None:
    """So that an alert fires for whatever it is not ready for: no series tells of topics that no pattern matches."""
    found = fleet()
    assert sample(found, "mirror_ready") == 0
    for number in (1, 2):
        found.heard(number, snapshot())
    assert sample(found, "mirror_ready") == 1
    found.workers[1].waits = "no topic matches"
    assert sample(found, "mirror_ready") == 0


def test_a_broker_that_says_nothing_is_named() -> None:
    """While workers start, with the request that is waited for, once for all of them; then only the status has it."""
    found = fleet()
    for number, seconds in ((1, 4.0), (2, 6.2)):
        silent = [("destination broker 2 at h:1", "Metadata", seconds)]
        found.alive(number, {"clusters": {}, "counters": {}, "silent": silent, "unreached": {}, "unmatched": None})
    named = "destination broker 2 at h:1 has not answered Metadata for 6 s"
    assert unready(found, started=False) == ["the workers are starting", named]
    assert told(found)["workers"][0]["silent_brokers"][0]["seconds"] == 4.0
    for number in (1, 2):
        found.workers[number].ready = True
    assert named not in unready(found, started=True)
    found.ended(1)
    assert not found.workers[1].silent


def test_entries_that_match_nothing() -> None:
    """
    1. While it waits for its start: a worker between two looks keeps what the last one found.
    2. While it copies: a series and a remark for each entry; it is ready all the same.
    3. Gone with the next look, and with the worker.
    """
    found = fleet()
    waiting: dict[str, Any] = {"clusters": {}, "counters": {}, "silent": [], "unreached": {}}
    found.alive(1, waiting | {"unmatched": ["paymnets"]})
    found.alive(1, waiting | {"unmatched": None})
    assert sample(found, "mirror_topic_unmatched", source="source", target="destination", pattern="paymnets") == 1
    for number in (1, 2):
        found.heard(number, snapshot() | {"unmatched": ["paymnets", "log\\..*"]})
    assert (sample(found, "mirror_ready"), told(found)["ready"]) == (1, True)
    remark = "no topic of cluster source matches paymnets: check its spelling"
    assert told(found)["remarks"][0] == remark
    assert f"remark:     {remark}\n" in as_text(told(found))
    assert remark in as_html(told(found))
    assert "MirrorTopicUnmatched" in firing(samples(exposed_of(found, "1").decode()))
    found.heard(1, snapshot())
    found.ended(2)
    assert not told(found)["remarks"]
    assert sample(found, "mirror_topic_unmatched") is None


def test_what_open_transactions_keep_back() -> None:
    """Not before it is open for long; those that are open longest, and how many more there are."""
    found, now = fleet(), time.time()
    rows = [row(partition=at, held_back=1_000 + at, held_since=now - 100 - at) for at in range(7)]
    found.heard(1, snapshot(*rows, row(partition=7, held_back=9, held_since=now - 1), row(partition=8)))
    found.heard(2, snapshot())
    remarks = told(found)["remarks"]
    assert [each.split(":")[0] for each in remarks[:-1]] == ["t-6", "t-5", "t-4", "t-3", "t-2"]
    assert "open at cluster source for 106 s or longer keeps back 1,006 offsets from 50 on" in remarks[0]
    assert remarks[-1] == "and so 2 more partitions"
    assert told(found)["ready"]


def test_topics_that_are_gone() -> None:
    """A series for each and an alert; some remarks, however many they are; gone with the worker that tells."""
    found = fleet()
    found.heard(1, snapshot() | {"gone_topics": ["b", "a"]})
    found.heard(2, snapshot() | {"gone_topics": ["b", *(f"c{at}" for at in range(5))]})
    assert (sample(found, "mirror_ready"), told(found)["ready"]) == (1, True)
    assert sample(found, "mirror_topic_gone", source="source", target="destination", topic="b") == 1
    remarks = told(found)["remarks"]
    assert [each.split()[5] for each in remarks[:-1]] == ["a", "b", "c0", "c1", "c2"]
    assert "cluster source has no topic a any more: what was copied stays where it is" in remarks[0]
    assert remarks[-1] == "and so 2 more topics"
    assert "MirrorTopicGone" in firing(samples(exposed_of(found, "1").decode()))
    found.heard(1, snapshot())
    found.ended(2)
    assert not told(found)["remarks"]
    assert sample(found, "mirror_topic_gone") is None


def test_brokers_that_cannot_be_reached() -> None:
    """
    1. Named before the start, once for all workers: in the log, as a remark, and on the page.
    2. Another one: only that is told. The first is back, and away again: told again.
    3. Not beside a cluster that does not answer at all, and not of a worker that has ended.
    """
    found, log = fleet(), Log()
    reports = Reports(found, cast(FilteringBoundLogger, log))
    one, two = "destination broker 3 at h:1", "destination broker 4 at h:2"
    up = {"source": True, "destination": True}

    def look(unreached: dict[str, str], clusters: dict[str, bool] = up) -> list[str]:
        for number in (1, 2):
            waiting: dict[str, Any] = {"clusters": clusters, "counters": {}, "silent": [], "unmatched": None}
            found.alive(number, waiting | {"unreached": unreached})
            reports.look(started=False)
        return [line["detail"].split(" cannot be reached")[0] for line in log.of("broker_unreachable")]

    assert look({one: "Connection refused"}) == [one]
    assert told(found)["remarks"] == [f"{one} cannot be reached: Connection refused"]
    assert look({one: "Connection refused", two: "timed out"}) == [one, two]
    assert look({}) == [one, two]
    assert look({one: "Connection refused"}) == [one, two, one]
    assert look({one: "x", two: "y"}, up | {"destination": False}) == [one, two, one]
    found.ended(1)
    found.ended(2)
    assert not found.unreached


def test_why_a_partition_is_not_copied_for_now() -> None:
    found = fleet(1)
    waits = "destination broker 2 at h:1: Connection refused"
    found.heard(
        1, snapshot(row(state="locating", lag_records=None, waits=waits, waits_since=1_700_000_000.0), row("u"))
    )
    now = told(found)
    assert [(one["waits"], one["waits_since"]) for one in now["partitions"]] == [(waits, 1_700_000_000.0), (None, None)]
    text = as_text(now)
    assert "not copied for now\n" in text
    assert f"2023-11-14 22:13:20Z  {waits}\n" in text
    assert waits in as_html(now)


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
    found.heard(1, snapshot(row(), skipped=(Skipped("t", 0, 10, 20, "on.gap", NOW_MS),)))
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
    early, late = Skipped("t", 0, 10, 20, "on.gap", NOW_MS - 5), Skipped("t", 1, 0, 5, "on.gap", NOW_MS - 9)
    older = Skipped("t", 0, 0, 10, "on.gap", NOW_MS - 20)
    for worker in (1, 2):
        found.heard(worker, snapshot(skipped=(early._replace(at_ms=NOW_MS + worker), early, older, late)))
    assert found.skipped == [older, late, early]
    assert sample(found, "mirror_last_skip_timestamp_seconds", partition="0") == early.at_ms / 1000
    assert sample(found, "mirror_skipped_offsets_total", partition="0") == 20
    scraped = samples(exposed_of(found, "1").decode())
    assert "MirrorOffsetsSkipped" in firing(scraped, at_s=early.at_ms / 1000 + 60)
    assert "MirrorOffsetsSkipped" not in firing(scraped)


def told(found: Fleet) -> Any:
    return status_of(found)


def test_status() -> None:
    """States, halts with remedies, skipped ranges, workers: in the object, as text and as a page that escapes."""
    found = fleet()
    found.heard(
        1,
        snapshot(
            row(topic="b", committed=-1),
            row(topic="a<b>", state="halted", position=-1, reason="recreated", detail="id 1, before 2", remedy="do it"),
            skipped=(Skipped("b", 0, 10, 20, "on.gap", NOW_MS),),
        ),
    )
    now = told(found)
    assert [one["topic"] for one in now["partitions"]] == ["a<b>", "b"]
    assert (now["partitions"][0]["position"], now["partitions"][1]["committed"]) == (None, None)
    assert now["skipped"][0]["next"] == 20
    text = as_text(now)
    for line in (
        "partitions: 1 active, 1 halted; 2 in the flow",
        "  a<b>-0: recreated",
        "    remedy: do it",
        "2023-11-14 22:13:20Z",
        "joining",
    ):
        assert line in text
    assert max(map(len, text.splitlines())) < 120
    page = as_html(now)
    assert "a&lt;b&gt;" in page
    assert "<b>" not in page
    assert "<script" not in page


def test_a_halt_is_shown_while_nobody_holds_its_partition() -> None:
    """
    1. Two partitions halt. The source goes away: the worker is out of the group, and has them no more; it may die, too.
       Both halts are shown, with their remedies, and count as none of those that are held here.
    2. The source is back, one partition is held here again, and somebody else has the other: nothing is left of it.
    3. What is held here goes on. When it is let go the next time, its halt is history.
    """
    for event in ("let go", "ended"):
        found = fleet(1)
        halted: dict[str, Any] = {
            "state": "halted",
            "reason": "foreign_writer",
            "detail": "offset 7",
            "remedy": "do it",
        }
        found.heard(1, snapshot(row(**halted), row(partition=1, **halted)))
        assert (told(found)["left_halted"], len(found.halted)) == ([], 2)
        if event == "let go":
            out = snapshot(gone=(Gone("t", 0, stint()), Gone("t", 1, stint())))
            out["gauges"]["joined"] = 0
            found.heard(1, out)
        else:
            found.ended(1)
        now = told(found)
        assert [(one["topic"], one["partition"], one["reason"]) for one in now["left_halted"]] == [
            ("t", 0, "foreign_writer"),
            ("t", 1, "foreign_writer"),
        ]
        assert (now["partitions"], now["unassigned_partitions"]) == ([], 2)
        text = as_text(now)
        for line in (f"\n{LEFT_HALTED}\n", "  t-1: foreign_writer", "    offset 7", "    remedy: do it"):
            assert line in text
        found.started(1, 2_000)
        found.heard(1, snapshot(row(**halted)) | {"unassigned": 1})
        assert [one["partition"] for one in told(found)["left_halted"]] == [1]
        found.heard(1, snapshot(row(**halted)) | {"unassigned": 0})
        assert (told(found)["left_halted"], len(found.halted)) == ([], 1)
        found.heard(1, snapshot(row()))
        found.heard(1, snapshot(gone=(Gone("t", 0, stint()),)) | {"unassigned": 2})
        assert [one["partition"] for one in told(found)["left_halted"]] == [1]


def test_a_worker_that_is_not_heard_of() -> None:
    """Stuck or stopped: health says so, whatever brokers do. One that is down is the supervisor's concern."""
    found = fleet()
    assert late_workers(found.workers, time.time()) == []
    assert late_workers(found.workers, time.time() + 61) == [1, 2]
    found.ended(1)
    assert late_workers(found.workers, time.time() + 61) == [2]


def test_what_a_quiet_worker_told_last_is_not_known_any_more() -> None:
    """
    1. Two workers copy a partition each; then one is frozen. Its lag was 0: that is not known now. What was known to
       wait, waits at least. It is not ready, and says who is meant.
    2. The group gives the partition to the other one: it is shown once, as that one has it.
    3. It is thawed, and tells again.
    """
    found = fleet()
    found.heard(1, snapshot(row(lag_records=0)))
    found.heard(2, snapshot(row(partition=1, lag_records=0)))
    assert (sample(found, "mirror_replication_lag_records", partition="1"), unready(found, started=True)) == (0, [])
    found.workers[2].heard_at -= 20
    assert sample(found, "mirror_replication_lag_records", partition="0") == 0
    for name in ("mirror_replication_lag_records", "mirror_replication_lag_seconds"):
        assert sample(found, name, partition="1") is None
    assert sample(found, "mirror_ready") == 0
    assert unready(found, started=True) == ["worker 2 has told nothing for 20 s: it is stopped, or stuck"]
    now = told(found)
    assert (now["lag_records"], now["lag_unknown_partitions"], now["states"]) == (None, 1, {"active": 2})
    assert [(each["quiet"], each["joined"]) for each in now["workers"]] == [(False, True), (True, False)]
    assert "not heard of" in as_text(now)
    assert (caught_up(found), found.settled) == (False, False)
    found.heard(1, snapshot(row(lag_records=0), row(partition=1, lag_records=7)))
    now = told(found)
    assert [(one["partition"], one["worker"], one["lag_records"]) for one in now["partitions"]] == [
        (0, 1, 0),
        (1, 1, 7),
    ]
    assert (now["states"], found.is_whole, found.unassigned) == ({"active": 2}, True, 0)
    found.heard(2, snapshot(gone=(Gone("t", 1, stint()),)))
    assert unready(found, started=True) == []


def test_ready_means_that_something_is_copied() -> None:
    """All partitions are located, and that for a while: not ready. For a moment, or some of them: ready."""
    found = fleet(1)
    waits: dict[str, Any] = {"state": "locating", "lag_records": None, "waits": "east broker 2 has not answered"}
    long_ago, just_now = time.time() - 60, time.time()
    found.heard(1, snapshot(row(waits_since=long_ago, **waits), row(partition=1, waits_since=just_now, **waits)))
    assert unready(found, started=True) == []
    found.heard(1, snapshot(row(partition=1, waits_since=long_ago, **waits)))
    assert unready(found, started=True) == ["no partition is copied, 2 wait: east broker 2 has not answered"]
    assert "mirror status" not in as_text(told(found))
    found.heard(1, snapshot(row(partition=1)))
    assert unready(found, started=True) == []


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
    unknown = tuple((*each[:3], (), each[4]) for each in metrics._FLOW_LABELLED)
    monkeypatch.setattr(metrics, "_FLOW_LABELLED", unknown)
    found = Fleet("a->b")
    found.started(1, 11)
    assert "mirror_halts_total/corrupt" not in counters(found)


def test_clusters() -> None:
    """A cluster is up while every worker that has tried reaches it; until one has, it is not."""
    found = fleet()

    def up() -> dict[str, float | None]:
        assert found.clusters.keys() == {"source", "destination"}
        return {name: sample(found, "mirror_cluster_up", cluster=name) for name in found.clusters}

    assert up() == {"source": 0, "destination": 0}
    counters = {"request_errors/destination/Connect/x_y": 3}
    found.alive(
        1, {"clusters": {"source": True}, "counters": counters, "silent": [], "unreached": {}, "unmatched": None}
    )
    assert up() == {"source": 1, "destination": 0}
    assert sample(found, "mirror_request_errors_total", cluster="destination", api="Connect", error="x_y") == 3
    found.heard(1, snapshot(row()))
    assert up() == {"source": 1, "destination": 1}
    found.heard(2, snapshot(row(partition=1)) | {"clusters": {"source": True, "destination": False}})
    assert up() == {"source": 1, "destination": 0}
    assert told(found)["not_ready"] == ["cluster destination does not answer"]
    assert "clusters:   source up, destination away" in as_text(told(found))
    found.ended(2)
    assert up() == {"source": 1, "destination": 0}, "nobody has seen it come back"


def test_partitions_that_nobody_holds() -> None:
    """
    1. Before anything is known of the flow, this is not known either.
    2. All are held here: none. A worker is out of the group, and the group cannot be asked: what nobody here holds.
    3. The group's word counts, where there is one; with all workers in the group and no such word, it is not known.
    """
    found = fleet(1)
    assert sample(found, "mirror_unassigned_partitions") is None
    found.heard(1, snapshot(row(), row(partition=1)))
    assert found.unassigned == 0
    lost = snapshot(gone=(Gone("t", 0, stint()), Gone("t", 1, stint())))
    found.heard(1, lost | {"gauges": {"joined": 0}})
    assert sample(found, "mirror_unassigned_partitions") == 2
    now = told(found)
    assert (now["lag_records"], now["lag_unknown_partitions"]) == (None, 2)
    assert now["not_ready"] == ["worker 1 is not in the group"]
    assert "joining" in as_text(now)
    found.workers[1].member = "m"
    assert "out of group" in as_text(told(found))
    assert "partitions: none; 2 in the flow, 2 held by nobody" in as_text(now)
    found.heard(1, snapshot() | {"unassigned": 1})
    assert found.unassigned == 1
    found.heard(1, snapshot())
    assert sample(found, "mirror_unassigned_partitions") is None
