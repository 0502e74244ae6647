"""Nemeses of brokers, on either side. Only one broker of a side is struck at a time, so that the controllers keep a
majority."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from chaos.nemeses.places import SIDES, side_of
from chaos.nemeses.schedule import Strike, nemesis
from chaos.play.placing import lead_elsewhere, move
from chaos.play.sides import Name, Side
from lab.evidence import BROKER_FROZEN, BROKER_KILLED, BROKER_RESTARTED, LED_ELSEWHERE, MOVED

if TYPE_CHECKING:
    from chaos.play.stage import Stage


@nemesis("broker-kill", places=SIDES, struck=BROKER_KILLED)
def broker_kill(stage: "Stage", strike: Strike) -> Iterator[None]:
    side = _whole(stage, strike)
    broker = strike.pick(side.cluster.brokers)
    side.kill(broker)
    yield
    side.start(broker, wait=False)


@nemesis("broker-freeze", places=SIDES, struck=BROKER_FROZEN)
def broker_freeze(stage: "Stage", strike: Strike) -> Iterator[None]:
    side = _whole(stage, strike)
    broker = strike.pick(side.cluster.brokers)
    side.pause(broker)
    yield
    side.resume(broker)


@nemesis("broker-restart", places=SIDES, struck=BROKER_RESTARTED)
def broker_restart(stage: "Stage", strike: Strike) -> Iterator[None]:
    side = _whole(stage, strike)
    broker = strike.pick(side.cluster.brokers)
    with ThreadPoolExecutor(max_workers=1) as thread:  # a clean stop takes time, in which other nemeses strike
        restarted = thread.submit(side.restart, broker)
        yield
        stage.soon(restarted.done, stage.patience_s)
        restarted.result()


@nemesis("leader-move", places=SIDES, struck=LED_ELSEWHERE)
def leader_move(stage: "Stage", strike: Strike) -> Iterator[None]:
    """Moves a leader to another broker by a preferred election."""
    lead_elsewhere(_whole(stage, strike), strike.pick(standing(stage)))
    yield


@nemesis("reassignment", places=SIDES, struck=MOVED.times(2))
def reassignment(stage: "Stage", strike: Strike) -> Iterator[None]:
    side, names = _whole(stage, strike), standing(stage)
    at = strike.chance % len(names)
    move(side, [names[at], names[at - 1]])
    yield


def standing(stage: "Stage") -> list[Name]:
    """Returns the partitions of topics that no nemesis deletes. Only these can be moved at any time."""
    return [(plan.name, index) for plan in stage.topics for index in range(plan.partitions) if plan.writing != "nobody"]


def _whole(stage: "Stage", strike: Strike) -> Side:
    """Waits until all brokers of the side that is struck are up, and returns the side."""
    side = side_of(stage, strike)
    side.await_all()
    return side
