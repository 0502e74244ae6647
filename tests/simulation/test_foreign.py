"""Somebody else writes to the destination while everything else goes wrong: whoever has the partition halts and tells,
and appends no more than what was under way."""

import asyncio
import os
import random
from unittest.mock import patch

import pytest

from mirror.records.identity import MIRROR_BIT
from mirror.relay.compare import Comparison
from tests.records.builders import raw_batch
from tests.simulation.broker import Stored
from tests.simulation.clock import VirtualLoop, run_virtually
from tests.simulation.run import AFTER_OVERFILL, PATIENCE_S, Run, Violation
from tests.simulation.worker import simulated

SEEDS = int(os.environ.get("SIM_RUNS", "150"))
WINDOW = 5
STRANGER = 77
FOREIGN = "foreign_writer"


class Shared(Run):
    """A run in which somebody else writes, once or a few times."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        super().__init__(seed, loop)
        self.foreign_from: int | None = None
        """The first offset of others that consumers have seen."""
        self.misplaced = 0
        """Batches of the flow's own behind that."""

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
        self.there.produce("stranger", self.there.leader, batch, lambda answer: None)

    @property
    def foreign(self) -> bool:
        """Whether the log holds a batch of others, which a leader change may have taken back."""
        return any(_is_foreign(stored) for stored in self.there.model.batches)

    def check_workers(self) -> None:
        """As always, but for the halt that is expected once others have written."""
        if self.loop.troubles:
            raise self.loop.troubles[0]
        self._look_at_new()
        for worker in self.workers:
            worker.check()
            expected = {FOREIGN} if self.foreign_from is not None else set()
            if worker.halted and worker.halted not in expected | (AFTER_OVERFILL if self.strays else set()):
                partition = worker.partition
                assert partition is not None
                raise Violation(f"{worker.name} halted without a cause: {partition.halted}")

    def _look_at_new(self) -> None:
        model = self.there.model
        for stored in model.batches[model.at(self._checked) :]:
            if stored.header.next_offset > model.replicated:
                break
            if _is_foreign(stored):
                self.foreign_from = min(stored.header.base_offset, self.foreign_from or stored.header.base_offset)
            elif self.foreign_from is not None and not stored.header.is_control:
                self.misplaced += 1
                if self.misplaced > WINDOW * len(self.workers) and not self.strays:
                    raise Violation(f"{self.misplaced} batches were appended behind those of others")
            elif self.foreign_from is None and (wrong := self._wrong_with(stored)) and not self.strays:
                raise Violation(wrong)
            self._checked = stored.header.next_offset

    async def _finish(self) -> None:
        """Whoever looks next halts, if others have written; else the copy is complete."""
        for worker in self.alive:
            worker.kill()
        await asyncio.sleep(15)
        self.hire()
        worker, model, until = self.alive[0], self.there.model, self.loop.time() + PATIENCE_S
        while not worker.halted and not (not self.foreign and model.end == self.source.model.end):
            if self.loop.time() > until:
                raise Violation("others have written to the log, and nobody sees it")
            await asyncio.sleep(0.2)
            self.check_workers()
        if self.foreign and worker.halted != FOREIGN and not self.strays:
            raise Violation(f"others have written to the log, and it halts {worker.halted}")
        end = model.end
        await asyncio.sleep(60)
        if worker.halted and model.end != end:
            raise Violation("it has halted, and goes on")

    def _compare(self) -> None:
        if not self.foreign and not self.alive[0].halted:
            super()._compare()


def _is_foreign(stored: Stored) -> bool:
    return not stored.header.producer_id & MIRROR_BIT or stored.header.producer_id < 0


def play(seed: int) -> Shared:
    """One run."""
    runs: list[Shared] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        runs.append(Shared(seed, loop))
        await runs[0].play()

    try:
        with simulated():
            run_virtually(main(), random.Random(seed))
    except Violation as error:
        raise Violation(f"seed {seed}: {error}\n{runs[0].trace}\nseed {seed}: {error}") from None
    return runs[0]


@pytest.mark.long
def test_others_write() -> None:
    """Nothing is violated, and most of the runs end with the halt that is due."""
    ended = _play_all(SEEDS)
    halted = sum(run.alive[0].halted == FOREIGN for run in ended)
    assert halted > SEEDS // 2
    assert any(run.misplaced for run in ended)


@pytest.mark.long
def test_without_the_rule_they_are_not_told() -> None:
    """Mutation: whoever wrote the last batch is taken for the flow."""
    with patch.object(Comparison, "_own", lambda *_: None), pytest.raises(Violation):
        _play_all(20)


def _play_all(seeds: int) -> list[Shared]:
    return [play(seed) for seed in range(1, seeds + 1)]
