"""Batches that are rewritten on their way, while everything goes wrong: some have holes inside, and many are over what
the destination takes. Workers are killed between two pieces, and two of them may cut a batch in different places.

All that a consumer of the destination sees, at any moment, is the source's record of that offset, or nothing.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar
from unittest.mock import patch

import pytest

from mirror.offsetmap.entries.passed import PassedOverOffsets
from mirror.records.admit import NOT_INSIDE, Terms
from mirror.records.content import rewriting
from mirror.records.content.raw import PlacedRecord, placed_records
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.relay.durable.passed import PassedOverRecords
from mirror.relay.hot import deep
from mirror.relay.locate import filled, resync
from mirror.relay.locate.cleaned import survivors
from mirror.relay.partition.cursor import Cursor
from tests.records.builders import Record
from tests.simulation import checks, run
from tests.simulation.checks import Copy, Violation
from tests.simulation.model.broker import Stored
from tests.simulation.model.cluster import SimulatedCluster
from tests.simulation.model.network import Process
from tests.simulation.mutation import Mutation, find
from tests.simulation.run import Outcome, Run
from tests.simulation.seeds import FIRST, runs
from tests.simulation.source import SourceLog, batch_with
from tests.simulation.worker import Worker

pytestmark = pytest.mark.long

RUNS = runs(400)
PIECES = 2
LIMITS = (170, 260)
"""Of batches, in bytes; each worker draws one. A single record always fits."""
MOST_RECORDS = 6


class RichLog(SourceLog):
    """Its batches have real records, some with holes between them where the topic is compacted."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.records: dict[int, PlacedRecord] = {}
        """Every record that there ever was; of a log that has lost its end, since then."""

    def _batch(self, count: int, now_ms: int, producer_id: int, *, records: int | None = None) -> None:
        if records == 0:
            super()._batch(count, now_ms, producer_id, records=0)
            return
        chance, base, stamp = self._chance, self.model.end, self._stamp(now_ms)
        count += chance.randint(0, MOST_RECORDS - 4)
        offsets = list(range(count))
        if self.recipe.gaps and count > 1 and chance.random() < 0.4:
            offsets = sorted(chance.sample(offsets, chance.randint(1, count - 1)))
        made = [Record(at, stamp + at, b"k%d" % (base + at), self._value(base + at)) for at in offsets]
        self._store(batch_with(made, count, base=base, epoch=self.model.epoch, producer_id=producer_id))
        for one in records_of(self.model.batches[-1]):
            self.records[one.offset] = one

    def _value(self, offset: int) -> bytes:
        return self._name.encode() + b"%d" % offset * 5

    def before_it_is_cut(self) -> "RichLog":
        """See ``SourceLog``."""
        former = super().before_it_is_cut()
        assert isinstance(former, RichLog)
        return former

    def cut(self) -> None:
        """See ``SourceLog``."""
        super().cut()
        self.records = {at: one for at, one in self.records.items() if at < self.cut_at}


def records_of(stored: Stored) -> list[PlacedRecord]:
    return list(placed_records(stored.header, stored.payload)) if stored.header.record_count else []


def wrong_with(stored: Stored, source: SourceLog) -> str:
    """Why a batch at the destination is not what this source has there, if so; see ``checks.wrong_with``."""
    assert isinstance(source, RichLog)
    header, origin = stored.header, source.model
    base, last = header.base_offset, header.last_offset
    if header.is_control:
        if base >= origin.last_stable:
            return f"a marker at offset {base}, and the source is stable to {origin.last_stable} only"
        at = origin.at(base)
        there = origin.batches[at] if at < len(origin.batches) else None
        offsets = {one.offset for one in records_of(there)} if there and checks.is_record(there, source) else set()
        # What was passed over is written down: see ``PassingCopy``.
        record = base in offsets and not is_large(source.records[base])
        return f"a marker at offset {base}, where the source has a record" if record else ""
    for one in records_of(stored):
        # Compaction may have taken it meanwhile.
        if source.records.get(one.offset) != one:
            return f"the record at offset {one.offset} is not the source's"
        if any(
            each.header.base_offset <= one.offset <= each.header.last_offset and origin.is_aborted(each.header)
            for each in origin.batches[origin.at(one.offset) :][:1]
        ):
            return f"a record at offset {one.offset}, where the source has aborted data"
    if header.record_count != header.last_offset_delta + 1:
        return f"the batch at offset {base} has holes"
    return "" if last < origin.last_stable else f"offset {base} was copied before it was stable"


class PieceCopy(Copy):
    """Of a partition, compared record by record."""

    def take(self, stored: Stored) -> None:
        """See ``Copy``; ``seen`` has a row for each record."""
        super().take(stored)
        if self.seen.pop(stored.header.base_offset, None) is not None:
            for one in records_of(stored):
                self.seen[one.offset] = (1, one.content)

    @property
    def _has_lost(self) -> bool:
        assert isinstance(self.source, RichLog)
        records = self.source.records
        return any(at not in records or records[at].content != content for at, (_, content) in self.seen.items())

    def _expected(self, one: PlacedRecord) -> bool:
        return True

    def compare(self) -> None:
        """See ``Copy``."""
        self.look_at_new()
        source = self.source
        assert isinstance(source, RichLog)
        expected = {
            one.offset: (1, one.content)
            for stored in source.model.batches
            if checks.is_record(stored, source) and stored.header.base_offset < source.model.last_stable
            for one in records_of(stored)
            if self._expected(one)
        }
        written = {at: (1, one.content) for at, one in source.records.items()}
        if not expected.items() <= self.seen.items() <= written.items():
            raise Violation(f"records lost at {sorted(expected.keys() - self.seen.keys())}, or others")
        if self._taken != self.there.model.end:
            raise Violation(f"{self._taken} offsets were taken, and the log ends at {self.there.model.end}")


class Rewriting(Run):
    """A run with such a source."""

    copy_type = PieceCopy
    log_type: ClassVar[type[RichLog]] = RichLog
    converts = False
    passes_over = False
    opened: ClassVar[Counter[str]] = Counter()
    """Batches that were opened in all runs, by reason."""

    async def play(self) -> None:
        """See ``Run``."""
        await super().play()
        for worker in self.workers:
            self.opened.update(worker.relay.rewriter.opened)

    def _source(self, index: int, life: int = 0) -> SourceLog:
        count = self.recipe.partitions
        recipe = self.recipe._replace(batches=max(4, self.recipe.batches // count))
        name = f"{index}: " if count > 1 else ""
        return self.log_type(recipe, self.chance, name=name + ("anew, " * life))

    def _limit(self) -> int:
        return self.chance.choice(LIMITS)

    def hire(self) -> None:
        """See ``Run``."""
        self._named += 1
        process = Process(f"worker-{self._named}")
        here = SimulatedCluster(self.here, process, self.chance, self.weather)
        there = SimulatedCluster(self.there, process, self.chance, self.weather)
        terms, memory = self._terms(self._limit()), self.recipe.buffer_memory
        worker = Worker(process.name, here, there, self.trace, terms=terms, buffer_memory=memory)
        there.before_write = lambda what: self._before_write(what, worker)
        self.workers.append(worker)
        worker.start()

    def _terms(self, limit: int) -> Terms:
        """Of a worker whose batches may be this large, in bytes."""
        return Terms(
            compacted=self.recipe.gaps > 0,
            compacted_there=self.recipe.cleaner_there > 0,
            rewrites=True,
            converts=self.converts,
            passes_over=limit if self.passes_over else None,
            max_batch_size=limit,
        )


class LargeLog(RichLog):
    """Some of its records are over either limit, some over the lower one. Which ones is another question in each leader
    epoch."""

    def _value(self, offset: int) -> bytes:
        draw = (offset * 7 + self.model.epoch * 3) % 13
        return super()._value(offset) + b"." * (0 if draw > 2 else 300 if draw else 100)


def is_large(one: PlacedRecord) -> bool:
    """Whether it is over the lower limit."""
    return HEADER_SIZE + len(one.content) > LIMITS[0]


class PassingCopy(PieceCopy):
    """Records that are too large may be missing: if it was written down before, of the very record."""

    def take(self, stored: Stored) -> None:
        """See ``Copy``."""
        super().take(stored)
        base = stored.header.base_offset
        excused = base >= self.stray_from or not stored.header.is_control
        if not excused and not any(self._is_right(base, each) for each in self.fits):
            raise Violation(f"a marker at offset {base}, and nothing is written down of the record there")

    def _is_right(self, base: int, source: SourceLog) -> bool:
        assert isinstance(source, RichLog)
        origin = source.model
        there = next(iter(origin.batches[origin.at(base) : origin.at(base) + 1]), None)
        if there is None or not checks.is_record(there, source) or all(one.offset != base for one in records_of(there)):
            return True
        entries = self._ledger().passed(self._side)
        return any(base in each.offsets and each.leader_epoch == there.header.leader_epoch for each in entries)

    def _expected(self, one: PlacedRecord) -> bool:
        return one.offset in self.seen or not is_large(one)


class PassingOver(Rewriting):
    """A run in which such records are passed over."""

    copy_type = PassingCopy
    log_type = LargeLog
    passes_over = True
    passed: ClassVar[int] = 0
    """Records that were passed over in all runs."""
    _most = 0

    def _limit(self) -> int:
        """One for all: no record is given up before the destination was asked for its limit, and its brokers would
        refuse who knows another one."""
        if not self._most:
            self._most = super()._limit()
        return self._most

    async def play(self) -> None:
        """See ``Run``."""
        await super().play()
        type(self).passed += sum(one.offsets for worker in self.workers for one in worker.relay.stats.skipped)


def play(seed: int, kind: type[Rewriting] = Rewriting) -> Outcome:
    """One run; see ``run.play``."""
    with patch.object(checks, "wrong_with", wrong_with), patch.object(deep, "MOST_PIECES", 2):
        return run.play(seed, kind)


@pytest.mark.parametrize("piece", range(PIECES))
def test_records_keep_their_offsets_through_every_cut(piece: int) -> None:
    """As ``test_simulation``: the copy becomes complete, unless something was played that has to halt it."""
    seeds = range(FIRST + RUNS * piece // PIECES, FIRST + RUNS * (piece + 1) // PIECES)
    complete = 0
    Rewriting.opened.clear()
    for seed in seeds:
        complete += not play(seed).halted
    assert complete >= 0.7 * len(seeds)
    assert all(Rewriting.opened[reason] > len(seeds) / 4 for reason in ("sparse_batch", "too_large", "mid_batch"))


@pytest.mark.parametrize("piece", range(PIECES))
def test_records_that_are_too_large_are_passed_over(piece: int) -> None:
    """All others keep their offsets, and no marker stands in the place of a record unless that very record is written
    down."""
    seeds = range(FIRST + RUNS * piece // PIECES, FIRST + RUNS * (piece + 1) // PIECES)
    PassingOver.passed = 0
    complete = sum(not play(seed, PassingOver).halted for seed in seeds)
    assert complete >= 0.7 * len(seeds)
    assert PassingOver.passed > 3 * len(seeds)


# Mutations: with a rule taken away, some seed shows what it is for.

_rewind = Cursor.rewind


def _without_inside(self: Cursor, *arguments: Any) -> None:
    _rewind(self, *arguments)
    self.inside = NOT_INSIDE


def _from_its_beginning(header: BatchHeader, records: bytes, *, due: int = 0, **how: Any) -> Iterator[rewriting.Piece]:
    """Records before the due one come again."""
    return rewriting.rewrite(header, records, **how)


async def _nowhere(*_: Any, **__: Any) -> int:
    return NOT_INSIDE


async def _as_a_whole(
    _: Any, header: BatchHeader, batch: memoryview, start: int, end: int, markers: Any, back: Any
) -> None:
    if await markers.within(max(header.base_offset, start), header.last_offset):
        await back.take(header, batch)


WITHIN = 900
MUTATIONS = (
    Mutation(
        "what is fetched again may begin in the middle of a batch",
        ((Cursor, "rewind", _without_inside),),
        WITHIN,
        known=(64,),
    ),
    Mutation("records before the position are left out", ((deep, "rewrite", _from_its_beginning),), WITHIN),
    Mutation("a piece is compared with its part of the batch", ((survivors, "is_piece", lambda *_: False),), WITHIN),
    Mutation("the source shows which batch holds the position", ((resync, "batch_holding", _nowhere),), WITHIN),
    Mutation(
        "between the records of a batch, markers are right",
        ((filled.FilledCheck, "_check_batch", _as_a_whole),),
        WITHIN,
        known=(133,),
    ),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_what_a_rule_is_for(mutation: Mutation) -> None:
    find(mutation, play, shown_by=AssertionError)


async def _none_known(*_: Any) -> dict[int, int]:
    return {}


async def _not_written(
    self: Any, partition: Any, offset: int, leader_epoch: int, cause: str, *_: Any
) -> PassedOverOffsets:
    return PassedOverOffsets(
        subject=partition.subject, writer="w", offsets=(offset,), leader_epoch=leader_epoch, source_id=None,
        destination_id=None, cause=cause, at_ms=0,
    )  # fmt: skip


PASSING = (
    Mutation("what was passed over is known to the next owner", ((PassedOverRecords, "offsets", _none_known),), WITHIN),
    Mutation("it is written down first", ((PassedOverRecords, "write", _not_written),), WITHIN),
)


@pytest.mark.parametrize("mutation", PASSING, ids=lambda mutation: mutation.rule)
def test_what_a_rule_of_passing_over_is_for(mutation: Mutation) -> None:
    find(mutation, lambda seed: play(seed, PassingOver), shown_by=AssertionError)
