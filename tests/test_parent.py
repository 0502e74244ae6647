"""A process that ends with its parent."""

import ctypes
import os
import signal
import subprocess
import sys

import psutil
import pytest

PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
CHILD = """
import sys, time
from mirror.parent import die_with
die_with(int(sys.argv[1]))
print("here", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does this on Linux only")
def test_it_ends_with_its_parent_also_while_it_is_stopped() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    try:
        child.suspend()
        parent.kill()
        parent.wait()
        parent.stdout.close()
        child.wait(60)
    finally:
        parent.kill()
        if child.is_running():
            child.kill()


def test_a_parent_that_is_gone_already() -> None:
    """No signal will ever come: it ends by itself, with the given code."""
    gone = "import sys; from mirror.parent import die_with; die_with(int(sys.argv[1]), exit_code=7)"
    ended = subprocess.run([sys.executable, "-c", gone, str(os.getpid() + 1)], check=False)
    assert ended.returncode == 7


def test_it_is_sigkill() -> None:
    """So that a stopped process ends, too, and none can ignore it."""
    from mirror import parent

    asked: list[tuple[int, ...]] = []
    library = type("Library", (), {"prctl": staticmethod(lambda *what: asked.append(what))})
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(ctypes, "CDLL", lambda *_, **__: library)
        parent.death_signal()()
    assert asked == [(parent.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)]
