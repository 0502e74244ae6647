"""The data are unusual, or somebody else lays hands on them: old, damaged, compacted, deleted, rewritten, foreign."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from confluent_kafka import Producer

from chaos.errors import ChaosError
from chaos.mirrors import FLOW
from chaos.proxy import Direction, watch_request
from chaos.proxy.answers import entries
from chaos.raw import Stored, batches, write_marker
from chaos.scenario import Shape, scenario
from chaos.segments import flip
from chaos.sides import Side
from chaos.stage import Stage
from chaos.topics import PLAIN, TopicPlan
from chaos.waiting import until
from chaos.writing import add, transactional, write
from mirror.records.header import HEADER_SIZE
from mirror.records.identity import Identity, producer_id

GROUP = "Data"
SHAPE = Shape(
    source=(("log.cleaner.backoff.ms", "300"), ("log.initial.task.delay.ms", "500")),
    destination=(
        # What is not asked for must not appear: the mirror may not create topics by naming them.
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


def prefix(stage: Stage, topic: str, index: int = 0) -> int:
    """What the destination holds of a partition that halted is the source's, batch by batch; how many there are."""
    here = {one.header.base_offset: one for one in batches(stage.source, topic, index)}
    count = 0
    for one in batches(stage.destination, topic, index):
        mine = here.get(one.header.base_offset)
        if one.header.is_control or mine is None:
            continue
        if one.header.last_offset != mine.header.last_offset or one.data[HEADER_SIZE:] != mine.data[HEADER_SIZE:]:
            raise ChaosError(f"{topic}-{index}: the batches at {one.header.base_offset} differ")
        count += 1
    return count


# -- old data --------------------------------------------------------------------------------------------------------


@scenario("data-old", group=GROUP, full=6, quick=1, per_stage=6, shape=SHAPE, topics=(OLD, FRESH),
          does="records two days old, producer state swept; workers killed, requests arrive again later")  # fmt: skip
def old(stage: Stage) -> None:
    network = stage.destination.network
    for _ in stage.repeat():
        seen = network.arm("Produce", watch_request(), skip=stage.chance.randrange(4))
        frame = seen.wait()
        stage.mirror.kill_worker()
        stage.caught_up()
        for code in set(entries(network.replay(frame)).values()):
            stage.note(f"late copy answered {code}")
        stage.recovered()


@scenario("data-old-min-isr", group=GROUP, full=3, quick=1, per_stage=3, shape=SHAPE, topics=(OLD, FRESH),
          does="records two days old, while the destination has too few replicas in sync for a while")  # fmt: skip
def old_min_isr(stage: Stage) -> None:
    for _ in stage.repeat():
        for plan in stage.topics:
            stage.destination.alter(plan.name, min_insync_replicas="3")
        (broker, *_) = stage.destination.followers(stage.topics[0].name)
        broker.kill()
        until(lambda: _waits_for_replicas(stage), lambda: f"too few replicas; {stage.told()}")
        stage.pair.heal()
        stage.await_replicas()
        stage.recovered()
        for plan in stage.topics:
            stage.destination.alter(plan.name, min_insync_replicas="1")


def _waits_for_replicas(stage: Stage) -> bool:
    """It was refused for want of replicas, or sees what it wrote above the high watermark, which no longer moves."""
    stage.look()
    refused = any("not_enough_replicas" in cause for mirror in stage.mirrors for cause in mirror.counts)
    return refused or bool(stage.mirror.of("under_replicated"))


@scenario("data-old-rolling", group=GROUP, full=2, quick=1, shape=SHAPE, topics=(OLD, FRESH),
          does="records two days old, while the destination's brokers are restarted cleanly in turn")  # fmt: skip
def old_rolling(stage: Stage) -> None:
    for _ in stage.repeat():
        _roll(stage, stage.destination)
        stage.recovered()


def _roll(stage: Stage, side: Side) -> None:
    """A clean rolling restart."""
    for broker in side.cluster.brokers:
        broker.stop()
        broker.start()
        stage.await_replicas()


@scenario("data-damaged", group=GROUP, full=3, quick=1, shape=SHAPE, topics=(OLD, FRESH), rate=30.0,
          does="a batch among records two days old is damaged on the source's disk")  # fmt: skip
def damaged(stage: Stage) -> None:
    topic = stage.topic("old-lz4")
    for _ in stage.repeat():
        stage.source.network.stall([Direction.REQUESTS])
        (before,) = stage.source.ends([(topic, 0)]).values()
        victim = until(lambda: _later(stage, topic, before, 4), "some batches that nobody has fetched")[1]  # noqa: B023
        flip(stage.source, topic, 0, victim.data, 8 * len(victim.data) - 1)
        stage.source.network.clear()
        stage.expect_halt(topic, 0, "corrupt")
        stage.mirror.kill_worker()
        stage.recovered()
        (end,) = stage.destination.ends([(topic, 0)]).values()
        if end != victim.header.base_offset:
            raise ChaosError(f"{topic}-0 ends at {end}, the damaged batch is at {victim.header.base_offset}")
        prefix(stage, topic)


def _later(stage: Stage, topic: str, before: int, least: int) -> list[Stored]:
    """The batches behind an offset, if there are enough of them."""
    found = [one for one in batches(stage.source, topic, offset=before) if one.header.base_offset > before]
    return found if len(found) >= least else []


@scenario("data-retention", group=GROUP, full=3, quick=1, shape=SHAPE, topics=(OLD, FRESH), bare=True,
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
        stage.mirror.kill_worker()
        stage.recovered()
        _roll(stage, stage.destination)
        stage.recovered()
    stage.destination.alter(topic, retention_ms="-1")
    stage.compare_what_is_left(names)


@scenario("data-compacted", group=GROUP, full=3, quick=1, shape=SHAPE, topics=(QUIET, FRESH), bare=True,
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
        (due,) = stage.source.ends([(topic, 0)]).values()
        stage.source.alter(
            topic, cleanup_policy="compact", segment_ms="300", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0"
        )
        until(lambda: _cleaned(stage, topic, due), f"the cleaner to have been at {topic}")  # noqa: B023
        # What is compared is to stay as it is, in a topic that is compacted all the same.
        stage.source.alter(
            topic, min_cleanable_dirty_ratio="1.0", min_compaction_lag_ms="86400000", segment_ms="86400000"
        )
        stage.compare_since({(topic, 0): due})
        stage.mirror.start()
        stage.recovered()


def _write_keyed(stage: Stage, topic: str, count: int) -> None:
    """Records of three keys, each in a batch of its own, by a producer that leaves no trace when they are cleaned."""
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
    """Some more records, and whether batches behind ``due`` are gone."""
    _write_keyed(stage, topic, 6)
    found = batches(stage.source, topic, offset=due)
    return any(one.header.next_offset < other.header.base_offset for one, other in pairwise(found))


# -- a destination that changes what it gets -------------------------------------------------------------------------


@scenario("data-rewriting", group=GROUP, full=2, quick=1, shape=SHAPE, bare=True,
          topics=(TopicPlan(name="append-time", writing="nobody"), TopicPlan(name="gzip", writing="nobody"), FRESH),
          does="destination topics that put their own times in, or recompress; the worker is restarted")  # fmt: skip
def rewriting(stage: Stage) -> None:
    stage.create_topics()
    stage.destination.create(stage.topics)
    times, gzip = stage.topic("append-time"), stage.topic("gzip")
    stage.destination.alter(times, message_timestamp_type="LogAppendTime")
    stage.destination.alter(gzip, compression_type="gzip")
    for topic in (times, gzip):
        write(stage.source, topic, 100)
    stage.start_stream()
    stage.start_mirror()
    for topic in (times, gzip):
        stage.announce_halt(topic, 0, "destination_rewrites")
    for _ in stage.repeat():
        for topic in (times, gzip):
            stage.expect_halt(topic, 0, "destination_rewrites")
        stage.mirror.kill_worker()
        until(lambda: _halts(stage) == 2, lambda: f"both to halt again; {stage.told()}")
        stage.recovered()


def _halts(stage: Stage) -> int:
    """Partitions that have halted since the last start."""
    stage.look()
    return len(stage.mirror.halts)


@scenario("data-rewriting-later", group=GROUP, full=2, quick=1, shape=SHAPE, bare=True,
          topics=(TopicPlan(name="append-time", writing="nobody"), TopicPlan(name="gzip", writing="nobody"), FRESH),
          does="destination topics begin to put their own times in, or to recompress; then a restart")  # fmt: skip
def rewriting_later(stage: Stage) -> None:
    stage.create_topics()
    times, gzip = stage.topic("append-time"), stage.topic("gzip")
    for topic in (times, gzip):
        write(stage.source, topic, 100)
    stage.start_stream()
    stage.start_mirror()
    for _ in stage.repeat():
        stage.caught_up()
        stage.destination.alter(times, message_timestamp_type="LogAppendTime")
        stage.destination.alter(gzip, compression_type="gzip")
        for topic in (times, gzip):
            write(stage.source, topic, 100, seed=1)
        stage.caught_up()
        for topic in (times, gzip):
            stage.announce_halt(topic, 0, "destination_rewrites", "not_a_copy")
        stage.mirror.kill_worker()
        for topic in (times, gzip):
            stage.expect_halt(topic, 0, "destination_rewrites", "not_a_copy")


# -- somebody else's hands -------------------------------------------------------------------------------------------


@scenario("data-overfilled", group=GROUP, full=5, quick=1, shape=SHAPE, topics=(QUIET, FRESH), bare=True,
          does="a marker put in by hand while the mirror is stopped")  # fmt: skip
def overfilled(stage: Stage) -> None:
    topic = stage.topic("quiet")
    _quiet_beside_a_stream(stage)
    for _ in stage.repeat():
        stage.mirror.stop()
        identity = identity_of(stage, topic, 0)
        write_marker(stage.destination, topic, 0, producer_id=identity.producer_id, epoch=1)
        write(stage.source, topic, 50, seed=1)
        stage.mirror.start()
        stage.expect_halt(topic, 0, "overfilled")
        prefix(stage, topic)


def _quiet_beside_a_stream(stage: Stage) -> None:
    """A topic that is copied and at rest, and others that go on."""
    stage.create_topics()
    for plan in stage.topics:
        if plan.writing == "nobody":
            write(stage.source, plan.name, 50)
    stage.start_stream()
    stage.start_mirror()
    stage.caught_up()


def identity_of(stage: Stage, topic: str, index: int) -> Identity:
    """The mirror's first one for this partition."""
    owner = producer_id(flow=FLOW, cluster_id=stage.source.cluster.cluster_id, topic=topic, partition=index)
    return Identity(owner, 0, 0)


@scenario("data-foreign", group=GROUP, full=5, quick=1, shape=SHAPE, bare=True,
          topics=(TopicPlan(name="running", writing="nobody"), TopicPlan(name="stopped", writing="nobody"), FRESH),
          does="somebody else writes to the destination's topic, while the mirror runs or is stopped")  # fmt: skip
def foreign(stage: Stage) -> None:
    running, stopped = stage.topic("running"), stage.topic("stopped")
    _quiet_beside_a_stream(stage)
    for _ in stage.repeat():
        write(stage.destination, running, 10, seed=7)
        write(stage.source, running, 50, seed=1)
        stage.expect_halt(running, 0, "foreign_writer")
        stage.mirror.stop()
        write(stage.destination, stopped, 10, seed=7)
        write(stage.source, stopped, 50, seed=1)
        stage.mirror.start()
        stage.expect_halt(stopped, 0, "foreign_writer")


@scenario("data-recreated-source", group=GROUP, full=3, quick=1, shape=SHAPE, bare=True,
          topics=(TopicPlan(name="running", writing="nobody"), TopicPlan(name="stopped", writing="nobody"), FRESH),
          does="a source topic is deleted and made again: while the mirror runs, while it is stopped")  # fmt: skip
def recreated_source(stage: Stage) -> None:
    _recreate(stage, stage.source, ("recreated", "topic_missing"), ("recreated", "not_a_copy"))


@scenario("data-recreated-destination", group=GROUP, full=3, quick=1, shape=SHAPE, bare=True,
          topics=(TopicPlan(name="running", writing="nobody"), TopicPlan(name="stopped", writing="nobody"), FRESH),
          does="a destination topic is deleted, is not created by being asked for, and is made again")  # fmt: skip
def recreated_destination(stage: Stage) -> None:
    _recreate(stage, stage.destination, ("recreated", "topic_missing"), ())


def _recreate(stage: Stage, side: Side, when_running: tuple[str, ...], when_stopped: tuple[str, ...]) -> None:
    running, stopped = stage.topic("running"), stage.topic("stopped")
    _quiet_beside_a_stream(stage)
    for _ in stage.repeat():
        side.delete([running])
        if side is stage.destination:
            write(stage.source, running, 50, seed=1)
        stage.expect_halt(running, 0, *when_running)
        if running in side.topics():
            raise ChaosError(f"{running} was created by being asked for at {side.name}")
        plans = {plan.name: plan for plan in stage.topics}
        side.create([plans[running]])
        if side is stage.source:
            write(stage.source, running, 80, seed=2)
        stage.recovered()
        if not when_stopped:
            continue
        stage.announce_halt(running, 0, *when_running, *when_stopped)  # the next start knows nothing of this one
        stage.mirror.stop()
        side.delete([stopped])
        side.create([plans[stopped]])
        write(stage.source, stopped, 80, seed=2)
        stage.mirror.start()
        stage.expect_halt(stopped, 0, *when_stopped)
        prefix_is_old(stage, stopped)


def prefix_is_old(stage: Stage, topic: str) -> None:
    """Nothing of the new source topic came to the destination, which has what the old one had."""
    (end,) = stage.destination.ends([(topic, 0)]).values()
    if end != 50:
        raise ChaosError(f"{topic}-0 ends at {end} at the destination, and the old topic ended at 50")


@scenario("data-overtaken", group=GROUP, full=3, quick=1, shape=SHAPE, bare=True,
          topics=(TopicPlan(name="frozen", writing="nobody"), TopicPlan(name="stopped", writing="nobody"), FRESH),
          does="the source deletes records that are due: while the mirror is frozen, while it is stopped")  # fmt: skip
def overtaken(stage: Stage) -> None:
    frozen, stopped = stage.topic("frozen"), stage.topic("stopped")
    _quiet_beside_a_stream(stage)
    for _ in stage.repeat():
        with _frozen(stage):
            write(stage.source, frozen, 60, seed=1)
            write(stage.source, frozen, 60, seed=2)
            stage.source.delete_before({(frozen, 0): 130})
        stage.expect_halt(frozen, 0, "retention_overtook")
        stage.mirror.stop()
        write(stage.source, stopped, 60, seed=1)
        write(stage.source, stopped, 60, seed=2)
        stage.source.delete_before({(stopped, 0): 130})
        stage.mirror.start()
        stage.expect_halt(stopped, 0, "retention_overtook")
        for topic in (frozen, stopped):
            (end,) = stage.destination.ends([(topic, 0)]).values()
            if end > 130:
                raise ChaosError(f"{topic}-0 ends at {end} at the destination: what came behind the gap was copied")


@contextmanager
def _frozen(stage: Stage) -> Iterator[None]:
    """The worker is stopped (SIGSTOP), and an answer that was on its way to it is lost."""
    pid = stage.mirror.freeze()
    stage.source.network.cut()
    try:
        yield
    finally:
        stage.mirror.thaw(pid)


# -- transactions of the source --------------------------------------------------------------------------------------


@scenario("data-open-transaction", group=GROUP, full=4, quick=2, per_stage=4, shape=SHAPE, topics=(QUIET, FRESH),
          bare=True,
          does="a source transaction stays open for long, with other records behind it; then it is ended")  # fmt: skip
def open_transaction(stage: Stage) -> None:
    topic = stage.topic("quiet")
    _quiet_beside_a_stream(stage)
    for at in stage.repeat():
        producer = transactional(stage.source, f"open-{topic}")
        producer.begin_transaction()
        add(producer, topic, 10, seed=3 + at)
        producer.flush(stage.patience_s)
        write(stage.source, topic, 30, seed=100 + at)
        stage.caught_up()
        stage.mirror.kill_worker()
        stage.moment(3)
        stage.recovered()
        if at % 2:
            producer.commit_transaction(stage.patience_s)
        else:
            producer.abort_transaction(stage.patience_s)
        stage.recovered()
