"""One run with ``offsets: mapped``: two sources into one destination partition that others write to as well.

What must hold: the copies of a source, in the order of their offsets, are its batches in their order, each once; at
the end all of them, or the partition has halted for something that was played; and what the map says is so
(``checks``). What goes wrong is what does in exact mode, and ``events``; the internal topic answers late
or not at all. ``python -m tests.simulation.mapped.run SEED`` prints a run, ``FIRST LAST`` plays many.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from mirror.offsetmap.internal.ledger import Ledger
from mirror.reasons import is_durable
from mirror.records.admit import Terms
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from tests.simulation import run as exact
from tests.simulation.__main__ import main
from tests.simulation.mapped.checks import Causes, Copies, Gone, side_of
from tests.simulation.mapped.cluster import Blocks, DestinationSite, MappedCluster, SourceSite
from tests.simulation.mapped.events import things_happen
from tests.simulation.mapped.source import TOPICS, Source, Taste
from tests.simulation.mapped.worker import MappedWorker, mapped
from tests.simulation.model.clock import VirtualLoop
from tests.simulation.model.network import Process, Trace, Weather
from tests.simulation.run import PATIENCE_S, Run, Violation
from tests.simulation.source import Recipe


class MappedRun(Run):
    """See the module's text."""

    source_type: type[Source] = Source
    copies_type: type[Copies] = Copies
    gone_type: type[Gone] = Gone
    causes_type: type[Causes] = Causes

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.chance = loop.chance
        self.loop = loop
        self.trace = Trace(loop)
        self.taste = Taste.draw(self.chance)
        self.recipe = Recipe.draw(self.chance)._replace(gaps=0.0, old=self.chance.choice([0.0, 0.0, 0.0, 0.3, 1.0]))
        if self.taste.equal:
            self.recipe = self.recipe._replace(transactional=0.0)
        self.weather = Weather(
            slow=self.chance.choice([0.0, 0.02, 0.2]),
            slowest=self.chance.choice([0.05, 0.2]),
            silent=self.chance.choice([0.0, 0.3, 1.0]),
        )
        self.sources = {
            name: self.source_type(name, self.recipe, self.chance, self.trace, equal=self.taste.equal)
            for name in TOPICS
        }
        self.here: SourceSite = SourceSite("source", loop, self.chance, self.trace)
        self.here.models = {name: source.model for name, source in self.sources.items()}
        lag = self.chance.choice([0.001, 0.01, 0.2])
        self.there: DestinationSite = DestinationSite("dest", loop, self.chance, self.trace, lag=(lag / 10, lag))
        if self.taste.blocks:
            self.there.coordinator = Blocks(self.chance)
        self.there.coordinator.last_epoch = self.taste.last_epoch
        self.there.forgetful = self.taste.forgetful if self.recipe.old else 0.0
        self.there.on_replicated = lambda: self.copies.look(self.loop.time())
        self.gone = self.gone_type()
        self.copies = self.copies_type(self.there, self.sources, self.gone)
        self.causes = self.causes_type(self.there, self.sources, self.copies, self.gone)
        self.halts: dict[str, str] = {}
        """Source topic -> reason and cause."""
        self.workers: list[Any] = []
        self.stopping: list[MappedWorker] = []
        self.malice = self.chance.choice([0.0, 0.2, 0.6])
        self.care = 0.3
        self.calm = self.resting = False
        self.others = 0
        self._named = 0
        self._growing: asyncio.Future[None] = loop.create_future()
        self._growing.set_result(None)

    # -- the play ----------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """From an empty destination to a complete copy, or a halt that has its cause."""
        for source in self.sources.values():
            for _ in range(self.chance.randint(0, self.recipe.batches // 2)):
                source.grow(self.there.now_ms)
        self.grow()
        self.hire()
        for _ in range(self.chance.randint(0, 25)):
            if all(source.finished for source in self.sources.values()) and self._complete():
                break
            await self._until_copying()
            await asyncio.sleep(self.chance.choice([0.01, 0.1, 1.0]) * self.chance.random())
            await things_happen(self)
            self.chance.choices(*self.events)[0](self)
            self.check_workers()
        await self._calm_down()
        await self._growing
        await self._finish()
        self._compare()

    def grow(self) -> None:
        """The sources grow until they are finished."""
        if self._growing.done():
            self._growing = self.loop.create_task(self._grow())

    async def _grow(self) -> None:
        while not all(source.finished for source in self.sources.values()):
            await asyncio.sleep(self.chance.choice([0.0, 0.02, 1.0]) * self.chance.random())
            if self.resting:
                continue
            source = self.chance.choice(list(self.sources.values()))
            for _ in range(self.chance.choice([1, 1, 1, 6])):
                source.grow(self.there.now_ms)
            self.here.grown()

    async def stop(self, worker: MappedWorker) -> None:
        """In order; then another comes."""
        if worker.process.paused:
            return
        self.trace(worker.name, "is told to stop")
        self.stopping.append(worker)

        async def stop() -> None:
            await worker.stop()
            self._hire_again()

        self.loop.create_task(stop())
        await asyncio.sleep(self.chance.random())

    async def _calm_down(self) -> None:
        for worker in self.stopping:
            worker.kill()
        self.there.forgetful = 0.0
        for name in TOPICS:
            self.here.learn_all_of(name)
        await super()._calm_down()

    async def _finish(self) -> None:
        await self._until(lambda: self._complete() or self._all_else_halted(), "no progress")
        # What is late comes, and must not do any harm; and all of it is written down.
        await asyncio.sleep(15)
        await self._until(
            lambda: all(map(self._is_written, self.alive[0].partitions)), "the last of it is not written down"
        )
        if any(self._is_misplaced(name) and name not in self.halts for name in TOPICS):
            await self._must_halt()

    def _is_written(self, partition: Partition) -> bool:
        """Whether it is at rest, and what it has copied, or that it has halted, is in the internal topic."""
        if partition.halted is not None:
            return not is_durable(partition.halted.reason) or self.known.halt(partition.subject) is not None
        copied = partition.queue.copied
        return partition.phase is Phase.ACTIVE and copied is not None and not copied.changed

    def _is_misplaced(self, name: str) -> bool:
        """A batch stands where it should not, and has not been deleted since."""
        start = self.there.model.start
        return any(one.header.next_offset > start for one in self.copies.misplaced[name])

    async def _must_halt(self) -> None:
        """Nothing is misplaced in silence: whoever looks next must see it."""
        for worker in self.alive:
            worker.kill()
        self.hire()
        await self._until(
            lambda: all(name in self.halts or not self._is_misplaced(name) for name in TOPICS),
            "a batch is there twice, and nobody sees it",
        )

    async def _until(self, done: Callable[[], bool], otherwise: str) -> None:
        until = self.loop.time() + PATIENCE_S
        while not done():
            if self.loop.time() > until:
                left = [(each.name, each.phase.value, each.queue.acknowledged) for each in self.alive[0].partitions]
                raise Violation(f"{otherwise}: {left}")
            await asyncio.sleep(0.2)
            self.check_workers()

    def _all_else_halted(self) -> bool:
        left = [each for each in self.alive[0].partitions if not self.copies.is_whole(each.topic)]
        return bool(left) and all(partition.halted is not None for partition in left)

    def _complete(self) -> bool:
        worker = self.alive[0] if self.alive else None
        return worker is not None and bool(worker.partitions) and all(map(self.copies.is_whole, TOPICS))

    # -- workers -----------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Any]:
        """Those that were not killed: mapped ones."""
        return super().alive

    @property
    def known(self) -> Ledger:
        """What stands in the internal topic."""
        ledger = Ledger()
        for key, value in self.there.rows:
            ledger.apply(key, value)
        return ledger

    def hire(self) -> None:
        """One more worker takes the partitions over, whoever else has them."""
        self._named += 1
        process = Process(f"worker-{self._named}")
        here = MappedCluster(self.here, process, self.chance, self.weather)
        there = MappedCluster(self.there, process, self.chance, self.weather)
        worker = MappedWorker(
            process.name, here, there, self.trace, terms=self.terms(), looks_at_ids=self.taste.remade > 0
        )
        worker.log.on_halt = lambda topic, reason: self._halts(worker, topic, reason)
        there.before_write = lambda what: self._before_write(what, worker)
        self.workers.append(worker)
        worker.start()

    def terms(self) -> Terms:
        """Those of the next worker's topics."""
        return Terms(compacted=self.taste.cleaned_here > 0)

    def _halts(self, worker: MappedWorker, topic: str, reason: str) -> None:
        """It says why; the world must be so."""
        cause = self.causes.of(worker.name, topic, reason)
        if not cause:
            halted = next(each.halted for each in worker.partitions if each.topic == topic)
            raise Violation(f"{worker.name} halted without a cause: {topic} {halted}")
        self.trace("run", "{} halts: {}, {}", topic, reason, cause)
        self.halts[topic] = f"{reason} ({cause})"

    def check_workers(self) -> None:
        """None of them has met a bug, or halted without a cause."""
        if self.loop.troubles:
            raise self.loop.troubles[0]
        for worker in self.workers:
            worker.check()

    # -- what must hold ----------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """At the end: all of it, or halted; and the map is true."""
        self.check_workers()
        self.copies.look(self.loop.time())
        halted = {partition.topic for partition in self.alive[0].partitions if partition.halted is not None}
        known = self.known
        for name in TOPICS:
            if name in halted and name not in self.halts:
                raise Violation(f"{name} is halted, and nobody has found why")
            if name not in halted and not self.copies.is_whole(name):
                raise Violation(f"{name} is not complete")
            checkpoint = known.checkpoint(side_of(name))
            if checkpoint is not None and checkpoint.destination_id == self.copies.topic_id:
                complete = name not in halted and not (self.gone or self.sources[name].cleaned)
                upto = checkpoint.source_offset if not self.sources[name].origin.start else 0
                self.copies.check_map(name, known.map(side_of(name)), upto, complete=complete)

    def outcome(self) -> exact.Outcome:
        """When all of it held."""
        return exact.Outcome(
            self.seed,
            " and ".join(sorted(set(self.halts.values()))),
            len(self.there.strays),
            sum(sum(worker.relay.stats.resyncs.values()) for worker in self.workers),
            sum(stored.header.is_control for stored in self.there.model.batches),
            len(self.there.model.batches),
            self.loop.time(),
        )


def play(seed: int, make: Callable[[int, VirtualLoop], MappedRun] = MappedRun) -> exact.Outcome:
    """One run. Raises as ``tests.simulation.run.played``."""
    return exact.played(seed, make, mapped).outcome()


if __name__ == "__main__":
    sys.exit(main(play))
