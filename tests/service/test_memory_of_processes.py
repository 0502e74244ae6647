"""What a service's processes load and keep for years: nothing that only reading the configuration needs, and no client
of Kafka's that is not used."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mirror.service.commands import Commands
from mirror.service.config import load
from mirror.service.config.resolve import supervision
from mirror.service.program import become as become_it
from mirror.service.worker_settings import Supervision
from tests.service.stage.running import config_text

CONFIGURING = {"pydantic", "pydantic_core", "ruamel", "click", "rich"}


def loaded(*modules: str) -> set[str]:
    """The names of all modules that a new interpreter has after importing these."""
    code = f"import sys, {', '.join(modules)}; print('\\n'.join(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(found.stdout.split())


def test_the_supervisor() -> None:
    found = loaded("mirror.service.program", "mirror.service.telemetry.metrics")
    packages = {name.partition(".")[0] for name in found if name != "kafka"}
    assert not packages & {*CONFIGURING, "kafka", "confluent_kafka"}
    assert not {"mirror.net.cluster", "mirror.relay.relay", "mirror.service.config"} & found
    assert "mirror.service.notify" not in found, "only a service manager that wants to be told needs it"


def test_the_http_server() -> None:
    """Of what uvicorn could use, it takes what needs nothing more; click is uvicorn's own command line."""
    found = loaded("mirror.service.http.connections", "mirror.service.http.page.document")
    packages = {name.partition(".")[0] for name in found}
    assert not packages & (CONFIGURING - {"click"})
    assert not packages & {"httptools", "uvloop", "websockets", "wsproto", "watchfiles", "dotenv", "yaml", "httpx"}


def test_a_worker() -> None:
    found = loaded("mirror.service.worker")
    assert not {name.partition(".")[0] for name in found} & (CONFIGURING - {"rich"})
    assert "kafka.protocol" in found
    assert not {name for name in found if name.startswith(("kafka.admin", "kafka.consumer", "kafka.producer"))}


def test_it_goes_on_as_the_supervisor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    1. The program that follows is this interpreter's, and is found by what was typed.
    2. What it is told is what was read, with nothing lost on the way.
    """
    path = tmp_path / "mirror.yaml"
    path.write_text(config_text("127.0.0.1:1", "127.0.0.1:2", ["t"], top={"group.instance.id": "a"}))
    told = supervision(load(path), workers=3, fail_fast=True)
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, command: ran.append([program, *command]))
    become: Callable[..., object] = become_it  # here it returns, since nothing follows
    before = signal.getsignal(signal.SIGHUP)
    try:
        become(told, commands=Commands(config=str(path)))
    finally:
        signal.signal(signal.SIGHUP, before)  # it is ignored now, and would be by all that later tests start from here
    ((program, *command),) = ran
    assert program == command[0] == sys.executable
    assert command[-1] == f"mirror run -c {path}"
    with os.fdopen(int(command[-2]), encoding="utf-8") as file:
        assert os.get_inheritable(file.fileno())
        file.seek(0)
        data = json.load(file)
    assert Commands(**data["commands"]).config == str(path)
    unpacked = Supervision.unpack(data["told"])
    assert unpacked.pack() == told.pack()
    assert (unpacked.pool, unpacked.workers_option) == (3, 3)
    assert [flow.of_worker(7, 1).group.instance_id for flow in unpacked.flows] == ["a-1"]
    assert unpacked.fail_fast
