"""`mirror run` as a process of its own: started, watched, stopped."""

import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mirror.demo.errors import DemoError
from mirror.demo.watch import events
from mirror.demo.watch.events import Follower, HaltEvent, ProgressEvent
from mirror.sandbox.children.process import Processes

__all__ = ["Daemon", "write_config"]

_STOP_TIMEOUT_S = 40.0
_TAIL_LINES = 8
_LONGEST_LINE = 300


def write_config(path: Path, clusters: Mapping[str, str], topics: list[str]) -> None:
    """Write the configuration of the demo's flow, as a person would.

    Args:
        path: the file.
        clusters: name -> bootstrap servers, the source first.
        topics: names or regular expressions.
    """
    source, destination = clusters
    lines = ["clusters:"]
    lines += [f'  {name}: {{bootstrap.servers: "{servers}"}}' for name, servers in clusters.items()]
    lines += ["flows:", f'  "{source}->{destination}":']
    lines += [f"    topics: [{', '.join(repr(topic) for topic in topics)}]"]
    lines += ["progress.interval.ms: 500", 'http.listen: "127.0.0.1:0"', ""]
    path.write_text("\n".join(lines), encoding="utf-8")


class Daemon:
    """One run of `mirror run`.

    Attributes:
        pid: process id of the supervisor.
        workers: worker number -> process id. The workers do the copying.
        progress: the last progress event; None before the first.
        halts: partitions that halted.
        caught_up: True once it has reported that nothing was left to copy.
        peak_rss_bytes: the most memory that its workers held so far (VmHWM).
        cpu_percent: CPU use of its workers between the last two progress events, in percent of one core.
        start_cpu_s: CPU time in the last progress event without a copied batch.
    """

    def __init__(self, config: Path, *, processes: Processes) -> None:
        self._log = processes.folder / "mirror-run.log"
        self._process = processes.spawn(
            [sys.executable, "-m", "mirror", "run", "--fail-fast", "-c", str(config)], self._log
        )
        self._follower = Follower(self._log)
        self._others: list[str] = []
        self._measured_at = 0.0
        self.pid = self._process.pid
        self.workers: dict[int, int] = {}
        self.progress: ProgressEvent | None = None
        self.halts: list[HaltEvent] = []
        self.caught_up = False
        self.peak_rss_bytes = 0
        self.cpu_percent = 0.0
        self.start_cpu_s = 0.0

    def look(self) -> None:
        """Read the daemon's output since the last call, and its memory use.

        Raises:
            DemoError: the daemon has ended, or a partition halted.
        """
        self._read()
        self.peak_rss_bytes = max(self.peak_rss_bytes, sum(map(_peak_rss_bytes, self.workers.values())))
        if self.halts:
            raise DemoError("\n".join(map(str, self.halts)), "see the remedy above")
        if (code := self._process.poll()) is not None:
            self._read()
            raise self._ended(code)

    def stop(self) -> None:
        """Send SIGTERM and wait for the end; the exit code must be 0.

        Raises:
            DemoError: the exit code was not 0, or the daemon did not end.
        """
        self.look()
        self._process.signal(signal.SIGTERM)
        code = self._process.wait(_STOP_TIMEOUT_S)
        self._read()
        if code is None:
            raise DemoError(
                f"mirror run did not end within {_STOP_TIMEOUT_S:.0f} s of SIGTERM; its last lines:\n{self.warnings}",
                "run the demo again; if it happens twice, report it with these lines",
            )
        if code != 0:
            raise self._ended(code)

    def _read(self) -> None:
        for line in self._follower.lines():
            event = events.read_event(line)
            if (other := line if event is None else events.warning(event)) is not None:
                self._others = [*self._others, other[:_LONGEST_LINE]][-_TAIL_LINES:]
            if event is None:
                continue
            if progress := events.progress(event):
                self._take(progress)
            elif halt := events.halt(event):
                self.halts.append(halt)
            elif event["event"] == "worker_started":
                self.workers[int(event["worker"])] = int(event["pid"])
            self.caught_up = self.caught_up or event["event"] == "caught_up"

    def _take(self, progress: ProgressEvent) -> None:
        now = time.monotonic()
        if self.progress is not None and now - self._measured_at > 0.1:
            self.cpu_percent = 100 * (progress.cpu_s - self.progress.cpu_s) / (now - self._measured_at)
        if not progress.batches_forwarded:
            self.start_cpu_s = progress.cpu_s
        self._measured_at = now
        self.progress = progress

    def _ended(self, code: int) -> DemoError:
        return DemoError(
            f"mirror run ended with exit code {code}; its last warnings:\n{self.warnings}", "see what it says above"
        )

    @property
    def warnings(self) -> str:
        return "\n".join(f"    {line}" for line in self._others) or "    (none)"


def _peak_rss_bytes(pid: int) -> int:
    """Returns a process's VmHWM in bytes; 0 if it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
