"""Nothing outlives its owner, however that ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mirror.sandbox import SandboxError
from mirror.sandbox.children import guardian
from mirror.sandbox.children.process import FOLDER_PREFIX, Processes
from tests.sandbox.support import alive, environment, eventually

Start = Callable[[str], tuple["subprocess.Popen[str]", dict[str, Any]]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start an owner in a process of its own, with its temporary folders under ``tmp_path``."""
    owners: list[subprocess.Popen[str]] = []

    def run(kind: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        owner = subprocess.Popen(
            [sys.executable, "-m", "tests.sandbox.children.owner", kind],
            stdout=subprocess.PIPE, text=True, env=environment(TMPDIR=tmp_path),
        )  # fmt: skip
        owners.append(owner)
        assert owner.stdout is not None
        return owner, json.loads(owner.stdout.readline())

    yield run
    for owner in owners:
        with owner:
            owner.kill()


def gone(made: dict[str, Any]) -> bool:
    """Whether nothing of what an owner made is left."""
    return not any(map(alive, [*made["pids"], made["guardian"]])) and not Path(made["folder"]).exists()


@pytest.mark.broker
def test_kill_9_of_the_owner_leaves_no_broker_and_no_data(start: Start) -> None:
    owner, made = start("brokers")
    assert all(map(alive, made["pids"]))
    assert any(Path(made["folder"]).rglob("meta.properties"))
    owner.kill()
    assert eventually(lambda: gone(made))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_any_end_of_the_owner_is_the_end_of_all(start: Start, number: signal.Signals) -> None:
    owner, made = start("sleepers")
    owner.send_signal(number)
    assert eventually(lambda: gone(made))


def test_an_owner_whose_forked_child_holds_the_socket(start: Start) -> None:
    owner, made = start("forked")
    owner.kill()
    assert eventually(lambda: gone(made), timeout_s=10)  # the forked child lives for 20 s


def test_the_end_of_the_thread_that_started_them_ends_nothing(start: Start) -> None:
    """Were the owner the parent, the kernel would take its thread's end for the parent's death."""
    owner, made = start("thread")
    assert not eventually(lambda: gone(made), timeout_s=2 * guardian.OWNER_CHECK_S)
    assert all(map(alive, made["pids"]))
    owner.kill()
    assert eventually(lambda: gone(made))


def test_a_paused_child_is_ended_too(start: Start) -> None:
    owner, made = start("sleepers")
    os.kill(made["pids"][0], signal.SIGSTOP)
    owner.kill()
    assert eventually(lambda: gone(made))


def test_kill_9_of_the_guardian_ends_its_children_and_the_next_one_removes_the_folder(start: Start) -> None:
    owner, made = start("sleepers")
    os.kill(made["guardian"], signal.SIGKILL)
    assert eventually(lambda: not any(map(alive, made["pids"])))
    owner.kill()
    assert Path(made["folder"]).exists()  # nobody was left to remove it
    _, other = start("sleepers")
    assert not Path(made["folder"]).exists()
    assert Path(other["folder"]).exists()
    start("sleepers")
    assert Path(other["folder"]).exists()  # in use: not swept


def test_sigterm_to_the_guardian_cleans_up(start: Start) -> None:
    _, made = start("sleepers")
    os.kill(made["guardian"], signal.SIGTERM)
    assert eventually(lambda: not any(map(alive, made["pids"])) and not Path(made["folder"]).exists())


@pytest.fixture
def processes() -> Iterator[Processes]:
    """A group of this process's own."""
    made = Processes()
    yield made
    made.close()


def test_what_is_paused_does_nothing_any_more(processes: Processes) -> None:
    """A stop takes effect when a thread next looks: a broker on another core still answered a request after it."""
    endless = "lambda: all(True for _ in iter(int, 1))"
    threads = f"import threading\nfor _ in range(16): threading.Thread(target={endless}).start()"
    busy = processes.spawn([sys.executable, "-c", threads], processes.folder / "log")
    assert eventually(lambda: len(_states(busy.pid)) == 17)
    for _ in range(20):
        assert busy.signal(signal.SIGSTOP)
        assert set(_states(busy.pid)) == {"T"}
        busy.signal(signal.SIGCONT)
    assert busy.signal(signal.SIGKILL)


def _states(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]


def test_output_and_exit_code(processes: Processes) -> None:
    log = processes.folder / "log"
    process = processes.spawn(["sh", "-c", "echo out; echo err >&2; exit 7"], log)
    assert process.wait(10) == 7
    assert process.poll() == 7
    assert not process.signal(signal.SIGTERM)
    assert log.read_text() == "out\nerr\n"


def test_a_signal_is_the_negative_exit_code(processes: Processes) -> None:
    process = processes.spawn(["sleep", "600"], processes.folder / "log")
    assert process.poll() is None
    assert process.wait(0.05) is None
    assert process.signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM


def test_a_program_that_is_not_there(processes: Processes) -> None:
    with pytest.raises(SandboxError, match=r"could not .*no-such-program"):
        processes.spawn(["no-such-program"], processes.folder / "log")
    assert processes.spawn(["true"], processes.folder / "log").wait(10) == 0  # it still answers


def test_a_temporary_folder_that_cannot_be_made_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.sandbox.children.process.FOLDER_PREFIX", "no-such-folder/x")
    with pytest.raises(SandboxError, match=r"could not make a temporary folder: .*no-such-folder"):
        Processes()


def test_after_close_nothing_runs_and_nothing_starts() -> None:
    processes = Processes()
    assert processes.folder.name.startswith(FOLDER_PREFIX)
    process = processes.spawn(["sleep", "600"], processes.folder / "log")
    processes.close()
    processes.close()
    assert not alive(process.pid)
    assert not processes.folder.exists()
    assert process.poll() == -signal.SIGKILL
    with pytest.raises(SandboxError, match="the cluster has ended"):
        processes.spawn(["true"], Path("log"))


def test_a_forked_child_cannot_end_its_parents_processes(start: Start) -> None:
    _, made = start("closing-fork")
    assert all(map(alive, made["pids"]))


def test_start_time_tells_processes_apart() -> None:
    mine = guardian.start_time(os.getpid())
    assert mine is not None
    assert guardian.start_time(os.getpid()) == mine
    with subprocess.Popen(["true"]) as ended:
        assert eventually(lambda: guardian.start_time(ended.pid) is None)  # a zombie does not run
    assert guardian.start_time(2**22 + 1) is None  # above the kernel's largest process id


def test_it_starts_without_the_project(tmp_path: Path) -> None:
    """It runs in isolated mode, where importing anything of the project would fail."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", guardian.__file__, "exec", str(os.getpid()), "echo", "here"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout == "here\n"


def test_the_shim_ends_at_once_when_its_parent_is_gone_already() -> None:
    done = subprocess.run(
        [sys.executable, guardian.__file__, "exec", "1", "echo", "here"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")
