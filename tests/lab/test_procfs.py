"""A process as it is seen from outside."""

import os
import subprocess
import sys
import time

import pytest

from lab import procfs


def test_cpu_and_memory_of_a_process_count_its_children() -> None:
    """1. A process burns CPU in a child that ends. 2. It burns some itself. 3. Both count."""
    burn = "import time\nwhile time.process_time() < {}: pass\n"
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn.format(0.2)!r}])\n"
    code = f"{child}{burn.format(0.3)}print(1, flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert procfs.cpu_s(process.pid) >= 0.45
        assert procfs.peak_rss_bytes(process.pid) > 1_000_000
        # The child has ended: of the descendants alone there is nothing.
        assert process.pid in procfs.descendants(os.getpid())
        process.communicate(b"\n")
    with pytest.raises(ProcessLookupError):
        procfs.cpu_s(process.pid)
    with pytest.raises(ProcessLookupError):
        procfs.peak_rss_bytes(process.pid)


def test_own_cpu_is_what_python_says() -> None:
    before = time.process_time()
    assert procfs.cpu_s(os.getpid()) >= before


def test_descriptors_by_what_they_are() -> None:
    """1. Those of another process, of three kinds. 2. One more file of its own. 3. It has ended."""
    code = "import os, socket\nkept = socket.socketpair()\nprint(1, flush=True)\ninput()\n"
    code += "more = open(os.devnull)\nprint(2, flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        before = procfs.descriptors(process.pid)
        assert before["socket"] == 2
        assert before["pipe"] >= 2
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert procfs.descriptors(process.pid) - before == {"file": 1}
        process.communicate(b"\n")
    with pytest.raises(ProcessLookupError):
        procfs.descriptors(process.pid)
