"""Acts of scenarios, between fakes: the evidence that they note is of their fault, and of nothing else.

What the mirror itself should have done is no evidence: a scenario in which it did not fails.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.errors import ChaosError
from chaos.scenario import SCENARIOS
from chaos.scenarios import brokers, network, numbers, processes
from lab.evidence import BOTH_DELAYED, DELAYED, HELD_BACK, LOG_CUT_BACK, WAITED, WORKER_KILLED, Record
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
        self.names = [("idem", 0), *(("txn", index) for index in range(4))]

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


def test_epochs_that_are_not_used_up_are_not_waited_for_without_end(
    log: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. Each hole uses up one. As long as they do, it goes on: a full run takes hours, and no wait in it does.
    2. No more do. It ends, and says where they stand. Mutation: it goes on for ever.
    """
    now, looks = 0.0, 0
    monkeypatch.setattr("chaos.waiting.time.monotonic", lambda: now)
    monkeypatch.setattr(numbers, "until", lambda look, *_: look())

    def last(*_: object, **__: object) -> list[Any]:
        nonlocal now, looks
        now, looks = now + 100.0, looks + 1
        used = looks if looks < 50 or moves else 50
        found = batch(5, ROTATIONS * 7 + used // 100)
        found.header.producer_epoch = used % 100
        return [found]

    monkeypatch.setattr(numbers, "batches", last)
    stage: Any = FakeStage()
    stage.quick = False
    moves = True
    SCENARIOS["data-epochs-used-up"].act(stage)
    assert (now, looks) == (20_000.0, 200)
    moves, now, looks = False, 0.0, 0
    with pytest.raises(ChaosError, match=r"no epoch was used up for 200 s: epoch 50 of producer id .*, 0 of 2 used up"):
        SCENARIOS["data-epochs-used-up"].act(stage)
    assert looks < 60


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


@pytest.mark.parametrize(
    ("positions", "after", "struck"),
    [
        ([40, 130, 70], 200, True),  # the last one by the election
        ([40, 130], 200, False),  # a relocation before it, of a log that was shorter then
        ([40, 130, 200], 200, False),
        ([40, 130, 200], 70, True),  # the end itself shows it
    ],
)
def test_an_election_that_loses_nothing(positions: list[int], after: int, struck: bool) -> None:
    """Where the mirror went on before the leader was killed says nothing of the election."""
    stage: Any = FakeStage()
    told: list[int] = positions[:1]
    killed: list[str] = []
    ends = {"at": 120}

    def kill(broker: Any) -> None:
        killed.append(broker.name)
        if broker.name == "follower":
            told.append(positions[1])  # a relocation; then more records come
        else:
            told.extend(positions[2:])
            ends["at"] = after

    leader, follower = (SimpleNamespace(name=name, node_id=at) for at, name in enumerate(("leader", "follower"), 1))

    def view(_: object) -> dict[tuple[str, int], Any]:
        by = follower if "leader" in killed else leader
        return {("victim", 0): SimpleNamespace(leader=by.node_id, in_sync=(by.node_id,))}

    def end(names: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        if killed == ["follower"]:
            ends["at"] = min(200, ends["at"] + 30)
        return dict.fromkeys(names, ends["at"])

    stage.topics = ()
    stage.mirror.of = lambda _: [{"topic": "victim", "offset": one} for one in told]
    stage.destination = SimpleNamespace(
        name="destination", leader=lambda _: leader, followers=lambda _: [follower], kill=kill, view=view, ends=end,
        start=lambda *_, **__: None, elect=lambda *_: None, bring_up=lambda: None, create=lambda *_, **__: None,
    )  # fmt: skip
    brokers.unclean_election_destination(stage)
    assert killed == ["follower", "leader"]
    assert stage.record.since(0)[LOG_CUT_BACK.name] == int(struck)


@pytest.mark.parametrize(("moves", "count"), [(0, 4), (10, 0)])
def test_a_copy_that_is_merely_behind_does_not_wait_for_its_marker(moves: int, count: int) -> None:
    """Its end is below the source's as well, and goes on."""
    stage: Any = FakeStage()
    at = {"end": 0}

    def ends(names: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        at["end"] += moves
        return dict.fromkeys(names, at["end"])

    stuck = SimpleNamespace(wait=lambda _: None, disarm=lambda: None, drop=lambda: None)
    stage.destination = SimpleNamespace(name="d", ends=ends, network=SimpleNamespace(arm=lambda *_, **__: stuck))
    stage.source = SimpleNamespace(name="s", ends=lambda names: dict.fromkeys(names, 1_000))
    network.markers_stuck(stage)
    assert stage.record.since(0)[HELD_BACK.name] == count


@pytest.mark.parametrize(("sides", "struck"), [((3, 2), True), ((5, 0), False), ((0, 5), False)])
def test_a_delay_at_one_side_alone(sides: tuple[int, int], struck: bool) -> None:
    stage: Any = FakeStage()
    records = [Record(), Record()]
    for name, record in zip(("source", "destination"), records, strict=True):
        setattr(stage, name, SimpleNamespace(network=SimpleNamespace(record=record, delay=lambda _: None)))
    for record in records:
        record.note(DELAYED)  # of before
    stage.repeat = lambda: iter([0])

    def killed() -> None:
        for record, count in zip(records, sides, strict=True):
            record.note(DELAYED, count)

    stage.mirror.kill_worker = killed
    network.delay(stage)
    assert stage.record.since(0)[BOTH_DELAYED.name] == int(struck)


def test_every_kill_that_is_told_has_its_evidence() -> None:
    """``does`` is what the report says was done."""
    for one in SCENARIOS.values():
        if one.group == "Nemeses":
            continue
        if "worker is killed" in one.does or "kill -9 of the worker" in one.does or one.name.startswith("disk-"):
            assert WORKER_KILLED.name in {each.name for each in one.struck}, one.name
