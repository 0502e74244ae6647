"""Damage on disk: how far a copy has to come, at least, and what is found and counted behind it."""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.scenarios import disk
from chaos.scenarios.disk import sure_before
from chaos.suite.outcome import Outcome


def batch(base: int, end: int) -> Any:
    return SimpleNamespace(header=SimpleNamespace(base_offset=base, next_offset=end))


@pytest.mark.parametrize(
    ("spans", "victim", "least"),
    [
        ([(0, 3), (3, 6), (6, 9)], 2, 6),
        ([(0, 3), (3, 6), (6, 9)], 0, 0),
        ([(0, 3), (5, 6), (6, 9)], 2, 3),
        ([(0, 3), (5, 6), (6, 9)], 1, 3),
        ([(0, 3), (5, 6), (6, 9)], 0, 0),
        ([(4, 5), (5, 6)], 1, 0),
        ([(0, 1), (4, 5), (7, 8), (8, 9)], 3, 5),
    ],
)
def test_up_to_the_damage_or_the_last_gap_before_it(spans: list[tuple[int, int]], victim: int, least: int) -> None:
    found = [batch(*span) for span in spans]
    assert sure_before(found, found[victim]) == least


NAME = ("t", 0)
WRITTEN = {0: b"a", 1: b"b", 2: b"c"}


class FakeSide:
    """Of a stage: what its readers get of the one partition, and where that ends."""

    def __init__(self, held: dict[int, bytes], end: int = 3) -> None:
        self.bootstrap_servers: Any = held
        self.end = end

    def ends(self, names: object) -> dict[tuple[str, int], int]:
        return {NAME: self.end}


def judged(
    monkeypatch: pytest.MonkeyPatch, copied: dict[int, bytes], checked: dict[int, bytes] = WRITTEN, *,
    halts: bool = False, end: int = 3,
) -> tuple[list[str], Outcome]:  # fmt: skip
    """Judges a copy beside what consumers read at the damaged source, now."""
    outcome = Outcome()
    stage: Any = SimpleNamespace(
        source=FakeSide(checked), destination=FakeSide(copied, end), outcome=outcome, figure=outcome.figures.append
    )
    monkeypatch.setattr(disk, "read", lambda held, names, _: {name: held for name in names})
    struck = disk.Flipped(NAME, SimpleNamespace(header=SimpleNamespace(base_offset=1, last_offset=2)), 9, 1)  # type: ignore[arg-type]
    return list(disk.judge(stage, [struck], [struck] if halts else [], {NAME: WRITTEN})), outcome


def counts(outcome: Outcome) -> tuple[int, int, int]:
    found = outcome.compared
    return found.lost, found.doubled, found.misplaced


def test_a_record_that_is_lost_behind_damage_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, WRITTEN)[0] == []
    problems, outcome = judged(monkeypatch, {0: b"a", 1: b"b"})
    assert len(problems) == 1
    assert counts(outcome) == (1, 0, 0)
    assert outcome.compared.records == 3


def test_a_record_that_is_lost_before_a_halt_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, {0: b"a"}, halts=True, end=1)[0] == []
    problems, outcome = judged(monkeypatch, {1: b"b"}, halts=True, end=2)
    assert len(problems) == 1
    assert counts(outcome) == (1, 0, 0)


def test_what_nobody_can_tell_is_told_as_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The damage moved a batch: every consumer of the source is given all of it, at the wrong offset."""
    moved = {0: b"a", 1: b"b", 7: b"c"}
    problems, outcome = judged(monkeypatch, moved, moved)
    assert problems == []
    assert outcome.figures == ["1 not to be told by anybody: every consumer is given them at the damaged offset"]


@pytest.mark.parametrize("checked", [{0: b"a", 1: b"b"}, {0: b"a", 1: b"b", 2: b"x"}, {}])
def test_a_reading_that_lacks_records_is_not_the_truth(
    monkeypatch: pytest.MonkeyPatch, checked: dict[int, bytes]
) -> None:
    """A reader may drop a batch whose offset was damaged. A mirror that copies as much has lost it."""
    problems, outcome = judged(monkeypatch, checked, checked)
    assert len(problems) == 1
    assert outcome.compared.lost == 3 - len(set(checked.values()) & set(WRITTEN.values()))
    assert outcome.figures == []


def test_what_is_behind_damage_at_the_destination_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome()
    stage: Any = SimpleNamespace(source=FakeSide(WRITTEN), destination=FakeSide({0: b"a", 1: b"b"}), outcome=outcome)
    monkeypatch.setattr(disk, "read", lambda held, names, _, since=None: {name: held for name in names})
    struck: Any = SimpleNamespace(name=NAME)
    assert len(list(disk.judge_behind(stage, [struck], [], {NAME: 0}))) == 1
    assert counts(outcome) == (1, 0, 0)
    assert outcome.compared.records == 3
    assert list(disk.judge_behind(stage, [struck], [struck], {NAME: 3})) == []
    assert len(list(disk.judge_behind(stage, [struck], [struck], {NAME: 1}))) == 1
