"""The demo from its first step to its last: two clusters, a load, a mirror, an audit.

Everything that it starts and writes belongs to guardians (``mirror.sandbox.children.process``): it is gone when the
demo ends, however it ends.
"""

import importlib.util
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from mirror.audit.folder import CERTIFICATE, PAGE
from mirror.demo.data.load import Load
from mirror.demo.data.topics import ALL_TOPICS, records_for
from mirror.demo.data.writers import KAFKA_TOOLS
from mirror.demo.errors import DemoError
from mirror.demo.show import dashboard, units
from mirror.demo.show.dashboard import DashboardView
from mirror.demo.show.screen import Screen
from mirror.demo.show.summary import Cost, read_results, render
from mirror.demo.watch.daemon import Daemon, write_config
from mirror.demo.watch.ends import Ends, EndsOf, behind, records
from mirror.demo.watch.events import ProgressEvent
from mirror.demo.watch.proof import Audit
from mirror.sandbox import SandboxCluster, start_together
from mirror.sandbox.children.process import Processes
from mirror.sandbox.kafka import jars, java
from mirror.service.commands import Commands

__all__ = ["Demo", "Options"]

KAFKA_VERSION = "4.3.0"
PATTERNS = ["librdkafka-.*", "java-.*"]
INTRODUCTION = """\
mirror demo: two real Kafka clusters on this machine, a mirror between them, and a proof
that the copy is identical. It takes a few minutes and leaves nothing behind.
"""
BROKER_PROPERTIES = {"log.retention.ms": "-1", "auto.create.topics.enable": "false"}
SOURCE, DESTINATION = "source", "destination"
_STREAM_PER_S = 100
"""Records per second and topic that the producers go on writing."""

_LIVE_S = 6.0
"""How long the producers go on once the mirror has caught up with them."""

_WITH_THEM_S = 2.0
"""The mirror counts as caught up with the producers if it lags by at most this many seconds of their stream: the lag is
seldom exactly 0."""

_ASIDE = " " * 11
"""Indentation of lines that do not belong to a step."""

_STALL_S = 60.0
_LOOK_S = 0.2
_RATES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line.

    Attributes:
        size: bytes to store at the source, before the producers go on writing.
        keep: leave the clusters up at the end, until Ctrl-C.
        out: folder that keeps the audit's files; None: they are removed with everything else.
    """

    size: int
    keep: bool = False
    out: Path | None = None


class Demo:
    """One run of the demo."""

    def __init__(self, options: Options, screen: Screen) -> None:
        self._options = options
        self._screen = screen
        self._began_at = time.monotonic()
        self._stack = ExitStack()
        self._rates: deque[int] = deque(maxlen=_RATES)
        self._last: ProgressEvent | None = None

    def run(self) -> bool:
        """Run the demo; returns True if the destination proved identical to the source.

        Raises:
            DemoError: a step failed.
            SandboxError: no Java, no jars, or a broker that does not start.
        """
        with self._stack:
            _check_installation()
            # Before the first step: fetching shows a progress bar of its own.
            jars.classpath(KAFKA_VERSION)
            jars.classpath_of([KAFKA_TOOLS])
            self._began_at = time.monotonic()
            self._screen.show(INTRODUCTION)
            if self._options.out is not None:
                self._screen.show(f"(But for the audit's report and certificate, which stay in {self._options.out}.)\n")
            source, destination = self._clusters()
            processes = self._stack.enter_context(closing(Processes()))
            load = self._stack.enter_context(
                Load(source.bootstrap_servers, ALL_TOPICS, folder=processes.folder, stream_per_s=_STREAM_PER_S)
            )
            self._load(load)
            config = processes.folder / "mirror.yaml"
            self._configure(config, source, destination)
            cost = self._mirror(load, source, destination, config, processes)
            identical = self._audit(config, cost, processes)
            if self._options.keep:
                self._keep(source, destination, config)
            return identical

    def _configure(self, path: Path, source: SandboxCluster, destination: SandboxCluster) -> None:
        """Writes the mirror's configuration."""
        write_config(path, {c.name: c.bootstrap_servers for c in (source, destination)}, PATTERNS)

    def _start(self) -> tuple[SandboxCluster, SandboxCluster]:
        """Starts both clusters, which end with the demo."""
        source, destination = (
            SandboxCluster(name, version=KAFKA_VERSION, properties=BROKER_PROPERTIES) for name in (SOURCE, DESTINATION)
        )
        self._stack.callback(source.close)
        self._stack.callback(destination.close)
        start_together(source, destination)
        return source, destination

    def _clusters(self) -> tuple[SandboxCluster, SandboxCluster]:
        self._screen.begin("clusters", f"starting two Kafka clusters ({KAFKA_VERSION})")
        source, destination = self._start()
        self._screen.done(
            f"Kafka {KAFKA_VERSION}: {SOURCE} {source.bootstrap_servers}, {DESTINATION} {destination.bootstrap_servers}"
        )
        return source, destination

    def _load(self, load: Load) -> None:
        self._screen.begin("load", "creating topics")
        load.create_topics()
        load.start({
            plan.name: records_for(plan, total_bytes=self._options.size, record_bytes=load.record_bytes)
            for plan in ALL_TOPICS
        })  # fmt: skip
        partitions = sum(plan.partitions for plan in ALL_TOPICS)

        def tick() -> None:
            sent = load.sent
            percent = 100 * min(1.0, sent.records / load.wanted_records)
            self._screen.update(
                f"librdkafka and Java producers fill {len(ALL_TOPICS)} topics: {percent:.0f} %, "
                f"{units.size(sent.bytes)} before compression"
            )

        load.wait_bulk(tick)
        self._screen.done(
            f"{units.count(load.sent.records, 'record')}, {units.size(load.sent.bytes)} before compression, in "
            f"{len(ALL_TOPICS)} topics with {partitions} partitions; the producers go on writing"
        )
        starts = load.trim()
        begins = ", ".join(f"{topic}-{index} at {at:,}" for (topic, index), at in starts.items())
        self._screen.show(f"{_ASIDE}half of some records deleted: the source now has {begins}")

    def _mirror(
        self, load: Load, source: SandboxCluster, destination: SandboxCluster, config: Path, processes: Processes
    ) -> Cost:
        self._screen.begin("mirror", "mirror run is starting")
        daemon = Daemon(config, processes=processes)
        show = self._shower(daemon, load)
        lag = round(_STREAM_PER_S * len(ALL_TOPICS) * _WITH_THEM_S)
        self._await(lambda: _is_with_them(daemon, lag), show, "copying what was loaded", daemon)
        live_until = time.monotonic() + _LIVE_S
        self._await(lambda: time.monotonic() >= live_until, show, "following the producers", daemon)
        cost = _cost(daemon)
        self._second_act(daemon, destination, show, lag)
        written = load.finish(lambda: show("stopping the producers"))
        source_ends = EndsOf(SOURCE, source.bootstrap_servers, ALL_TOPICS).read()
        _check_load(written, source_ends)
        ends_of = EndsOf(DESTINATION, destination.bootstrap_servers, ALL_TOPICS)
        self._await(lambda: not behind(source_ends, ends_of.read()), show, "copying the rest", daemon)
        daemon.stop()
        self._take(daemon.progress)
        last = daemon.progress
        if last is None or last.lag_records != 0 or last.lag_unknown:
            raise DemoError(
                f"mirror run stopped with a lag of {last and last.lag_records} records, and of "
                f"{last and last.lag_unknown} partitions that is unknown, though both "
                "clusters end at the same offsets",
                "run the demo again; if it happens twice, report it",
            )
        self._screen.done(
            f"{units.count(sum(source_ends.values()), 'offset')}, {units.count(last.batches_forwarded, 'batch')} "
            f"forwarded, {last.batches_opened} opened; every end offset reached, exit code 0"
        )
        return cost

    def _second_act(self, daemon: Daemon, destination: SandboxCluster, show: Callable[[str], None], lag: int) -> None:
        """Kill a worker, then a broker (kill -9), while producers write; wait for the mirror to catch up after each."""
        (number, pid), *_ = daemon.workers.items()
        os.kill(pid, signal.SIGKILL)
        self._screen.show(f"             kill -9 of the mirror's worker {number}, process {pid}, in the middle of it")
        self._await(
            lambda: daemon.workers[number] != pid and _is_with_them(daemon, lag),
            show,
            "after kill -9 of a worker",
            daemon,
        )
        broker = destination.brokers[0]
        broker.kill()
        self._screen.show(f"             kill -9 of the destination's broker {broker.address}, in the middle of it")
        broker.start()
        self._await(lambda: _is_with_them(daemon, lag), show, "after kill -9 of a broker", daemon)

    def _audit(self, config: Path, cost: Cost, processes: Processes) -> bool:
        self._screen.begin("audit", "mirror audit is starting")
        out = self._options.out or processes.folder / "audit"
        audit = Audit(config, out=out, folder=processes.folder)
        identical = audit.wait(self._screen.update)
        if not identical:
            self._screen.show("\n".join(audit.said))
        results = read_results(out, ALL_TOPICS)
        agree = identical == all(result.identical for result in results)
        self._screen.done("no difference, exit code 0" if identical else "there are differences, exit code 2")
        self._screen.show(
            render(results, cost, identical=identical and agree, took_s=time.monotonic() - self._began_at)
        )
        if self._options.out is not None:
            self._screen.show(
                f"report:      {out / PAGE}\ncertificate: {out / CERTIFICATE}  (mirror audit verify {out})"
            )
        if not agree:
            raise DemoError("the audit's exit code and its files contradict each other", "report it")
        return identical

    def _keep(self, source: SandboxCluster, destination: SandboxCluster, config: Path) -> None:
        self._screen.show(
            f"\nBoth clusters stay up until Ctrl-C:\n  {SOURCE}       {source.bootstrap_servers}\n"
            f"  {DESTINATION}  {destination.bootstrap_servers}\n"
            + Commands.of(config).rendered("Look again:  mirror audit\nGo on:       mirror run")
        )
        with suppress(KeyboardInterrupt):  # the intended end
            signal.pause()

    def _shower(self, daemon: Daemon, load: Load) -> Callable[[str], None]:
        """Returns the function that shows the daemon at work; it raises if the daemon or a producer has failed."""

        def show(doing: str) -> None:
            daemon.look()
            load.check()
            self._take(daemon.progress)
            if daemon.progress is None:
                self._screen.update("mirror run is starting")
                return
            view = DashboardView(
                progress=daemon.progress,
                rates=tuple(self._rates),
                cpu_percent=daemon.cpu_percent,
                pid=daemon.pid,
                written_records=load.sent.records,
                producing=load.producing,
            )
            self._screen.update(doing, line=dashboard.line(view), panel=dashboard.panel(view))

        return show

    def _take(self, progress: ProgressEvent | None) -> None:
        if progress is not None and progress is not self._last:
            self._last = progress
            self._rates.append(progress.bytes_per_s)

    def _await(self, condition: Callable[[], bool], show: Callable[[str], None], doing: str, daemon: Daemon) -> None:
        """Wait until the condition holds; raises if no bytes move for ``_STALL_S``."""
        moved_at, moved_bytes = time.monotonic(), -1
        while True:
            show(doing)
            if condition():
                return
            now_bytes = daemon.progress.bytes if daemon.progress else -1
            if now_bytes != moved_bytes:
                moved_at, moved_bytes = time.monotonic(), now_bytes
            if time.monotonic() - moved_at > _STALL_S:
                raise DemoError(
                    f"mirror run moved nothing for {_STALL_S:.0f} s ({doing}); its last warnings:\n{daemon.warnings}",
                    "see whether this machine is overloaded, and run it again",
                )
            time.sleep(_LOOK_S)


def _is_with_them(daemon: Daemon, lag_records: int) -> bool:
    """Returns True if every partition is active and the mirror lags by at most ``lag_records``."""
    now = daemon.progress
    if now is None:
        return False
    known = now.lag_records is not None and not now.lag_unknown
    return known and set(now.partitions) == {"active"} and (now.lag_records or 0) <= lag_records


def _cost(daemon: Daemon) -> Cost:
    """Returns the cost of the copy so far. It must be called before the worker is killed."""
    last = daemon.progress
    assert last is not None
    return Cost(
        cpu_s=last.cpu_s,
        start_cpu_s=daemon.start_cpu_s,
        peak_rss_bytes=daemon.peak_rss_bytes,
        forwarded_bytes=last.bytes,
        opened=last.batches_opened,
    )


def _check_load(written: Mapping[str, int], source_ends: Ends) -> None:
    """Check that the source holds every acknowledged record: only then can it prove anything about the mirror."""
    for topic, number in written.items():
        if (found := records(source_ends, topic)) < number:
            raise DemoError(
                f"the source cluster holds {found} records of {topic}, though {number} were acknowledged",
                "run the demo again; if it happens twice, report it",
            )


def _check_installation() -> None:
    """Report what is missing before anything is started."""
    java.find()
    if importlib.util.find_spec("pyspark") is None:
        raise DemoError(
            "pyspark is not installed; the audit needs it, and so does fetching Kafka's jars",
            "install the part that brings it, in the project's folder: pip install '.[audit]', or use `make demo`",
        )
