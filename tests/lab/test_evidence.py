"""A repetition counts if its fault was seen to strike; else it is made again, not for ever."""

from collections.abc import Callable
from dataclasses import replace

import pytest

import chaos.scenarios  # noqa: F401 - registers them
from chaos.errors import ChaosError
from chaos.play.trials import Trials
from chaos.scenario import SCENARIOS, TRIES, Scenario, scenario
from chaos.suite.outcome import Outcome
from lab.evidence import BROKER_KILLED, WORKER_KILLED, Record, missing

ONE = Scenario(name="one", group="-", does="-", act=lambda _: None, struck=(WORKER_KILLED,), per_stage=2)


class FakeStage:
    """Of a scenario that is tried."""

    def __init__(self, scenario: Scenario, repetitions: int) -> None:
        self.scenario = scenario
        self.repetitions = repetitions
        self.outcome = Outcome()
        self.record = Record()
        self.looks = 0
        self.looked: Callable[[], None] = lambda: None

    @property
    def records(self) -> list[Record]:
        return [self.record]

    def look(self) -> None:
        self.looks += 1
        self.looked()


def play(stage: FakeStage, act: Callable[[int], None]) -> None:
    for at in Trials(stage, settle_s=0).repeat():
        act(at)


def test_a_scenario_without_evidence_is_refused() -> None:
    with pytest.raises(ChaosError, match="names no evidence"):
        replace(ONE, struck=())
    with pytest.raises(ChaosError, match="names no evidence"):
        scenario("blind", group="-", does="-", struck=())(lambda _: None)
    assert "blind" not in SCENARIOS


def test_every_scenario_names_its_evidence() -> None:
    assert all(one.struck for one in SCENARIOS.values())


def test_clusters_with_damaged_headers_are_not_used_again() -> None:
    """A broker that has to recover such a log may not start: "Split operation is only permitted for segments with
    overflow" (seen with Kafka 4.3). No other scenario may have to restart it."""
    assert all(one.damages for one in SCENARIOS.values() if one.name.startswith("disk-"))


def test_what_is_missing() -> None:
    record = Record()
    record.note(BROKER_KILLED, 2)
    record.note(WORKER_KILLED, 0)
    seen = record.since(0)
    assert missing([BROKER_KILLED.times(2)], seen) == []
    assert len(missing([BROKER_KILLED.times(3), WORKER_KILLED], seen)) == 2
    assert not record.since(float("inf"))


def test_a_try_that_did_not_strike_is_made_again_and_not_counted() -> None:
    stage = FakeStage(ONE, 2)
    strikes, at = iter([False, True, False, False, True]), []
    for number in Trials(stage, settle_s=0).repeat():
        at.append(number)
        stage.record.note(WORKER_KILLED, int(next(strikes)))
    assert at == [0, 0, 1, 1, 1]
    assert (stage.outcome.repetitions, stage.outcome.tries, stage.outcome.missed) == (2, 5, [])


def test_a_missed_try_says_what_it_lacked() -> None:
    two = BROKER_KILLED.times(2)
    stage = FakeStage(replace(ONE, struck=(WORKER_KILLED, two)), 1)
    strikes = iter([{WORKER_KILLED: 1}, {BROKER_KILLED: 1}, {WORKER_KILLED: 1, BROKER_KILLED: 2}])
    for _ in Trials(stage, settle_s=0).repeat():
        for what, count in next(strikes).items():
            stage.record.note(what, count)
    assert stage.outcome.lacked == [
        f"{two} was seen 0 times", f"{WORKER_KILLED} was seen 0 times, {two} was seen 1 times"
    ]  # fmt: skip


def test_a_fault_that_never_strikes_fails() -> None:
    stage = FakeStage(ONE, 2)
    with pytest.raises(ChaosError, match=f"did not strike in {TRIES} tries: worker killed"):
        play(stage, lambda _: None)
    assert (stage.outcome.repetitions, stage.outcome.tries) == (0, TRIES)


def test_evidence_of_an_earlier_try_does_not_count() -> None:
    stage = FakeStage(ONE, 2)
    with pytest.raises(ChaosError, match="did not strike"):
        play(stage, lambda at: stage.record.note(WORKER_KILLED, 5 * (at == 0)))
    assert stage.outcome.repetitions == 1


def test_all_of_the_evidence_is_needed() -> None:
    stage = FakeStage(replace(ONE, struck=(WORKER_KILLED, BROKER_KILLED)), 1)
    with pytest.raises(ChaosError, match="broker killed"):
        play(stage, lambda _: stage.record.note(WORKER_KILLED))


def test_what_cannot_be_made_again_ends_its_stage() -> None:
    stage = FakeStage(replace(ONE, per_stage=1), 1)
    assert len(list(Trials(stage, settle_s=0).repeat())) == 1
    assert (stage.outcome.repetitions, stage.outcome.tries) == (0, 1)
    assert stage.outcome.missed


def test_evidence_may_come_late() -> None:
    stage = FakeStage(ONE, 1)
    stage.looked = lambda: stage.record.note(WORKER_KILLED, int(stage.looks == 2))
    assert len(list(Trials(stage).repeat())) == 1
    assert stage.outcome.repetitions == 1
    assert stage.looks == 2


def test_what_was_said_before_a_try_is_no_evidence_of_it() -> None:
    """A mirror's lines are dated when they are read: those of the try before are read first."""
    stage = FakeStage(ONE, 1)
    said = [WORKER_KILLED]
    stage.looked = lambda: stage.record.note(said.pop()) if said else None
    with pytest.raises(ChaosError, match="did not strike"):
        list(Trials(stage, settle_s=0.01).repeat())


@pytest.mark.parametrize(("killed", "counted"), [(1, 72), (0, 0)])
def test_many_at_once_with_one_kill(killed: int, counted: int) -> None:
    stage = FakeStage(replace(ONE, struck=(BROKER_KILLED, WORKER_KILLED)), 72)
    trials = Trials(stage, settle_s=0)
    trials.begin()
    stage.record.note(BROKER_KILLED, 72)
    stage.record.note(WORKER_KILLED, killed)
    trials.counted(72, once=(WORKER_KILLED,))
    assert stage.outcome.repetitions == counted
    assert bool(stage.outcome.missed) is not bool(killed)


def test_many_at_once() -> None:
    stage = FakeStage(ONE, 72)
    trials = Trials(stage, settle_s=0)
    trials.begin()
    stage.record.note(WORKER_KILLED, 70)
    trials.counted(72)
    assert (stage.outcome.repetitions, stage.outcome.tries) == (70, 72)
    assert stage.outcome.missed
