"""Processes as the kernel shows them (/proc)."""

from contextlib import suppress
from pathlib import Path

from chaos.errors import ChaosError
from chaos.waiting import until

__all__ = ["alive", "await_gone", "await_stopped", "children", "command", "stopped"]

_TIMEOUT_S = 20.0


def children(pid: int) -> list[int]:
    """Returns the process ids of a process's children."""
    found: list[int] = []
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def command(pid: int) -> str:
    """Returns the command line of a process; empty if there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def _state(pid: int) -> str:
    """Returns the state of a process, a letter as in proc(5); empty if there is no such process."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def alive(pid: int) -> bool:
    """Returns True if the process exists and has not ended. A zombie has ended."""
    return _state(pid) not in ("", "Z", "X")


def stopped(pid: int) -> bool:
    """Returns True if all threads of a process are stopped by a signal. They do not stop all at the same moment."""
    with suppress(OSError):
        threads = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        return all(_state(thread) == "T" for thread in threads)
    return False


def await_stopped(pid: int) -> None:
    """Waits until SIGSTOP has taken effect.

    Raises:
        ChaosError: the process was not stopped in time.
    """
    until(lambda: stopped(pid), f"process {pid} to be stopped", timeout_s=_TIMEOUT_S)


def await_gone(pids: list[int]) -> bool:
    """Waits until none of these processes is alive. Returns False if one still is after ``PATIENCE_S``.

    That may take long on a loaded machine: a worker that is starting notices the end of its supervisor only after it
    has imported its modules.
    """
    with suppress(ChaosError):
        return until(lambda: not any(map(alive, pids)), f"the end of {pids}")
    return False
