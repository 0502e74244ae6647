"""Scenarios of unusual data: records that are old, damaged on disk, deleted by retention, compacted, in batches that
are too large, or behind an open transaction."""

import time
from itertools import pairwise

from confluent_kafka import Producer

from chaos.errors import ChaosError
from chaos.play.mirrors import FLOW
from chaos.play.segments import flip
from chaos.play.sides import Side
from chaos.play.stage import Stage
from chaos.producers.raw import Stored, answer_at, batches
from chaos.producers.topics import PLAIN, TopicPlan
from chaos.producers.writing import add, transactional, write
from chaos.scenario import Shape, scenario
from chaos.scenarios.brokers import await_too_few
from chaos.waiting import until
from chaos.witness.probes import known_as, producers
from lab.evidence import (
    BROKER_KILLED,
    BROKER_RESTARTED,
    COMPACTED,
    CUT,
    DAMAGED,
    FRAME_HELD,
    LATE,
    OPEN_TRANSACTION,
    REPLAYED,
    STATE_SWEPT,
    TOO_FEW_REPLICAS,
    TRIMMED,
    WORKER_KILLED,
)
from lab.proxy import Direction, hold_request, watch_request
from lab.proxy.answers import carries, entries
from mirror.records.identity import Identity, producer_id
from mirror.relay.durable.writer import FIRST_NOTE_S

GROUP = "Data"
SHAPE = Shape(
    source=(("log.cleaner.backoff.ms", "300"), ("log.initial.task.delay.ms", "500")),
    destination=(
        # The mirror must not create topics by merely naming them.
        ("auto.create.topics.enable", "true"),
        ("log.initial.task.delay.ms", "500"),
        ("log.retention.check.interval.ms", "1000"),
        ("producer.id.expiration.check.interval.ms", "500"),
    ),
    proxied=True,
)
DAY_S = 86_400.0
OLD = TopicPlan(name="old-lz4", writing="idempotent", codec="lz4", partitions=2, age_s=2 * DAY_S)
FRESH = PLAIN[1]
QUIET = TopicPlan(name="quiet", writing="nobody")


QUIETLY = 50
"""Number of records of a topic to which nobody writes any more."""


def quiet_beside_a_stream(stage: Stage) -> None:
    """Begins with topics that are written once and copied, beside others with producers."""
    stage.create_topics()
    for plan in stage.topics:
        if plan.writing == "nobody":
            write(stage.source, plan.name, QUIETLY)
    stage.start_stream()
    stage.start_mirror()
    stage.caught_up()


def identity_of(stage: Stage, topic: str, index: int) -> Identity:
    """Returns the first identity with which the mirror writes into a partition."""
    owner = producer_id(flow=FLOW, cluster_id=stage.source.cluster.cluster_id, topic=topic, partition=index)
    return Identity(owner, 0, 0)


# -- old data --------------------------------------------------------------------------------------------------------


@scenario("data-old", group=GROUP, full=6, quick=1, per_stage=6, shape=SHAPE, topics=(OLD, FRESH),
          struck=(STATE_SWEPT, FRAME_HELD, WORKER_KILLED, LATE, REPLAYED),
          does="records two days old, producer state swept: a worker is killed with a request of them on its way, "
          "which arrives before its successor has settled; one of fresh records arrives twice")  # fmt: skip
def old(stage: Stage) -> None:
    network, topic = stage.destination.network, stage.topic(OLD.name)
    wanted, others = (known_as(stage.destination, one) for one in (topic, stage.topic(FRESH.name)))
    for _ in stage.repeat():
        await_swept(stage, topic)
        seen = network.arm("Produce", watch_request(), where=lambda frame: carries(frame, others))
        again = seen.wait()
        held = network.arm(
            "Produce", hold_request(), where=lambda frame: carries(frame, wanted), skip=stage.chance.randrange(4)
        )
        held.wait()
        stage.mirror.kill_worker()
        stage.moment(1.0)
        held.deliver()
        for code in set(entries(held.answer()).values()):
            stage.note(f"late request answered {code}")
        stage.recovered()
        codes = set(entries(network.replay(again)).values())
        stage.seen(REPLAYED, len(codes))
        for code in codes:
            stage.note(f"late copy answered {code}")
        stage.recovered()


def await_swept(stage: Stage, topic: str) -> None:
    """Waits until partition 0 of a topic has records at the destination, but its leader remembers no producer."""

    def swept() -> bool:
        ends = stage.destination.ends([(topic, 0)])
        return bool(ends) and ends[topic, 0] > 0 and producers(stage.destination, topic, 0) == 0

    stage.await_that(swept, STATE_SWEPT)


@scenario("data-old-min-isr", group=GROUP, full=3, quick=1, per_stage=3, shape=SHAPE, topics=(OLD, FRESH),
          struck=(STATE_SWEPT, BROKER_KILLED, TOO_FEW_REPLICAS),
          does="records two days old, while the destination has too few replicas in sync for a while")  # fmt: skip
def old_min_isr(stage: Stage) -> None:
    topic = stage.topic(OLD.name)
    for _ in stage.repeat():
        await_swept(stage, topic)
        for plan in stage.topics:
            stage.destination.alter(plan.name, min_insync_replicas="3")
        (broker, *_) = stage.destination.followers(topic)
        stage.destination.kill(broker)
        await_too_few(stage, stage.topics[0])
        stage.moment()
        stage.pair.heal()
        stage.await_replicas()
        stage.recovered()
        for plan in stage.topics:
            stage.destination.alter(plan.name, min_insync_replicas="1")


@scenario("data-old-rolling", group=GROUP, full=2, quick=1, shape=SHAPE, topics=(OLD, FRESH),
          struck=(STATE_SWEPT, BROKER_RESTARTED.times(3)),
          does="records two days old, while the destination's brokers are restarted cleanly in turn")  # fmt: skip
def old_rolling(stage: Stage) -> None:
    for _ in stage.repeat():
        await_swept(stage, stage.topic(OLD.name))
        _roll(stage, stage.destination)
        stage.recovered()


def _roll(stage: Stage, side: Side) -> None:
    """Restarts the brokers of a side cleanly, one after the other."""
    for broker in side.cluster.brokers:
        side.restart(broker)
        stage.await_replicas()


@scenario("data-damaged", group=GROUP, full=3, quick=1, shape=SHAPE, topics=(OLD, FRESH), rate=30.0,
          struck=(DAMAGED, WORKER_KILLED),
          does="a batch among records two days old is damaged on the source's disk")  # fmt: skip
def damaged(stage: Stage) -> None:
    topic = stage.topic("old-lz4")
    for _ in stage.repeat():
        stage.source.network.stall([Direction.REQUESTS])
        before = until(lambda: stage.source.ends([(topic, 0)]), "the source's end")[topic, 0]
        victim = until(lambda: _later(stage, topic, before, 4), "some batches that nobody has fetched")[1]  # noqa: B023
        at = victim.header.base_offset
        right, answered = stage.holds(topic), answer_at(stage.source, topic, 0, at)
        flip(stage.source, topic, 0, victim.data, 8 * len(victim.data) - 1)
        stage.seen(DAMAGED, int(answer_at(stage.source, topic, 0, at) != answered))
        stage.halts.announce(topic, "corrupt", ends=(at, at), right=right)
        stage.source.network.clear()
        stage.halts.expect(topic)
        stage.mirror.kill_worker()
        stage.recovered()


def _later(stage: Stage, topic: str, before: int, least: int) -> list[Stored]:
    """Returns the batches of the source behind an offset; empty if there are fewer than ``least``."""
    found = [one for one in batches(stage.source, topic, offset=before) if one.header.base_offset > before]
    return found if len(found) >= least else []


@scenario("data-retention", group=GROUP, full=3, quick=1, shape=SHAPE, topics=(OLD, FRESH), bare=True,
          struck=(TRIMMED, WORKER_KILLED, BROKER_RESTARTED.times(3)),
          does="the destination keeps one hour, the records are two days old; worker and brokers restart")  # fmt: skip
def retention(stage: Stage) -> None:
    topic = stage.topic("old-lz4")
    names = [name for name in stage.names if name[0] == topic]
    stage.create_topics()
    stage.destination.create(stage.topics)
    stage.destination.alter(topic, retention_ms="3600000")
    stage.start_stream()
    stage.start_mirror()
    for _ in stage.repeat():
        starts = dict(stage.destination.starts(names)) or dict.fromkeys(names, 0)
        until(
            lambda: (now := stage.destination.starts(names)) and all(now[name] > starts[name] for name in names),  # noqa: B023
            lambda: f"retention at the destination; {stage.told()}",
        )
        stage.seen(TRIMMED)
        time.sleep(2 * FIRST_NOTE_S)  # until the copy is noted: if its log is emptied before, it is unproven
        stage.mirror.kill_worker()
        stage.recovered()
        _roll(stage, stage.destination)
        stage.recovered()
    stage.destination.alter(topic, retention_ms="-1")
    stage.compare_what_is_left(names)


@scenario("data-compacted", group=GROUP, full=3, quick=1, shape=SHAPE, topics=(QUIET, FRESH), bare=True,
          struck=(COMPACTED,),
          does="a compacted source is cleaned while the mirror is stopped: whole batches vanish")  # fmt: skip
def compacted(stage: Stage) -> None:
    topic = stage.topic("quiet")
    stage.create_topics()
    stage.destination.create(stage.topics)
    stage.start_stream()
    _write_keyed(stage, topic, 40)
    stage.start_mirror()
    for _ in stage.repeat():
        stage.caught_up()
        stage.mirror.stop()
        due = until(lambda: stage.source.ends([(topic, 0)]), "the source's end")[topic, 0]
        stage.source.alter(
            topic, cleanup_policy="compact", segment_ms="300", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0"
        )
        until(lambda: _cleaned(stage, topic, due), f"the cleaner to have been at {topic}")  # noqa: B023
        stage.seen(COMPACTED)
        # From now on, the cleaner has to leave the records alone, since they are compared. The topic stays compacted.
        stage.source.alter(
            topic, min_cleanable_dirty_ratio="1.0", min_compaction_lag_ms="86400000", segment_ms="86400000"
        )
        stage.compare_since({(topic, 0): due})
        stage.mirror.start()
        stage.recovered()


LIMIT = 4_000
"""``max.message.bytes``: larger than a batch with any single record, and smaller than most batches of ten records."""


@scenario("data-cut", group=GROUP, full=10, quick=2, shape=SHAPE, topics=(QUIET, *PLAIN), bare=True,
          struck=(CUT, WORKER_KILLED),
          does="the destination takes smaller batches than the source has: while they are cut in pieces, a worker is "
          "killed")  # fmt: skip
def cut(stage: Stage) -> None:
    topic = stage.topic("quiet")
    stage.create_topics()
    stage.destination.create(stage.topics)
    for plan in stage.topics:
        stage.destination.alter(plan.name, max_message_bytes=str(LIMIT))
    stage.start_stream()
    stage.start_mirror()
    for at in stage.repeat():
        due = until(lambda: stage.source.ends([(topic, 0)]), "the source's end")[topic, 0]
        write(stage.source, topic, 400, seed=at)
        stage.seen(CUT, sum(one.header.size > LIMIT for one in batches(stage.source, topic, offset=due)))
        stage.pause(stage.chance.random())
        stage.mirror.kill_worker()
        stage.recovered()


def _write_keyed(stage: Stage, topic: str, count: int) -> None:
    """Writes records of three keys, each in a separate batch. The producer is not idempotent, so the cleaner can remove
    all of its batches."""
    producer = Producer({
        "bootstrap.servers": stage.source.bootstrap_servers, "enable.idempotence": False, "batch.num.messages": 1,
        "linger.ms": 0, "log_level": 0,
    })  # fmt: skip
    for number in range(count):
        producer.produce(topic, key=b"%d" % (number % 3), value=b"%d" % time.monotonic_ns(), partition=0)
        producer.flush(1)
    if producer.flush(stage.patience_s):
        raise ChaosError(f"{topic}: records were not taken")


def _cleaned(stage: Stage, topic: str, due: int) -> bool:
    """Writes some more records, and returns True if batches behind the offset ``due`` are gone."""
    _write_keyed(stage, topic, 6)
    found = batches(stage.source, topic, offset=due)
    return any(one.header.next_offset < other.header.base_offset for one, other in pairwise(found))


# -- transactions of the source --------------------------------------------------------------------------------------


@scenario("data-open-transaction", group=GROUP, full=4, quick=2, per_stage=4, shape=SHAPE, topics=(QUIET, FRESH),
          bare=True, struck=(OPEN_TRANSACTION, WORKER_KILLED),
          does="a source transaction stays open for long, with other records behind it; then it is ended")  # fmt: skip
def open_transaction(stage: Stage) -> None:
    topic = stage.topic("quiet")
    quiet_beside_a_stream(stage)
    for at in stage.repeat():
        producer = transactional(stage.source, f"open-{topic}")
        producer.begin_transaction()
        add(producer, topic, 10, seed=3 + at)
        producer.flush(stage.patience_s)
        write(stage.source, topic, 30, seed=100 + at)
        stage.caught_up()
        stage.mirror.kill_worker()
        stage.moment(3)
        stage.caught_up()  # not recovered(): the fault goes on
        stage.seen(OPEN_TRANSACTION, is_open(stage.source, topic))
        if at % 2:
            producer.commit_transaction(stage.patience_s)
        else:
            producer.abort_transaction(stage.patience_s)
        stage.recovered()


def is_open(side: Side, topic: str) -> int:
    """Returns 1 if read_committed consumers cannot reach the end of partition 0, otherwise 0."""
    names = [(topic, 0)]
    stable, watermark = side.ends(names, committed=True), side.ends(names)
    return int(bool(stable) and bool(watermark) and stable[topic, 0] < watermark[topic, 0])
