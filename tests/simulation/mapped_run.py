"""One run with ``offsets: mapped``: two sources into one destination partition that others write to as well.

What must hold: the copies of a source, in the order of their offsets, are its batches in their order, each once; at
the end all of them, or the partition has halted for something that was played; and what the map says is so. Beside
what goes wrong in exact mode: DeleteRecords and log cleaners on both sides, ids that coordinators forget, an internal
topic that answers late or not at all. ``python -m tests.simulation.mapped_run SEED`` prints a run, ``FIRST LAST`` plays
many.
"""

import asyncio
import random
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from mirror.net.alignment import REWRITTEN
from mirror.records.header import HEADER_SIZE, NO_PRODUCER_ID, PREFIX_SIZE, TRANSACTIONAL
from mirror.records.mapping import OffsetMap
from mirror.records.state import Ledger, Side
from mirror.relay.partition import Partition, Phase
from tests.records.builders import raw_batch
from tests.simulation import run as exact
from tests.simulation.__main__ import main
from tests.simulation.broker import Stored
from tests.simulation.clock import Stuck, VirtualLoop, run_virtually
from tests.simulation.cluster import TOPIC
from tests.simulation.mapped_cluster import DestinationSite, MappedCluster, SourceSite
from tests.simulation.mapped_worker import MappedWorker, mapped
from tests.simulation.network import Process, Trace, Weather
from tests.simulation.run import PATIENCE_S, Run, Violation
from tests.simulation.source import DAY_MS, START_MS, Recipe, SourceLog

TOPICS = ("a", "b")
OTHER = 500
"""Producer id of somebody else at the destination."""
REST_S = 20.0
"""Virtual seconds in which all has to be copied and quiet, or no idle time begins."""

ROLLED_S = 2.0
"""A batch is in a segment that is cleaned after so many virtual seconds."""


class Taste(NamedTuple):
    """What kind of run it is, beyond a recipe."""

    equal: bool = False
    """All batches of a source look alike."""
    cleaned_here: float = 0.0
    """How likely it is, at each event, that the source's cleaner takes a batch."""
    cleaned_there: float = 0.0
    deleted_here: float = 0.0
    """The same for DeleteRecords and retention."""
    deleted_there: float = 0.0
    idle: float = 0.0
    others: float = 0.3
    last_epoch: int = 32_766
    """The coordinator gives other producer ids behind it."""

    @classmethod
    def draw(cls, chance: random.Random) -> "Taste":
        """Any of them."""
        compacted = chance.random() < 0.4
        equal = not compacted and chance.random() < 0.3
        return cls(
            equal=equal,
            cleaned_here=chance.choice([0.0, 0.1, 0.4]) if compacted else 0.0,
            cleaned_there=chance.choice([0.0, 0.1, 0.4]) if compacted else 0.0,
            deleted_here=chance.choice([0.0, 0.0, 0.1, 0.3]),
            deleted_there=chance.choice([0.0, 0.0, 0.1, 0.3]),
            idle=chance.choice([0.0, 0.1, 0.3]),
            others=chance.choice([0.0, 0.3, 0.8]),
            last_epoch=chance.choice([32_766, 32_766, 32_766, 0, 1, 3]),
        )


class Source(SourceLog):
    """Remembers all that it ever held."""

    def __init__(self, name: str, recipe: Recipe, chance: random.Random, trace: Trace, *, equal: bool) -> None:
        super().__init__(recipe, chance)
        self.trace = trace
        self.name = name
        self.equal = equal
        self.kept: list[Stored] = []
        self.cleaned: set[int] = set()
        """Base offsets of what its cleaner took."""
        self.deleted = False
        self.overtaken = False
        """Something was deleted that nobody had copied."""

    def grow(self, now_ms: int) -> None:
        """One batch more."""
        before = len(self.model.batches)
        super().grow(now_ms)
        self.kept += self.model.batches[before:]

    def _batch(self, count: int, now_ms: int, producer_id: int, *, records: int | None = None) -> None:
        base = self.model.end
        transactional = producer_id != NO_PRODUCER_ID
        old = self._chance.random() < float(self.recipe.old)
        stamp = START_MS if self.equal else now_ms - (2 * DAY_MS if old else 0)
        count = 2 if self.equal else count
        text = b"%s" % self.name.encode() if self.equal else b"%s %d;" % (self.name.encode(), base)
        self.model.store(
            raw_batch(
                text,
                base_offset=base,
                leader_epoch=self.model.epoch,
                attributes=TRANSACTIONAL if transactional else 0,
                last_offset_delta=count - 1,
                base_timestamp=stamp,
                max_timestamp=stamp,
                producer_id=producer_id,
                producer_epoch=0 if transactional else -1,
                base_sequence=base if transactional else -1,
                record_count=count if records is None else records,
            )
        )

    def copied(self) -> list[Stored]:
        """What a copy of all that is decided by now consists of, in order."""
        model = self.model
        return [
            stored
            for stored in self.kept
            if stored.header.next_offset <= model.last_stable
            and not stored.header.is_control
            and stored.header.record_count
            and not model.is_aborted(stored.header)
        ]

    def clean(self) -> None:
        """The cleaner takes a batch, any but the last ones of those that are decided."""
        model = self.model
        decided = [at for at, stored in enumerate(model.batches) if stored.header.next_offset <= model.last_stable]
        candidates = [at for at in decided[:-2] if not model.batches[at].header.is_control]
        if candidates:
            stored = model.batches.pop(self._chance.choice(candidates))
            self.cleaned.add(stored.header.base_offset)
            self.trace("source", "the cleaner takes {} at {}", self.name, stored.header.base_offset)

    def delete(self, copied_to: int) -> None:
        """Whole batches at the beginning; mostly none that nobody has copied."""
        model = self.model
        if self.equal and not copied_to:
            return  # nobody could say which of them is the first that is copied
        bases = [stored.header.base_offset for stored in model.batches] + [model.last_stable]
        most = model.last_stable if self._chance.random() < 0.1 else min(copied_to, model.last_stable)
        possible = [base for base in bases if model.start < base <= most]
        if not possible:
            return
        model.delete_before(self._chance.choice([possible[-1], self._chance.choice(possible)]))
        self.trace("source", "{} begins at {}", self.name, model.start)
        self.deleted = True
        lost = [one for one in self.copied() if copied_to <= one.header.base_offset < model.start]
        self.overtaken = self.overtaken or any(one.header.base_offset not in self.cleaned for one in lost)


class MappedRun(Run):
    """See the module's text."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.chance = loop.chance
        self.loop = loop
        self.trace = Trace(loop)
        self.recipe = Recipe.draw(self.chance)._replace(gaps=0.0)
        self.taste = Taste.draw(self.chance)
        if self.taste.equal:
            self.recipe = self.recipe._replace(transactional=0.0)
        self.weather = Weather(
            slow=self.chance.choice([0.0, 0.02, 0.2]),
            slowest=self.chance.choice([0.05, 0.2]),
            silent=self.chance.choice([0.0, 0.3, 1.0]),
        )
        self.sources = {
            name: Source(name, self.recipe, self.chance, self.trace, equal=self.taste.equal) for name in TOPICS
        }
        self.here = SourceSite("source", loop, self.chance, self.trace)
        self.here.models = {name: source.model for name, source in self.sources.items()}
        lag = self.chance.choice([0.001, 0.01, 0.2])
        self.there: DestinationSite = DestinationSite("dest", loop, self.chance, self.trace, lag=(lag / 10, lag))
        self.there.on_replicated = self._look_at_new
        self.there.on_stray = self._stray
        self.there.coordinator.last_epoch = self.taste.last_epoch
        self.workers: list[Any] = []
        self.stopping: list[MappedWorker] = []
        self.strays = 0
        self.played: set[str] = set()
        """What was played that may halt a partition."""
        self.malice = self.chance.choice([0.0, 0.2, 0.6])
        self.care = 0.3
        self.calm = self.resting = False
        self.own: dict[str, list[tuple[int, Stored]]] = {name: [] for name in TOPICS}
        """What consumers of the destination have seen of each source: index among what it holds, and the copy."""
        self._checked = 0
        self._seen_at: dict[int, float] = {}
        self._named = 0
        self._others = 0

    # -- the play ----------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """From an empty destination to a complete copy, or a halt that has its cause."""
        for source in self.sources.values():
            for _ in range(self.chance.randint(0, self.recipe.batches // 2)):
                source.grow(self.there.now_ms)
        growing = self.loop.create_task(self._grow())
        self.hire()
        for _ in range(self.chance.randint(0, 25)):
            if all(source.finished for source in self.sources.values()) and self._complete():
                break
            await self._until_copying()
            await asyncio.sleep(self.chance.choice([0.01, 0.1, 1.0]) * self.chance.random())
            await self._things_happen()
            self.chance.choices(*exact.EVENTS)[0](self)
            self.check_workers()
        await self._calm_down()
        await growing
        await self._finish()
        self._compare()

    async def _things_happen(self) -> None:
        """Beside failures."""
        chance, taste = self.chance, self.taste
        if chance.random() < taste.others:
            self.others_write(chance.randint(1, 4))
        for name, source in self.sources.items():
            if chance.random() < taste.cleaned_here:
                source.clean()
            if chance.random() < taste.deleted_here:
                source.delete(self._copied_to(name))
        if chance.random() < taste.deleted_there:
            self.delete_there()
        if chance.random() < taste.cleaned_there:
            self.clean_there()
        if chance.random() < taste.idle:
            await self.idle()
        if chance.random() < 0.1 and self.alive:
            await self._stop(chance.choice(self.alive))

    async def _grow(self) -> None:
        while not all(source.finished for source in self.sources.values()):
            await asyncio.sleep(self.chance.choice([0.0, 0.02, 1.0]) * self.chance.random())
            if self.resting:
                continue
            source = self.chance.choice(list(self.sources.values()))
            for _ in range(self.chance.choice([1, 1, 1, 6])):
                if not source.finished:
                    source.grow(self.there.now_ms)
            self.here.grown()

    async def _stop(self, worker: MappedWorker) -> None:
        """Another comes when it has stopped in order."""
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
        await super()._calm_down()

    async def _finish(self) -> None:
        until = self.loop.time() + PATIENCE_S
        worker = self.alive[0]
        while not self._complete() and not self._all_else_halted(worker):
            if self.loop.time() > until:
                raise Violation(f"no progress: {[(p.name, p.phase.value, p.acknowledged) for p in worker.partitions]}")
            await asyncio.sleep(0.2)
            self.check_workers()
        # What is late comes, and must not do any harm; and all of it is written down.
        await asyncio.sleep(15)
        while not all(_written(partition) for partition in worker.partitions):
            if self.loop.time() > until + 15:
                raise Violation("the last of it is not written down")
            await asyncio.sleep(0.2)
            self.check_workers()

    def _all_else_halted(self, worker: MappedWorker) -> bool:
        left = [partition for partition in worker.partitions if partition.topic not in self._whole()]
        return bool(left) and all(partition.halted is not None for partition in left)

    def _whole(self) -> set[str]:
        """The sources that are copied to their ends."""
        return {name for name in TOPICS if self._is_whole(name)}

    def _is_whole(self, name: str) -> bool:
        seen = {at for at, _ in self.own[name]}
        first = min(seen, default=0)
        return self.sources[name].finished and all(
            at in seen or at < first or self._may_lack(name, stored)
            for at, stored in enumerate(self.sources[name].copied())
        )

    def _complete(self) -> bool:
        worker = self.alive[0] if self.alive else None
        return worker is not None and bool(worker.partitions) and len(self._whole()) == len(TOPICS)

    def _copied_to(self, name: str) -> int:
        """All source offsets below are at the destination, as consumers see it."""
        own = self.own[name]
        if not own:
            return 0
        return self.sources[name].copied()[own[-1][0]].header.next_offset

    # -- what happens ------------------------------------------------------------------------------------------------

    def others_write(self, count: int) -> None:
        """Somebody else's batch, at the leader that knows that it is one."""
        self._others += 1
        batch = raw_batch(
            b"other %d" % self._others,
            base_offset=0,
            leader_epoch=-1,
            last_offset_delta=count - 1,
            record_count=count,
            base_timestamp=self.there.now_ms,
            max_timestamp=self.there.now_ms,
        )
        self.there.produce("other", self.there.leader, batch, lambda _: None)

    def delete_there(self) -> None:
        """DeleteRecords at the destination, often of everything."""
        model = self.there.model
        bases = [
            one.header.base_offset for one in model.batches if model.start < one.header.base_offset < model.replicated
        ]
        model.delete_before(self.chance.choice([model.replicated, *bases[-3:], *bases[:1]]))
        self.played.add("deleted there")
        self.trace("dest", "records before {} are deleted", model.start)

    def clean_there(self) -> None:
        """The destination's cleaner takes a batch, none of the last, which lie in the active segment. Of a producer
        that the leader remembers, the last batch stays, emptied."""
        model = self.there.model
        candidates = [
            at
            for at, one in enumerate(model.batches[:-4])
            if not one.header.is_control
            and self.loop.time() - self._seen_at.get(one.header.base_offset, self.loop.time()) > ROLLED_S
        ]
        if not candidates:
            return
        at = self.chance.choice(candidates)
        header = model.batches[at].header
        state = model.producers.get(header.producer_id)
        if state is not None and (header.producer_epoch, header.last_sequence) == (state.epoch, state.last_sequence):
            empty = header._replace(record_count=0, length=HEADER_SIZE - PREFIX_SIZE)
            model.batches[at] = Stored(empty, empty.pack())
        else:
            del model.batches[at]
        self.played.add("cleaned there")
        self.trace("dest", "the cleaner takes the batch at {}", header.base_offset)

    async def idle(self) -> None:
        """All is copied, and for days nothing is written. Who is running uses its ids; who is stopped does not."""
        self.resting = True
        until = self.loop.time() + REST_S
        while not self._at_rest() and self.loop.time() < until:
            await asyncio.sleep(0.1)
            self.check_workers()
        if self._at_rest():
            running = [worker for worker in self.alive if not worker.process.paused]
            self._leave_stopped()
            await asyncio.sleep(self.weather.late)
            days = self.chance.choice([2, 8, 20])
            if self.chance.random() < 0.3:
                for worker in running:
                    worker.kill()
                running = []
            for _ in range(2 * days):
                self.loop.skipped_s += DAY_MS / 2000
                for worker in running:
                    if not worker.process.dead and not worker.process.paused:
                        self.loop.create_task(worker.renew())
                await asyncio.sleep(0.05)
                self.there.model.sweep(self.there.now_ms - DAY_MS)
            self.there.forget_ids()
            self.played.add("idle")
            self.trace("run", "nothing is written for {} days", days)
            if not self.alive:
                self.hire()
        self.resting = False

    def _leave_stopped(self) -> None:
        """Brokers close the connections of a process that is stopped for days. Nobody is between two requests."""
        for worker in self.alive:
            if worker.process.paused and not worker.settled:
                worker.kill()
            elif worker.process.paused:
                for link in [*worker.here.links, *worker.there.links]:
                    link.cut()

    def _at_rest(self) -> bool:
        """Nothing is on its way."""
        model, running = self.there.model, [worker for worker in self.alive if not worker.process.paused]
        return (
            model.end == model.replicated
            and bool(running)
            and all(worker.settled for worker in running)
            and not any(worker.sending for worker in running)
            and not any(link.late or link.waiting for broker in self.there.brokers.values() for link in broker.links)
            and not any(broker.paused for broker in self.there.brokers.values())
        )

    # -- workers -----------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Any]:
        """Those that were not killed: mapped ones."""
        return super().alive

    def hire(self) -> None:
        """One more worker takes the partitions over, whoever else has them."""
        self._named += 1
        process = Process(f"worker-{self._named}")
        here = MappedCluster(self.here, process, self.chance, self.weather)
        there = MappedCluster(self.there, process, self.chance, self.weather)
        compacted = self.taste.cleaned_here > 0
        worker = MappedWorker(process.name, here, there, self.trace, compacted=compacted)
        there.before_write = lambda what: self._before_write(what, worker)
        self.workers.append(worker)
        worker.start()

    def check_workers(self) -> None:
        """None of them has met a bug, or halted without a cause."""
        if self.loop.troubles:
            raise self.loop.troubles[0]
        for worker in self.workers:
            worker.check()
            for partition in worker.partitions:
                if partition.halted is not None and not self._has_cause(partition.topic, partition.halted.reason):
                    raise Violation(f"{worker.name} halted without a cause: {partition.name} {partition.halted}")

    def _has_cause(self, topic: str, reason: str) -> bool:
        source = self.sources[topic]
        holes = source.recipe.transactional > 0 or bool(source.cleaned)
        if reason == "retention_overtook":
            return source.overtaken or (source.deleted and holes)
        if reason == "ambiguous_position":
            gone_there = bool({"deleted there", "cleaned there"} & self.played)
            return (source.deleted or bool(source.cleaned)) and (holes or source.equal or gone_there)
        if reason == "checkpoint_behind":
            return bool({"deleted there", "cleaned there"} & self.played)
        return False

    def _stray(self, who: str) -> None:
        """The residue that exact mode has, too: no leader can tell these from a repeat."""
        self.strays += 1
        self.trace(who, "STRAY: this batch has outlived all that is done about it")

    # -- what must hold ----------------------------------------------------------------------------------------------

    def _look_at_new(self) -> None:
        """What consumers see from now on."""
        model = self.there.model
        for stored in model.batches[model.at(self._checked) :]:
            header = stored.header
            if header.next_offset > model.replicated:
                break
            if header.base_offset < self._checked:
                continue
            self._checked = header.next_offset
            self._seen_at[header.base_offset] = self.loop.time()
            name = stored.payload[:1].decode()
            if header.is_control or name not in TOPICS:
                continue
            self._look_at(name, stored)

    def _look_at(self, name: str, copy: Stored) -> None:
        """The next of its source, but for what the source's cleaner took before it was copied."""
        source, own = self.sources[name], self.own[name]
        originals = source.copied()
        at = own[-1][0] + 1 if own else 0
        while at < len(originals) and not _same(originals[at], copy) and self._may_lack(name, originals[at]):
            at += 1
        if at < len(originals) and _same(originals[at], copy):
            own.append((at, copy))
            return
        due = originals[own[-1][0] + 1 if own else 0 :]
        what = f"{due[0].header.base_offset} is due" if due else "nothing is due"
        raise Violation(f"at offset {copy.header.base_offset} stands {copy.payload!r}, of {name} {what}")

    def _may_lack(self, name: str, original: Stored) -> bool:
        """The source's cleaner took it, or it was deleted before the first copy was made."""
        source, base = self.sources[name], original.header.base_offset
        return base in source.cleaned or (not self.own[name] and base < source.model.start)

    def _compare(self) -> None:
        """At the end: all of it, or halted; and the map is true."""
        self._look_at_new()
        worker = self.alive[0]
        halted = {partition.topic for partition in worker.partitions if partition.halted is not None}
        for name in TOPICS:
            if name not in halted and not self._is_whole(name):
                raise Violation(f"{name} is not complete")
        ledger = Ledger()
        for key, value in self.there.rows:
            ledger.apply(key, value)
        for name in TOPICS:
            side = Side(name, 0, TOPIC)
            checkpoint = ledger.checkpoint(side)
            if checkpoint is not None:
                self._check_map(name, ledger.map(side), checkpoint.source_offset, complete=name not in halted)

    def _check_map(self, name: str, found: OffsetMap, upto: int, *, complete: bool) -> None:
        """What it says is so; up to the checkpoint, it says all."""
        originals, copies = self.sources[name].copied(), {}
        for at, copy in self.own[name]:
            base = originals[at].header.base_offset
            for delta in range(copy.header.last_offset_delta + 1):
                copies[base + delta] = copy.header.base_offset + delta
        for run in found:
            for delta in range(run.length):
                if copies.get(run.source + delta) != run.destination + delta:
                    raise Violation(f"the map of {name} has {run}, and {run.source + delta} is elsewhere")
        if complete and not ({"deleted there", "cleaned there"} & self.played or self.sources[name].cleaned):
            missing = [
                offset for offset in copies if offset < upto and found.to_destination(offset) != (copies[offset], True)
            ]
            if missing and not self.sources[name].deleted:
                raise Violation(f"the map of {name} lacks {missing}")

    def outcome(self) -> exact.Outcome:
        """When all of it held."""
        return exact.Outcome(
            self.seed,
            self.alive[0].halted if self.alive else "",
            self.strays,
            sum(sum(worker.relay.stats.resyncs.values()) for worker in self.workers),
            sum(stored.header.is_control for stored in self.there.model.batches),
            len(self.there.model.batches),
            self.loop.time(),
        )


def _written(partition: Partition) -> bool:
    """Whether it is at rest, and what it has copied is in the internal topic."""
    if partition.halted is not None:
        return True
    return partition.phase is Phase.ACTIVE and partition.copied is not None and not partition.copied.changed


def _same(original: Stored, copy: Stored) -> bool:
    mine, its = original.header, copy.header
    return (
        mine.last_offset_delta == its.last_offset_delta
        and mine.attributes & ~REWRITTEN == its.attributes & ~REWRITTEN
        and original.data[HEADER_SIZE:] == copy.data[HEADER_SIZE:]
    )


def play(seed: int, make: Callable[[int, VirtualLoop], MappedRun] = MappedRun) -> exact.Outcome:
    """One run.

    Raises:
        Violation: with the seed and the whole trace in its message.
    """
    chance = random.Random(seed)
    runs: list[MappedRun] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        runs.append(make(seed, loop))
        await runs[0].play()

    try:
        with mapped():
            run_virtually(main(), chance)
    except (Violation, Stuck) as error:
        if runs[0].strays:
            return runs[0].outcome()._replace(halted="stray")
        raise Violation(f"seed {seed}: {error}\n{runs[0].trace}\nseed {seed}: {error}") from None
    except Exception as error:
        error.add_note(f"seed {seed}\n{runs[0].trace if runs else ''}\nseed {seed}: {error!r}")
        raise
    return runs[0].outcome()


if __name__ == "__main__":
    sys.exit(main(play))
