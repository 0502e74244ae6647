"""What is made ready ahead: taken by the scenario that it is for, ended otherwise."""

import threading
from itertools import pairwise
from typing import cast

from chaos.play.stage import Stage
from chaos.scenario import SCENARIOS, Scenario
from chaos.scenarios.network import ASKED, AT_A_TAKEOVER, SAID
from chaos.suite.ahead import Ahead

ONE, OTHER = SCENARIOS["worker-kill"], SCENARIOS["supervisor-kill"]


class FakeStage:
    """Says what was done to it."""

    def __init__(self, scenario: Scenario, *, waits: bool = False) -> None:
        self.scenario = scenario
        self.done: list[str] = []
        self._goes_on = threading.Event()
        if not waits:
            self._goes_on.set()

    def prepare(self) -> None:
        assert self._goes_on.wait(30)
        self.done.append("prepared")

    def close(self) -> None:
        self.done.append("closed")
        self._goes_on.set()


def test_taken_by_its_scenario() -> None:
    ahead, stage = Ahead(), FakeStage(ONE)
    ahead.prepare(cast(Stage, stage))
    assert ahead.take(ONE) is cast(Stage, stage)
    assert ahead.take(ONE) is None
    ahead.drop()
    assert stage.done == ["prepared"]


def test_ended_if_another_comes() -> None:
    ahead, stage = Ahead(), FakeStage(ONE)
    ahead.prepare(cast(Stage, stage))
    assert ahead.take(OTHER) is None
    assert "closed" in stage.done


def test_dropped_while_it_waits() -> None:
    """What it waits for does not come; what it began after it was ended is ended, too."""
    ahead, stage = Ahead(), FakeStage(ONE, waits=True)
    ahead.prepare(cast(Stage, stage))
    ahead.drop()
    assert stage.done == ["closed", "prepared", "closed"]


def test_takeovers_are_far_from_each_other() -> None:
    places = [at for at, said in enumerate(SAID) if said in AT_A_TAKEOVER]
    assert sorted(SAID) == sorted([*ASKED, *AT_A_TAKEOVER])
    assert min(later - one for one, later in pairwise(places)) >= 10
