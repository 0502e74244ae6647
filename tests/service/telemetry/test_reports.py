"""What the supervisor logs of all that its workers tell."""

from typing import Any, cast

import pytest
from structlog.typing import FilteringBoundLogger

from mirror.service.telemetry.outages import ClusterLost
from mirror.service.telemetry.reports import Reports
from tests.relay.stage.flows import Log
from tests.service.telemetry.stage.fleets import fleet, told


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


def test_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to do. (No broker of it is named: ``broker_unreachable`` is for those of a cluster that answers.)"""
    found, log = fleet(1), Log()
    reports = Reports(found, cast(FilteringBoundLogger, log))
    monkeypatch.setattr(reports._outages, "look", lambda *_: [ClusterLost("destination")])
    reports.look(started=True)
    assert [line["detail"] for line in log.of("cluster_lost")] == [
        "cluster destination does not answer; copying continues once it does. See that its brokers run, and can be "
        "reached from here at bootstrap.servers"
    ]
