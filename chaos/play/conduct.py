"""Checks that `mirror run`, whatever the scenario, never dies unless ordered, and prints nothing but events.

A worker that crashes and is started again goes on copying, and everything may be right in the end. It still crashed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK

__all__ = ["BY_ITSELF", "BY_SIGKILL", "Conduct"]

BY_SIGKILL = "ended by SIGKILL"
"""How the supervisor describes a worker's end by it."""
BY_ITSELF = "ended with exit code 0"
"""Likewise, of a worker that has drained and ended after SIGTERM."""
_SHOWN = 300


class Conduct:
    """Is fed the output of one `mirror run`; ``problems`` has what is wrong, in words.

    Attributes:
        problems: grows as it is fed.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._ordered: dict[int, str] = {}
        self._torn = False
        self._allowed: set[str] = set()
        self._drained = True

    def allow(self, event: str) -> None:
        """Allow this event from now on, though it is an error: the act may cause it for a while."""
        self._allowed.add(event)

    def order(self, pid: int, end: str = BY_SIGKILL) -> None:
        """Note that we are about to end this process: its death is no problem if the supervisor describes it so."""
        self._ordered[pid] = end

    def torn(self) -> None:
        """Note that our kill cut its log within a line: the one line that is no event is what is left of that."""
        self._torn = True

    def ended(self, code: int) -> None:
        """Note that `mirror run` is over, and was to run on."""
        self.problems.append(f"mirror run ended by itself, with exit code {code}: nobody ordered it")

    def stopped(self, code: int, *, halts: int, healthy: bool = False) -> None:
        """Note that it stopped as it was told to.

        Args:
            code: its exit code.
            halts: number of partitions that had halted.
            healthy: True if nothing kept it from draining: it had caught up, and both clusters answered.
        """
        drained, self._drained = self._drained, True
        right = (EXIT_OK, EXIT_HALTED) if halts else (EXIT_OK,)
        if healthy and not drained:
            self.problems.append(f"mirror run did not drain, between healthy clusters, and ended with exit code {code}")
        elif code not in (right if drained else (EXIT_FAILED,)):
            self.problems.append(f"mirror run ended with exit code {code}, and {halts} partitions had halted")

    def outlived(self, pids: Sequence[int]) -> None:
        """Note that workers went on after their supervisor had ended."""
        self.problems.append(f"workers of mirror run outlived it: {list(pids)}")

    def stayed(self, group: str) -> None:
        """Note that the group still has its members, long after it ended."""
        self.problems.append(f"mirror run ended, and {group} still has it as a member")

    def stray(self, line: str) -> None:
        """Note a line that is no event."""
        if self._torn:
            self._torn = False
            return
        self.problems.append(f"stray output: {line[:_SHOWN]}")

    def event(self, event: Mapping[str, Any]) -> bool:
        """Note one event; returns True if it is the death of a worker that we ended, as we ended it."""
        what = str(event["event"])
        if what == "worker_died":
            if (pid := event.get("pid")) in self._ordered and event.get("detail") == self._ordered[pid]:
                del self._ordered[pid]
                return True
            self.problems.append(f"worker {event.get('pid')} died, {event.get('detail')}: nobody ordered it")
        elif what == "stopped":
            self._drained = bool(event["drained"])
        elif what in ("worker_killed", "worker_failed", "failed", "killed", "log_lines_lost"):
            self.problems.append(f"{what}: {event.get('reason', '')} {event.get('detail', '')}"[:_SHOWN])
        elif event.get("reason") == "bug":
            self.problems.append(f"a bug, by its own word: {what}: {event.get('detail')}")
        elif "logger" in event:  # of a library, or a warning of the interpreter
            self.problems.append(f"stray output of {event['logger']}: {what[:_SHOWN]}")
        elif event.get("level") in ("error", "critical") and what not in self._allowed:
            self.problems.append(f"{what}, an error: {event.get('detail', '')}"[:_SHOWN])
        if "exception" in event:
            self.problems.append(
                f"{what} with a traceback: {str(event['exception']).strip().splitlines()[-1][:_SHOWN]}"
            )
        return False
