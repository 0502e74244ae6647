"""The supervisor's knowledge of its workers and their partitions: the last snapshots, added up. No I/O.

Counters survive the process that counted them: its last values are kept as a base when it ends. Gauges end with it.
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
"""States of partitions that are not copied until somebody resumes them, or their reason is gone."""
QUIET_S = 10.0
"""A worker reports once a second. One that was not heard of for this long is stopped or stuck, and its last report may
not be true any more."""
FORGET_S = 3_600.0
"""A partition that no worker here has had for this long, while each of the flow has an owner, is of a topic that is
gone, or another machine's: what was counted of it is kept in one sum."""
LOOK_EVERY_S = 60.0
"""Seconds between two looks for such partitions."""


@dataclass(slots=True)
class WorkerView:
    """One worker by number, over all the processes that have had the number."""

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
    """Brokers that owe it an answer: (broker, request, seconds)."""
    unreached: dict[str, str] = field(default_factory=dict)
    """Brokers that it cannot connect to, and why."""
    unassigned: int | None = None
    """Number of the flow's partitions that nobody holds, as the group says; None: not known."""
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
        """Seconds since its last report if that is too long (``QUIET_S``); else 0."""
        silent_s = time.time() - self.heard_at if self.up else 0.0
        return silent_s if silent_s > QUIET_S else 0.0

    def counter(self, name: str) -> float:
        """Returns a counter over all its processes."""
        return self.base[name] + self.counters.get(name, 0)

    def labelled(self, name: str) -> dict[str, float]:
        """Returns counters "name/label" by label, over all its processes."""
        prefix = f"{name}/"
        names = {each for each in (*self.base, *self.counters) if each.startswith(prefix)}
        return {each.removeprefix(prefix): self.counter(each) for each in sorted(names)}


class Fleet:
    """All workers of one supervisor."""

    def __init__(self, flow: str, *, flow_id: str = "") -> None:
        self.flow = flow
        self.flow_id = flow_id or flow
        """The flow's identity at the destination (``flow.id``)."""
        self.began_ns = time.time_ns()
        """Since when its counters count, in nanoseconds since 1970."""
        self.workers: dict[int, WorkerView] = {}
        self.cluster_ids = ("", "")
        """The ids of source and destination; empty: no worker has reached both yet."""
        self.audit: Look | None = None
        """The last look at the file of the flow's last audit; None: the configuration names none."""
        self.flow_partitions = 0
        """Number of partitions of the whole flow, whoever copies them."""
        self._accounts: defaultdict[Key, Account] = defaultdict(Account)
        self._backlogs: defaultdict[Key, Backlog] = defaultdict(Backlog)
        self._forgotten = Totals()
        """What was counted of partitions that are forgotten."""
        self._away_since: dict[Key, float] = {}
        """Partitions with an account that no worker here has -> when that was first seen (monotonic)."""
        self._looked_at = 0.0
        self._left_halted: dict[Key, PartitionRow] = {}
        """The last row of each partition that was halted when it was let go here."""
        self._ended_skipped: list[GivenUp] = []
        self._shallow_batches = 0
        """The most that was told of them."""

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
        """Notes that the worker said something, so its event loop runs."""
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
        """Adds up what was counted of partitions that are long gone, and keeps nothing else of them: topics may come
        and go for years. While nobody has some of the flow's partitions, as when the source is away, they may be
        back."""
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
        """Takes a worker's report from before it has anything to copy."""
        worker = self.heard_of(number)
        worker.clusters |= message["clusters"]
        worker.counters = message["counters"]
        worker.silent = [tuple(each) for each in message["silent"]]
        worker.unreached = message["unreached"]
        if message["unmatched"] is not None:
            # A worker that cannot start looks again and again; between two tries the last look counts.
            worker.unmatched = message["unmatched"]

    def ended(self, number: int) -> None:
        """Notes that the worker's process is gone. What it had counted stays."""
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
        """Keeps the row of a halted partition that a worker here no longer has: it stays halted, whoever gets it."""
        if row is not None and row.reason:
            self._left_halted[row.key] = row

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> Iterator[tuple[WorkerView, PartitionRow]]:
        """Every partition that is copied here now, once. A quiet worker's partitions may be another's by now, and if
        their lag was 0, it is not known any more (None)."""
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
        """Returns records, batches, bytes and filled offsets of every partition that was copied here, but for those
        that are forgotten (``FORGET_S``)."""
        return {key: account.totals for key, account in self._accounts.items()}

    @property
    def replicated(self) -> Totals:
        """The sum of ``totals``, and of what is forgotten: the one account of what was copied, for metrics, status and
        log."""
        return reduce(Totals.plus, self.totals().values(), self._forgotten)

    def shallow_batches(self) -> int:
        """Returns how many batches were copied as they are, as far as is known; never less than before.

        Batches that are built here are counted when they are built, not once the destination has them, and again if
        they are built again. So the difference may fall for a while: it is told again once it is larger."""
        known = self.replicated.batches - round(self.counter("built_batches"))
        self._shallow_batches = max(self._shallow_batches, known)
        return self._shallow_batches

    @property
    def states(self) -> dict[str, int]:
        """Number of partitions by state."""
        return dict(Counter(row.state for _, row in self.rows))

    @property
    def halted(self) -> list[PartitionRow]:
        """The partitions that have stopped with a reason."""
        return [row for _, row in self.rows if row.reason]

    @property
    def left_halted(self) -> list[PartitionRow]:
        """Partitions that were halted when a worker here last had them, and that no worker here has now. Empty unless
        nobody holds some of the flow's partitions, as happens when the source is away."""
        if not self.unassigned:
            return []
        here = {row.key for _, row in self.rows}
        return [row for key, row in sorted(self._left_halted.items()) if key not in here]

    @property
    def lag_records(self) -> int | None:
        """The sum of the known lags of the partitions here; ``lag_unknown`` counts the others. None instead of 0 unless
        every lag is known, every worker is settled, and the flow has partitions."""
        known = sum(row.lag_records or 0 for _, row in self.rows)
        told = self.settled and self.flow_partitions and not self.lag_unknown
        return known if known or told else None

    @property
    def lag_unknown(self) -> int:
        """Number of partitions whose lag is not known, including those that nobody holds."""
        return sum(row.lag_records is None for _, row in self.rows) + (self.unassigned or 0)

    def lag_seconds(self, row: PartitionRow, now: float) -> float | None:
        """Returns how long the oldest record that is not copied is known to wait, in seconds; 0 if none waits, None if
        that is not known."""
        return None if row.lag_records is None else self._backlogs[row.key].seconds(now) if row.lag_records else 0.0

    @property
    def skipped(self) -> list[GivenUp]:
        """Source offsets that were not copied by decision, in the order of the decisions. Workers also report what was
        skipped before their process began, so each range is shown once, and as the one who knows most of it has it."""
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
        """What the file says about this flow; None: the configuration names none."""
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
        """Number of the flow's partitions that nobody holds, as the group says. If the group has not said, and a worker
        here is not settled, those that nobody holds here. None: not known."""
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
        """True if every worker is up, reports, and has an assignment (an empty one, maybe)."""
        workers = self.workers.values()
        return bool(workers) and all(worker.up and worker.joined and not worker.quiet_s for worker in workers)

    @property
    def is_whole(self) -> bool:
        """True if every partition of the flow is copied here."""
        return self._held >= self.flow_partitions > 0

    @property
    def caught_up(self) -> bool:
        """True if everything that is copied here is at the destination. Halted and paused partitions are not copied."""
        states = self.states
        return self.settled and "active" in states and states.keys() <= {"active", *RESTING} and self.lag_records == 0

    @property
    def all_halted(self) -> bool:
        """True if every partition of the flow is halted here, so that none can go on anywhere."""
        return self.settled and 0 < self.flow_partitions <= len(self.halted)

    @property
    def none_goes_on(self) -> bool:
        """True if there are partitions here, and every one of them is halted, or paused beside halted ones."""
        return self.settled and "halted" in self.states and self.states.keys() <= RESTING

    def counter(self, name: str) -> float:
        """Returns a counter's sum over all workers."""
        return sum(worker.counter(name) for worker in self.workers.values())

    def labelled(self, name: str) -> dict[str, float]:
        """Returns counters "name/label" by label, summed over all workers."""
        found: Counter[str] = Counter()
        for worker in self.workers.values():
            found.update(worker.labelled(name))
        return dict(found)

    def gauge(self, name: str) -> float:
        """Returns a gauge's sum over all workers that are up."""
        return sum(worker.gauges.get(name, 0) for worker in self.workers.values())

    def gauges(self, name: str) -> dict[str, float]:
        """Returns gauges "name/label" by label, summed over all workers that are up."""
        labels = {label for worker in self.workers.values() for label in worker.gauges if label.startswith(f"{name}/")}
        return {label.removeprefix(f"{name}/"): self.gauge(label) for label in sorted(labels)}
