"""Scenarios in which the destination's brokers freeze or die while records are above the high watermark, while markers
are written, or while the offsets before a source's first record are filled."""

import time
from collections.abc import Callable, Iterable

from chaos.play.sides import Side
from chaos.play.stage import Stage
from chaos.producers.raw import plant
from chaos.producers.topics import HOLES, TopicPlan
from chaos.scenario import scenario
from chaos.scenarios.brokers import COMES_S, GROUP, PROXIED
from chaos.waiting import until
from chaos.witness.probes import above_watermark, known_as
from lab.evidence import (
    ABOVE_WATERMARK,
    BROKER_FROZEN,
    BROKER_KILLED,
    FRAME_HELD,
    LATE,
    MARKER_UNDER_WAY,
    MARKER_WAITED,
    MIRROR_KILLED,
    START_NOT_KEPT,
    WORKER_KILLED,
)
from lab.proxy import Fault, Frame, hold_request, watch_request
from lab.proxy.answers import carries, entries
from mirror.records.filler import filler_batch
from mirror.records.identity import Identity

FREEZE_MOST_S = 3.0
"""Maximum of the random part of a freeze, in seconds. A whole freeze may be shorter or longer than the brokers' session
timeout."""


@scenario(
    "follower-freeze", group=GROUP, full=10, quick=2, per_stage=5, topics=HOLES, rate=25.0, shape=PROXIED,
    struck=(BROKER_FROZEN, FRAME_HELD, ABOVE_WATERMARK.times(2), WORKER_KILLED),
    does="SIGSTOP of a follower at the destination, so that data, or a marker, stand above the high watermark; "
    "kill -9 of the worker; SIGCONT",
)  # fmt: skip
def follower_freeze(stage: Stage) -> None:
    dense = stage.topic("txn-dense")
    for at in stage.repeat():
        leader = stage.destination.leader(dense)
        follower = stage.chance.choice(stage.destination.followers(dense))
        held = _hold(stage, dense, ("WriteTxnMarkers", "Produce")[at % 2], leader.node_id)
        stage.destination.pause(follower)
        held.deliver()
        above = lambda: above_watermark(leader, dense)  # noqa: B023, E731
        stage.await_that(above, ABOVE_WATERMARK)
        stage.mirror.kill_worker()
        stage.moment(FREEZE_MOST_S)
        stage.await_that(above, ABOVE_WATERMARK, 0)  # still above: the next worker finds it like that
        stage.destination.resume(follower)
        stage.recovered()
        stage.await_replicas()


def _hold(stage: Stage, topic: str, name: str, node_id: int) -> Fault:
    """Waits until the proxy holds the next request of a kind about a topic, and returns the fault.

    Args:
        stage: the stage.
        topic: name of the topic.
        name: Produce or WriteTxnMarkers.
        node_id: node id of the broker that the request is for.
    """

    wanted = known_as(stage.destination, topic)

    def about_it(request: Frame) -> bool:
        if name == "Produce":
            return carries(request, wanted)
        return any(one.name == topic for marker in request.decode().markers for one in marker.topics)

    held = stage.destination.network.arm(name, hold_request(), node_id=node_id, where=about_it)
    held.wait(COMES_S)
    return held


@scenario(
    "destination-freeze", group=GROUP, full=30, quick=1, per_stage=10, topics=HOLES, rate=25.0, shape=PROXIED,
    struck=(BROKER_FROZEN, WORKER_KILLED, LATE, MARKER_WAITED),
    does="SIGSTOP of the destination's leader and kill -9 of the worker with a marker just sent; then SIGCONT",
)  # fmt: skip
def destination_freeze(stage: Stage) -> None:
    dense = stage.topic("txn-dense")
    for _ in stage.repeat():
        stage.moment()
        leader = stage.destination.leader(dense)
        marker = _hold(stage, dense, "WriteTxnMarkers", leader.node_id)
        stage.destination.pause(leader)
        marker.deliver()  # into the socket of the frozen broker, where it waits
        stage.mirror.kill_worker()
        stage.moment(FREEZE_MOST_S)
        waited = marker.answer_seen is None
        stage.destination.resume(leader)
        for code in set(entries(marker.answer(COMES_S)).values()):
            stage.note(f"marker answered {code}")
        stage.seen(MARKER_WAITED, int(waited))
        stage.recovered()
        stage.await_replicas()


@scenario(
    "filling-leader-kill", group=GROUP, full=20, quick=1, per_stage=5, topics=HOLES, rate=25.0, shape=PROXIED,
    struck=(MARKER_UNDER_WAY, BROKER_KILLED),
    does="kill -9 of the destination's leader during continuous filling, and restart",
)  # fmt: skip
def filling_leader_kill(stage: Stage) -> None:
    dense = stage.topic("txn-dense")
    for _ in stage.repeat():
        stage.moment()
        leader = stage.destination.leader(dense)
        _marker_under_way(stage, leader.node_id)
        stage.destination.kill(leader)
        stage.moment(5.0)
        stage.destination.bring_up()
        stage.recovered()
        stage.await_replicas()


def _marker_under_way(stage: Stage, node_id: int | None = None) -> None:
    """Waits until the proxy has just passed on a WriteTxnMarkers request. ``node_id``: of the broker; None: any."""
    stage.destination.network.arm("WriteTxnMarkers", watch_request(), node_id=node_id).wait(COMES_S)
    stage.seen(MARKER_UNDER_WAY)


@scenario(
    "filling-all-killed", group=GROUP, full=5, quick=1, per_stage=5, topics=HOLES, rate=25.0, shape=PROXIED,
    struck=(MARKER_UNDER_WAY, MIRROR_KILLED, BROKER_KILLED.times(3)),
    does="kill -9 of the mirror and of all brokers of the destination during filling",
)  # fmt: skip
def filling_all_killed(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        _marker_under_way(stage)
        _kill_destination(stage)
        stage.recovered()


LEADING = 2_000_000
MILLION = 1_000_000
FAR = 50_000_000


@scenario(
    "trimmed-all-killed", group=GROUP, full=5, quick=1, bare=True,
    topics=(
        TopicPlan(name="idem-lz4", writing="idempotent", codec="lz4", partitions=2),
        TopicPlan(name="txn-none", writing="transactional"),
    ),
    struck=(MIRROR_KILLED, BROKER_KILLED.times(3), START_NOT_KEPT),
    does="the source begins at offset 2,000,000; kill -9 of the mirror and of all brokers of the destination within "
    "60 s after DeleteRecords there",
)  # fmt: skip
def trimmed_all_killed(stage: Stage) -> None:
    _trimmed(stage, LEADING)


@scenario(
    "starts-at-50-million", group=GROUP, full=1, quick=1, bare=True,
    topics=(TopicPlan(name="txn-none", writing="transactional"),),
    struck=(MIRROR_KILLED, BROKER_KILLED.times(3), START_NOT_KEPT),
    does="the same with a source that begins at offset 50,000,000",
)  # fmt: skip
def starts_at_50_million(stage: Stage) -> None:
    _trimmed(stage, FAR)


def _trimmed(stage: Stage, start: int) -> None:
    stage.check_starts = True
    stage.create_topics()
    for topic, index in stage.names:
        _lead(stage.source, topic, index, start)
    stage.source.delete_before(dict.fromkeys(stage.names, start))
    stage.start_stream()
    began_at = time.monotonic()
    stage.start_mirror()
    wanted = dict.fromkeys(stage.names, start)

    def trimmed() -> bool:
        stage.look()
        return stage.destination.starts(stage.names) == wanted

    for _ in stage.repeat():
        until(trimmed, lambda: f"the destination to begin at {start}; {stage.told()}")
        stage.note("seconds until the destination began there", round(time.monotonic() - began_at))
        stage.moment()
        _kill_destination(stage, lambda: stage.seen(START_NOT_KEPT, int(_start_not_kept(stage, start))))
        stage.recovered()
        until(trimmed, lambda: f"the destination to begin at {start} again; {stage.told()}")
    # The clusters are used again. The next scenario may kill their brokers, and this one's mirror will not be there to
    # trim the logs again.
    until(lambda: _starts_kept(stage, start, by=all), "every broker to write down where its logs begin")


def _lead(side: Side, topic: str, index: int, end: int) -> None:
    """Writes filler batches, a million offsets each, up to an offset."""
    for offset in range(0, end, MILLION):
        batch = filler_batch(producer=1 << 40, offset=offset, count=MILLION, timestamp=round(time.time() * 1000))
        plant(side, topic, index, batch, Identity(1 << 40, 0, offset))


def _start_not_kept(stage: Stage, start: int) -> bool:
    """Returns True if the log start of some partition is in no broker's checkpoint file."""
    return not _starts_kept(stage, start, by=any)


def _starts_kept(stage: Stage, start: int, *, by: Callable[[Iterable[bool]], bool]) -> bool:
    """Returns True if the log start of every partition is in the checkpoint files of brokers, which these write once a
    minute. ``by``: ``any`` if one broker is enough, ``all`` if all brokers have to have it."""
    kept = [path.read_text() for one in stage.destination.cluster.brokers
            for path in one.data_dir.glob("log-start-offset-checkpoint")]  # fmt: skip
    return all(by(f"{topic} {index} {start}\n" in text for text in kept) for topic, index in stage.names)


def _kill_destination(stage: Stage, when_dead: Callable[[], None] = lambda: None) -> None:
    """Kills the mirror and all brokers of the destination, and starts them again. ``when_dead``: called in between."""
    stage.mirror.kill()
    for broker in stage.destination.cluster.brokers:
        stage.destination.kill(broker)
    when_dead()
    stage.destination.bring_up()
    stage.mirror.start()
