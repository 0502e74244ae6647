"""The seeds that are known to show what a rule is for are played first, and never make a test pass that others fail."""

from typing import Any

import pytest

from tests.simulation import mutation as module
from tests.simulation import seeds
from tests.simulation.checks import Violation
from tests.simulation.mutation import Mutation, find

RULE = Mutation("a rule", (), 3, known=(40, 50))


def played(violated: set[int], rule: Mutation = RULE) -> list[int]:
    """Returns the seeds that were played, if these end in a violation without the rule, and hold with it."""
    tried: list[int] = []

    def play(seed: int) -> None:
        if tried and tried[-1] == seed:
            return  # again, with the rule
        tried.append(seed)
        if seed in violated:
            raise Violation(str(seed))

    find(rule, play)
    return tried


class Kept:
    """Stands for something of the product."""

    rule = True


Kept.__module__ = "mirror.kept"


class Recipe:
    """Stands for what the simulation draws."""

    usual = True


WITHOUT = Mutation("a rule", ((Kept, "rule", False), (Recipe, "usual", False)), 3)


def test_the_run_that_shows_it_holds_with_the_rule() -> None:
    """Of the same kind of source."""
    tried: list[tuple[bool, bool]] = []

    def play(seed: int) -> None:
        tried.append((Kept.rule, Recipe.usual))
        if not Kept.rule:
            raise Violation(str(seed))

    find(WITHOUT, play)
    assert tried == [(False, False), (True, False)]
    assert Kept.rule
    assert Recipe.usual


@pytest.mark.parametrize("patches", [WITHOUT.patches, WITHOUT.patches[1:], ()])
def test_a_run_that_is_violated_with_the_rule_shows_nothing(patches: tuple[tuple[Any, str, Any], ...]) -> None:
    """It is the simulation that is wrong there, or the relay as it is."""

    def play(seed: int) -> None:
        raise Violation(str(seed))

    with pytest.raises(pytest.fail.Exception, match="seed 1 is violated with the rule, too: a rule"):
        find(WITHOUT._replace(patches=patches), play)


def test_known_seeds_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEEP", False)
    assert played({2, 50}) == [40, 50]


def test_the_others_follow(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The test takes longer, and tells which seed to name."""
    monkeypatch.setattr(module, "DEEP", False)
    assert played({2}) == [40, 50, 1, 2]
    assert capsys.readouterr().out == "shown by seed 2: a rule\n"


def test_by_night_all_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEEP", True)
    assert played({2, 50}) == [1, 2]


def test_a_rule_that_no_seed_misses() -> None:
    with pytest.raises(pytest.fail.Exception, match="no violation in 3 runs"):
        played(set())


@pytest.mark.parametrize(("deep", "count"), [(True, 400), (False, 133)])
def test_runs_by_day_and_by_night(monkeypatch: pytest.MonkeyPatch, deep: bool, count: int) -> None:
    monkeypatch.setattr(seeds, "DEEP", deep)
    monkeypatch.delenv("SIM_RUNS", raising=False)
    assert seeds.runs(400) == count
    monkeypatch.setenv("SIM_RUNS", "7")
    assert seeds.runs(400) == 7
