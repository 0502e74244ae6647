"""The supervisor as PID 1: a signal that comes too early is not lost, and what others left does not stay as zombies."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.stage.running import Mirror, config_text

AS_FIRST = """
import os, signal, sys
from mirror.service import first
if {held}:
    first.os.getpid = lambda: first.PID
first.hold_signals()
os.kill(int(open("/proc/self/stat").read().split()[0]), signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""A program that gets SIGTERM before it has become the mirror."""

ADOPTING = """
import ctypes, os, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
left = subprocess.run(["sh", "-c", "sleep 1 >&2 & echo $!"], stdout=subprocess.PIPE, text=True, check=True)
print('{"event": "left", "pid": ' + left.stdout.strip() + "}", flush=True)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""A program that inherits orphans, as PID 1 does, and has one, which ends a second later."""


class Started(Mirror):
    """A mirror that such a program becomes."""

    def __init__(self, program: str, config: Path) -> None:
        super().__init__(config)
        self._command = [sys.executable, "-c", program, *self._command]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mirror.yaml"
    path.write_text(config_text("127.0.0.1:1", "127.0.0.1:2", ["t"]))
    return path


def test_an_early_signal_is_not_lost(config: Path) -> None:
    with Started(AS_FIRST.format(held=True), config) as mirror:
        assert mirror.wait() == 0, mirror.told()
        mirror.check_clean()
        assert [line["signal"] for line in mirror.of("stopping")] == ["SIGTERM"]


def test_without_that_it_would_be(config: Path) -> None:
    """Nothing is held in a process that the signal ends by itself."""
    with Started(AS_FIRST.format(held=False), config) as mirror:
        assert mirror.wait() == -signal.SIGTERM


def test_adopted_children_do_not_stay(config: Path) -> None:
    """One that ended is gone, and the workers are still there."""
    with Started(ADOPTING, config) as mirror:
        pid = mirror.wait_event("left")["pid"]
        worker = mirror.wait_event("worker_started")["pid"]
        mirror.wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of the orphan")
        assert Path(f"/proc/{worker}").exists()
        # The end of a worker is still seen by the one who waits for it.
        os.kill(worker, signal.SIGKILL)
        assert mirror.wait_event("worker_died")["detail"] == "ended by SIGKILL"
        assert mirror.stop() == 0


def alone(program: str) -> str:
    """What a program prints that has children of its own, and none of the tests'."""
    wait = "import os, subprocess\nfrom mirror.service import first\n"
    wait += "ended = lambda child: os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)\n"
    told = subprocess.run([sys.executable, "-c", wait + program], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_own_children_are_left_alone() -> None:
    """Whoever started one gets its exit code."""
    program = """
own = subprocess.Popen(["sh", "-c", "exit 7"])
ended(own)
print(first.reap([own.pid]), own.wait())
"""
    assert alone(program) == "0 7\n"


def test_every_other_one_is_reaped() -> None:
    program = """
others = [subprocess.Popen(["true"]) for _ in range(3)]
for each in others:
    ended(each)
print(first.reap([]), [os.path.exists(f"/proc/{each.pid}") for each in others])
"""
    assert alone(program) == "3 [False, False, False]\n"


def test_one_that_runs_is_not_waited_for() -> None:
    program = """
with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
    print(first.reap([]), other.poll())
"""
    assert alone(program) == "0 None\n"


def test_no_children_at_all() -> None:
    assert alone("print(first.reap([]))") == "0\n"
