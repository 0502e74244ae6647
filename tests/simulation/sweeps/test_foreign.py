"""Somebody else writes to the destination while everything else goes wrong: whoever has the partition halts and tells,
and appends no more than what was under way."""

import asyncio
import random
from collections.abc import Callable
from unittest.mock import AsyncMock, patch

import pytest

from mirror.records import identity
from mirror.records.identity import MIRROR_BIT
from mirror.relay.holes import parking
from mirror.relay.locate.compare import Comparison
from tests.records.builders import raw_batch
from tests.simulation.checks import Copy, Violation
from tests.simulation.model.broker import Stored
from tests.simulation.model.site import Unknown
from tests.simulation.run import PATIENCE_S, Run, played
from tests.simulation.seeds import runs
from tests.simulation.source import Recipe
from tests.simulation.worker import simulated

SEEDS = runs(150, share=1)
WINDOW = 5
STRANGER = 77
OTHERS = "stranger"
FOREIGN = "foreign_writer"


class Intruded(Copy):
    """Of a partition that somebody else writes to."""

    foreign_from: int | None = None
    """The first offset of others that consumers have seen."""
    misplaced = 0
    """Batches of the flow's own behind that."""
    most = 0
    """So many may be, of all workers."""

    def take(self, stored: Stored) -> None:
        """What stands before the first batch of others is the source's."""
        if _is_foreign(stored):
            self.foreign_from = min(stored.header.base_offset, self.foreign_from or stored.header.base_offset)
        elif self.foreign_from is None:
            super().take(stored)
        elif not stored.header.is_control:
            self.misplaced += 1
            if self.misplaced > self.most and not self.strays:
                raise Violation(f"{self.misplaced} batches were appended behind those of others")

    def _forgotten_comes(self, who: str, late_by: float) -> str:
        """See ``Copy``. What the others write is no stray of the flow, and excuses nothing."""
        return "" if who == OTHERS else super()._forgotten_comes(who, late_by)

    def _unknown_comes(self, unknown: Unknown) -> str:
        return "" if unknown.who == OTHERS else super()._unknown_comes(unknown)

    def excuses(self, reason: str, at_s: float) -> bool:
        """The halt that is expected once others have written, as well."""
        self.look_at_new()
        return (self.foreign_from is not None and reason == FOREIGN) or super().excuses(reason, at_s)


class Shared(Run):
    """A run in which somebody else writes, once or a few times."""

    copy_type = Intruded

    @property
    def copy(self) -> Intruded:
        """The only one."""
        (copy,) = self.partitions
        assert isinstance(copy, Intruded)
        return copy

    async def play(self) -> None:
        """The others write while the copy is made, each time a batch."""
        for _ in range(self.chance.choice([1, 1, 3])):
            self.loop.call_later(self.chance.choice([0.1, 1.0, 5.0]) * self.chance.random(), self._intrude)
        await super().play()

    def _intrude(self) -> None:
        count = self.chance.randint(1, 3)
        batch = raw_batch(
            b"of others", base_offset=0, leader_epoch=-1, last_offset_delta=count - 1, record_count=count,
            producer_id=self.chance.choice([-1, STRANGER]), producer_epoch=0, base_sequence=0,
        )  # fmt: skip
        self.there.produce(OTHERS, self.there.leader, batch, lambda answer: None)

    @property
    def foreign(self) -> bool:
        """Whether the log holds a batch of others, which a leader change may have taken back."""
        return any(_is_foreign(stored) for stored in self.there.model.batches)

    def hire(self) -> None:
        """Each may have so many under way."""
        super().hire()
        self.copy.most = WINDOW * len(self.workers)

    async def _finish(self) -> None:
        """Whoever looks next halts, if others have written; else the copy is complete."""
        for worker in self.alive:
            worker.kill()
        await asyncio.sleep(15)
        self.hire()
        worker, model, until = self.alive[0], self.there.model, self.loop.time() + PATIENCE_S
        while not worker.halted and not (not self.foreign and model.end == self.copy.source.model.end):
            if self.loop.time() > until:
                raise Violation("others have written to the log, and nobody sees it")
            await asyncio.sleep(0.2)
            self.check_workers()
        if self.foreign and worker.halted != FOREIGN and not self.copy.strays:
            raise Violation(f"others have written to the log, and it halts {worker.halted}")
        end = model.end
        await asyncio.sleep(60)
        if worker.halted and model.end != end:
            raise Violation("it has halted, and goes on")
        self.check_workers()
        self.copy.check_written(worker)


def _is_foreign(stored: Stored) -> bool:
    return not stored.header.producer_id & MIRROR_BIT or stored.header.producer_id < 0


def _alone(self: Recipe, chance: random.Random, mixed: Callable[..., Recipe] = Recipe.mixed) -> Recipe:
    """One partition, of which nothing is deleted."""
    return mixed(self, chance)._replace(partitions=1, recreated=0.0, emptied=0.0, cleaner_there=0.0, truncated=0.0)


def play(seed: int) -> Shared:
    """One run."""
    with patch.object(Recipe, "mixed", _alone):
        return played(seed, Shared, simulated)


@pytest.mark.long
def test_others_write() -> None:
    """Nothing is violated, and most of the runs end with the halt that is due."""
    ended = _play_all(SEEDS)
    halted = sum(run.alive[0].halted == FOREIGN for run in ended)
    assert halted > SEEDS // 2
    assert any(run.copy.misplaced for run in ended)


def test_a_run_leaves_nothing_behind() -> None:
    """What a run sets as its recipe says would be every later test's in this process."""
    before = identity.MAX_EPOCH, parking.MOST_BYTES
    drawn = {(run.recipe.max_epoch, run.recipe.parked_bytes) for run in _play_all(4)}
    assert drawn - {before}
    assert before == (identity.MAX_EPOCH, parking.MOST_BYTES)


@pytest.mark.long
def test_without_the_rule_they_are_not_told() -> None:
    """Mutation: whoever wrote the last batch is taken for the flow."""
    with patch.object(Comparison, "_check_own", AsyncMock()), pytest.raises(Violation):
        _play_all(20)


def _play_all(seeds: int) -> list[Shared]:
    return [play(seed) for seed in range(1, seeds + 1)]
