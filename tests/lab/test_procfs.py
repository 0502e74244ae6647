"""A process as it is seen from outside."""

import os
import subprocess
import sys
import time
from pathlib import Path

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


def test_a_page_that_two_processes_map_counts_once(tmp_path: Path) -> None:
    """1. A process and its child read the same file of 32 MiB, mapped. 2. The child changes its own copy of half of
    another one: those pages are its own, and count."""
    size = 32 << 20
    for name in ("read", "changed"):
        (tmp_path / name).write_bytes(b"x" * size)
    mapped = f"""
import mmap, sys
file = open({str(tmp_path / "read")!r}, "rb")
read = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(read[at] for at in range(0, {size}, 4096))
"""
    child = f"""{mapped}
file = open({str(tmp_path / "changed")!r}, "rb")
changed = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
for at in range(0, {size // 2}, 4096):
    changed[at] = 1
print(1, flush=True)
input()
"""
    parent = f"{mapped}\nimport subprocess\nsubprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (other,) = procfs.descendants(process.pid)
        each = [procfs.peak_rss_bytes(pid) for pid in (other, process.pid)]
        process.communicate(b"\n")
    alone, both = each
    # Python's own pages are mapped by both as well; what is left of the first process is its heap.
    assert alone > size + size // 2
    assert 0 < both - alone < size // 2


def test_of_a_process_that_may_not_be_looked_at_no_page_is_known() -> None:
    pages = procfs.FilePages(os.getpid())
    assert pages.again(os.getpid()) > 1_000_000
    assert procfs.FilePages(2**22 + 1).again(os.getpid()) == 0


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
