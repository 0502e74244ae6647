"""``mirror run`` as the real process that operators run: started, killed, frozen, stopped, its log read."""

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
    """Returns a configuration (JSON is YAML) that is quick to give up, to retry and to report.

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
        # Log each line about each partition, not only their number: scenarios read where partitions went on.
        "log.level": "debug",
        **(top or {}),
    })  # fmt: skip


def known(keys: Mapping[str, object]) -> dict[str, object]:
    """Returns those of some top-level configuration keys that this version has."""
    from mirror.service.config import Config

    return {key: value for key, value in keys.items() if key.replace(".", "_") in Config.model_fields}


class MirrorProcess:
    """One ``mirror run``, started again by ``start``, as a service manager would; observed by its output.

    Args:
        config: the file.
        processes: the group that it ends with.
        name: in the name of its log.

    Attributes:
        config: its configuration file.
        record: evidence of the faults that struck it.
        conduct: checks what it must not do.
        pid: of the process that was started last: the supervisor.
        halts: the last halt of each partition since the last start; removed when the partition goes on.
        halted_before: the last halt of each partition over all starts.
        counts: events (with their cause, if they have one) -> how many, over all starts.
        starts: how often it was started.
        skipped: ranges of source offsets that it reported as skipped: partition, first offset, the one after the last.
        wanted: True if it is to run; not after ``stop`` and ``kill``.
        log: the file with all of its output.
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
        """Batches copied since the last start, by its own count."""
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
        """True while it lives, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process that was started last; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start it, with the same configuration."""
        assert not self.running
        self.look()  # what it said last is not forgotten with its halts
        self.wanted = True
        command = [sys.executable, "-m", "mirror", "run", "-c", str(self.config)]
        self.halts = {}
        self._listens = False
        self.copied = 0
        self._process = self._processes.spawn(command, self.log)
        self.starts += 1

    def workers(self) -> list[int]:
        """Returns the process ids of its workers; its own, if it has none."""
        found = [pid for pid in kernel.children(self.pid) if "mirror-worker-" in kernel.command(pid)]
        return found or ([self.pid] if self.running else [])

    def owner(self, name: Name) -> int | None:
        """Returns the process id of the worker that a partition is assigned to, by its log; None if to none."""
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
        """Kill (-9) the process that was started (the supervisor), and wait for its end and its workers'."""
        assert self._process is not None
        self.look()  # an end by itself, before this, has to be noticed
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
        """Wait for the end of its processes; one that goes on is a worker beside the next start's."""
        if not kernel.await_gone(pids):
            self.conduct.outlived([pid for pid in pids if kernel.alive(pid)] or pids)

    def _mend(self) -> None:
        """End a line of the log that was cut short, so that the next start's first line stands alone."""
        with suppress(OSError):
            if not self.log.read_bytes().endswith(b"\n") and self.log.stat().st_size:
                self.conduct.torn()
                with self.log.open("ab") as file:
                    file.write(b"\n")

    def kill_worker(self, at: int = 0) -> None:
        """Kill (-9) a worker, which its supervisor starts again."""
        pid = until(lambda: [one for one in self.workers() if one != self.pid], "a worker of the mirror")[at]
        self.conduct.order(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def end_worker(self, pid: int) -> None:
        """End a worker as an operator would (SIGTERM): it drains and leaves, and its supervisor starts another."""
        self.conduct.order(pid, BY_ITSELF)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def freeze(self, pid: int | None = None) -> int:
        """Freeze a worker (SIGSTOP; the first by default); returns its process id."""
        pid = pid or until(self.workers, "a worker of the mirror")[0]
        os.kill(pid, signal.SIGSTOP)
        kernel.await_stopped(pid)
        return pid

    def thaw(self, pid: int, what: Evidence = WORKER_FROZEN) -> None:
        """Let a frozen process go on (SIGCONT); notes ``what`` if it was stopped until now."""
        if kernel.stopped(pid):
            self.record.note(what)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def stop(self, *, healthy: bool = False) -> int | None:
        """Stop it (SIGTERM); returns the exit code.

        Args:
            healthy: True if it has caught up and nothing is wrong with the brokers: then it has to drain.

        Raises:
            ChaosError: it did not end.
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
        """Wait until it listens, or has ended: while it starts, SIGTERM just ends the interpreter."""

        def answers() -> bool:
            self.look()  # an end by itself has to be noticed
            return self._listens or not self.running

        until(answers, lambda: f"mirror run to listen; {self.told()}")

    def look(self) -> None:
        """Read its output since the last look, and check that it lives."""
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
        """Returns every halt since the last call, also of partitions that went on, or whose worker died, since."""
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
        elif event["event"] == "worker_died":  # the halts that it reported end with it
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
        """Returns all events of this name so far."""
        return [event for event in self._events() if event["event"] == name]

    def told(self) -> str:
        """Returns its last output except progress, for messages."""
        with suppress(OSError):
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if '"progress"' not in line]
            return "it said last:\n" + "\n".join(f"    {line[:400]}" for line in lines[-12:])
        return "it said nothing"
