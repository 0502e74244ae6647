"""``mirror run`` as the real process that operators run: started, killed, frozen, stopped, read by its log lines."""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from chaos.errors import ChaosError
from chaos.sides import Name
from chaos.waiting import until
from mirror.demo import events
from mirror.demo.events import Follower, Halt
from mirror.sandbox.process import Process, Processes

__all__ = ["FLOW", "MirrorProcess", "config_text", "known"]

FLOW = "source->destination"
_STOP_TIMEOUT_S = 60.0
_UNCOUNTED = frozenset({"progress", "connecting", "position_unknown", "repeats_suppressed"})
_numbers = count(1)


def config_text(
    source: str,
    destination: str,
    topics: Sequence[str],
    *,
    flow: Mapping[str, object] | None = None,
    cluster: Mapping[str, object] | None = None,
    top: Mapping[str, object] | None = None,
) -> str:
    """A configuration (JSON is YAML): quick to give up, to try again and to report.

    Args:
        source, destination: bootstrap servers.
        topics: names, or regular expressions.
        flow, cluster, top: further keys of the flow, of both clusters, of the top level.
    """
    both = {"reconnect.backoff.max.ms": 500, "request.timeout.ms": 10_000, **(cluster or {})}
    return json.dumps({
        "clusters": {
            "source": {"bootstrap.servers": source, **both},
            "destination": {"bootstrap.servers": destination, **both},
        },
        "flows": {FLOW: {"topics": list(topics), **(flow or {})}},
        "progress.interval.ms": 500,
        "http.listen": "127.0.0.1:0",
        # Each line about each partition, not their number: scenarios read where partitions went on.
        "log.level": "debug",
        **(top or {}),
    })  # fmt: skip


def known(keys: Mapping[str, object]) -> dict[str, object]:
    """Of some top-level configuration keys those that this version has."""
    from mirror.service.config import Config

    return {key: value for key, value in keys.items() if key.replace(".", "_") in Config.model_fields}


class MirrorProcess:
    """One ``mirror run``, started again by ``ensure`` as a service manager would.

    Args:
        config: the file.
        processes: the group that it ends with.
        name: in the name of its log.

    Attributes:
        pid: of the process that was started last: the supervisor.
        halts: the last word on each partition that halted, over all starts; a partition that goes on is taken off.
        counts: events (with their cause, if they have one) -> how many, over all starts.
        noise: lines that are no events.
        bugs: what it called a bug itself.
        starts: how often it was started.
        wanted: whether it is to run; not after ``stop`` and ``kill``.
        log: the file with everything it said.
    """

    def __init__(self, config: Path, *, processes: Processes, name: str = "mirror") -> None:
        self._config = config
        self._processes = processes
        self.log = processes.folder / f"{name}-{next(_numbers)}.log"
        self._follower = Follower(self.log)
        self._process: Process | None = None
        self.halts: dict[Name, Halt] = {}
        self.halted_before: dict[Name, Halt] = {}
        self.counts: Counter[str] = Counter()
        self.noise: list[str] = []
        self.bugs: list[str] = []
        self.starts = 0
        self.wanted = False
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it lives, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of the process that was started last; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start it, with the same configuration."""
        assert not self.running
        self.wanted = True
        command = [sys.executable, "-m", "mirror", "run", "-c", str(self._config)]
        self.halts = {}
        self._process = self._processes.spawn(command, self.log)
        self.starts += 1

    def ensure(self) -> None:
        """Start it if it has ended."""
        if not self.running:
            self.start()

    def workers(self) -> list[int]:
        """Process ids of its workers; its own, if it has none."""
        found = [pid for pid in _children(self.pid) if "mirror-worker-" in _command(pid)]
        return found or ([self.pid] if self.running else [])

    def kill(self) -> None:
        """kill -9 of the process that was started (the supervisor), and wait for its end."""
        assert self._process is not None
        self.wanted = False
        self._process.signal(signal.SIGKILL)
        self._process.wait(_STOP_TIMEOUT_S)

    def kill_worker(self, at: int = 0) -> None:
        """kill -9 of a worker, and whatever starts it again: the supervisor, or we."""
        pid = until(self.workers, "a worker of the mirror")[at]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if pid == self.pid:
            assert self._process is not None
            self._process.wait(_STOP_TIMEOUT_S)
            self.start()

    def freeze(self, pid: int | None = None) -> int:
        """SIGSTOP of a worker (the first by default); its process id."""
        pid = pid or until(self.workers, "a worker of the mirror")[0]
        os.kill(pid, signal.SIGSTOP)
        return pid

    def thaw(self, pid: int) -> None:
        """SIGCONT."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def stop(self) -> int | None:
        """SIGTERM; the exit code.

        Raises:
            ChaosError: it did not end, or died of a bug.
        """
        assert self._process is not None
        self.wanted = False
        if not self.running:
            return self._process.poll()
        self._process.signal(signal.SIGTERM)
        for pid in [self.pid, *self.workers()]:
            self.thaw(pid)
        code = self._process.wait(_STOP_TIMEOUT_S)
        self.look()
        if code is None:
            self.kill()
            raise ChaosError(f"mirror run did not end within {_STOP_TIMEOUT_S:.0f} s of SIGTERM; {self.told()}")
        return code

    def look(self) -> None:
        """Take in what it said since the last look."""
        for line in self._follower.lines():
            event = events.read_event(line)
            if event is None:
                self.noise.append(line[:300])
            else:
                self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        if halt := events.halt(event):
            self.halts[halt.topic, halt.partition] = halt
            self.halted_before[halt.topic, halt.partition] = halt
        elif event["event"] == "located" and "topic" in event:
            self.halts.pop((event["topic"], event["partition"]), None)
        what = str(event["event"])
        if event.get("reason") == "bug":
            self.bugs.append(f"{what}: {event.get('detail')}")
        if what not in _UNCOUNTED:
            self.counts[f"{what} {event['cause']}" if "cause" in event else what] += 1

    def of(self, name: str) -> list[dict[str, Any]]:
        """All lines of an event so far."""
        lines = map(events.read_event, self.log.read_text(errors="replace").splitlines())
        return [event for event in lines if event is not None and event["event"] == name]

    def told(self) -> str:
        """What it said last that is no progress, for messages."""
        with suppress(OSError):
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if '"progress"' not in line]
            return "it said last:\n" + "\n".join(f"    {line[:400]}" for line in lines[-12:])
        return "it said nothing"


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""
