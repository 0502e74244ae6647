"""The short form of `make chaos`: a few scenarios on single brokers, and proof that the harness sees damage."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from confluent_kafka import Producer

import chaos.scenarios  # noqa: F401 - registers them
from chaos.play.sides import Pair
from chaos.play.stage import Stage
from chaos.producers.topics import PLAIN, USUAL
from chaos.scenario import SCENARIOS, Scenario, Shape
from chaos.suite.clusters import Clusters
from chaos.suite.outcome import Outcome
from lab.evidence import MIRROR_KILLED, WORKER_KILLED

pytestmark = pytest.mark.broker
_numbers = count(1)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Two clusters of one broker each, which may be killed."""
    with Clusters() as clusters:
        yield clusters.pair(Shape(brokers=1))


def play(scenario: Scenario, pair: Pair, repetitions: int = 1) -> Outcome:
    with Stage(scenario, pair, prefix=f"short-{next(_numbers)}", repetitions=repetitions) as stage:
        return stage.play()


@pytest.mark.parametrize(
    ("name", "repetitions"), [("worker-kill", 2), ("two-start-on-nothing", 1), ("destination-leader-kill", 1)]
)
def test_scenario(pair: Pair, name: str, repetitions: int) -> None:
    outcome = play(replace(SCENARIOS[name], topics=USUAL), pair, repetitions)
    assert outcome.problems == []
    assert outcome.repetitions == repetitions
    assert outcome.compared.identical
    assert outcome.compared.records > 50
    assert outcome.recovered_s


def test_damage_is_seen(pair: Pair) -> None:
    """A record that is not of the source, written behind the mirror's back when it is done."""

    def damage(stage: Stage) -> None:
        stage.stream.stop()
        stage.caught_up()
        stage.mirror.kill()
        producer = Producer({"bootstrap.servers": stage.destination.bootstrap_servers})
        producer.produce(stage.topics[0].name, value=b"foreign", partition=0)
        assert producer.flush(60) == 0

    outcome = play(
        Scenario(name="damage", group="-", does="-", act=damage, topics=PLAIN, struck=(MIRROR_KILLED,)), pair
    )
    assert (outcome.compared.lost, outcome.compared.doubled, outcome.compared.misplaced) == (0, 0, 1)
    assert "not of the source" in outcome.problems[0]
    assert "the end of" in outcome.problems[1]


def test_what_both_sides_have_lost_is_seen(pair: Pair) -> None:
    """The copy equals what the source holds: only the producers know that there was more."""

    def lose(stage: Stage) -> None:
        for _ in stage.repeat():
            stage.caught_up()
            name = stage.names[0]
            before = {name: stage.destination.ends([name])[name]}
            for side in stage.pair.sides:
                side.delete_before(before)
            stage.mirror.kill_worker()

    one = Scenario(name="lose", group="-", does="-", act=lose, topics=PLAIN, struck=(WORKER_KILLED,), acknowledged=True)
    outcome = play(one, pair)
    assert outcome.compared.identical
    assert [said.split(" lacks ")[0].split("short-")[0] for said in outcome.problems] == [
        "the source itself: ", "acknowledged: "
    ]  # fmt: skip


def test_a_crash_is_seen(pair: Pair) -> None:
    """A worker crashes, its supervisor starts another one, and every record is right in the end: it has crashed.

    What it says of its stacks comes before what its supervisor says of its death.
    """

    def crash(stage: Stage) -> None:
        for _ in stage.repeat():
            os.kill(stage.mirror.workers()[0], signal.SIGSEGV)
            stage.recovered()

    one = Scenario(name="crash", group="-", does="-", act=crash, topics=PLAIN, struck=(WORKER_KILLED,))
    outcome = play(one, pair)
    assert "stray output: Fatal Python error: Segmentation fault" in outcome.problems[0]


def test_a_fault_that_does_not_strike_is_seen(pair: Pair) -> None:
    def nothing(stage: Stage) -> None:
        for _ in stage.repeat():
            stage.recovered()

    one = Scenario(name="nothing", group="-", does="-", act=nothing, topics=PLAIN, struck=(WORKER_KILLED,))
    outcome = play(one, pair)
    assert (outcome.repetitions, outcome.tries, outcome.problems) == (0, 1, [])
    assert outcome.missed
