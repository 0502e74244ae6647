"""The supervisor's log lines on all workers together: progress, caught up, clusters lost and back, all halted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.service.commands import Commands
from mirror.service.log import logs
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.outages import ClusterBack, Outages
from mirror.service.telemetry.usage.resources import resident_bytes

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

NAMED = 5
"""Most brokers that a line names."""
REBALANCED_S = 5.0
"""If workers here have only some of the flow's partitions, and these have been caught up for this long, the others
belong to other machines."""


class Reports:
    """Logs changes in the fleet."""

    def __init__(self, fleet: Fleet, log: FilteringBoundLogger) -> None:
        self.commands = Commands()
        self._fleet = fleet
        self._log = log
        self._caught_up = False
        self._complete_at: float | None = None
        self._all_halted = False
        self._outages = Outages()
        self._unreached: set[str] = set()
        self._reported_at = time.monotonic()
        self._reported_bytes = 0

    def look(self, *, started: bool) -> None:
        """Logs what has changed since the last call. To be called about twice a second. ``started``: True once the
        workers have begun to copy."""
        self._tell_all_halted()
        self._tell_unreached()
        if started:
            self._tell_outages()
        if not self._caught_up and self._has_caught_up():
            self._caught_up = True
            self._log.info(logs.CAUGHT_UP, bytes=self._fleet.replicated.bytes)

    def _tell_all_halted(self) -> None:
        """Logs once that all partitions here have halted. The mirror stays up, so that an operator can resume them."""
        none_goes_on = self._fleet.none_goes_on
        if none_goes_on and not self._all_halted:
            self._log.error(
                "all_halted",
                partitions=len(self._fleet.halted),
                detail=self.commands.rendered(
                    "every partition here is halted, nothing is copied; see the lines above, or `mirror status`"
                ),
                remedy=self.commands.rendered("resolve the causes, then run `mirror resume --all`"),
            )
        self._all_halted = none_goes_on

    def _tell_unreached(self) -> None:
        """Logs unreachable brokers of clusters that answer; each once, until it was reached again. Also before the
        workers have begun to copy."""
        unreached = self._fleet.unreached
        new = {broker: why for broker, why in unreached.items() if broker not in self._unreached}
        if new:
            told = [f"{broker} cannot be reached: {why}" for broker, why in list(new.items())[:NAMED]]
            more = f"; and {len(new) - NAMED} more" if len(new) > NAMED else ""
            detail = f"{'; '.join(told)}{more}. Its partitions wait until it is back, or another broker leads them"
            self._log.warning("broker_unreachable", brokers=len(new), detail=detail)
        self._unreached = set(unreached)

    def _tell_outages(self) -> None:
        """Logs each cluster that no longer answers, and each that answers again."""
        for change in self._outages.look(self._fleet.clusters, time.monotonic()):
            if isinstance(change, ClusterBack):
                self._log.warning("cluster_back", cluster=change.cluster, duration_s=round(change.duration_s, 1))
            else:
                detail = (
                    f"cluster {change.cluster} does not answer; copying continues once it does. See that its brokers "
                    "run, and can be reached from here at bootstrap.servers"
                )
                self._log.warning("cluster_lost", cluster=change.cluster, detail=detail)

    def _has_caught_up(self) -> bool:
        """Returns True once all partitions here have caught up. If they are all of the flow's partitions, it is True at
        once; otherwise after ``REBALANCED_S``, because the others may be moving between two workers at the moment."""
        if not self._fleet.caught_up:
            self._complete_at = None
            return False
        if self._fleet.is_whole:
            return True
        if self._complete_at is None:
            self._complete_at = time.monotonic()
        return time.monotonic() - self._complete_at > REBALANCED_S

    def progress(self) -> None:
        """Logs one line of progress for all workers together. CPU time and memory are those of the workers' processes,
        which may run other flows as well."""
        fleet, now = self._fleet, time.monotonic()
        elapsed_s = max(now - self._reported_at, 1e-9)
        replicated = fleet.replicated
        self._log.info(
            logs.PROGRESS,
            lag_records=fleet.lag_records,
            lag_unknown_partitions=fleet.lag_unknown,
            bytes=replicated.bytes,
            bytes_per_s=max(0, round((replicated.bytes - self._reported_bytes) / elapsed_s)),
            batches_forwarded=replicated.batches,
            batches_opened=round(fleet.counter("opened_batches")),
            partitions=fleet.states,
            cpu_s=round(fleet.counter("cpu_s"), 3),
            rss_bytes=round(fleet.gauge("rss_bytes")),
            buffer_bytes=round(fleet.gauge("buffer_bytes")),
            fetches=round(fleet.counter("fetch_requests")),
            fetched_bytes=round(fleet.counter("fetched_bytes")),
            requests=round(fleet.counter("produce_requests")),
            resyncs={cause: round(count) for cause, count in fleet.labelled("resyncs").items()},
            workers=sum(worker.up for worker in fleet.workers.values()),
            supervisor_cpu_s=round(time.process_time(), 3),
            supervisor_rss_bytes=resident_bytes(),
        )
        self._reported_at, self._reported_bytes = now, replicated.bytes
