"""``mirror run`` under a service manager: what it is told, from the start to the end, without a broker."""

import os
import signal
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from mirror.service.supervisor import STOP_MARGIN_S
from tests.service.stage.notices import Listening, listening
from tests.service.stage.running import Mirror, config_text, get, mirror

NOBODY = "127.0.0.1:1", "127.0.0.1:2"
WATCHDOG_US = 400_000
VARIABLES = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
LATE_S = 4.0
IMPATIENT = f"""
from mirror.cli import main
from mirror.service import program as starting
usual = starting.program
def program(*told, **more):
    command = usual(*told, **more)
    at = command.index("-c") + 1
    command[at] = command[at].replace(
        "; main(", "; from mirror.service.flows import overview; overview.LATE_S = {LATE_S}; main("
    )
    return command
starting.program = program
main()
"""
"""``mirror``, whose supervisor takes workers for late after four seconds, not after a minute."""


def told_to(manager: Listening) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": str(WATCHDOG_US)}


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_from_start_to_end(tmp_path: Path, kind: str) -> None:
    """
    1. Started: ready, though neither cluster can be reached, which the status says. Then, signs of life.
    2. Nothing that it starts can speak for it.
    3. SIGHUP: a reload begins, at a time after the signal, and ends. So does one of a file that is wrong.
    4. SIGTERM: it says that it stops, and how long that may take, and nothing of its state afterwards.
    """
    config, text = tmp_path / "mirror.yaml", config_text(*NOBODY, ["t"], top={"workers": 2, "drain.timeout.ms": 7_000})
    address = str(tmp_path / "notify") if kind == "path" else f"@mirror-{uuid4()}"
    with Listening(address) as manager, mirror(config, text, environment=told_to(manager)) as process:
        manager.wait("READY")
        pid = process.process.pid
        assert len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()) == 2, "both workers"
        assert get(process, "/-/healthy") == (200, "healthy\n")
        process.wait_event("worker_started", worker=2)
        manager.wait("WATCHDOG")
        manager.wait_for(lambda each: "not ready: Unreachable: " in each.get("STATUS", ""), "the reason")
        assert manager.states() == ["READY"]
        for pid in (line["pid"] for line in process.of("worker_started")):
            environment = Path(f"/proc/{pid}/environ").read_text()
            assert not any(f"{name}=" in environment for name in VARIABLES)

        asked_us = time.monotonic_ns() // 1000
        process.process.send_signal(signal.SIGHUP)
        assert int(manager.wait("RELOADING")["MONOTONIC_USEC"]) >= asked_us
        process.wait_event("reloaded")
        manager.wait_for(lambda _: manager.states()[1:] == ["RELOADING", "READY"], "the end of a reload")
        config.write_text("flows: 3")
        process.process.send_signal(signal.SIGHUP)
        process.wait_event("not_reloaded")
        manager.wait_for(lambda each: "not reloaded, see the log; " in each.get("STATUS", ""), "a failed reload")
        assert manager.states()[3:] == ["RELOADING", "READY"]

        assert process.stop() == 0
        manager.read()
        (stopping,) = [each for each in manager.messages if "STOPPING" in each]
        assert int(stopping["EXTEND_TIMEOUT_USEC"]) / 1e6 > 7 + STOP_MARGIN_S, "the supervisor kills late workers first"
        assert manager.states()[5:] == ["STOPPING"]
        assert not process.of("service_manager_not_told")


def test_a_worker_that_is_stopped(tmp_path: Path) -> None:
    """
    1. A worker does nothing any more (SIGSTOP): the watchdog hears nothing more either, although the supervisor lives
       and answers. So the manager would end it.
    2. The worker goes on: so do the signs of life. The service may be stopped as ever.
    """
    program = [sys.executable, "-c", IMPATIENT]
    config = tmp_path / "mirror.yaml"
    config.write_text(config_text(*NOBODY, ["t"]))
    with (
        listening(tmp_path) as manager,
        Mirror(config, program=program, environment=told_to(manager)) as process,
    ):
        manager.wait("WATCHDOG")
        worker = process.wait_event("worker_started")["pid"]
        os.kill(worker, signal.SIGSTOP)
        process.wait_for(lambda: get(process, "/-/healthy") == (503, "no report from worker 1\n"), "a late worker")
        manager.wait_for(lambda each: each.get("STATUS", "").startswith("no report from worker 1; "), "the status")
        manager.forget()
        time.sleep(5 * WATCHDOG_US / 1e6)
        assert manager.read() == []
        assert get(process, "/-/healthy")[0] == 503
        os.kill(worker, signal.SIGCONT)
        manager.wait("WATCHDOG")
        assert process.stop() == 0
