"""Scenarios in which the network between the mirror and the clusters fails: for a moment, for a while, at chosen bytes,
or by wrong answers."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from chaos.errors import ChaosError
from chaos.play.sides import Name, Offsets, Side
from chaos.play.stage import Stage
from chaos.producers.topics import PLAIN, TopicPlan
from chaos.producers.writing import transaction, transactional, write
from chaos.scenario import Shape, scenario
from chaos.waiting import until
from lab.evidence import (
    BOTH_DELAYED,
    CONNECTIONS_CUT,
    DELAYED,
    FRAME_CUT,
    FRAME_HELD,
    HALF_CLOSED,
    HELD_BACK,
    LATE,
    RECONNECTED,
    REFUSED,
    SLOWED,
    STALLED,
    WORKER_KILLED,
    WRONG_ANSWER,
)
from lab.proxy import (
    Direction,
    Fault,
    Proxy,
    Refuse,
    Spoil,
    cut_answer,
    cut_request,
    hold_request,
)
from lab.proxy.answers import entries
from mirror.relay.locate.seeking import REFRESH_AT_MOST_EVERY_S

GROUP = "Network"
PROXIED = Shape(proxied=True)
WIRED = (
    *PLAIN,
    TopicPlan(name="txn-snappy", writing="transactional", codec="snappy", partitions=2),
)
"""The topics of most of these scenarios. One of the three has a hole at the end of each transaction."""
QUIET_BESIDE = (TopicPlan(name="quiet", writing="nobody"), PLAIN[1])
"""A topic that only the scenario writes to, beside one with a producer."""
ROUND_TRIP_S = 0.2
SLOW_BYTES_PER_S = 20_000
BURST = 100
"""Number of records that are written at once, of about 400 bytes each."""
HEAD_BYTES = (0, 1, 3, 4, 7, 12, 13, 40)
"""Numbers of bytes after which a frame is cut: inside its size, inside its header, and just behind them."""
MOST_BYTES = 4_000
COMES_S = 90.0
DOUBTS = 5
"""Maximum number of answers that are cut, one after the other, until the mirror sends the request that gets the wrong
answer."""


def _networks(stage: Stage) -> list[Proxy]:
    return [stage.source.network, stage.destination.network]


@scenario("net-cut", group=GROUP, full=30, quick=3, per_stage=10, shape=PROXIED, topics=WIRED, rate=8.0,
          struck=(CONNECTIONS_CUT,),
          does="all connections to one side break at a random moment, by FIN or by RST")  # fmt: skip
def cut(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        stage.chance.choice(_networks(stage)).cut(reset=stage.chance.random() < 0.5)
        stage.recovered()


@scenario("net-cut-bytes", group=GROUP, full=48, quick=6, per_stage=12, shape=PROXIED, topics=WIRED, rate=8.0,
          struck=(FRAME_CUT,),
          does="a Produce request or answer, or a Fetch answer breaks off after so many bytes")  # fmt: skip
def cut_bytes(stage: Stage) -> None:
    for at in stage.repeat():
        draw, turn = stage.chance, stage.seed + at
        size = HEAD_BYTES[turn // 2 % len(HEAD_BYTES)] if turn % 2 else draw.randrange(MOST_BYTES)
        network, name, action = draw.choice([
            (stage.destination.network, "Produce", cut_request(size)),
            (stage.destination.network, "Produce", cut_answer(size)),
            (stage.source.network, "Fetch", cut_answer(size)),
        ])  # fmt: skip
        network.arm(name, action).wait(COMES_S)
        stage.recovered()


@scenario("net-unanswered", group=GROUP, full=40, quick=4, per_stage=10, shape=PROXIED, topics=WIRED, rate=8.0,
          struck=(FRAME_CUT,),
          does="the connection breaks between a Produce or WriteTxnMarkers request and its answer")  # fmt: skip
def unanswered(stage: Stage) -> None:
    for at in stage.repeat():
        name = ("Produce", "WriteTxnMarkers")[at % 2]
        action = (cut_answer(), cut_request(None))[at // 2 % 2]
        _arm_where_it_comes(stage, name, action).wait(COMES_S)
        stage.recovered()


def _arm_where_it_comes(stage: Stage, name: str, action: object) -> Fault:
    """Arms an action for the next request of a kind at the destination. If the topics have no holes, so that there are
    no WriteTxnMarkers requests, arms it for Produce instead."""
    if name == "WriteTxnMarkers" and not any(plan.writing == "transactional" for plan in stage.topics):
        name = "Produce"
    return stage.destination.network.arm(name, action)  # type: ignore[arg-type]


@scenario("net-stall", group=GROUP, full=8, quick=2, per_stage=4, shape=PROXIED, topics=WIRED, rate=8.0,
          struck=(STALLED, RECONNECTED),
          cluster={"request.timeout.ms": 1_000},
          does="nothing arrives any more, until the mirror has given up and made new connections")  # fmt: skip
def stall(stage: Stage) -> None:
    for at in stage.repeat():
        stage.moment()
        network = _networks(stage)[at % 2]
        made = network.made
        network.stall(stage.chance.choice([[Direction.REQUESTS], [Direction.ANSWERS], list(Direction)]))
        until(lambda: network.made > made, "the mirror to make a new connection")  # noqa: B023
        stage.pair.heal()
        stage.recovered()


@scenario("net-delay", group=GROUP, full=3, quick=1, shape=PROXIED, topics=WIRED, rate=1.0,
          struck=(BOTH_DELAYED, WORKER_KILLED),
          does="every round trip to both sides takes 200 ms; a worker is killed meanwhile")  # fmt: skip
def delay(stage: Stage) -> None:
    for network in _networks(stage):
        network.delay(ROUND_TRIP_S / 2)
    for _ in stage.repeat():
        began_at = time.monotonic()
        stage.caught_up()  # not recovered(): no fault has ended
        stage.mirror.kill_worker()
        stage.recovered()
        stage.seen(BOTH_DELAYED, int(all(one.record.since(began_at)[DELAYED.name] for one in _networks(stage))))


@scenario("net-slow", group=GROUP, full=6, quick=1, per_stage=3, shape=PROXIED, topics=WIRED, rate=8.0,
          struck=(SLOWED,),
          does="every connection gets 20 kB/s for a while")  # fmt: skip
def slow(stage: Stage) -> None:
    for _ in stage.repeat():
        for network in _networks(stage):
            network.slow(SLOW_BYTES_PER_S)
        # More bytes than pass in several seconds, whatever the rate of the stream is.
        for plan in stage.topics:
            if plan.writing == "idempotent":
                write(stage.source, plan.name, BURST, seed=1_000 + stage.outcome.tries)
        stage.await_seen(SLOWED)
        stage.moment(3)
        stage.pair.heal()
        stage.recovered()


@scenario("net-half-close", group=GROUP, full=16, quick=2, per_stage=8, shape=PROXIED, topics=WIRED, rate=8.0,
          struck=(HALF_CLOSED,),
          does="one direction of every connection to one side ends, the other stays")  # fmt: skip
def half_close(stage: Stage) -> None:
    for at in stage.repeat():
        stage.moment()
        _networks(stage)[at % 2].half_close(stage.chance.choice(list(Direction)))
        stage.recovered()


@scenario("net-refuse", group=GROUP, full=8, quick=2, per_stage=4, shape=PROXIED, topics=WIRED, rate=8.0,
          struck=(CONNECTIONS_CUT, REFUSED),
          does="connections break and new ones are refused for a while")  # fmt: skip
def refuse(stage: Stage) -> None:
    for at in stage.repeat():
        network = _networks(stage)[at % 2]
        network.refuse()
        network.cut()
        stage.await_seen(REFUSED)
        stage.moment(3)
        network.accept()
        stage.recovered()


# -- late requests of a dead client ----------------------------------------------------------------------------------


def _late(stage: Stage, name: str) -> None:
    """Holds a request, kills its sender, and lets another worker take over. Then delivers the request: at once, while
    the successor looks at the destination, or after it has gone on. ``name``: Kafka's name of the request."""
    for at in stage.repeat():
        stage.moment()
        network = stage.destination.network
        held = _arm_where_it_comes(stage, name, hold_request())
        held.wait(COMES_S)
        looks = network.seen[Direction.REQUESTS, "ListOffsets"]
        stage.mirror.kill_worker()
        if at % 3 == 1:
            until(lambda: network.seen[Direction.REQUESTS, "ListOffsets"] > looks, "the successor to look")  # noqa: B023
        elif at % 3 == 2:
            stage.caught_up()
        held.deliver()
        for code in set(entries(held.answer(COMES_S)).values()):
            stage.note(f"late {held.name} answered {code}")
        stage.recovered()


@scenario("net-late-data", group=GROUP, full=30, quick=3, per_stage=10, shape=PROXIED, topics=WIRED, rate=8.0,
          struck=(FRAME_HELD, WORKER_KILLED, LATE),
          does="a dead worker's Produce request arrives later: before, while, after its successor goes on")  # fmt: skip
def late_data(stage: Stage) -> None:
    _late(stage, "Produce")


@scenario("net-late-marker", group=GROUP, full=30, quick=3, per_stage=10, shape=PROXIED, topics=WIRED, rate=8.0,
          struck=(FRAME_HELD, WORKER_KILLED, LATE),
          does="a dead worker's WriteTxnMarkers request arrives later, likewise")  # fmt: skip
def late_marker(stage: Stage) -> None:
    _late(stage, "WriteTxnMarkers")


@scenario("net-markers-stuck", group=GROUP, full=2, quick=1, shape=PROXIED, rate=8.0,
          struck=(FRAME_HELD, HELD_BACK.times(4)),
          topics=(*PLAIN, TopicPlan(name="txn-snappy", writing="transactional", codec="snappy", partitions=4)),
          does="no marker gets through for a while, and four partitions wait for theirs; the others go on")  # fmt: skip
def markers_stuck(stage: Stage) -> None:
    plain = [name for name in stage.names if "idem" in name[0]]
    held = [name for name in stage.names if name not in plain]
    for _ in stage.repeat():
        stuck = stage.destination.network.arm("WriteTxnMarkers", hold_request(), times=None)
        stuck.wait(COMES_S)
        for _ in range(4):
            stage.moment(4)
            stage.caught_up(plain)
        before = _ends(stage.destination, held)
        stage.moment(4)
        stage.caught_up(plain)
        # A partition counts as held back only if its end did not move. One that is merely behind still moves.
        here, there = (_ends(side, held) for side in (stage.source, stage.destination))
        stage.seen(HELD_BACK, sum(there[name] == end < here[name] for name, end in before.items()))
        stuck.disarm()
        stuck.drop()
        stage.recovered()


def _ends(side: Side, names: Sequence[Name]) -> Offsets:
    return until(lambda: side.ends(names), f"the ends of {names} at {side.name}")


@scenario("net-marker-outlives-settle", group=GROUP, full=10, quick=1, shape=PROXIED, topics=QUIET_BESIDE, bare=True,
          struck=(FRAME_HELD, WORKER_KILLED, LATE),
          does="a dead worker's marker arrives when its successor has settled and filled: it is refused")  # fmt: skip
def marker_outlives_settle(stage: Stage) -> None:
    topic = stage.topic("quiet")
    stage.create_topics()
    network = stage.destination.network
    held = network.arm("WriteTxnMarkers", hold_request())
    producer = transactional(stage.source, f"late-{topic}")
    transaction(producer, topic, 5)
    stage.start_stream()
    stage.start_mirror()
    for _ in stage.repeat():
        held.wait(COMES_S)
        stage.mirror.kill_worker()
        stage.caught_up()
        held.deliver()
        codes = set(entries(held.answer(COMES_S)).values())
        if 0 in codes:
            raise ChaosError(f"{topic}: the late marker was written")
        for code in codes:
            stage.note(f"late marker answered {code}")
        transaction(producer, topic, 5, seed=1)
        stage.recovered()


# -- wrong answers -----------------------------------------------------------------------------------------------------


class Said(NamedTuple):
    """An error code as the answer to a kind of request. ``done``: True if the broker carries the request out all the
    same."""

    name: str
    code: int
    done: bool


PRODUCE_CODES = (-1, 3, 5, 6, 7, 10, 13, 19, 20, 45, 46, 47, 56, 59, 74, 75, 78, 89, 100)
MARKER_CODES = (-1, 3, 6, 7, 19, 20, 47, 51, 56)
LOOK_CODES = (-1, 3, 5, 6, 7, 56, 74, 75, 78)
FETCH_CODES = (-1, 1, 3, 6, 56, 74, 75, 78, 100, 103)
ASKED = (
    *(Said("Produce", code, done) for code in PRODUCE_CODES for done in (False, True)),
    *(Said("WriteTxnMarkers", code, done) for code in MARKER_CODES for done in (False, True)),
    *(Said("ListOffsets", code, True) for code in LOOK_CODES),
    *(Said("DescribeProducers", code, True) for code in (-1, 3, 6, 7, 56)),
    *(Said("Metadata", code, True) for code in (-1, 3, 5)),
)
AT_A_TAKEOVER = tuple(Said("InitProducerId", code, True) for code in (-1, 7, 14, 15, 16, 51))


def _spread(few: Sequence[Said], many: Sequence[Said]) -> tuple[Said, ...]:
    """Returns all of them, with the few at equal distances among the many."""
    places = [((at + 0.5) / len(some), one) for some in (few, many) for at, one in enumerate(some)]
    return tuple(one for _, one in sorted(places, key=lambda place: place[0]))


# Each takeover kills a worker, and a supervisor waits longer before each further restart in a row. So spread them.
SAID = _spread(AT_A_TAKEOVER, ASKED)
NEEDS_A_LOOK = ("ListOffsets", "DescribeProducers", "Metadata")
NEEDS_A_TAKEOVER = ("InitProducerId",)


def _say(stage: Stage, network: Proxy, said: Said) -> None:
    """Gives one wrong answer, and makes the mirror send the request for it."""
    fault = network.arm(said.name, Spoil(code=said.code) if said.done else Refuse(code=said.code))
    if said.name in NEEDS_A_LOOK:
        for _ in range(DOUBTS):
            time.sleep(REFRESH_AT_MOST_EVERY_S)  # fresher metadata would not be asked for again
            stage.destination.network.arm("Produce", cut_answer())  # causes doubt: the mirror looks at both sides
            with suppress(TimeoutError):  # not every doubt makes the mirror send every kind of request
                fault.wait(COMES_S / DOUBTS)
                break
    elif said.name in NEEDS_A_TAKEOVER:
        stage.mirror.kill_worker()
    fault.wait(COMES_S)
    stage.recovered()


def _sayable(stage: Stage) -> list[Said]:
    """Returns the wrong answers to requests that the mirror sends for this stage's topics."""
    holes = any(plan.writing == "transactional" for plan in stage.topics)
    return [said for said in SAID if holes or said.name not in ("WriteTxnMarkers", "InitProducerId")]


@scenario("net-errors", group=GROUP, full=len(SAID), quick=len(SAID), per_stage=len(SAID),
          struck=(WRONG_ANSWER,),
          shape=PROXIED, topics=WIRED, rate=8.0,
          does="the destination answers one request with an error code, once; request done or not")  # fmt: skip
def errors(stage: Stage) -> None:
    said = _sayable(stage)
    for at in stage.repeat():
        _say(stage, stage.destination.network, said[at % len(said)])


@scenario("net-errors-source", group=GROUP, full=2 * len(FETCH_CODES), quick=len(FETCH_CODES), per_stage=20,
          struck=(WRONG_ANSWER,),
          shape=PROXIED, topics=WIRED, rate=8.0,
          does="the source answers one Fetch, ListOffsets or Metadata request with an error code, once")  # fmt: skip
def errors_source(stage: Stage) -> None:
    said = [
        *(Said("Fetch", code, True) for code in FETCH_CODES),
        *(Said("ListOffsets", code, True) for code in LOOK_CODES),
        Said("Metadata", 5, True),
    ]
    for at in stage.repeat():
        _say(stage, stage.source.network, said[at % len(said)])
