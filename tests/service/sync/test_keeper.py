"""Which process carries groups over, and what becomes of it: one at a time, started again, ended with its worker."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar, cast

import psutil
import pytest

from mirror.sandbox import SandboxCluster
from mirror.service import channel as say
from mirror.service.channel import ChannelLog
from mirror.service.child import Child
from mirror.service.config import resolve
from mirror.service.sync.keeper import SyncKeeper
from tests.relay.stage.flows import Log
from tests.service.config.loading import Load, base
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.running import Mirror, config_text, get, mirror, status
from tests.service.sync.sides import SYNC, commit, wait_committed


class Processes:
    """Stands for the keeper's child: each process tells these snapshots and ends with SIGKILL; the last one goes on."""

    def __init__(self, *lives: list[dict[str, Any]]) -> None:
        self.lives = list(lives)
        self.pid = 1
        self.last = asyncio.Event()
        self.hear: Any = None

    async def run(self, on_start: Any) -> int:
        on_start(self)
        for snapshot in self.lives.pop(0):
            self.hear(self, {"kind": say.SNAPSHOT, **snapshot})
        if self.lives:
            return -signal.SIGKILL
        self.last.set()
        await asyncio.Event().wait()
        raise AssertionError

    @staticmethod
    def pause_s() -> float:
        return 0.0


class First:
    """A relay that has the flow's first partition."""

    keys: ClassVar = [("t", 0)]
    partitions: ClassVar = {("t", 0)}


@contextlib.asynccontextmanager
async def kept(folder: Path, log: Log, *lives: list[dict[str, Any]]) -> AsyncIterator[SyncKeeper]:
    """The keeper, once the last of these processes goes on."""
    config = Load(folder)(base(flow="sync.group.offsets.enabled: true"))
    processes = Processes(*lives)
    keeper = SyncKeeper(resolve.handover(config.enabled_flow(), config), cast(ChannelLog, log))
    processes.hear, keeper._child = keeper._hear, cast(Child, processes)
    keeping = asyncio.get_running_loop().create_task(keeper.keep(First()))
    try:
        await asyncio.wait_for(processes.last.wait(), 10)
        yield keeper
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    assert keeper.gauges == {}


async def test_a_process_that_dies_again_and_again(tmp_path: Path) -> None:
    """Its last success is told as long as no other one follows, and each death counts as a failure: else nobody would
    be alerted."""
    told = {
        "counters": {"syncs/group_offsets/ok": 1},
        "gauges": {"synced_at_s/group_offsets": 1_000.0, "synced_groups/active": 1},
    }
    log = Log()
    async with kept(tmp_path, log, [told], [], []) as keeper:
        assert keeper.gauges == {"synced_at_s/group_offsets": 1_000.0}
        assert keeper.counters == {"syncs/group_offsets/ok": 1, "syncs/group_offsets/failed": 2}
    assert [each["detail"] for each in log.of("sync_died")] == ["its process ended by SIGKILL"] * 2


async def test_a_process_that_hangs_in_its_first_look(tmp_path: Path) -> None:
    async with kept(tmp_path, Log(), []) as keeper:
        assert keeper.gauges.keys() == {"synced_at_s/group_offsets"}


async def test_a_process_that_dies_before_its_first_look(tmp_path: Path) -> None:
    """What is told as the last success is when the first one was started. It stays so while others follow."""
    began = time.time()
    failed = {"counters": {"syncs/group_offsets/failed": 1}, "gauges": {"synced_groups/active": 0}}
    async with kept(tmp_path, Log(), [], []) as keeper:
        first = keeper.gauges["synced_at_s/group_offsets"]
        assert began <= first <= time.time()
        assert keeper.gauges.keys() == {"synced_at_s/group_offsets"}
        keeper._hear(keeper._child, {"kind": say.SNAPSHOT, **failed})
        assert keeper.gauges == {"synced_at_s/group_offsets": first, "synced_groups/active": 0}
        assert keeper.counters == {"syncs/group_offsets/failed": 2}


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def syncing(process: Mirror) -> list[int]:
    """The processes that carry groups over, of those that it has started."""
    return [line["pid"] for line in process.of("sync_started") if alive(line["pid"])]


@pytest.mark.broker
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
        assert process.wait_event("sync_died")["detail"] == "its process ended by SIGKILL"
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


@pytest.mark.broker
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
