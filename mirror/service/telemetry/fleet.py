"""The supervisor's view of its workers and their partitions: their last snapshots, combined. No I/O.

Counters survive the process that counted them: when it ends, its last values are kept as a base. Gauges end with it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from mirror.audited import Look
from mirror.relay.stats import GivenUp
from mirror.service.telemetry.accounts import Account, Totals
from mirror.service.telemetry.backlog import Backlog
from mirror.service.telemetry.rows import Gone, PartitionRow

if TYPE_CHECKING:
    from mirror.relay.assignment import Key

RESTING = {"halted", "paused"}
"""States of partitions that are not copied until an operator resumes them, or the reason is gone."""
QUIET_S = 10.0
"""A worker reports once a second. One that has not reported for this long is stopped or stuck, and its last report may
be outdated."""
FORGET_S = 3_600.0
"""If no worker here has had a partition for this long, although every partition of the flow has an owner, its topic is
gone, or another machine has it. Its counts are then kept only as a part of one sum."""
LOOK_EVERY_S = 60.0
"""Seconds between two looks for such partitions."""


@dataclass(slots=True)
class WorkerView:
    """One worker, identified by its number: all the processes that have had this number."""

    number: int
    pid: int = 0
    up: bool = False
    ready: bool = False
    joined: bool = False
    waits: str = ""
    """The reason why it cannot start yet; empty: none."""
    member: str = ""
    started_at: float = 0.0
    """When the present process was started, seconds since 1970."""
    heard_at: float = 0.0
    """When it last reported anything, seconds since 1970."""
    restarts: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    rows: dict[Key, PartitionRow] = field(default_factory=dict)
    skipped: list[GivenUp] = field(default_factory=list)
    clusters: dict[str, bool] = field(default_factory=dict)
    """Cluster -> True if it answers this worker, as last reported."""
    silent: list[tuple[str, str, float]] = field(default_factory=list)
    """Brokers that have not answered it for a while: (broker, oldest request, seconds)."""
    unreached: dict[str, str] = field(default_factory=dict)
    """Broker to which it cannot connect -> why."""
    unassigned: int | None = None
    """Number of the flow's partitions that are assigned to no worker, according to the group; None: not known."""
    unmatched: list[str] = field(default_factory=list)
    """Entries of the flow's ``topics`` that matched nothing at its last look."""
    gone_topics: list[str] = field(default_factory=list)
    """Topics that were copied, and that the source no longer had at its last look."""
    retention_s: dict[str, float] = field(default_factory=dict)
    """Source topic -> how long it keeps records, in seconds, where that is limited and known."""
    base: Counter[str] = field(default_factory=Counter)
    """Counters of the processes that have ended."""

    @property
    def quiet_s(self) -> float:
        """Seconds since its last report, if that is ``QUIET_S`` or more; otherwise 0."""
        silent_s = time.time() - self.heard_at if self.up else 0.0
        return silent_s if silent_s > QUIET_S else 0.0

    def counter(self, name: str) -> float:
        """Returns a counter's sum over all processes of this worker."""
        return self.base[name] + self.counters.get(name, 0)

    def labelled(self, name: str) -> dict[str, float]:
        """Returns label -> sum of the counter "name/label" over all processes of this worker."""
        prefix = f"{name}/"
        names = {each for each in (*self.base, *self.counters) if each.startswith(prefix)}
        return {each.removeprefix(prefix): self.counter(each) for each in sorted(names)}


class Fleet:
    """One flow's part of all workers of a supervisor. Workers may run other flows as well, with fleets of their own."""

    def __init__(self, flow: str, *, flow_id: str = "") -> None:
        self.flow = flow
        self.flow_id = flow_id or flow
        """The flow's identity at the destination (``flow.id``)."""
        self.began_ns = time.time_ns()
        """When its counters were at 0, in nanoseconds since 1970."""
        self.workers: dict[int, WorkerView] = {}
        self.cluster_ids = ("", "")
        """The ids of source and destination; empty: no worker has reached both yet."""
        self.audit: Look | None = None
        """The last look at the file of the flow's last audit; None: the configuration names no file."""
        self.flow_partitions = 0
        """Number of partitions of the whole flow, on all machines."""
        self._accounts: defaultdict[Key, Account] = defaultdict(Account)
        self._backlogs: defaultdict[Key, Backlog] = defaultdict(Backlog)
        self._forgotten = Totals()
        """Sum of the counts of partitions that were forgotten (``FORGET_S``)."""
        self._away_since: dict[Key, float] = {}
        """Partition with an account that no worker here has -> when that was first noticed (monotonic)."""
        self._looked_at = 0.0
        self._left_halted: dict[Key, PartitionRow] = {}
        """The last row of each partition that was halted when it was let go here."""
        self._ended_skipped: list[GivenUp] = []
        self._shallow_batches = 0
        """The largest number that ``shallow_batches`` has returned."""

    # -- events ------------------------------------------------------------------------------------------------------

    def started(self, number: int, pid: int) -> WorkerView:
        """Notes that a process of this number was started."""
        worker = self.workers.setdefault(number, WorkerView(number))
        if worker.started_at:
            worker.restarts += 1
        worker.pid, worker.up, worker.member = pid, True, ""
        worker.started_at = worker.heard_at = time.time()
        return worker

    def heard_of(self, number: int) -> WorkerView:
        """Notes that the worker has reported anything, so its event loop runs."""
        worker = self.workers[number]
        worker.heard_at = time.time()
        return worker

    def heard(self, number: int, snapshot: Mapping[str, Any]) -> None:
        """Takes a worker's snapshot (``service.telemetry.snapshot``)."""
        worker = self.heard_of(number)
        worker.counters = snapshot["counters"]
        worker.gauges = snapshot["gauges"]
        worker.joined = bool(worker.gauges.get("joined"))
        worker.clusters |= snapshot["clusters"]
        worker.unassigned = snapshot["unassigned"]
        worker.silent = [tuple(each) for each in snapshot["silent"]]
        worker.unreached = snapshot["unreached"]
        worker.skipped = [GivenUp(*each) for each in snapshot["skipped"]]
        worker.unmatched = snapshot["unmatched"] or []
        worker.gone_topics = snapshot["gone_topics"]
        if snapshot["retention_s"] is not None:
            worker.retention_s = snapshot["retention_s"]
        self.flow_partitions = snapshot["flow_partitions"]
        process = worker.number, worker.pid
        for gone in map(Gone.read, snapshot["gone"]):
            key = gone.topic, gone.partition
            self._accounts[key].told(process, gone.stint)
            self._leave(worker.rows.pop(key, None))
        for row in map(PartitionRow.read, snapshot["partitions"]):
            self._left_halted.pop(row.key, None)
            self._accounts[row.key].told(process, row.stint)
            self._backlogs[row.key].seen(row.source_end, row.position, worker.heard_at)
            worker.rows[row.key] = row
        if (now := time.monotonic()) - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            self._forget(now)

    def _forget(self, now: float) -> None:
        """Drops partitions that are long gone, and keeps only the sum of their counts: topics may come and go for
        years. Nothing is dropped while some of the flow's partitions have no owner, for example because the source is
        down: workers may get them again."""
        here = {key for worker in self.workers.values() for key in worker.rows}
        self._away_since = {key: self._away_since.get(key, now) for key in self._accounts if key not in here}
        if self.unassigned != 0:
            return
        for key in [key for key, since in self._away_since.items() if now - since > FORGET_S]:
            self._forgotten = self._forgotten.plus(self._accounts.pop(key).totals)
            self._backlogs.pop(key, None)
            self._left_halted.pop(key, None)
            del self._away_since[key]

    def alive(self, number: int, message: Mapping[str, Any]) -> None:
        """Takes the report of a worker that has not begun to copy."""
        worker = self.heard_of(number)
        worker.clusters |= message["clusters"]
        worker.counters = message["counters"]
        worker.silent = [tuple(each) for each in message["silent"]]
        worker.unreached = message["unreached"]
        if message["unmatched"] is not None:
            # A worker that cannot start tries again and again; between two tries, the last result is valid.
            worker.unmatched = message["unmatched"]

    def ended(self, number: int) -> None:
        """Notes that the worker's process has ended. Its counters are kept."""
        worker = self.workers[number]
        worker.base.update(worker.counters)
        self._ended_skipped = list(dict.fromkeys([*self._ended_skipped, *worker.skipped]))
        worker.counters, worker.gauges = {}, {}
        for row in worker.rows.values():
            self._leave(row)
        worker.rows.clear()
        worker.skipped, worker.silent, worker.unmatched, worker.gone_topics = [], [], [], []
        worker.unassigned = None
        worker.unreached, worker.retention_s = {}, {}
        worker.waits = ""
        worker.up = worker.ready = worker.joined = False

    def _leave(self, row: PartitionRow | None) -> None:
        """Keeps the row of a halted partition that a worker here no longer has: it stays halted for its next owner."""
        if row is not None and row.reason:
            self._left_halted[row.key] = row

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> Iterator[tuple[WorkerView, PartitionRow]]:
        """(worker, row) of every partition that workers here have now, each once. Partitions of a quiet worker are left
        out if another worker has them; otherwise a lag of 0 becomes None, because it is not known any more."""
        quiet = {number for number, worker in self.workers.items() if worker.quiet_s}
        loud = [worker for number, worker in self.workers.items() if quiet and number not in quiet]
        held = {key for worker in loud for key in worker.rows}
        for number, worker in self.workers.items():
            for key, row in worker.rows.items():
                if number not in quiet:
                    yield worker, row
                elif key not in held:
                    held.add(key)
                    yield worker, row._replace(lag_records=row.lag_records or None)

    def totals(self) -> dict[Key, Totals]:
        """Returns the counts of every partition that was copied here, except those that were forgotten
        (``FORGET_S``)."""
        return {key: account.totals for key, account in self._accounts.items()}

    @property
    def replicated(self) -> Totals:
        """The sum of ``totals`` and of the forgotten partitions. Metrics, status and log all use this number."""
        return reduce(Totals.plus, self.totals().values(), self._forgotten)

    def shallow_batches(self) -> int:
        """Returns the number of batches that are known to have been copied as they are. It never decreases.

        Batches that the mirror builds are counted when they are built, not when the destination has them, and again if
        they are built again. So the computed difference may fall for a while; until it rises above its maximum, the
        maximum is returned."""
        known = self.replicated.batches - round(self.counter("built_batches"))
        self._shallow_batches = max(self._shallow_batches, known)
        return self._shallow_batches

    @property
    def states(self) -> dict[str, int]:
        """Number of partitions by state."""
        return dict(Counter(row.state for _, row in self.rows))

    @property
    def halted(self) -> list[PartitionRow]:
        """The partitions that have halted."""
        return [row for _, row in self.rows if row.reason]

    @property
    def left_halted(self) -> list[PartitionRow]:
        """Partitions that were halted when a worker here last had them, and that no worker here has now. It is empty
        unless some of the flow's partitions have no owner, for example because the source is down."""
        if not self.unassigned:
            return []
        here = {row.key for _, row in self.rows}
        return [row for key, row in sorted(self._left_halted.items()) if key not in here]

    @property
    def lag_records(self) -> int | None:
        """The sum of the known lags of the partitions here, in records; ``lag_unknown`` counts the others. It is 0 only
        if every lag is known, every worker is settled, and the flow has partitions; otherwise None."""
        known = sum(row.lag_records or 0 for _, row in self.rows)
        told = self.settled and self.flow_partitions and not self.lag_unknown
        return known if known or told else None

    @property
    def lag_unknown(self) -> int:
        """Number of partitions whose lag is not known, including those without an owner."""
        return sum(row.lag_records is None for _, row in self.rows) + (self.unassigned or 0)

    def lag_seconds(self, row: PartitionRow, now: float) -> float | None:
        """Returns for how long the oldest record that is not copied is known to have waited, in seconds; 0 if none
        waits, None if that is not known. ``now``: in seconds since 1970."""
        return None if row.lag_records is None else self._backlogs[row.key].seconds(now) if row.lag_records else 0.0

    @property
    def skipped(self) -> list[GivenUp]:
        """Ranges of source offsets that were skipped by decision, in the order of the decisions. Workers also report
        ranges from before their process began. So a range may be reported several times; it is returned once, as the
        worker reports it that knows the most records of it."""
        found = [*self._ended_skipped, *(each for worker in self.workers.values() for each in worker.skipped)]
        ranges = {each.key: each for each in sorted(found, key=lambda each: (each.records, -each.at_ms))}
        return sorted(ranges.values(), key=lambda each: each.at_ms)

    @property
    def unmatched(self) -> list[str]:
        """Entries of the flow's ``topics``, as written, that no topic of the source matches."""
        return list(dict.fromkeys(entry for worker in self.workers.values() for entry in worker.unmatched))

    @property
    def gone_topics(self) -> list[str]:
        """Topics that the flow's patterns matched, that were copied, and that the source no longer has."""
        return sorted({name for worker in self.workers.values() for name in worker.gone_topics})

    @property
    def retention_s(self) -> dict[str, float]:
        """Source topic -> how long it keeps records, in seconds, where that is limited and known."""
        return {topic: each for worker in self.workers.values() for topic, each in worker.retention_s.items()}

    @property
    def last_audit(self) -> Look | None:
        """The result for this flow in the file of its last audit; None: the configuration names no file."""
        return None if self.audit is None else self.audit.about(self.flow, *self.cluster_ids)

    @property
    def unreached(self) -> dict[str, str]:
        """Broker -> why some worker cannot connect to it; only brokers of clusters that answer."""
        away = tuple(f"{name} broker " for name, up in self.clusters.items() if not up)
        told = [worker.unreached for worker in self.workers.values() if not worker.quiet_s]
        return {broker: why for each in told for broker, why in each.items() if not broker.startswith(away)}

    @property
    def clusters(self) -> dict[str, bool]:
        """Source and destination -> True if it answers every worker that has tried; False until one has."""
        told = [worker.clusters for worker in self.workers.values()]
        return {
            name: any(name in each for each in told) and all(each.get(name, True) for each in told)
            for name in self.flow.split("->")
        }

    @property
    def unassigned(self) -> int | None:
        """Number of the flow's partitions without an owner, according to the group. If the group's answer is missing,
        and a worker here is not settled, it is the number of those that no worker here has. None: not known."""
        if not self.flow_partitions:
            return None
        missing = self.flow_partitions - self._held
        if missing <= 0:
            return 0
        told = [worker.unassigned for worker in self.workers.values() if worker.unassigned is not None]
        if told:
            return min(told)
        return None if self.settled else missing

    @property
    def _held(self) -> int:
        """Number of partitions that workers here have."""
        return sum(1 for _ in self.rows)

    @property
    def settled(self) -> bool:
        """True if every worker is up, reports, and has an assignment (which may be empty)."""
        workers = self.workers.values()
        return bool(workers) and all(worker.up and worker.joined and not worker.quiet_s for worker in workers)

    @property
    def is_whole(self) -> bool:
        """True if workers here have every partition of the flow."""
        return self._held >= self.flow_partitions > 0

    @property
    def caught_up(self) -> bool:
        """True if the partitions here are copied completely, except for halted and paused ones."""
        states = self.states
        return self.settled and "active" in states and states.keys() <= {"active", *RESTING} and self.lag_records == 0

    @property
    def all_halted(self) -> bool:
        """True if workers here have every partition of the flow, and all are halted, so that no machine copies."""
        return self.settled and 0 < self.flow_partitions <= len(self.halted)

    @property
    def none_goes_on(self) -> bool:
        """True if all partitions here are halted or paused, and at least one is halted."""
        return self.settled and "halted" in self.states and self.states.keys() <= RESTING

    def counter(self, name: str) -> float:
        """Returns a counter's sum over all workers."""
        return sum(worker.counter(name) for worker in self.workers.values())

    def labelled(self, name: str) -> dict[str, float]:
        """Returns label -> sum of the counter "name/label" over all workers."""
        found: Counter[str] = Counter()
        for worker in self.workers.values():
            found.update(worker.labelled(name))
        return dict(found)

    def gauge(self, name: str) -> float:
        """Returns a gauge's sum over all workers that are up."""
        return sum(worker.gauges.get(name, 0) for worker in self.workers.values())

    def gauges(self, name: str) -> dict[str, float]:
        """Returns label -> sum of the gauge "name/label" over all workers that are up."""
        labels = {label for worker in self.workers.values() for label in worker.gauges if label.startswith(f"{name}/")}
        return {label.removeprefix(f"{name}/"): self.gauge(label) for label in sorted(labels)}
