"""Old batches among fresh ones, and connections that are cut just when something was sent: it arrives late, behind an
old batch with which the destination has forgotten the producer. In both modes; and the same without the rule.
"""

from typing import Any
from unittest.mock import patch

import pytest

from mirror.relay.partition.queue import Queue
from tests.simulation import run
from tests.simulation.mapped import run as mapped_run
from tests.simulation.mapped.run import MappedRun
from tests.simulation.mapped.source import Taste
from tests.simulation.model.clock import VirtualLoop
from tests.simulation.model.network import Weather
from tests.simulation.mutation import Mutation, find
from tests.simulation.run import Outcome, Run
from tests.simulation.seeds import runs
from tests.simulation.source import Recipe

pytestmark = pytest.mark.long

WITHIN = 300
SEEDS = runs(WITHIN)
RECIPE = Recipe(batches=24, transactional=0.0, old=0.3)
FORGETFUL = 0.5
CUT = 0.3
"""How often a connection is cut when data was sent."""
SOON_S = 0.006
"""And so soon: before it arrives, or when the answer is on its way."""


def _nothing_happens(run: Run) -> None:
    """Beside the cuts."""


class Late(Run):
    """All of the source is there at once; one worker copies it, and loses its connections again and again."""

    events = ([_nothing_happens], [1])

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        with patch.object(Recipe, "mixed", lambda *_: RECIPE):
            super().__init__(seed, loop)
        self.weather = Weather(slow=0.0, silent=0.0)
        for site in self.there.partitions:
            site.forgetful = FORGETFUL

    def _write_some(self) -> None:
        for copy in self.partitions:
            while not copy.source.finished:
                copy.source.grow(self.there.now_ms)

    def _before_write(self, what: str, worker: Any) -> None:
        if what == "data" and self.chance.random() < CUT:
            self.loop.call_later(SOON_S * self.chance.random(), self._cut, worker)


class MappedLate(MappedRun):
    """The same with ``offsets: mapped``."""

    events = Late.events
    _before_write = Late._before_write

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        with patch.object(Recipe, "draw", lambda *_: RECIPE), patch.object(Taste, "draw", lambda *_: Taste(others=0.0)):
            super().__init__(seed, loop)
        self.weather = Weather(slow=0.0, silent=0.0)
        self.there.forgetful = FORGETFUL
        for source in self.sources.values():
            source.recipe = RECIPE
            while not source.finished:
                source.grow(self.there.now_ms)


def late(seed: int) -> Outcome:
    """One run, exact."""
    return run.play(seed, Late)


def mapped_late(seed: int) -> Outcome:
    """One run, mapped."""
    return mapped_run.play(seed, MappedLate)


@pytest.mark.parametrize("play", [late, mapped_late])
def test_no_repeat_is_appended_once_more(play: Any) -> None:
    outcomes = [play(seed) for seed in range(SEEDS)]
    assert {outcome.halted for outcome in outcomes} == {""}
    assert sum(outcome.resyncs for outcome in outcomes) > 3 * SEEDS


@pytest.mark.parametrize(("play", "known"), [(late, (169,)), (mapped_late, (43,))])
def test_without_the_rule_it_is(play: Any, known: tuple[int, ...]) -> None:
    """Mutation: an old batch goes as soon as it is there, however fresh the doubt before it is."""
    find(Mutation("old batches settle", ((Queue, "must_settle", False),), WITHIN, first=0, known=known), play)
