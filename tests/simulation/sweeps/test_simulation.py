"""Hundreds of runs of the real relay against the model, each another order of events; and the same seed twice.

``seeds`` says how many. ``python -m tests.simulation SEED`` prints a run.
"""

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from mirror.relay.durable import notes
from tests.simulation import worker
from tests.simulation.mapped.run import MappedRun
from tests.simulation.mapped.worker import mapped
from tests.simulation.run import Outcome, Run, play, played
from tests.simulation.seeds import FIRST, runs
from tests.simulation.source import Recipe
from tests.simulation.worker import simulated

pytestmark = pytest.mark.long

RUNS = runs(1000)
PLAYED = {"recreated", "unproven"}
"""Halts that follow from what was played, and not from what outlived it."""
LOST = {"source_truncated", "overfilled", "not_a_copy"}
"""The same, where the source has lost the end of its log."""
PIECES = 4
"""The runs come in so many tests."""


def seeds_of(piece: int) -> range:
    """The seeds of one piece."""
    return range(FIRST + RUNS * piece // PIECES, FIRST + RUNS * (piece + 1) // PIECES)


@pytest.mark.parametrize("piece", range(PIECES))
def test_records_keep_their_offsets_whatever_goes_wrong(piece: int) -> None:
    """
    1. A source with transactions, aborted ones, markers and gaps grows while one or more workers copy it.
    2. Workers are killed, stopped, doubled; connections cut, their bytes late; leaders changed, stalled, restarted.
    3. Whatever consumers of the destination see, at any moment, is the source's record of that offset, or nothing.
    4. Once nothing goes wrong any more, the copy becomes complete, unless the source's topic was made anew, the
       destination's records expired before anything was noted, the source lost what was copied, or a stray marker or
       batch has halted it.
    """
    _check([play(seed) for seed in seeds_of(piece)])


def test_records_that_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with ``linger.ms`` before each fetch."""
    monkeypatch.setattr(worker, "LINGER_MS", 20)
    _check([play(seed) for seed in range(FIRST, FIRST + RUNS // 16)])


def _check(outcomes: list[Outcome]) -> None:
    halted = Counter(outcome.halted for outcome in outcomes)
    assert halted[""] >= 0.7 * len(outcomes), halted
    assert all(outcome.strays for outcome in outcomes if set(outcome.halted.split()) - _played(outcome))


def _played(outcome: Outcome) -> set[str]:
    return PLAYED | LOST if outcome.truncated else PLAYED


def test_a_seed_is_the_same_run_every_time() -> None:
    """To the last line of its trace, whatever was run before it in the process. It was not: order in a set of objects,
    and the random names of who writes notes."""
    seeds = [*range(40, 44), 6, 9, 88, 144]
    writers = []
    for _ in range(2):
        with simulated():
            writers.append(vars(notes)["uuid"].uuid4())
    assert writers[0] == writers[1]
    for run, within in ((Run, simulated), (MappedRun, mapped)):
        traces = [str(played(seed, run, within).trace) for seed in seeds]
        assert traces == [str(played(seed, run, within).trace) for seed in reversed(seeds)][::-1]


def test_enough_goes_wrong() -> None:
    """The runs are worth something only if the protocol has to work in them."""
    outcomes: list[Outcome] = [play(seed) for seed in range(1, 61)]
    assert sum(outcome.resyncs for outcome in outcomes) > len(outcomes)
    assert sum(outcome.markers for outcome in outcomes) > 5 * len(outcomes)
    assert any(play(seed).strays for seed in range(1, 2001))


class Expiring(Run):
    """A run of several partitions, some of which have halted at its end."""

    at_the_end = 0
    """Partitions that have halted, of all runs, where another one has not."""

    async def _stays_halted(self) -> None:
        halted = {copy.index for copy in self.partitions if self.alive[0].halt_of(copy.index) and copy.stays_halted}
        starts = [copy.there.model.start for copy in self.partitions]
        await super()._stays_halted()
        assert all(
            copy.there.model.start == copy.there.model.replicated for copy in self.partitions if copy.index in halted
        )
        moved = {copy.index for copy in self.partitions if copy.there.model.start != starts[copy.index]}
        assert moved <= halted, f"partitions {sorted(moved)} were emptied, and {sorted(halted)} have halted"
        if len(halted) < len(self.partitions):
            type(self).at_the_end += len(halted)


def test_a_halt_outlives_the_records_of_that_very_partition() -> None:
    """Those of a partition that goes on stay: without them it might have a reason to halt that was never played."""
    Expiring.at_the_end = 0
    mixed = Recipe.mixed
    # No cleaner: see ``Recipe.mixed``.
    lossy: dict[str, Any] = {
        "partitions": 3,
        "truncated": 0.1,
        "recreated": 0.0,
        "gaps": 0.0,
        "cleaner": 0.0,
        "cleaner_there": 0.0,
    }
    with patch.object(Recipe, "mixed", lambda *given: mixed(*given)._replace(**lossy)):
        for seed in range(FIRST, FIRST + 30):
            play(seed, Expiring)
    assert Expiring.at_the_end
