"""Log lines that cannot be written: a full disk, a reader that is gone or does not read. Nobody waits, nobody fails."""

import errno
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from mirror.sandbox import SandboxCluster
from mirror.sandbox.children.ports import Reservation
from mirror.service.log.outlet import NOT_READ, LogOutlet
from tests.service.stage.kafka_side import create_topic, end_of, produce
from tests.service.stage.running import MIRROR, PATIENCE_S, config_text, fetch, mirror, without_stdout

SOON_S = 60.0
FULL = Path("/dev/full")


def outlet(descriptor: int, **options: Any) -> LogOutlet:
    return LogOutlet(descriptor, lambda count, why: f"lost {count}: {why}\n", **options)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its two ends, for reading and for writing."""
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for each in ends:
        with suppress(OSError):
            os.close(each)


def take(reader: int) -> str:
    """What is there now."""
    try:
        return os.read(reader, 1 << 20).decode()
    except BlockingIOError:
        time.sleep(0.001)
        return ""


def test_lines_in_order(pipe: tuple[int, int]) -> None:
    out = outlet(pipe[1])
    for number in range(100):
        assert out.write(f"{number}\n") == len(f"{number}\n")
    assert out.settle(SOON_S)
    assert take(pipe[0]) == "".join(f"{number}\n" for number in range(100))
    assert out.lost == 0


def test_a_disk_that_is_full_for_a_while(monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]) -> None:
    """
    1. Three lines meet a full disk, the first of them after two bytes of it were written.
    2. There is room again: the torn line is ended, what was lost is said, and lines go on.
    """
    write = os.write
    script: list[int] = [2, 0, 0, 0]

    def scripted(descriptor: int, data: memoryview) -> int:
        if descriptor != pipe[1] or not script:
            return write(descriptor, data)
        if taken := script.pop(0):
            return write(descriptor, data[:taken])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", scripted)
    out = outlet(pipe[1])
    for text in ("one\n", "two\n", "three\n", "four\n"):
        out.write(text)
        assert out.settle(SOON_S)
    assert out.lost == 3
    assert take(pipe[0]) == "on\nlost 3: No space left on device\nfour\n"


def test_a_reader_that_is_gone(pipe: tuple[int, int]) -> None:
    out = outlet(pipe[1])
    os.close(pipe[0])
    out.write("x\n")
    assert out.settle(SOON_S)
    assert out.lost == 1


def test_no_stdout_at_all() -> None:
    out = outlet(-1)
    out.write("x\n")
    assert out.settle(SOON_S)
    assert out.lost == 1


@pytest.mark.parametrize("blocking", [True, False])
def test_a_reader_that_does_not_read(pipe: tuple[int, int], blocking: bool) -> None:
    """
    1. The pipe is full, and so is the queue: whoever logs goes on at once, and the rest is lost.
    2. Something reads again: what waited comes whole and in order, and what was lost is said.
    """
    reader, writer = pipe
    os.set_blocking(writer, blocking)
    out = outlet(writer, queue_max=64 << 10)
    lines = [f"{number:01023d}\n" for number in range(1_000)]
    for line in lines:
        out.write(line)
    assert not out.settle(0)
    lost = out.lost
    assert 500 < lost < 1_000
    text = ""
    while not out.settle(0):
        text += take(reader)
    out.write("last\n")
    while not text.endswith("last\n"):
        text += take(reader)
    kept = [line for line in text.splitlines(keepends=True) if line in lines]
    assert kept == sorted(set(kept))
    assert len(kept) == 1_000 - lost
    assert sum(map(int, re.findall(rf"lost (\d+): {NOT_READ}\n", text))) == lost == out.lost


# The whole process, with clusters that are away: it waits, and says so.


AWAY = ("127.0.0.1:1", "127.0.0.1:2")


@contextmanager
def running(
    folder: Path, stdout: Any, *, clusters: tuple[str, str] = AWAY, topic: str = "t", closed: bool = False
) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """``mirror run``, and where it listens: its log may not tell. ``closed``: it is started without a stdout."""
    reserved = Reservation()
    address = f"127.0.0.1:{reserved.port}"
    config = folder / "mirror.yaml"
    config.write_text(config_text(*clusters, [topic], top={"http.listen": address}))
    command = [str(MIRROR), "run", "-c", str(config)]
    with subprocess.Popen(
        without_stdout(command) if closed else command, stdout=stdout, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process, address
        finally:
            process.kill()
            reserved.release()


def lines_lost(address: str) -> float:
    """As it counts them."""
    return float(fetch(address, "/metrics")[1].rpartition("mirror_log_lines_lost_total ")[2].split()[0])


def wait_for_loss(process: "subprocess.Popen[bytes]", address: str) -> None:
    """Until it waits for its clusters, answers, and counts lines that were lost."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        with suppress(OSError):
            if lines_lost(address) > 0 and fetch(address, "/-/ready")[1].startswith("Unreachable: "):
                return
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["full", "gone", "none"])
def test_the_mirror_goes_on(tmp_path: Path, kind: str) -> None:
    """A full disk, a closed pipe, no stdout: it runs, counts what was lost, and stops as it was told, exit code 0."""
    if kind == "full" and not FULL.exists():
        pytest.skip("no /dev/full")
    reader, writer = os.pipe()
    os.close(reader)
    with (
        open(FULL if kind == "full" else writer, "wb", closefd=kind == "full") as stdout,
        running(tmp_path, stdout, closed=kind == "none") as (process, address),
    ):
        os.close(writer)
        wait_for_loss(process, address)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, b"")


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["full", "gone"])
def test_records_go_on_being_copied(
    tmp_path: Path, source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, kind: str
) -> None:
    """
    1. A full disk, or a closed pipe, from the start: what is written is copied, and lost lines are counted.
    2. SIGHUP to the mirror and to all that it has started: what is written then is copied, too.
    3. It stops as it was told, exit code 0.
    """
    if kind == "full" and not FULL.exists():
        pytest.skip("no /dev/full")
    here, there = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(here, topic_name)
    produce(here, topic_name, 500)
    reader, writer = os.pipe()
    os.close(reader)
    with (
        open(FULL if kind == "full" else writer, "wb") as stdout,
        running(tmp_path, stdout, clusters=(here, there), topic=topic_name) as (process, address),
    ):
        for written in (500, 1_000):
            deadline = time.monotonic() + PATIENCE_S
            while end_of(there, topic_name) < written:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            if written == 500:
                for each in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)):
                    each.send_signal(signal.SIGHUP)
                produce(here, topic_name, 500, seed=1)
        assert lines_lost(address) > 0
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, b"")
    assert end_of(there, topic_name) == 1_000


def test_the_mirror_goes_on_unread(tmp_path: Path, pipe: tuple[int, int]) -> None:
    """Its stdout takes not one byte: it runs and answers all the same, and stops as it was told, exit code 0."""
    reader, writer = pipe
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4_096)
    os.set_blocking(writer, True)
    with running(tmp_path, writer) as (process, address):
        deadline = time.monotonic() + PATIENCE_S
        waiting = ""
        while not waiting.startswith("Unreachable: "):
            assert time.monotonic() < deadline
            time.sleep(0.02)
            with suppress(OSError):
                waiting = fetch(address, "/-/ready")[1]
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, b"")
        assert set(take(reader)) == {"x"}


def test_hung_up(tmp_path: Path) -> None:
    """SIGHUP to the supervisor reads the configuration again, and to a worker does nothing: said, and nothing stops."""
    config = tmp_path / "mirror.yaml"
    with mirror(config, config_text("127.0.0.1:1", "127.0.0.1:2", ["t"])) as process:
        process.wait_event("waiting")
        process.process.send_signal(signal.SIGHUP)
        assert process.wait_event("reloading")["untouched"] == ["source->destination"]
        process.wait_event("reloaded")
        os.kill(process.of("worker_started")[0]["pid"], signal.SIGHUP)
        process.wait_event("not_reloaded", worker=1)
        assert process.stop() == 0
        assert not process.of("worker_died")
