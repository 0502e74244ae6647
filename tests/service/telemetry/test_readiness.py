"""Whether the flow is ready, and what it is not ready for."""

import re
import time
from typing import Any

from mirror.service.telemetry.readiness import unready
from mirror.service.telemetry.rows import Gone
from mirror.service.telemetry.status import as_text
from tests.service.telemetry.stage.fleets import fleet, sample, snapshot, told
from tests.service.telemetry.stage.rows import row, stint
from tests.service.telemetry.test_fleet import caught_up


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
    (reason,) = unready(found, started=True)
    assert re.fullmatch(r"worker 2 has not reported for \d+ s: it is stopped or stuck", reason)
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
