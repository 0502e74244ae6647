"""One run: a source that grows, workers that copy it, everything that goes wrong meanwhile, and what must hold.

All of it is drawn from the seed, so ``play(seed)`` twice is the same run twice. ``python -m tests.simulation SEED``
prints its trace.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

from mirror.records import identity
from mirror.records.admit import Terms
from mirror.records.identity import MAX_EPOCH
from mirror.relay.holes import parking
from mirror.relay.partition.phases import Phase
from tests.simulation import events
from tests.simulation.checks import Copy
from tests.simulation.checks import Violation as Violation
from tests.simulation.events import EVENTS as EVENTS
from tests.simulation.model.clock import Stuck, VirtualLoop, run_virtually
from tests.simulation.model.cluster import SimulatedCluster
from tests.simulation.model.connection import FETCH_BY_ID, FETCH_VERSION
from tests.simulation.model.network import Process, Trace, Weather
from tests.simulation.model.site import Site
from tests.simulation.source import DAY_MS, Recipe, SourceLog
from tests.simulation.worker import Worker, simulated

MOST_LIVES = 2
"""Times that a topic is made anew in a run."""
PATIENCE_S = 600.0
"""Virtual seconds in which a copy must be complete once nothing goes wrong any more."""
IDLE_WITHIN_S = 40.0
"""Virtual seconds in which all has to be copied and quiet, or no idle time begins."""


class Outcome(NamedTuple):
    """How a run ended, when nothing was violated."""

    seed: int
    halted: str
    """The reasons of the partitions that did; empty: all are copied."""
    strays: int
    """Batches and markers in the log that came from a worker that was not the owner any more, or later than ``settle``
    covers."""
    resyncs: int
    markers: int
    appended: int
    seconds: float
    """Of virtual time."""
    truncated: bool = False
    """The source has lost the end of its log."""


class Run:
    """See the module's text."""

    copy_type = Copy
    events = EVENTS

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
        # Undone by ``simulated``.
        identity.MAX_EPOCH = self.recipe.max_epoch
        parking.MOST_BYTES = self.recipe.parked_bytes
        lag = self.chance.choice([0.001, 0.01, 0.2])
        forgetful = self.chance.choice([0.0, 0.1, 0.3]) if self.recipe.old else 0.0
        tells_unknown = self.chance.random() < 0.15
        self.partitions: list[Copy] = []
        """One of each partition."""
        here = there = None
        for index in range(self.recipe.partitions):
            here = Site("source", loop, self.chance, self.trace, beside=here)
            here.fetch_version = FETCH_BY_ID if self.recipe.by_id else FETCH_VERSION
            there = Site("dest", loop, self.chance, self.trace, lag=(lag / 10, lag), beside=there)
            there.forgetful = forgetful
            there.model.tells_unknown = tells_unknown
            if index:
                here.leader, there.leader = self.chance.choice([1, 1, 2]), self.chance.choice([1, 1, 2])
            source = self._source(index)
            here.model = source.model
            self.partitions.append(self._copy(source, here, there))
        self.here, self.there = self.partitions[0].here, self.partitions[0].there
        self.lives = 0
        """How often the source's topic was made anew."""
        self.workers: list[Worker] = []
        self.malice = self.chance.choice([0.0, 0.2, 0.6])
        """How often something happens just when markers are written."""
        self.care = 0.3 if self.recipe.old or self.recipe.idle or self.recipe.max_epoch < MAX_EPOCH else 0.05
        """So much less often just when data is sent."""
        self.calm = False
        """Nothing more goes wrong."""
        self.resting = False
        """Nothing is written to the source."""
        self._named = 0

    def _source(self, index: int, life: int = 0) -> SourceLog:
        """What a partition of the source will hold, of which nothing is written yet."""
        count = self.recipe.partitions
        recipe = self.recipe._replace(batches=max(4, self.recipe.batches // count))
        name = f"{index}: " if count > 1 else ""
        return SourceLog(recipe, self.chance, name=name + ("anew, " * life))

    def _copy(self, source: SourceLog, here: Site, there: Site) -> Copy:
        return self.copy_type(source, here, there, self.trace, self._located_at)

    def _located_at(self, who: str, index: int) -> float:
        worker = next(worker for worker in self.workers if worker.name == who)
        return worker.log.located_at.get(index, 0.0)

    # -- the play ----------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """From an empty destination to a complete copy, or a halt that has its cause."""
        self._write_some()
        self._growing: asyncio.Future[None] = self.loop.create_task(self._grow())
        self.hire()
        for _ in range(self.chance.randint(0, 25)):
            if all(copy.source.finished and copy.complete for copy in self.partitions):
                break
            await self._until_copying()
            await asyncio.sleep(self.chance.choice([0.01, 0.1, 1.0]) * self.chance.random())
            await self._things_happen()
            self.chance.choices(*self.events)[0](self)
            self.check_workers()
        await self._calm_down()
        await self._growing
        await self._finish()
        for copy in self.partitions:
            if not copy.damaged and not self.alive[0].halt_of(copy.index):
                copy.compare()

    def _write_some(self) -> None:
        """Up to half of it at once."""
        for copy in self.partitions:
            for _ in range(self.chance.randint(0, copy.source.recipe.batches // 2)):
                copy.source.grow(self.there.now_ms)

    async def _things_happen(self) -> None:
        """Beside failures."""
        if self.chance.random() < self.recipe.idle:
            await self._idle()
        if self.chance.random() < self.recipe.cleaner:
            events.clean_source(self)
        if self.chance.random() < self.recipe.cleaner_there:
            events.clean_destination(self)
        if self.chance.random() < self.recipe.emptied:
            events.empty(self)
        if self.chance.random() < self.recipe.lagging and self.here.topic_id is not None:
            events.lag(self)
        if self.chance.random() < self.recipe.truncated:
            events.truncate(self)
        if self.chance.random() < self.recipe.recreated and self.lives < MOST_LIVES:
            await self._recreate()

    async def _recreate(self) -> None:
        """The source's topic is deleted and made anew, with other records, while workers go on, are stopped, or dead.
        The destination's records may have expired by then."""
        # Who fetches by name is told by nothing: the design has it.
        how = self.chance.choice(["going", "stopped", "killed"]) if self.recipe.by_id else "killed"
        for worker in self.alive:
            if how == "killed":
                worker.kill()
            elif how == "stopped":
                worker.pause(self.chance.choice([1.0, 15.0]) * self.chance.random())
        self.here.topic_id = None
        self.trace("source", "the topic is deleted")
        self.here.grown()
        for _ in self.partitions:
            if self.chance.random() < 0.6:
                events.empty(self)
        if self.chance.random() < 0.3:
            self.hire()
        await asyncio.sleep(self.chance.choice([0.1, 1.0, 10.0]) * self.chance.random())
        self._make_anew()
        if not self.alive:
            await asyncio.sleep(self.chance.choice([0.1, 3.0]) * self.chance.random())
            self.hire()

    def _make_anew(self) -> None:
        self.lives += 1
        self.here.topic_id = bytes([self.lives]) * 16
        for copy in self.partitions:
            copy.begin_anew(self._source(copy.index, self.lives))
        self._write_some()
        self.trace("source", "the topic is made anew; its ends: {}", [one.source.model.end for one in self.partitions])
        self.go_on_growing()

    async def _until_copying(self) -> None:
        """Mostly, things go wrong when somebody is at work; now and then while everybody looks for the position."""
        until = self.loop.time() + self.chance.choice([0.0, 1.0, 3.0])
        while self.loop.time() < until and not any(worker.copying for worker in self.alive):
            await asyncio.sleep(0.05)
            self.check_workers()

    def go_on_growing(self) -> None:
        """There is more to come."""
        if self._growing.done():
            self._growing = self.loop.create_task(self._grow())

    async def _grow(self) -> None:
        """The rest of the source, over a few seconds."""
        while growing := [copy for copy in self.partitions if not copy.source.finished]:
            await asyncio.sleep(self.chance.choice([0.0, 0.02, 1.0]) * self.chance.random())
            if self.resting or self.here.topic_id is None:
                continue
            for _ in range(self.chance.choice([1, 1, 1, 6])):
                self._write(growing)
            self.here.grown()
            if self.recipe.old and self.chance.random() < 0.3:
                for copy in self.partitions:
                    copy.there.model.sweep(self.there.now_ms - DAY_MS)

    def _write(self, growing: list[Copy]) -> None:
        source = self.chance.choice(growing).source
        if not source.finished:
            source.grow(self.there.now_ms)

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
        if self._at_rest():  # somebody may have sent what another one had copied already
            days = self.chance.uniform(1, 3)
            self.loop.skipped_s += days * DAY_MS / 1000
            self.trace("run", "nothing is written for {:.1f} days", days)
            events.sweep(self)
            for _ in range(self.chance.choice([0, 6])):
                self._write(self.partitions)
            self.here.grown()
            if self.chance.random() < 0.7:
                events.odd_errors(self)
        self.resting = False

    def _at_rest(self) -> bool:
        """Nothing is left to do, nothing on its way, and who is not stopped is where it should be."""
        running = [worker for worker in self.alive if not worker.process.paused]
        return (
            all(copy.complete and copy.here.known is None for copy in self.partitions)
            and any(worker.settled for worker in running)
            and not any(worker.sending or worker.lags for worker in running)
            and not any(link.late or link.waiting for broker in self.there.brokers.values() for link in broker.links)
            and not any(broker.paused for broker in self.there.brokers.values())
        )

    async def _calm_down(self) -> None:
        """Everything is repaired, and one worker is left, or a new one comes."""
        self.calm = True
        self.trace("run", "nothing more goes wrong")
        if self.here.topic_id is None:
            self._make_anew()
        for one in self.here.partitions:
            one.learn_all()
        for one in self.there.partitions:
            one.odd = 0.0
            one.model.enough_replicas = True
            one.stall(stalled=False)
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
        await self._until_done()
        worker = self.alive[0]
        # What is late comes, and must not do any harm.
        await asyncio.sleep(15)
        self.check_workers()
        await self._until_done()
        for copy in self.partitions:
            copy.judge()
        if any(
            each.phase is Phase.ACTIVE and not (each.queue.checking or each.queue.proven) for each in worker.partitions
        ):
            raise Violation("the first batch after a takeover was never read back")
        for copy in self.partitions:
            copy.check_written(worker)
        if any(copy.shows and not worker.halt_of(copy.index) for copy in self.partitions):
            await self._see_damage([copy for copy in self.partitions if copy.shows])
        elif worker.halted:
            await self._stays_halted()

    async def _until_done(self) -> None:
        """Each copy is complete, or the one worker that is left has halted it."""
        worker, until = self.alive[0], self.loop.time() + PATIENCE_S
        while not all(copy.complete or worker.halt_of(copy.index) for copy in self.partitions):
            if self.loop.time() > until:
                ends = [(one.there.model.end, one.there.model.replicated) for one in self.partitions]
                due = [one.source.model.end for one in self.partitions]
                raise Violation(f"no progress: ends and high watermarks of the destination {ends}, of the source {due}")
            await asyncio.sleep(0.2)
            self.check_workers()

    async def _see_damage(self, copies: list[Copy]) -> None:
        """Nothing is misplaced in silence: whoever looks next must see it."""
        for worker in self.alive:
            worker.kill()
        self.hire()
        until = self.loop.time() + PATIENCE_S
        while not all(self.alive[0].halt_of(copy.index) for copy in copies):
            if self.loop.time() > until:
                raise Violation("the copy is damaged, and nobody sees it")
            await asyncio.sleep(0.5)
            self.check_workers()

    async def _stays_halted(self) -> None:
        """Whoever comes next halts as well, also when the destination's records have expired meanwhile. Halts that are
        of an earlier topic of this name are not meant: that copy begins anew."""
        halted = [copy for copy in self.partitions if self.alive[0].halt_of(copy.index) and copy.stays_halted]
        ends = [copy.there.model.end for copy in halted]
        for worker in self.alive:
            worker.kill()
        for copy in halted:
            events.empty(self, copy)
        self.hire()
        await self._see_damage(halted)
        await asyncio.sleep(5)
        if ends != [copy.there.model.end for copy in halted]:
            raise Violation("something was copied behind a halt")
        await self._until_done()

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
        terms = Terms(compacted=self.recipe.gaps > 0, compacted_there=self.recipe.cleaner_there > 0)
        worker = Worker(process.name, here, there, self.trace, terms=terms, buffer_memory=self.recipe.buffer_memory)
        there.before_write = lambda what: self._before_write(what, worker)
        self.workers.append(worker)
        worker.start()

    def check_workers(self) -> None:
        """None of them has met a bug, or halted without a reason."""
        if self.loop.troubles:
            raise self.loop.troubles[0]
        for worker in self.workers:
            worker.check()
            for partition in worker.partitions:
                self.partitions[partition.index].check(worker, partition)

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
            self.loop.call_later(soon, events.fail_over, self)
        else:
            self.loop.call_later(soon, events.flip, self)

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

    def outcome(self) -> Outcome:
        """When all of it held."""
        batches = [stored for copy in self.partitions for stored in copy.there.model.batches]
        return Outcome(
            self.seed,
            self.alive[0].halted,
            sum(copy.strays for copy in self.partitions),
            sum(sum(worker.relay.stats.resyncs.values()) for worker in self.workers),
            sum(stored.header.is_control for stored in batches),
            len(batches),
            self.loop.time(),
            any(copy.truncated for copy in self.partitions),
        )


R = TypeVar("R", bound=Run)


def play(seed: int, make: Callable[[int, VirtualLoop], Run] = Run) -> Outcome:
    """One run. Raises as ``played``."""
    return played(seed, make, simulated).outcome()


def played(seed: int, make: Callable[[int, VirtualLoop], R], within: Callable[[], AbstractContextManager[object]]) -> R:
    """Plays a run.

    Args:
        seed: everything is drawn from it.
        make: the run, not begun.
        within: what holds while it is played.

    Returns:
        The run, at its end.

    Raises:
        Violation: with the seed and the whole trace in its message.
    """
    chance = random.Random(seed)
    runs: list[R] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        runs.append(make(seed, loop))
        await runs[0].play()

    try:
        with within():
            run_virtually(main(), chance)
    except (Violation, Stuck) as error:
        raise Violation(f"seed {seed}: {error}\n{runs[0].trace}\nseed {seed}: {error}") from None
    except Exception as error:
        error.add_note(f"seed {seed}\n{runs[0].trace if runs else ''}\nseed {seed}: {error!r}")
        raise
    return runs[0]
