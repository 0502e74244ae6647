"""One run: a source that grows, workers that copy it, everything that goes wrong meanwhile, and what must hold.

All of it is drawn from the seed, so ``play(seed)`` twice is the same run twice. ``python -m tests.simulation SEED``
prints its trace.
"""

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple
from unittest.mock import patch

from mirror.records import identity
from mirror.records.identity import MAX_EPOCH
from mirror.relay import parking
from mirror.relay.parking import MOST_BYTES
from tests.simulation.broker import Stored
from tests.simulation.clock import Stuck, VirtualLoop, run_virtually
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.network import Process, Trace, Weather
from tests.simulation.site import Site
from tests.simulation.source import DAY_MS, Recipe, SourceLog
from tests.simulation.worker import SETTLE_S, Worker, simulated

PATIENCE_S = 600.0
"""Virtual seconds in which a copy must be complete once nothing goes wrong any more."""
IDLE_WITHIN_S = 40.0
"""Virtual seconds in which all has to be copied and quiet, or no idle time begins."""
AFTER_OVERFILL = frozenset({"overfilled", "not_a_copy", "mid_batch", "sparse_batch", "foreign_writer", "corrupt"})
"""How a partition halts when a marker has outlived everything that is done about it (design, section 4)."""


class Violation(AssertionError):
    """Something happened that must never happen."""


class Outcome(NamedTuple):
    """How a run ended, when nothing was violated."""

    seed: int
    halted: str
    """The reason; empty: the copy is complete."""
    strays: int
    """Marker requests that came from a worker that was not the owner any more, or later than ``settle`` covers."""
    resyncs: int
    markers: int
    appended: int
    seconds: float
    """Of virtual time."""


class Run:
    """See the module's text."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.chance = loop.chance
        self.loop = loop
        self.trace = Trace(loop)
        self.recipe = Recipe.draw(self.chance).mixed(self.chance)
        self.weather = Weather(
            slow=self.chance.choice([0.0, 0.02, 0.2]),
            slowest=self.chance.choice([0.05, 0.2]),
            silent=self.chance.choice([0.0, 0.3, 1.0]),
        )
        # Undone by ``play``.
        identity.MAX_EPOCH = self.recipe.max_epoch
        parking.MOST_BYTES = self.recipe.parked_bytes
        self.source = SourceLog(self.recipe, self.chance)
        self.here = Site("source", loop, self.chance, self.trace)
        self.here.model = self.source.model
        lag = self.chance.choice([0.001, 0.01, 0.2])
        self.there = Site("dest", loop, self.chance, self.trace, lag=(lag / 10, lag))
        self.there.forgetful = self.chance.choice([0.0, 0.1, 0.3]) if self.recipe.old else 0.0
        self.there.on_replicated = self._look_at_new
        self.there.on_markers = self._markers_come
        self.there.on_forgotten = self._forgotten_comes
        self.there.model.tells_unknown = self.chance.random() < 0.15
        self.workers: list[Worker] = []
        self.strays = 0
        self.damaged = False
        self.malice = self.chance.choice([0.0, 0.2, 0.6])
        """How often something happens just when markers are written."""
        self.care = 0.3 if self.recipe.old or self.recipe.idle or self.recipe.max_epoch < MAX_EPOCH else 0.05
        """So much less often just when data is sent."""
        self.calm = False
        """Nothing more goes wrong."""
        self.resting = False
        """Nothing is written to the source."""
        self._checked = 0
        self._wrong: list[Stored] = []
        self._named = 0

    # -- the play ----------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """From an empty destination to a complete copy, or a halt that has its cause."""
        for _ in range(self.chance.randint(0, self.recipe.batches // 2)):
            self.source.grow(self.there.now_ms)
        growing = self.loop.create_task(self._grow())
        self.hire()
        for _ in range(self.chance.randint(0, 25)):
            if self.source.finished and self.there.model.end == self.source.model.end:
                break
            await self._until_copying()
            await asyncio.sleep(self.chance.choice([0.01, 0.1, 1.0]) * self.chance.random())
            if self.chance.random() < self.recipe.idle:
                await self._idle()
            if self.chance.random() < self.recipe.cleaner:
                clean_source(self)
            self.chance.choices(*EVENTS)[0](self)
            self.check_workers()
        await self._calm_down()
        await growing
        await self._finish()
        self._compare()

    async def _until_copying(self) -> None:
        """Mostly, things go wrong when somebody is at work; now and then while everybody looks for the position."""
        until = self.loop.time() + self.chance.choice([0.0, 1.0, 3.0])
        while self.loop.time() < until and not any(worker.copying for worker in self.alive):
            await asyncio.sleep(0.05)
            self.check_workers()

    async def _grow(self) -> None:
        """The rest of the source, over a few seconds."""
        while not self.source.finished:
            await asyncio.sleep(self.chance.choice([0.0, 0.02, 1.0]) * self.chance.random())
            if self.resting:
                continue
            for _ in range(self.chance.choice([1, 1, 1, 6])):
                self._write()
            self.here.grown()
            if self.recipe.old and self.chance.random() < 0.3:
                self.there.model.sweep(self.there.now_ms - DAY_MS)

    def _write(self) -> None:
        if not self.source.finished:
            self.source.grow(self.there.now_ms)

    async def _idle(self) -> None:
        """All is copied, and for days nothing is written; brokers forget who wrote. They close the connections of a
        process that is stopped so long."""
        self.resting = True
        until = self.loop.time() + IDLE_WITHIN_S
        while not self._at_rest() and self.loop.time() < until:
            await asyncio.sleep(0.1)
            self.check_workers()
        if self._at_rest():
            for worker in self.alive:
                if worker.process.paused:
                    for link in [*worker.here.links, *worker.there.links]:
                        link.cut()
            await asyncio.sleep(self.weather.late)
            days = self.chance.uniform(1, 3)
            self.loop.skipped_s += days * DAY_MS / 1000
            self.trace("run", "nothing is written for {:.1f} days", days)
            sweep(self)
            for _ in range(self.chance.choice([0, 6])):
                self._write()
            self.here.grown()
            if self.chance.random() < 0.7:
                odd_errors(self)
        self.resting = False

    def _at_rest(self) -> bool:
        """Nothing is left to do, nothing on its way, and who is not stopped is where it should be."""
        model, running = self.there.model, [worker for worker in self.alive if not worker.process.paused]
        return (
            model.end == model.replicated == self.source.model.end
            and any(worker.copying for worker in running)
            and not any(worker.sending for worker in running)
            and not any(link.late or link.waiting for broker in self.there.brokers.values() for link in broker.links)
            and not any(broker.paused for broker in self.there.brokers.values())
        )

    async def _calm_down(self) -> None:
        """Everything is repaired, and one worker is left, or a new one comes."""
        self.calm = True
        self.trace("run", "nothing more goes wrong")
        self.there.odd = 0.0
        self.there.model.enough_replicas = True
        self.there.stall(stalled=False)
        for site in (self.here, self.there):
            for broker in site.brokers.values():
                broker.up = True
                broker.resume(self.chance)
        for worker in self.workers:
            worker.resume()
        for worker in self.alive[1:]:
            worker.kill()
        if not self.alive or self.chance.random() < 0.5:
            for worker in self.alive:
                worker.kill()
            self.hire()

    async def _finish(self) -> None:
        model, until = self.there.model, self.loop.time() + PATIENCE_S
        worker = self.alive[0]
        while not worker.halted and not (model.end == model.replicated == self.source.model.end):
            if self.loop.time() > until:
                ends = f"{model.end}, replicated to {model.replicated}, the source at {self.source.model.end}"
                raise Violation(f"no progress: the destination ends at {ends}")
            await asyncio.sleep(0.2)
            self.check_workers()
        # What is late comes, and must not do any harm.
        await asyncio.sleep(15)
        self.check_workers()
        self.damaged = any(self._wrong_with(stored) for stored in self._wrong)
        partition = worker.partition
        if worker.copying and partition is not None and not (partition.checking or partition.proven):
            raise Violation("the first batch after a takeover was never read back")
        if any(self._shows(stored) for stored in self._wrong) and not worker.halted:
            await self._must_halt()

    async def _must_halt(self) -> None:
        """Nothing is misplaced in silence: whoever looks next must see it."""
        for worker in self.alive:
            worker.kill()
        self.hire()
        until = self.loop.time() + PATIENCE_S
        while not self.alive[0].halted:
            if self.loop.time() > until:
                raise Violation("the copy is damaged, and nobody sees it")
            await asyncio.sleep(0.5)
            self.check_workers()

    # -- workers -----------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Worker]:
        """Those that were not killed."""
        return [worker for worker in self.workers if not worker.process.dead]

    def hire(self) -> None:
        """One more worker takes the partition over, whoever else has it."""
        self._named += 1
        process = Process(f"worker-{self._named}")
        here = SimulatedCluster(self.here, process, self.chance, self.weather)
        there = SimulatedCluster(self.there, process, self.chance, self.weather)
        worker = Worker(process.name, here, there, self.trace, compacted=self.recipe.gaps > 0)
        there.before_write = lambda what: self._before_write(what, worker)
        self.workers.append(worker)
        worker.start()

    def check_workers(self) -> None:
        """None of them has met a bug, or halted without a reason."""
        if self.loop.troubles:
            raise self.loop.troubles[0]
        for worker in self.workers:
            worker.check()
            if worker.halted and not (self.strays and worker.halted in AFTER_OVERFILL):
                partition = worker.partition
                assert partition is not None
                raise Violation(f"{worker.name} halted without a cause: {partition.halted}")

    def _before_write(self, what: str, worker: Worker) -> None:
        """The moments at which most can go wrong: a worker has decided to write markers, or data."""
        for broker in self.there.brokers.values():
            broker.links = [link for link in broker.links if link.abandoned_at is None or link.late or link.waiting]
            for link in broker.links:
                if link.late and self.chance.random() < 0.5:
                    link.hasten()
        if self.calm or self.chance.random() > self.malice * (1 if what == "markers" else self.care):
            return
        # Sooner than anything arrives, or about when it does, or when its answer is on the way.
        soon = self.chance.choice([0.0005, 0.006, 0.02]) * self.chance.random()
        draw = self.chance.random()
        if draw < 0.3:
            worker.pause(self.chance.choice([0.1, 1.5, 8.0]) * self.chance.random())
            if self.chance.random() < 0.6 and len(self.alive) < 3:
                self.hire()
        elif draw < 0.55:
            self.loop.call_later(soon, self._cut, worker)
        elif draw < 0.8:
            self.loop.call_later(soon, self._replace, worker)
        elif draw < 0.9:
            self.loop.call_later(soon, fail_over, self)
        else:
            self.loop.call_later(soon, flip, self)

    def _cut(self, worker: Worker) -> None:
        if self.calm:
            return
        for link in [*worker.here.links, *worker.there.links]:
            if self.chance.random() < 0.6:
                link.cut()

    def _replace(self, worker: Worker) -> None:
        if not worker.process.dead and not self.calm:
            worker.kill()
            self.loop.call_later(self.chance.uniform(0, 0.5), self._hire_again)

    def _hire_again(self) -> None:
        if not self.calm:
            self.hire()

    # -- what must hold ----------------------------------------------------------------------------------------------

    def _is_owner(self, who: str) -> bool:
        return self.there.owner is None or self.there.owner[0] == who

    def _markers_come(self, who: str, late_by: float) -> None:
        """The residue that the design names: markers that arrive later than ``settle`` covers, or that were decided on
        by the owner, who had asked for this very hole, and was not the owner any more when they came."""
        site = self.there
        decided = False
        if not self._is_owner(who):
            worker = next(worker for worker in self.workers if worker.name == who)
            since = max(worker.log.located_at, site.produced_at.get(who, 0.0))
            decided = site.asked_at.get(who, -1.0) >= since or site.model.tells_unknown
        if late_by > SETTLE_S or decided:
            self.strays += 1
            self.trace(who, "STRAY: these markers have outlived all that is done about them")

    def _forgotten_comes(self, who: str, late_by: float) -> None:
        """Another residue: old records of a worker that is not the owner any more, or records when the broker has
        forgotten the producer, so that it cannot tell a repeat: whether these or the owner's come first."""
        if late_by > SETTLE_S or not self._is_owner(who):
            self.strays += 1
            self.trace(who, "STRAY: this batch has outlived all that is done about it")

    def _look_at_new(self) -> None:
        """What consumers see from now on."""
        model = self.there.model
        for stored in model.batches[model.at(self._checked) :]:
            if stored.header.next_offset > model.replicated:
                break
            self._checked = stored.header.next_offset
            wrong = self._wrong_with(stored)
            if not wrong:
                continue
            self.trace("run", "WRONG: {}", wrong)
            if not self.strays:
                raise Violation(wrong)
            # Not for good if it is a marker, and the source turns out to have a hole there, or has one by compaction.
            self._wrong.append(stored)

    def _shows(self, stored: Stored) -> bool:
        """Whether something is wrong with it, and the source still has a record in its place, which differs."""
        origin, header = self.source.model, stored.header
        overlapping = [
            one
            for one in origin.batches[origin.at(header.base_offset) :]
            if one.header.base_offset <= header.last_offset and self._is_record(one)
        ]
        return bool(self._wrong_with(stored) and overlapping)

    def _wrong_with(self, stored: Stored) -> str:
        header = stored.header
        origin = self.source.model
        base, last = header.base_offset, header.last_offset
        if header.is_control:
            at = origin.at(base)
            there = origin.batches[at] if at < len(origin.batches) else None
            inside = there is not None and there.header.base_offset <= last
            if base >= origin.last_stable:
                return f"a marker at offset {base}, and the source is stable to {origin.last_stable} only"
            record = inside and there is not None and self._is_record(there)
            return f"a marker at offset {base}, where the source has a record" if record else ""
        # Compaction may have taken it meanwhile.
        there = self.source.written.get(base)
        if there is None or not self._is_record(there):
            return f"a record at offset {base}, where the source has none"
        if there.header.last_offset != last or there.payload != stored.payload:
            return f"the batch at offset {base} is not the source's"
        return "" if last < origin.last_stable else f"offset {base} was copied before it was stable"

    def _is_record(self, stored: Stored) -> bool:
        header = stored.header
        return not header.is_control and header.record_count > 0 and not self.source.model.is_aborted(header)

    def _compare(self) -> None:
        """At the end: the destination's records are the source's, at the same offsets, each once; as far as it got."""
        self._look_at_new()
        model = self.there.model
        copied = {
            stored.header.base_offset: (stored.header.last_offset_delta + 1, stored.payload)
            for stored in model.batches
            if not stored.header.is_control
        }
        expected, written = self.source.visible(), self.source.visible(self.source.written.values())
        if self.damaged or self.alive[0].halted:
            return
        if not expected.items() <= copied.items() <= written.items():
            lost = sorted(expected.keys() - copied.keys())
            raise Violation(f"records lost at {lost}, or others at {sorted(copied.keys() - written.keys())}")
        taken = sum(stored.header.last_offset_delta + 1 for stored in model.batches)
        if taken != model.end:
            raise Violation(f"{taken} offsets are taken, and the log ends at {model.end}")

    def outcome(self) -> Outcome:
        """When all of it held."""
        return Outcome(
            self.seed,
            self.alive[0].halted,
            self.strays,
            sum(sum(worker.relay.stats.resyncs.values()) for worker in self.workers),
            sum(stored.header.is_control for stored in self.there.model.batches),
            len(self.there.model.batches),
            self.loop.time(),
        )


# -- what goes wrong -------------------------------------------------------------------------------------------------


def kill_and_replace(run: Run) -> None:
    """kill -9 of one, and another comes."""
    if run.alive:
        run._replace(run.chance.choice(run.alive))


def second_worker(run: Run) -> None:
    """Another takes over while the first goes on."""
    if len(run.alive) < 3:
        run.hire()


def pause_worker(run: Run) -> None:
    """SIGSTOP; often another takes over meanwhile."""
    if run.alive:
        run.chance.choice(run.alive).pause(run.chance.choice([0.2, 2.0, 15.0]) * run.chance.random())
        if run.chance.random() < 0.5:
            second_worker(run)


def cut_links(run: Run) -> None:
    """Some of a worker's connections end."""
    if run.alive:
        run._cut(run.chance.choice(run.alive))


def fail_over(run: Run) -> None:
    """The destination's leader dies, or only loses the leadership."""
    if not run.calm:
        run.there.fail_over(crash=run.chance.random() < 0.5)


def flip(run: Run) -> None:
    """The leadership goes to another broker and back: connections stay, and a produce request names no epoch."""
    if not run.calm:
        back = run.there.leader
        run.there.fail_over(crash=False)
        run.loop.call_later(run.chance.choice([0.01, 0.5]) * run.chance.random(), _flip_back, run, back)


def _flip_back(run: Run, back: int) -> None:
    if not run.calm and run.there.leader != back and run.there.brokers[back].up:
        run.there.fail_over(crash=False, to=back)


def pause_broker(run: Run) -> None:
    """SIGSTOP of the destination's leader."""
    broker = run.there.brokers[run.there.leader]
    broker.pause()
    run.trace("dest", "broker {} is stopped", broker.node_id)
    run.loop.call_later(run.chance.choice([0.1, 2.0, 14.0]) * run.chance.random(), broker.resume, run.chance)


def stall_followers(run: Run) -> None:
    """Nothing is replicated for a while."""
    run.there.stall(stalled=True)
    run.trace("dest", "the followers stall")
    run.loop.call_later(run.chance.choice([0.5, 3.0, 14.0]) * run.chance.random(), _follow, run)


def _follow(run: Run) -> None:
    run.trace("dest", "the followers follow")
    run.there.stall(stalled=False)


def restart_all(run: Run) -> None:
    """Every broker of the destination."""
    run.there.restart(clean=run.chance.random() < 0.5)


def odd_errors(run: Run) -> None:
    """Appends are answered with errors, done or not, for a while."""
    run.there.odd = run.chance.choice([0.1, 0.3])
    run.loop.call_later(run.chance.uniform(0.1, 3), setattr, run.there, "odd", 0.0)


def too_few_replicas(run: Run) -> None:
    """min.insync.replicas is not met for a while."""
    run.there.model.enough_replicas = False
    run.loop.call_later(run.chance.uniform(0.1, 5), setattr, run.there.model, "enough_replicas", True)


def sweep(run: Run) -> None:
    """The brokers forget the producers of old records."""
    run.there.model.sweep(run.there.now_ms - DAY_MS)
    run.trace("dest", "old producers are forgotten")


def clean_source(run: Run) -> None:
    """Compaction takes a batch that the source has had for a while."""
    base = run.source.clean()
    if base is not None:
        run.trace("source", "the cleaner takes the batch at {}", base)


EVENTS: tuple[list[Callable[[Run], None]], list[int]] = (
    [
        kill_and_replace,
        second_worker,
        pause_worker,
        cut_links,
        fail_over,
        flip,
        pause_broker,
        stall_followers,
        restart_all,
        odd_errors,
        too_few_replicas,
        sweep,
    ],
    [20, 10, 15, 20, 8, 8, 6, 8, 4, 8, 3, 8],
)
"""What may go wrong, and how often."""


def play(seed: int) -> Outcome:
    """One run.

    Raises:
        Violation: with the seed and the whole trace in its message.
    """
    chance = random.Random(seed)
    runs: list[Run] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        runs.append(Run(seed, loop))
        await runs[0].play()

    try:
        kept = patch.object(identity, "MAX_EPOCH", MAX_EPOCH), patch.object(parking, "MOST_BYTES", MOST_BYTES)
        with simulated(), kept[0], kept[1]:
            run_virtually(main(), chance)
    except (Violation, Stuck) as error:
        raise Violation(f"seed {seed}: {error}\n{runs[0].trace}\nseed {seed}: {error}") from None
    except Exception as error:
        error.add_note(f"seed {seed}\n{runs[0].trace if runs else ''}\nseed {seed}: {error!r}")
        raise
    return runs[0].outcome()
