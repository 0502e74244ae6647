"""A worker that cannot start: at once, or not yet; and that is told to stop meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import faults
from tests.fakes.loop import until
from tests.relay.stage.flows import clusters
from tests.service.stage.worker_here import config_for, running, scene


@pytest.mark.parametrize(
    ("prepare", "reason", "detail"),
    [
        (
            lambda source, destination: setattr(destination, "cluster_id", source.cluster_id),
            "SameCluster",
            "are the same cluster",
        ),
        (
            lambda source, destination: destination.versions.update(Produce=(0, 2)),
            "Unsupported",
            "the broker is from before Kafka 0.11 (Produce up to version 2, and 3 is needed); upgrade it",
        ),
        (
            lambda source, destination: source.versions.update(Fetch=(0, 2)),
            "Unsupported",
            "the broker is from before Kafka 0.10.1 (Fetch up to version 2, and 3 is needed); upgrade it",
        ),
    ],
)
async def test_cannot_run(tmp_path: Path, prepare: Any, reason: str, detail: str) -> None:
    """No wait heals that: it says why, exit code 1."""
    async with clusters() as (source, destination):
        scene(source)
        prepare(source, destination)
        async with running(config_for(source, destination, tmp_path)) as worker:
            assert await worker.task == 1
            await until(lambda: worker.of("failed"))
            (failed,) = worker.of("failed")
            assert failed["reason"] == reason
            assert failed["final"] is True
            assert detail in failed["detail"]
            assert "exception" not in failed
            assert not worker.of("waiting")


WAITS = [
    ("source", lambda cluster: None, "NothingToMirror", "no topic of cluster source matches t, u"),
    (
        "destination",
        lambda cluster: cluster.next("ApiVersions", faults.malformed(b"\x00")),
        "Unreachable",
        "cannot reach cluster destination",
    ),
    (
        "source",
        lambda cluster: cluster.next("ApiVersions", faults.disconnect()),
        "Unreachable",
        "cannot reach cluster source",
    ),
]
"""Where something is wrong at the start that heals by itself or is seen to."""


@pytest.mark.parametrize(("side", "prepare", "reason", "detail"), WAITS)
async def test_cannot_start_yet(tmp_path: Path, side: str, prepare: Any, reason: str, detail: str) -> None:
    """
    1. It says what it waits for, and that its event loop turns.
    2. Once that has healed, it starts and copies, as if nothing had been.
    """
    async with clusters() as (source, destination):
        if reason != "NothingToMirror":
            scene(source)
        prepare(source if side == "source" else destination)
        async with running(config_for(source, destination, tmp_path)) as worker:
            waiting = await worker.message("waiting")
            assert waiting["reason"] == reason
            assert detail in waiting["detail"]
            assert worker.of("alive")
            if reason == "NothingToMirror":
                assert not worker.of("ready")
                await until(lambda: worker.of("alive")[-1]["unmatched"] == ["t", "u"])
                scene(source)
            await until(lambda: [row.position for row in worker.rows.values()] == [30, 30])
            assert await worker.stop() == 0
            assert not worker.of("failed")
            assert len(worker.lines("connecting")) == 2


@pytest.mark.parametrize("side", ["source", "destination"])
@pytest.mark.parametrize("request_name", ["ApiVersions", "Metadata", "DescribeConfigs"])
async def test_who_is_waited_for_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str, request_name: str
) -> None:
    """A broker that is frozen answers neither yes nor no: it is named, with what it was asked."""
    monkeypatch.setattr("mirror.service.telemetry.watching.SILENT_S", 0.0)
    async with clusters() as (source, destination):
        scene(source)
        silent = source if side == "source" else destination
        silent.next(request_name, faults.silence())
        config = config_for(source, destination, tmp_path, **{"progress.interval.ms": 100})
        what = "Connect" if request_name == "ApiVersions" else request_name
        async with running(config) as worker:

            def named() -> bool:
                told = worker.of("alive")
                return bool(told) and any(
                    broker.startswith(f"{side} b") and asked in (what, request_name)
                    for broker, asked, _ in told[-1]["silent"]
                )

            await until(named, what=f"{side}; {worker.of('alive')[-1:]}")
            assert not worker.of("ready")


async def test_a_broker_that_is_down_at_the_start_is_named(tmp_path: Path) -> None:
    """Before it has started, while others of its cluster answer; and in what it tells when it copies."""
    async with clusters(brokers=2) as (source, destination):
        scene(source)
        destination.unnoticed = True
        await destination.stop(2)
        stuck = destination.next("CreateTopics", faults.silence())
        async with running(config_for(source, destination, tmp_path)) as worker:
            await stuck.came.wait()
            name = f"destination broker 2 at 127.0.0.1:{destination.brokers[2].port}"
            await until(lambda: worker.of("alive")[-1]["unreached"] == {name: "Connection refused"})
            assert not worker.of("ready")


async def test_without_waiting_it_would_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, the rule taken away: a pattern that matches nothing yet is the end of the worker."""
    monkeypatch.setattr("mirror.service.flows.run.FINAL", (Exception,))
    async with clusters() as (source, destination), running(config_for(source, destination, tmp_path)) as worker:
        assert await worker.task == 1
        assert (await worker.message("failed"))["reason"] == "NothingToMirror"


@pytest.mark.parametrize("kind", ["ApiVersions", "Metadata", "DescribeConfigs", "CreateTopics"])
async def test_told_to_stop_while_it_starts(tmp_path: Path, kind: str) -> None:
    """Whatever it is waiting for: nothing was begun, so it stops at once, exit code 0."""
    async with clusters() as (source, destination):
        scene(source)
        stuck = destination.next(kind, faults.silence())
        async with running(config_for(source, destination, tmp_path)) as worker:
            await stuck.came.wait()
            assert await worker.stop() == 0
            await until(lambda: worker.of("stopped"))
            assert not worker.of("failed")
            assert not worker.of("ready")


@pytest.mark.parametrize("side", ["source", "destination"])
async def test_told_to_stop_while_only_one_cluster_answers(tmp_path: Path, side: str) -> None:
    """The connection to the other one is closed, and nothing asks over it any more."""
    async with clusters() as (source, destination):
        scene(source)
        silent, other = (source, destination) if side == "source" else (destination, source)
        silent.next("ApiVersions", faults.silence())
        async with running(config_for(source, destination, tmp_path)) as worker:
            await until(lambda: worker.of("alive") and worker.of("alive")[-1]["clusters"] == {other.name: True})
            assert await worker.stop() == 0
            async with asyncio.timeout(10):
                await until(lambda: not other.brokers[1].writers, what="the end of the connection")
            left = [task for task in asyncio.all_tasks() if "Pulse" in repr(task.get_coro())]
            assert not left


async def test_told_to_stop_before_it_may_join(tmp_path: Path) -> None:
    async with clusters() as (source, destination):
        scene(source)
        async with running(config_for(source, destination, tmp_path), join=False) as worker:
            await worker.message("ready")
            assert await worker.stop() == 0
            assert not worker.seats
