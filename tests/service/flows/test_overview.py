"""The status of several flows: sums that are honest about what is not known, and what belongs to which flow."""

import re
from typing import Any

from mirror.service.commands import Commands
from mirror.service.flows.overview import headline, status
from mirror.service.flows.processes import WorkerProcesses
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.metrics import render
from mirror.service.telemetry.rows import PartitionRow
from mirror.service.telemetry.status import as_html, as_text
from tests.service.telemetry.stage.alerts import samples
from tests.service.telemetry.stage.fleets import snapshot
from tests.service.telemetry.stage.rows import row, stint
from tests.service.telemetry.stage.showing import flow_of

NAMES = ("west->east", "west->hub")


def told(*rows: PartitionRow, partitions: int, up: bool = True) -> Any:
    clusters = {"clusters": {"west": True, "east": up, "hub": up}}
    return snapshot(*rows, fetch_requests=3) | clusters | {"flow_partitions": partitions}


def two(first: list[PartitionRow], second: list[PartitionRow], *, up: bool = True) -> tuple[list[Any], WorkerProcesses]:
    """Two flows that share worker 1."""
    processes, flows = WorkerProcesses(), []
    processes.started(1, 11)
    for name, rows in zip(NAMES, (first, second), strict=True):
        found = Fleet(name)
        found.started(1, 11)
        message = told(*rows, partitions=len(rows), up=up or name == NAMES[0])
        found.heard(1, message)
        processes.heard(1, message)
        flows.append(flow_of(found, group=f"mirror-{name}", commands=Commands(config="/c.yaml", flow=name)))
    return flows, processes


def shown(flows: list[Any], processes: WorkerProcesses) -> Any:
    return status(flows, processes.workers, version="1", address="127.0.0.1:1", pid=7)


def active(lag: int | None, position: int) -> PartitionRow:
    counts = stint(begun=0, position=position, records=position, batches=1, bytes=10)
    return row(state="active", lag_records=lag, position=position, stint=counts)


def test_sums() -> None:
    """1. Counts are added up. 2. A lag that is unknown in one flow is never shown as none for all."""
    now = shown(*two([active(5, 100)], [active(7, 50)]))
    assert (now["flow"], now["flow_id"], now["group"]) == (None, None, None)
    assert (now["lag_records"], now["replicated_records"], now["partitions_of_flow"]) == (12, 150, 2)
    assert now["states"] == {"active": 2}
    assert [(each["flow"], each["lag_records"], each["group"]) for each in now["flows"]] == [
        (NAMES[0], 5, "mirror-west->east"),
        (NAMES[1], 7, "mirror-west->hub"),
    ]
    assert shown(*two([active(0, 100)], [active(0, 50)]))["lag_records"] == 0
    now = shown(*two([active(0, 100)], [active(None, 50)]))
    assert (now["lag_records"], now["lag_unknown_partitions"]) == (None, 1)


def test_the_headline() -> None:
    """One line on all flows: partitions by state, the lag, and the first reason why one is not ready."""
    flows, _ = two([active(5, 100)], [active(1_200, 50)])
    assert headline(flows) == "ready; partitions: 2 active; lag: 1,205 records"
    halted = row(state="halted", reason="corrupt", detail="d", remedy="See to it.")
    flows, _ = two([active(0, 9), halted._replace(partition=1)], [halted], up=False)
    assert headline(flows) == (
        "not ready: west->hub: every partition here is halted (1) (and 1 more); "
        "partitions: 1 active, 2 halted; lag: 0 records"
    )
    assert headline([]) == "ready; partitions: none; lag: 0 records"


def test_whose_it_is() -> None:
    """Rows, reasons and halts name the flow; the command in a remedy does, too. One flow by itself is as ever."""
    flows, processes = two([active(0, 9)], [row(state="halted", reason="corrupt", detail="d", remedy="See to it.")])
    now = shown(flows, processes)
    assert [one["flow"] for one in now["partitions"]] == list(NAMES)
    assert now["not_ready"] == ["west->hub: every partition here is halted (1)"]
    assert "mirror resume -c /c.yaml --flow 'west->hub' t 0" in now["partitions"][1]["remedy"]
    assert [each["flows"] for each in now["workers"]] == [list(NAMES)]
    assert (now["workers"][0]["partitions"], now["workers"][0]["cpu_seconds"]) == (2, 1.5)
    text = as_text(now)
    assert re.search(r"^  FLOW +TOPIC", text, re.MULTILINE)
    assert "  west->hub, t-0: corrupt\n" in text
    assert text.count("flow:       ") == 2
    assert "<td>west-&gt;hub</td>" in as_html(now)
    alone = shown(flows[:1], processes)
    assert (alone["flow"], alone["group"], alone["not_ready"]) == ("west->east", "mirror-west->east", [])
    assert "FLOW" not in as_text(alone)


def test_metrics() -> None:
    """Each family once, with the clusters of each flow; processes and clusters once."""
    flows, processes = two([active(5, 100)], [active(7, 50)], up=False)
    found = samples(render(flows, processes, "1").decode())
    lags = {labels["target"]: value for labels, value in found["mirror_replication_lag_records"]}
    assert lags == {"east": 5, "hub": 7}
    assert found["process_cpu_seconds_total"][0] == ({"worker": "1"}, 1.5)
    assert len(found["mirror_worker_up"]) == 1
    assert {labels["cluster"]: value for labels, value in found["mirror_cluster_up"]} == {
        "west": 1,
        "east": 1,
        "hub": 0,
    }
    assert {labels["target"]: value for labels, value in found["mirror_flow_ready"]} == {"east": 1, "hub": 0}
    assert found["mirror_ready"] == [({}, 0)]
    assert [value for _, value in found["mirror_fetch_requests_total"]] == [3, 3]
