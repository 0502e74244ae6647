"""Checks that ``mirror run`` never dies unless that was ordered, and prints nothing but events, in any scenario.

If a worker crashes and is started again, everything may be right in the end. The crash is a problem all the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK

__all__ = ["BY_ITSELF", "BY_SIGKILL", "Conduct"]

BY_SIGKILL = "ended by SIGKILL"
"""The supervisor's words for a worker that was killed by kill -9."""
BY_ITSELF = "ended with exit code 0"
"""The supervisor's words for a worker that has drained and ended after SIGTERM."""
_SHOWN = 300


class Conduct:
    """Checks the output of one ``mirror run``.

    Attributes:
        problems: what was found wrong so far, in words.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._ordered: dict[int, str] = {}
        self._torn = False
        self._allowed: set[str] = set()
        self._drained = True

    def allow(self, event: str) -> None:
        """Allows an event from now on although its level is error: the act may cause it for a while."""
        self._allowed.add(event)

    def order(self, pid: int, end: str = BY_SIGKILL) -> None:
        """Notes that the suite is about to end a worker. Its death is no problem if the supervisor describes it with
        the words ``end``."""
        self._ordered[pid] = end

    def torn(self) -> None:
        """Notes that a kill has cut the last line of the log short. The next line that is not an event is the rest of
        that line, and is no problem."""
        self._torn = True

    def ended(self, code: int) -> None:
        """Notes that ``mirror run`` has ended although it should run."""
        self.problems.append(f"mirror run ended by itself, with exit code {code}: nobody ordered it")

    def stopped(self, code: int, *, halts: int, healthy: bool = False) -> None:
        """Checks the end of a ``mirror run`` that was told to stop.

        Args:
            code: its exit code.
            halts: number of partitions that had halted.
            healthy: True if it has to drain, since it had caught up and both clusters were healthy.
        """
        drained, self._drained = self._drained, True
        right = (EXIT_OK, EXIT_HALTED) if halts else (EXIT_OK,)
        if healthy and not drained:
            self.problems.append(f"mirror run did not drain, between healthy clusters, and ended with exit code {code}")
        elif code not in (right if drained else (EXIT_FAILED,)):
            self.problems.append(f"mirror run ended with exit code {code}, and {halts} partitions had halted")

    def outlived(self, pids: Sequence[int]) -> None:
        """Notes that workers went on after their supervisor had ended."""
        self.problems.append(f"workers of mirror run outlived it: {list(pids)}")

    def stayed(self, group: str) -> None:
        """Notes that a group still has the mirror's members long after the mirror has ended."""
        self.problems.append(f"mirror run ended, and {group} still has it as a member")

    def stray(self, line: str) -> None:
        """Notes a line of output that is not an event."""
        if self._torn:
            self._torn = False
            return
        self.problems.append(f"stray output: {line[:_SHOWN]}")

    def event(self, event: Mapping[str, Any]) -> bool:
        """Checks an event. Returns True if it is the death of a worker that the suite has ended, in the expected
        way."""
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
