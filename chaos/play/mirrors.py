"""``mirror run`` as a real process, as operators run it: starts, kills, freezes and stops it, and reads its log."""

import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from chaos.errors import ChaosError
from chaos.play.conduct import BY_ITSELF, BY_SIGKILL, Conduct
from chaos.play.sides import Name
from chaos.waiting import until
from chaos.witness import kernel
from lab.evidence import MIRROR_KILLED, REFUSED, WORKER_ENDED, WORKER_FROZEN, WORKER_KILLED, Evidence, Record
from mirror.demo.watch import events
from mirror.demo.watch.events import Follower, HaltEvent
from mirror.sandbox.children.process import Process, Processes

__all__ = ["FLOW", "MirrorProcess", "config_text", "known"]

FLOW = "source->destination"
_STOP_TIMEOUT_S = 60.0
_UNCOUNTED = frozenset({"progress", "connecting", "position_unknown", "repeats_suppressed"})
_ASSIGNING = frozenset({"assigned", "revoked", "partitions_lost"})
_RANGE = re.compile(r"offsets (\d+) to (\d+) of the source")
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
    """Returns a configuration, in JSON, which is YAML too. With it, a mirror gives up, retries and reports quickly.

    Args:
        source, destination: bootstrap servers.
        topics: names of the topics, or regular expressions.
        flow, cluster, top: further keys of the flow, of both clusters, and of the top level.
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
        # Log every line about every partition, not only their number: scenarios read the positions of partitions.
        "log.level": "debug",
        **(top or {}),
    })  # fmt: skip


def known(keys: Mapping[str, object]) -> dict[str, object]:
    """Returns only those of some top-level configuration keys that this version of the mirror has."""
    from mirror.service.config import Config

    return {key: value for key, value in keys.items() if key.replace(".", "_") in Config.model_fields}


class MirrorProcess:
    """A ``mirror run`` that is observed by its output. It is started at once, and can be started again with ``start``,
    as a service manager would do.

    Args:
        config: its configuration file.
        processes: the group of processes with which it is ended.
        name: first part of its log's name.

    Attributes:
        config: its configuration file.
        record: evidence of faults that have struck it.
        conduct: checks what it must not do.
        pid: process id of the supervisor that was started last.
        halts: partition -> its last halt since the last start; removed when the partition goes on.
        halted_before: partition -> its last halt over all starts.
        counts: event, with its cause if it has one -> how often it was logged over all starts.
        starts: number of starts.
        skipped: ranges of source offsets that were reported as skipped: (partition, first offset, the one after the
            last).
        wanted: True if the mirror should run; False after ``stop`` and ``kill``.
        log: the file with all its output.
    """

    def __init__(self, config: Path, *, processes: Processes, name: str = "mirror") -> None:
        self.config = config
        self._processes = processes
        self.log = processes.folder / f"{name}-{next(_numbers)}.log"
        self._follower = Follower(self.log)
        self._process: Process | None = None
        self.record = Record()
        self.conduct = Conduct()
        self.halts: dict[Name, HaltEvent] = {}
        self.halted_before: dict[Name, HaltEvent] = {}
        self._unjudged: list[HaltEvent] = []
        self._halted_by: dict[Name, object] = {}
        self.counts: Counter[str] = Counter()
        self.copied = 0
        """Number of batches copied since the last start, as the mirror counts them."""
        self.skipped: list[tuple[Name, int, int]] = []
        self._listens = False
        self.starts = 0
        self.wanted = False
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process exists, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process that was started last; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Starts the mirror with the same configuration."""
        assert not self.running
        self.look()  # read the last lines of the previous process before its halts are dropped
        self.wanted = True
        command = [sys.executable, "-m", "mirror", "run", "-c", str(self.config)]
        self.halts = {}
        self._listens = False
        self.copied = 0
        self._process = self._processes.spawn(command, self.log)
        self.starts += 1

    def workers(self) -> list[int]:
        """Returns the process ids of the workers; if there are none, that of the supervisor."""
        found = [pid for pid in kernel.children(self.pid) if "mirror-worker-" in kernel.command(pid)]
        return found or ([self.pid] if self.running else [])

    def owner(self, name: Name) -> int | None:
        """Returns the process id of the worker to which a partition is assigned, according to the log; None: to
        none."""
        owner, pids = None, {}
        for event in self._events():
            what, worker = event["event"], event.get("worker")
            if what == "worker_started":
                pids[worker] = event["pid"]
            elif what == "worker_died" and worker == owner:
                owner = None
            elif what in _ASSIGNING and name[1] in event["assignment"].get(name[0], ()):
                if what == "assigned":
                    owner = worker
                elif worker == owner:
                    owner = None
        return pids.get(owner)

    def kill(self) -> None:
        """Kills the supervisor (kill -9), and waits until it and its workers have ended."""
        assert self._process is not None
        self.look()  # notices if the mirror has ended by itself before this
        everyone, ordered = sorted({self.pid, *self.workers()}), self.wanted
        self.wanted = False
        sent = self._process.signal(signal.SIGKILL)
        code = self._process.wait(_STOP_TIMEOUT_S)
        if sent and code == -signal.SIGKILL:
            self.record.note(MIRROR_KILLED)
            self._await_gone(everyone)
        elif ordered and code is not None and code != -signal.SIGKILL:
            self.conduct.ended(code)
        self._mend()

    def _await_gone(self, pids: list[int]) -> None:
        """Waits until all these processes have ended. A worker that does not end is a problem: it would run beside
        those of the next start."""
        if not kernel.await_gone(pids):
            self.conduct.outlived([pid for pid in pids if kernel.alive(pid)] or pids)

    def _mend(self) -> None:
        """Ends the last line of the log if the kill has cut it short, so that the first line of the next start is
        separate."""
        with suppress(OSError):
            if not self.log.read_bytes().endswith(b"\n") and self.log.stat().st_size:
                self.conduct.torn()
                with self.log.open("ab") as file:
                    file.write(b"\n")

    def kill_worker(self, at: int = 0) -> None:
        """Kills a worker (kill -9). Its supervisor starts another one. ``at``: index of the worker."""
        pid = until(lambda: [one for one in self.workers() if one != self.pid], "a worker of the mirror")[at]
        self.conduct.order(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def end_worker(self, pid: int) -> None:
        """Ends a worker by SIGTERM. It drains and leaves the group, and its supervisor starts another one."""
        self.conduct.order(pid, BY_ITSELF)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def freeze(self, pid: int | None = None) -> int:
        """Freezes a process (SIGSTOP), by default the first worker. Returns its process id."""
        pid = pid or until(self.workers, "a worker of the mirror")[0]
        os.kill(pid, signal.SIGSTOP)
        kernel.await_stopped(pid)
        return pid

    def thaw(self, pid: int, what: Evidence = WORKER_FROZEN) -> None:
        """Resumes a frozen process (SIGCONT). Notes the evidence ``what`` if it was stopped until now."""
        if kernel.stopped(pid):
            self.record.note(what)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def stop(self, *, healthy: bool = False) -> int | None:
        """Stops the mirror (SIGTERM), and returns its exit code.

        Args:
            healthy: True if it has caught up and the brokers are healthy, so that it has to drain.

        Raises:
            ChaosError: the mirror did not end in time.
        """
        assert self._process is not None
        self.await_answering()
        self.wanted = False
        if not self.running:
            return self._process.poll()
        everyone = sorted({self.pid, *self.workers()})
        self._process.signal(signal.SIGTERM)
        for pid in everyone:
            if kernel.stopped(pid):
                os.kill(pid, signal.SIGCONT)
        code = self._process.wait(_STOP_TIMEOUT_S)
        self.look()
        if code is None:
            self.kill()
            raise ChaosError(f"mirror run did not end within {_STOP_TIMEOUT_S:.0f} s of SIGTERM; {self.told()}")
        self._await_gone(everyone)
        self.conduct.stopped(code, halts=len(self.halts), healthy=healthy)
        return code

    def await_answering(self) -> None:
        """Waits until the mirror listens, or has ended. Before it listens, SIGTERM would just end the interpreter."""

        def answers() -> bool:
            self.look()  # notices if the mirror has ended by itself
            return self._listens or not self.running

        until(answers, lambda: f"mirror run to listen; {self.told()}")

    def look(self) -> None:
        """Reads the output since the last look, and notices if the mirror has ended by itself."""
        code = self.exit_code
        for line in self._follower.lines():
            event = events.read_event(line)
            if event is None:
                self.conduct.stray(line)
            else:
                self._take(event)
        if self.wanted and code is not None:
            self.wanted = False
            self.conduct.ended(code)

    def take_halts(self) -> list[HaltEvent]:
        """Returns all halts since the last call, including those of partitions that have gone on or whose worker has
        died since."""
        taken, self._unjudged = self._unjudged, []
        return taken

    def _take(self, event: dict[str, Any]) -> None:
        if halt := events.halt(event):
            self.halts[halt.topic, halt.partition] = halt
            self._unjudged.append(halt)
            self._halted_by[halt.topic, halt.partition] = event.get("worker")
            self.halted_before[halt.topic, halt.partition] = halt
        elif event["event"] == "located" and "topic" in event:
            self.halts.pop((event["topic"], event["partition"]), None)
        elif event["event"] == "skipped" and (told := _RANGE.search(event["detail"])):
            self.skipped.append(((event["topic"], event["partition"]), int(told[1]), int(told[2]) + 1))
        elif event["event"] == "worker_died":  # the halts that this worker has reported end with it
            for name in [name for name, worker in self._halted_by.items() if worker == event.get("worker")]:
                self.halts.pop(name, None)
        if self.conduct.event(event):
            self.record.note(WORKER_KILLED if event["detail"] == BY_SIGKILL else WORKER_ENDED)
        self._listens |= event["event"] == "listening"
        if "Connection refused" in str(event.get("detail")):
            self.record.note(REFUSED)
        if progress := events.progress(event):
            self.copied = progress.batches_forwarded
        what = str(event["event"])
        if what not in _UNCOUNTED:
            self.counts[f"{what} {event['cause']}" if "cause" in event else what] += 1

    def _events(self) -> Iterator[dict[str, Any]]:
        lines = map(events.read_event, self.log.read_text(errors="replace").splitlines())
        return (event for event in lines if event is not None)

    def of(self, name: str) -> list[dict[str, Any]]:
        """Returns all events of this name in the log so far."""
        return [event for event in self._events() if event["event"] == name]

    def told(self) -> str:
        """Returns the last lines of output without progress, for messages."""
        with suppress(OSError):
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if '"progress"' not in line]
            return "it said last:\n" + "\n".join(f"    {line[:400]}" for line in lines[-12:])
        return "it said nothing"
