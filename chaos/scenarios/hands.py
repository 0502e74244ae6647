"""Scenarios in which somebody else interferes with topics: configs that change batches, markers and records that the
mirror did not write, topics that are deleted and created again, records that are deleted before they are copied. Each
halts its own partition, with the one right reason."""

from collections.abc import Iterator
from contextlib import contextmanager

from chaos.errors import ChaosError
from chaos.play.sides import Side
from chaos.play.stage import Stage
from chaos.producers.raw import batches, write_marker
from chaos.producers.topics import TopicPlan
from chaos.producers.writing import write
from chaos.scenario import scenario
from chaos.scenarios.data import FRESH, GROUP, QUIET, QUIETLY, SHAPE, identity_of, quiet_beside_a_stream
from chaos.waiting import until
from chaos.witness.probes import config, topic_id
from lab.evidence import (
    BY_HAND,
    DELETED,
    OVERTAKEN,
    RECREATED,
    REWRITES,
    TOO_LARGE,
    WORKER_FROZEN,
    WORKER_KILLED,
)

# -- a destination that changes batches ------------------------------------------------------------------------------

REWRITERS = (TopicPlan(name="append-time", writing="nobody"), TopicPlan(name="gzip", writing="nobody"))
WRITTEN = 100


def _rewrite(stage: Stage, times: str, gzip: str) -> None:
    """Makes the destination set its own timestamps in one topic (``times``), and recompress another (``gzip``)."""
    stage.destination.alter(times, message_timestamp_type="LogAppendTime")
    stage.destination.alter(gzip, compression_type="gzip")
    stage.seen(REWRITES, int(config(stage.destination, times, "message.timestamp.type") == "LogAppendTime"))
    stage.seen(REWRITES, int(config(stage.destination, gzip, "compression.type") == "gzip"))


@scenario("data-rewriting", group=GROUP, full=2, quick=1, shape=SHAPE, bare=True, topics=(*REWRITERS, FRESH),
          struck=(REWRITES.times(2), WORKER_KILLED),
          does="destination topics that put their own times in, or recompress; the worker is restarted")  # fmt: skip
def rewriting(stage: Stage) -> None:
    stage.create_topics()
    stage.destination.create(stage.topics)
    times, gzip = stage.topic("append-time"), stage.topic("gzip")
    _rewrite(stage, times, gzip)
    for topic in (times, gzip):
        write(stage.source, topic, WRITTEN)
        stage.halts.announce(topic, "destination_rewrites", ends=(0, 0))  # noticed before anything is copied
    stage.start_stream()
    stage.start_mirror()
    for _ in stage.repeat():
        for topic in (times, gzip):
            stage.halts.expect(topic)
        stage.mirror.kill_worker()
        stage.await_seen(WORKER_KILLED)
        until(lambda: _halts(stage) == 2, lambda: f"both to halt again; {stage.told()}")
        stage.recovered()


def _halts(stage: Stage) -> int:
    """Returns the number of partitions that are halted now, by the present workers."""
    stage.look()
    return len(stage.mirror.halts)


@scenario("data-rewriting-later", group=GROUP, full=2, quick=1, shape=SHAPE, bare=True, topics=(*REWRITERS, FRESH),
          struck=(REWRITES.times(2), WORKER_KILLED),
          does="destination topics begin to put their own times in, or to recompress; then a restart")  # fmt: skip
def rewriting_later(stage: Stage) -> None:
    stage.create_topics()
    times, gzip = stage.topic("append-time"), stage.topic("gzip")
    for topic in (times, gzip):
        write(stage.source, topic, WRITTEN)
    stage.start_stream()
    stage.start_mirror()
    for _ in stage.repeat():
        stage.caught_up()
        # Nothing is written until the mirror has noticed the configs, so the copy ends with the records from before.
        for topic in (times, gzip):
            stage.halts.announce(topic, "destination_rewrites", ends=(WRITTEN, WRITTEN))
        _rewrite(stage, times, gzip)
        stage.mirror.kill_worker()
        stage.await_seen(WORKER_KILLED)
        for topic in (times, gzip):
            stage.halts.expect(topic)
            write(stage.source, topic, WRITTEN, seed=1)
        stage.halts.others_go_on()


@scenario("data-too-large", group=GROUP, full=3, quick=1, shape=SHAPE, topics=(QUIET, FRESH), bare=True,
          struck=(TOO_LARGE,),
          does="the destination's max.message.bytes falls below any record: no batch is small enough")  # fmt: skip
def too_large(stage: Stage) -> None:
    topic = stage.topic("quiet")
    quiet_beside_a_stream(stage)
    for _ in stage.repeat():
        stage.destination.alter(topic, max_message_bytes="80")
        stage.halts.announce(topic, "too_large", ends=(QUIETLY, QUIETLY))
        write(stage.source, topic, 50, seed=1)
        (first, *_) = batches(stage.source, topic, offset=QUIETLY, most=1)
        stage.seen(TOO_LARGE, int(first.header.size > int(config(stage.destination, topic, "max.message.bytes"))))
        stage.halts.expect(topic)


# -- interference by somebody else -----------------------------------------------------------------------------------


@contextmanager
def _by_hand(stage: Stage, topic: str, count: int) -> Iterator[None]:
    """Notes evidence if the destination's log of partition 0 grows by at least ``count`` offsets while the context
    lasts."""
    (before,) = until(lambda: list(stage.destination.ends([(topic, 0)]).values()), "the destination's end")
    yield
    (after,) = until(lambda: list(stage.destination.ends([(topic, 0)]).values()), "the destination's end")
    stage.seen(BY_HAND, int(after - before >= count))


@scenario("data-overfilled", group=GROUP, full=5, quick=1, shape=SHAPE, topics=(QUIET, FRESH), bare=True,
          struck=(BY_HAND,),
          does="a marker put in by hand while the mirror is stopped")  # fmt: skip
def overfilled(stage: Stage) -> None:
    topic = stage.topic("quiet")
    quiet_beside_a_stream(stage)
    for _ in stage.repeat():
        stage.mirror.stop()
        identity = identity_of(stage, topic, 0)
        with _by_hand(stage, topic, 1):
            write_marker(stage.destination, topic, 0, producer_id=identity.producer_id, epoch=1)
        write(stage.source, topic, 50, seed=1)
        stage.halts.announce(topic, "overfilled", ends=(QUIETLY, QUIETLY), strangers=1)
        stage.mirror.start()
        stage.halts.expect(topic)


FOREIGN = 10


@scenario("data-foreign", group=GROUP, full=5, quick=1, shape=SHAPE, bare=True, struck=(BY_HAND.times(2),),
          topics=(TopicPlan(name="running", writing="nobody"), TopicPlan(name="stopped", writing="nobody"), FRESH),
          does="somebody else writes to the destination's topic, while the mirror runs or is stopped")  # fmt: skip
def foreign(stage: Stage) -> None:
    running, stopped = stage.topic("running"), stage.topic("stopped")
    quiet_beside_a_stream(stage)
    for _ in stage.repeat():
        # The mirror notices the strangers' records by the answers to its next requests. By then, some of its own
        # batches are under way, and end up behind them.
        stage.halts.announce(running, "foreign_writer", ends=(QUIETLY, QUIETLY), strangers=FOREIGN, under_way=50)
        with _by_hand(stage, running, FOREIGN):
            write(stage.destination, running, FOREIGN, seed=7)
        write(stage.source, running, 50, seed=1)
        stage.halts.expect(running)
        stage.mirror.stop()
        stage.halts.announce(stopped, "foreign_writer", ends=(QUIETLY, QUIETLY), strangers=FOREIGN)
        with _by_hand(stage, stopped, FOREIGN):
            write(stage.destination, stopped, FOREIGN, seed=7)
        write(stage.source, stopped, 50, seed=1)
        stage.mirror.start()
        stage.halts.expect(stopped)


@scenario("data-recreated-source", group=GROUP, full=3, quick=1, shape=SHAPE, bare=True,
          struck=(DELETED, RECREATED.times(2)),
          topics=(TopicPlan(name="running", writing="nobody"), TopicPlan(name="stopped", writing="nobody"), FRESH),
          does="a source topic is deleted and made again: while the mirror runs, while it is stopped")  # fmt: skip
def recreated_source(stage: Stage) -> None:
    running, stopped = stage.topic("running"), stage.topic("stopped")
    quiet_beside_a_stream(stage)
    plans = {plan.name: plan for plan in stage.topics}
    old = {topic: stage.holds(topic) for topic in (running, stopped)}
    ids = {topic: topic_id(stage.source, topic) for topic in old}
    # Nothing of the new topic may be copied: the destination keeps the records of the old one.
    ends = (QUIETLY, QUIETLY)

    def made_again(topic: str) -> None:
        stage.source.create([plans[topic]])
        write(stage.source, topic, 80, seed=2)
        stage.seen(RECREATED, int(topic_id(stage.source, topic) not in ("", ids[topic])))

    for _ in stage.repeat():
        stage.halts.announce(running, "topic_missing", ends=ends, right=old[running])
        _delete(stage, stage.source, running)
        stage.halts.expect(running)
        stage.halts.announce(running, "recreated", ends=ends, right=old[running])
        made_again(running)
        stage.caught_up()  # not recovered(): no fault has ended
        stage.mirror.stop()
        stage.source.delete([stopped])
        stage.halts.announce(stopped, "recreated", ends=ends, right=old[stopped])
        made_again(stopped)
        stage.mirror.start()
        for topic in (stopped, running):
            stage.halts.expect(topic)


def _delete(stage: Stage, side: Side, topic: str) -> None:
    side.delete([topic])
    stage.await_that(lambda: topic not in side.topics(), DELETED)


@scenario("data-recreated-destination", group=GROUP, full=3, quick=1, shape=SHAPE, bare=True,
          struck=(DELETED, RECREATED),
          topics=(TopicPlan(name="running", writing="nobody"), FRESH),
          does="a destination topic is deleted, is not created by being asked for, and is made again")  # fmt: skip
def recreated_destination(stage: Stage) -> None:
    running = stage.topic("running")
    quiet_beside_a_stream(stage)
    plans = {plan.name: plan for plan in stage.topics}
    before = topic_id(stage.destination, running)
    for _ in stage.repeat():
        stage.halts.announce(running, "topic_missing", ends=(0, 0))
        _delete(stage, stage.destination, running)
        write(stage.source, running, 50, seed=1)
        stage.halts.expect(running)
        if running in stage.destination.topics():
            raise ChaosError(f"{running} was created by being asked for at the destination")
        stage.destination.create([plans[running]])
        stage.seen(RECREATED, int(topic_id(stage.destination, running) not in ("", before)))
        stage.halts.announce(running, "recreated", ends=(0, 0))  # the new topic stays empty
        stage.mirror.stop()
        stage.mirror.start()
        stage.halts.expect(running)


DELETED_BEFORE = 130


@scenario("data-overtaken", group=GROUP, full=3, quick=1, shape=SHAPE, bare=True,
          struck=(WORKER_FROZEN, OVERTAKEN.times(2)),
          topics=(TopicPlan(name="frozen", writing="nobody"), TopicPlan(name="stopped", writing="nobody"), FRESH),
          does="the source deletes records that are due: while the mirror is frozen, while it is stopped")  # fmt: skip
def overtaken(stage: Stage) -> None:
    frozen, stopped = stage.topic("frozen"), stage.topic("stopped")
    quiet_beside_a_stream(stage)
    for _ in stage.repeat():
        with _frozen(stage):
            _overtake(stage, frozen)
        stage.halts.expect(frozen)
        stage.mirror.stop()
        _overtake(stage, stopped)
        stage.mirror.start()
        stage.halts.expect(stopped)


def _overtake(stage: Stage, topic: str) -> None:
    """Writes records that are not copied, and deletes most of them at the source."""
    write(stage.source, topic, 60, seed=1)
    write(stage.source, topic, 60, seed=2)
    right = stage.holds(topic)
    stage.halts.announce(topic, "retention_overtook", ends=(QUIETLY, DELETED_BEFORE), right=right)
    stage.source.delete_before({(topic, 0): DELETED_BEFORE})
    start, end = stage.source.starts([(topic, 0)]), stage.destination.ends([(topic, 0)])
    stage.seen(OVERTAKEN, int(bool(start) and bool(end) and start[topic, 0] > end[topic, 0]))


@contextmanager
def _frozen(stage: Stage) -> Iterator[None]:
    """Freezes the worker (SIGSTOP) while the context lasts. Its connections to the source are cut, so that an answer
    which is under way to it is lost."""
    pid = stage.mirror.freeze()
    stage.source.network.cut()
    try:
        yield
    finally:
        stage.mirror.thaw(pid)
