"""The worker in this process, between two fake clusters: settings, lines, signals and exit codes."""

import asyncio
import io
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mirror.relay.relay import Relay
from mirror.service import logs
from mirror.service.config import Config, load
from mirror.service.worker import Worker, cluster_options, relay_settings
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.records.builders import raw_batch
from tests.relay.flows import batches, clusters
from tests.service.running import config_text


class Running:
    """A worker that runs as a task, and its lines."""

    def __init__(self, task: "asyncio.Task[int]", out: io.StringIO) -> None:
        self.task = task
        self._out = out

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.getvalue().splitlines()]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    async def event(self, name: str) -> dict[str, Any]:
        await until(lambda: self.of(name), what=f"{name}; {self.lines}")
        return self.of(name)[0]

    async def stop(self, number: int = signal.SIGTERM) -> int:
        os.kill(os.getpid(), number)
        return await self.task


def config_for(source: FakeCluster, destination: FakeCluster, folder: Path, **flow: object) -> Config:
    path = folder / "mirror.yaml"
    address = [f"127.0.0.1:{cluster.brokers[1].port}" for cluster in (source, destination)]
    path.write_text(config_text(address[0], address[1], ["t", "u"], flow=flow))
    return load(path)


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Running]:
    """The worker; stopped at the end if it still runs."""
    out = io.StringIO()
    logs.configure("debug", json=True, stream=out)
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    worker = Running(loop.create_task(Worker(config).run()), out)
    try:
        yield worker
    finally:
        if not worker.task.done():
            worker.task.cancel()
        await asyncio.gather(worker.task, return_exceptions=True)
        loop.set_exception_handler(handler)
        logs.configure()


def scene(source: FakeCluster) -> None:
    source.add_topic("t", partitions=2)
    for index in range(2):
        source.store("t", index, *batches(10))


# Settings.


def test_every_setting_reaches_its_place(tmp_path: Path) -> None:
    """What the configuration says is what connections and relay are told, in their units."""
    path = tmp_path / "mirror.yaml"
    cluster = {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "me",
        "request.timeout.ms": 7_000,
        "socket.connection.setup.timeout.ms": 900,
        "reconnect.backoff.ms": 11,
        "reconnect.backoff.max.ms": 222,
        "socket.receive.buffer.bytes": 65_536,
        "socket.send.buffer.bytes": 32_768,
    }
    flow = {
        "topics": ["orders", "pay\\..*"],
        "exclude": ["pay.x"],
        "fetch.max.bytes": "2MiB",
        "max.partition.fetch.bytes": "300KiB",
        "fetch.min.bytes": 5,
        "fetch.max.wait.ms": 123,
        "buffer.memory": "9MiB",
        "max.in.flight.requests.per.connection": 3,
        "connections.per.broker": 4,
        "max.request.size": "3MiB",
        "topic.create": False,
        "replication.factor": 2,
        "sync.topic.configs": ["retention.ms"],
        "refresh.topics.interval.ms": 4_444,
        "settle.ms": 1_500,
    }
    document = {
        "clusters": {"source": cluster, "destination": cluster | {"bootstrap.servers": "c:3"}},
        "flows": {"source->destination": flow},
        "drain.timeout.ms": 77,
    }
    path.write_text(json.dumps(document))
    config = load(path)
    resolved = config.enabled_flow()
    options = cluster_options(resolved.source)
    assert options.bootstrap == (("a", 1), ("b", 2))
    assert (options.backoff_ms, options.backoff_max_ms) == (11, 222)
    connection = options.connection
    assert (connection.client_id, connection.request_timeout_s, connection.setup_timeout_s) == ("me", 7.0, 0.9)
    assert (connection.receive_buffer, connection.send_buffer) == (65_536, 32_768)
    settings = relay_settings(resolved, config)
    assert settings.flow == "source->destination"
    assert [settings.selects(name) for name in ("orders", "pay.a", "pay.x", "ordersx")] == [True, True, False, False]
    assert list(settings.wanted) == ["orders", "pay\\..*"]
    assert [bool(matches("orders")) for matches in settings.wanted.values()] == [True, False]
    assert (settings.fetch_max_bytes, settings.max_partition_fetch_bytes) == (2 << 20, 300 << 10)
    assert (settings.fetch_min_bytes, settings.fetch_max_wait_ms, settings.buffer_memory) == (5, 123, 9 << 20)
    assert (settings.max_in_flight, settings.connections_per_broker, settings.max_request_size) == (3, 4, 3 << 20)
    assert (settings.create_topics, settings.replication_factor) == (False, 2)
    assert settings.synced_configs == ("retention.ms",)
    assert (settings.refresh_topics_interval_ms, settings.settle_ms, settings.drain_timeout_ms) == (4_444, 1_500, 77)
    assert (settings.request_timeout_ms, settings.backoff_ms, settings.backoff_max_ms) == (7_000, 11, 222)
    assert settings.fixed_configs == {"compression.type": "producer", "message.timestamp.type": "CreateTime"}


# Running.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_runs_and_stops(tmp_path: Path, number: int) -> None:
    """
    1. It starts, copies, says when it has caught up, and reports its progress with the keys that others read.
    2. A signal: drained, exit code 0.
    """
    async with clusters() as (source, destination):
        scene(source)
        async with running(config_for(source, destination, tmp_path)) as worker:
            started = await worker.event("started")
            assert started["partitions"] == 2
            assert (started["source_id"], started["destination_id"]) == (source.cluster_id, destination.cluster_id)
            assert (await worker.event("caught_up"))["flow"] == "source->destination"
            await worker.event("progress")
            assert await worker.stop(number) == 0
            progress = worker.of("progress")[-1]
            assert progress["lag_records"] == 0
            assert progress["batches_forwarded"] == 20
            assert progress["batches_opened"] == 0
            assert progress["partitions"] == {"active": 2}
            assert progress["cpu_s"] > 0
            assert progress["rss_bytes"] > 1 << 20
            assert {"bytes", "bytes_per_s"} <= progress.keys()
            stopping, stopped = worker.of("stopping")[0], worker.of("stopped")[0]
            assert stopping["signal"] == signal.Signals(number).name
            assert (stopped["drained"], stopped["pending"], stopped["halted"]) == (True, 0, 0)
            assert len(worker.of("caught_up")) == 1


async def test_stops_with_a_halted_partition(tmp_path: Path) -> None:
    """Exit code 2, and the others were copied."""
    async with clusters() as (source, destination):
        scene(source)
        source.store("t", 0, raw_batch(b"", base_offset=99))
        async with running(config_for(source, destination, tmp_path)) as worker:
            halted = await worker.event("halted")
            assert (halted["topic"], halted["partition"], halted["reason"]) == ("t", 0, "offset_gap")
            assert halted["level"] == "warning"
            await until(lambda: destination.log("t", 1).end == 30)
            assert await worker.stop() == 2
            assert worker.of("stopped")[0]["halted"] == 1


async def test_everything_halts(tmp_path: Path) -> None:
    """It ends by itself: nothing is left that could run."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, raw_batch(b"", base_offset=99))
        async with running(config_for(source, destination, tmp_path)) as worker:
            assert await worker.task == 2
            assert worker.of("failed")[0]["reason"] == "all_halted"


@pytest.mark.parametrize(
    ("prepare", "reason", "detail"),
    [
        (lambda source, destination: None, "NothingToMirror", "no topic of cluster source matches t, u"),
        (
            lambda source, destination: setattr(destination, "cluster_id", source.cluster_id),
            "SameCluster",
            "are the same cluster",
        ),
        (
            lambda source, destination: destination.next("ApiVersions", faults.malformed(b"\x00")),
            "Unreachable",
            "cannot reach cluster destination",
        ),
        (
            lambda source, destination: destination.versions.update(Produce=(0, 2)),
            "Unsupported",
            "Produce is spoken in 0 to 2 there",
        ),
    ],
)
async def test_cannot_run(tmp_path: Path, prepare: Any, reason: str, detail: str) -> None:
    """One line that says why, exit code 1."""
    async with clusters() as (source, destination):
        if reason != "NothingToMirror":
            scene(source)
        prepare(source, destination)
        async with running(config_for(source, destination, tmp_path)) as worker:
            assert await worker.task == 1
            (line,) = worker.of("failed")
            assert (line["reason"], line["level"]) == (reason, "error")
            assert detail in line["detail"]


@pytest.mark.parametrize("kind", ["ApiVersions", "Metadata", "DescribeConfigs", "CreateTopics"])
async def test_a_signal_while_it_starts(tmp_path: Path, kind: str) -> None:
    """Whatever it is waiting for: nothing was begun, so it stops at once, exit code 0."""
    async with clusters() as (source, destination):
        scene(source)
        stuck = destination.next(kind, faults.silence())
        async with running(config_for(source, destination, tmp_path)) as worker:
            await stuck.came.wait()
            assert await worker.stop() == 0
            assert worker.of("stopped")
            assert not worker.of("failed")
            assert not worker.of("started")


async def test_drained_in_part(tmp_path: Path) -> None:
    """A destination that hangs: the drain is bounded and tells what is left. Exit code 0: the log knows the rest."""
    async with clusters() as (source, destination):
        scene(source)
        stuck = destination.next("Produce", faults.silence())
        path = tmp_path / "mirror.yaml"
        config_for(source, destination, tmp_path)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"drain.timeout.ms": 30}))
        async with running(load(path)) as worker:
            await stuck.came.wait()
            assert await worker.stop() == 0
            stopped = worker.of("stopped")[0]
            assert stopped["drained"] is False
            assert stopped["pending"] > 0


async def test_a_second_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for the drain."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    async with clusters() as (source, destination):
        scene(source)
        stuck = destination.next("Produce", faults.held())
        async with running(config_for(source, destination, tmp_path)) as worker:
            await stuck.came.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await worker.event("stopping")
            os.kill(os.getpid(), signal.SIGINT)
            await worker.event("killed")
            assert ended == [1]
            stuck.open()
            assert await worker.task == 0


# Bugs.


async def test_a_bug_in_a_callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody expected in a socket's callback ends the run with a line that has the trace; it does not hang."""
    async with clusters() as (source, destination):
        scene(source)

        def pump_sinks(_: Relay) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(Relay, "pump_sinks", pump_sinks)
        async with running(config_for(source, destination, tmp_path)) as worker:
            assert await worker.task == 1
            line = worker.of("failed")[0]
            assert (line["reason"], line["detail"]) == ("bug", "ZeroDivisionError: a bug")
            assert "pump_sinks" in line["exception"]


async def test_a_bug_in_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with clusters() as (source, destination):
        scene(source)

        def place(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(Relay, "_place", place)
        async with running(config_for(source, destination, tmp_path)) as worker:
            assert await worker.task == 1
            assert worker.of("failed")[0]["reason"] == "bug"
