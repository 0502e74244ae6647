"""What outlives everything that is done about it excuses what is wrong with a copy only if it was really
appended, and only behind it."""

import asyncio
import random
from collections.abc import Callable

import pytest

from mirror.net.coordinator import Ownership
from mirror.net.logs.log import Marker
from tests.simulation.checks import Copy, Violation
from tests.simulation.model.clock import VirtualLoop, run_virtually
from tests.simulation.model.network import Trace
from tests.simulation.model.site import Site
from tests.simulation.source import Recipe, SourceLog

FORMER, OWNER = "worker-1", "worker-2"
PRODUCER = 9


class Stage:
    """A copy of a source that has records only, and a former owner that had decided to write markers."""

    def __init__(self, chance: random.Random, loop: VirtualLoop) -> None:
        trace = Trace(loop)
        here, self.there = Site("source", loop, chance, trace), Site("dest", loop, chance, trace)
        source = SourceLog(Recipe(batches=4, transactional=0.0), chance)
        while not source.finished:
            source.grow(here.now_ms)
        here.model = source.model
        self.copy = Copy(source, here, self.there, trace, lambda *_: 0.0)
        self.there.asked(FORMER)
        self.there.owned(OWNER, Ownership(1001, 1))

    def mark(self, who: str = FORMER, *, epoch: int = 0, node_id: int = 1) -> bool:
        """One marker at a broker. Returns whether it was appended; then it waits for the followers."""
        end = self.there.model.end
        self.there.write_markers(who, node_id, Marker(PRODUCER, epoch, 0), 1, lambda answer: None)
        return self.there.model.end > end


def on_stage(act: Callable[[Stage], None]) -> None:
    """Plays it, at one instant."""
    chance = random.Random(1)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        act(Stage(chance, loop))

    run_virtually(main(), chance)


def test_a_marker_that_is_refused_is_none() -> None:
    """Whatever is wrong with the copy is not its doing: the relay's own marker behind it is a violation."""

    def act(stage: Stage) -> None:
        assert not stage.mark(node_id=2)
        assert stage.mark(OWNER, epoch=5)
        assert not stage.mark(epoch=4)
        with pytest.raises(Violation, match="a marker at offset 0"):
            stage.there.replicated()
        assert not stage.copy.strays

    on_stage(act)


def test_one_that_another_leader_lacks_is_none() -> None:
    def act(stage: Stage) -> None:
        assert stage.mark()
        stage.there.fail_over(crash=False, lose_from=0)
        assert stage.mark(OWNER, node_id=stage.there.leader)
        with pytest.raises(Violation, match="a marker at offset 0"):
            stage.there.replicated()
        assert not stage.copy.strays

    on_stage(act)


def test_one_excuses_only_what_stands_behind_it() -> None:
    def act(stage: Stage) -> None:
        assert stage.mark()
        stage.there.replicated()
        assert stage.copy.strays == 1
        assert stage.mark(OWNER)
        stage.there.replicated()
        assert stage.copy.shows

    on_stage(act)


def test_what_stands_before_it_is_no_matter_of_it() -> None:
    def act(stage: Stage) -> None:
        assert stage.mark(OWNER)
        assert stage.mark()
        with pytest.raises(Violation, match="a marker at offset 0"):
            stage.there.replicated()

    on_stage(act)
