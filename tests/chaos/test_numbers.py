"""What the mirror itself should have done is no evidence of a fault: a scenario in which it did not fails."""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.errors import ChaosError
from chaos.scenario import SCENARIOS
from chaos.scenarios import numbers, processes
from lab.evidence import WAITED, Record
from mirror.records.identity import ROTATIONS


class FakeStage:
    """Of one repetition, in which everything is copied; the worker is killed at no cost."""

    def __init__(self) -> None:
        self.record = Record()
        self.mirror = SimpleNamespace(
            kill_worker=lambda: None, freeze=lambda: 1, thaw=lambda _: None, told=lambda: "", stop=lambda: None,
            start=lambda: None,
        )  # fmt: skip
        at: Any = SimpleNamespace(ends=lambda names, committed=False: dict.fromkeys(names, 10))
        self.source = self.destination = at
        self.seen = self.record.note

    def topic(self, part: str) -> str:
        return part

    def repeat(self) -> list[int]:
        return [0]

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def batch(sequence: int, owner: int = 0) -> Any:
    return SimpleNamespace(header=SimpleNamespace(base_sequence=sequence, producer_id=owner, is_control=False))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The destination's."""
    held: list[Any] = []
    for name in ("_planted", "write", "transaction", "transactional"):
        monkeypatch.setattr(numbers, name, lambda *_, **__: None)
    monkeypatch.setattr(numbers, "batches", lambda *_, **__: held)
    return held


def test_sequences_that_do_not_wrap(log: list[Any]) -> None:
    stage: Any = FakeStage()
    log[:] = [batch(5), batch(2**31 - 5), batch(3)]
    SCENARIOS["data-sequence-wrap"].act(stage)
    log[:] = [batch(5), batch(2**31 - 5)]
    with pytest.raises(ChaosError, match="no sequence wrapped"):
        SCENARIOS["data-sequence-wrap"].act(stage)


def test_epochs_that_are_used_up_by_one_producer(log: list[Any]) -> None:
    stage: Any = FakeStage()
    log[:] = [batch(5, ROTATIONS + 1)]
    SCENARIOS["data-epoch-rollover"].act(stage)
    log[:] = [batch(5, ROTATIONS)]
    with pytest.raises(ChaosError, match="is still written by the first producer id"):
        SCENARIOS["data-epoch-rollover"].act(stage)


@pytest.mark.parametrize(("joined", "right"), [(1, True), (0, False)])
def test_a_backlog_that_is_not_put_together(monkeypatch: pytest.MonkeyPatch, joined: int, right: bool) -> None:
    stage: Any = FakeStage()
    monkeypatch.setattr(processes, "joined_since", lambda *_: joined)
    monkeypatch.setattr(processes, "BACKLOG_S", 0)
    stage.source = SimpleNamespace(ends=lambda names: dict.fromkeys(names, 100))
    if right:
        processes.worker_kill_larger_batches(stage)
    else:
        with pytest.raises(ChaosError, match="no batches were put together"):
            processes.worker_kill_larger_batches(stage)
    assert stage.record.since(0)[WAITED.name] == 1
