"""Exports that are due, of a service without processes: what arrives, and what a collector that fails comes to."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import opentelemetry.exporter.otlp.proto.http.metric_exporter  # noqa: F401  (loading it takes longer than an export)
import pytest

from mirror.net.security.options import Secret
from mirror.service.telemetry.otlp import exporting
from mirror.service.telemetry.otlp.exporting import Exporting
from mirror.service.telemetry.otlp.settings import OtlpSettings
from tests.fakes.loop import until
from tests.service.flows.test_flow import Lines
from tests.service.telemetry.otlp.collector import Collector, collector
from tests.service.telemetry.stage.fleets import fleet, snapshot
from tests.service.telemetry.stage.rows import row
from tests.service.telemetry.stage.showing import processes_of

CONNECTION = SimpleNamespace(connection=SimpleNamespace(security=SimpleNamespace(tls=None)))


class Service:
    """A service with one flow, whose worker has one partition."""

    def __init__(self, otlp: OtlpSettings | None) -> None:
        found = fleet(1)
        found.heard(1, snapshot(row()))
        told = SimpleNamespace(source=CONNECTION, destination=CONNECTION)
        flow = SimpleNamespace(fleet=found, started=True, name=found.flow, told=told)
        self.fleet = found
        self.settings = SimpleNamespace(otlp=otlp)
        self.flows = {found.flow: flow}
        self.processes = processes_of(found)
        self.reloading = SimpleNamespace(successful=True, succeeded_at=1.0, granularity="topic")
        self.address = "127.0.0.1:4711"
        self.log = Lines()


@asynccontextmanager
async def exporting_to(
    kept: Collector, monkeypatch: pytest.MonkeyPatch, **told: Any
) -> AsyncIterator[tuple[Service, Counter[str]]]:
    """Exports every 50 ms."""
    results: Counter[str] = Counter()
    monkeypatch.setattr(exporting, "results", results)
    monkeypatch.setattr(exporting, "LOOK_S", 0.02)
    service: Any = Service(OtlpSettings(**{"endpoint": kept.endpoint, "interval_ms": 50, "timeout_ms": 5_000, **told}))
    task = asyncio.get_running_loop().create_task(Exporting(service).keep())
    try:
        yield service, results
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_arrives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    1. The flow's figures, with its own start; who sends; the headers, in which what is encoded is plain.
    2. A secret's file that has changed counts from the next export on; so do other settings.
    3. Without an endpoint, nothing is sent any more.
    """
    secret = tmp_path / "headers"
    secret.write_text("Authorization=Bearer%20one,x-scope=a\n")
    with collector() as kept:
        async with exporting_to(kept, monkeypatch, headers=Secret("x", str(secret))) as (service, results):
            await until(lambda: results["ok"])
            (point,) = kept.metrics(0)["mirror_replicated_records"].sum.data_points
            assert point.as_double == 50
            assert {each.key for each in point.attributes} == {"source", "target", "topic"}
            assert point.start_time_unix_nano == service.fleet.began_ns
            assert kept.resource()["service.instance.id"] == f"{os.uname().nodename}:4711"
            assert kept.resource()["service.name"] == "mirror"
            assert set(kept.paths) == {"/v1/metrics"}
            assert (kept.headers[0]["authorization"], kept.headers[0]["x-scope"]) == ("Bearer one", "a")
            assert results["failed"] == 0
            assert not service.log.lines
            secret.write_text("Authorization=two")
            await until(lambda: kept.headers[-1]["authorization"] == "two")
            service.settings.otlp = replace(service.settings.otlp, headers=Secret("authorization=three"))
            await until(lambda: kept.headers[-1]["authorization"] == "three")
            service.settings.otlp = None
            await asyncio.sleep(0.1)
            count = len(kept.paths)
            await asyncio.sleep(0.2)
            assert len(kept.paths) == count


@pytest.mark.parametrize(
    ("status", "says"), [(401, "Unauthorized"), (400, "Bad Request"), (503, "Service Unavailable")]
)
async def test_an_endpoint_that_answers_errors(status: int, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. It is told once, however many exports fail. 2. Each one counts. 3. The end is told, with what there was."""
    with collector() as kept:
        kept.status = status
        async with exporting_to(kept, monkeypatch, timeout_ms=500) as (service, results):
            await until(lambda: results["failed"] >= 3)
            (line,) = service.log.of("metrics_not_exported")
            assert line["endpoint"] == f"{kept.endpoint}/v1/metrics"
            assert line["detail"] == f"the answer is {status} {says}"
            assert results["ok"] == 0
            kept.status = 200
            await until(lambda: results["ok"])
            (end,) = service.log.of("metrics_exported_again")
            assert end["failed"] == results["failed"] >= 3


async def test_while_it_goes_on_it_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "TELL_EVERY_S", 0.3)
    with collector() as kept:
        kept.status = 401
        async with exporting_to(kept, monkeypatch) as (service, results):
            await until(lambda: len(service.log.of("metrics_not_exported")) == 2)
            assert service.log.of("metrics_not_exported")[1]["failed"] == results["failed"] > 2


async def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as kept:
        endpoint = kept.endpoint
    async with exporting_to(Collector(endpoint=endpoint), monkeypatch, timeout_ms=500) as (service, results):
        await until(lambda: results["failed"] >= 2)
        (line,) = service.log.of("metrics_not_exported")
        assert "Connection refused" in line["detail"]
        assert len(line["detail"]) <= 300


async def test_an_endpoint_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop goes on meanwhile, and there is one thread at most. What is sent afterwards is right."""
    with collector() as kept:
        kept.may_answer.clear()
        async with exporting_to(kept, monkeypatch, timeout_ms=60_000) as (service, results):
            monkeypatch.setattr(exporting, "LATE_S", -59.9)
            await until(lambda: results["failed"] >= 3)
            assert [each.name for each in threading.enumerate()].count("mirror-otlp") == 1
            assert len(kept.paths) == 1
            (line,) = service.log.of("metrics_not_exported")
            assert "too slowly" in line["detail"]
            kept.may_answer.set()
            monkeypatch.setattr(exporting, "LATE_S", 5)
            await until(lambda: results["ok"])


async def test_what_goes_wrong_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A secret's file that is gone, an error of ours: told, and tried again."""
    with collector() as kept:
        async with exporting_to(kept, monkeypatch, headers=Secret("x", str(tmp_path / "gone"))) as (service, results):
            await until(lambda: results["failed"])
            assert "gone cannot be read" in service.log.of("metrics_not_exported")[0]["detail"]
            (tmp_path / "gone").write_text("a=b")
            await until(lambda: results["ok"])
            service.flows = {"x": SimpleNamespace()}
            failed = results["failed"]
            await until(lambda: results["failed"] > failed)
            assert "AttributeError" in service.log.of("metrics_not_exported")[1]["detail"]
