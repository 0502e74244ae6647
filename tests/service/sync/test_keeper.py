"""Which process carries groups over, and what becomes of it: one at a time, started again, ended with its worker."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from mirror.sandbox import SandboxCluster
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.running import Mirror, config_text, get, mirror, status
from tests.service.sync.sides import SYNC, commit, wait_committed

pytestmark = pytest.mark.broker


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def syncing(process: Mirror) -> list[int]:
    """The processes that carry groups over, of those that it has started."""
    return [line["pid"] for line in process.of("sync_started") if alive(line["pid"])]


def test_one_of_all_workers(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Of two workers, one runs the process; metrics tell what it does.
    2. The process is killed: it is started again, goes on, and its counts go on.
    3. Its worker is killed: the process goes with it; the worker that has the first partition from then on runs one.
    4. A clean stop ends it. Nobody halted, and nothing was logged as an error.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name, 4)
    produce(source, topic_name, 40, partitions=4)
    flow = {**SYNC, "groups": [topic_name]}
    text = config_text(source, destination, [topic_name], flow=flow, top={"workers": 2})
    with mirror(tmp_path / "mirror.yaml", text) as process:
        # While the first partition changes hands, there may be two of them for a moment, and what they count in it.
        process.wait_for(lambda: sorted(_held(process)) == [2, 2], "two partitions for each worker")
        # Before, an offset is carried over as far as its records are copied, and once more when the rest is.
        process.wait_event("caught_up")
        commit(source_cluster, topic_name, topic_name, 1)
        wait_committed(destination_cluster, topic_name, topic_name, 1)
        process.wait_for(lambda: len(syncing(process)) == 1, "one process")
        (first,) = syncing(process)
        counted(process, "mirror_synced_group_offsets_total", 1)
        counted(process, 'mirror_synced_groups{source="source",state="in_step",target="destination"}', 1)
        os.kill(first, signal.SIGKILL)
        commit(source_cluster, topic_name, topic_name, 2)
        wait_committed(destination_cluster, topic_name, topic_name, 2)
        assert process.wait_event("sync_died")["detail"] == "its process ended with exit code -9"
        (second,) = syncing(process)
        counted(process, "mirror_synced_group_offsets_total", 2)
        os.kill(psutil.Process(second).ppid(), signal.SIGKILL)
        process.wait_for(lambda: not alive(second), "the end of the process")
        commit(source_cluster, topic_name, topic_name, 3)
        wait_committed(destination_cluster, topic_name, topic_name, 3)
        # Two, or none, for as long as the first partition moves to the worker that comes back.
        process.wait_for(
            lambda: (
                len(process.of("worker_started")) == 3
                and sorted(_held(process)) == [2, 2]
                and len(syncing(process)) == 1
            ),
            "one process",
        )
        (third,) = syncing(process)
        assert third != second
        assert process.of("halted") == []
        assert [line for line in process.lines if line["level"] == "error"] == []
        assert process.stop() == 0
    assert not alive(third)


def _held(process: Mirror) -> list[int]:
    """Numbers of partitions that the workers have."""
    return [each["partitions"] for each in status(process)["workers"]]


def counted(process: Mirror, series: str, value: float) -> None:
    """Until ``/metrics`` has this figure."""

    def found() -> bool:
        lines = [line.split() for line in get(process, "/metrics")[1].splitlines() if line.startswith(series)]
        return [float(line[-1]) for line in lines] == [value]

    process.wait_for(found, f"{series} {value}")


def test_a_destination_that_is_away(source_cluster: SandboxCluster, topic_name: str, tmp_path: Path) -> None:
    """
    1. The destination ends while groups are carried over: said once, however often it is tried, and counted.
    2. It is back: that is said as well, and groups are carried over as before.
    """
    with SandboxCluster(name="destination", quick=True) as destination:
        source = source_cluster.bootstrap_servers
        create_topic(source, topic_name)
        produce(source, topic_name, 10)
        commit(source_cluster, topic_name, topic_name, 1)
        flow = {**SYNC, "groups": [topic_name]}
        text = config_text(source, destination.bootstrap_servers, [topic_name], flow=flow)
        with mirror(tmp_path / "mirror.yaml", text) as process:
            wait_committed(destination, topic_name, topic_name, 1)
            destination.brokers[0].kill()
            process.wait_event("group_offsets_not_synced")
            commit(source_cluster, topic_name, topic_name, 2)
            failed = 'mirror_group_offset_syncs_total{result="failed"'
            process.wait_for(lambda: figure(process, failed) > 3, "some failures")
            destination.brokers[0].start()
            wait_committed(destination, topic_name, topic_name, 2)
            process.wait_event("sync_back", part="group_offsets")
            assert len(process.of("group_offsets_not_synced")) <= MOST_LINES
            assert process.stop() == 0


MOST_LINES = 4
"""Different words for one outage: connections that are lost or refused, coordinators that are not ready."""


def figure(process: Mirror, series: str) -> float:
    lines = [line.split() for line in get(process, "/metrics")[1].splitlines() if line.startswith(series)]
    return sum(float(line[-1]) for line in lines)
