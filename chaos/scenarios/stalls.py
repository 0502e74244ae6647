"""A scenario in which one of three destination brokers does not read for a while. It measures how much the other two
get meanwhile."""

import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer

from chaos.errors import ChaosError
from chaos.play.sides import Name, Side
from chaos.play.stage import Stage
from chaos.producers.topics import TopicPlan
from chaos.scenario import Shape, scenario
from chaos.scenarios.brokers import GROUP
from chaos.waiting import PATIENCE_S
from lab.evidence import BROKER_FROZEN, LANE_HELD
from lab.proxy import Direction

PARTITIONS = 24
"""Number of partitions. Each broker leads a third of them, and each source broker has partitions for every destination
broker."""
BACKLOG_BYTES = 13 << 20
"""Backlog of each partition: more than is copied of any partition during the measurement."""
RECORD_BYTES, BATCH_RECORDS = 32 << 10, 8
BYTES_PER_S = 3_000_000
"""Rate of each source broker, which the machine can keep up whatever else it does. An answer of 8 MiB takes three
seconds."""
BEFORE_S, SKIPPED_S, FROZEN_S = 10.0, 1.0, 12.0
"""Times in seconds: measured before the freeze, skipped at its beginning, and measured during it. The freeze is shorter
than the request timeout."""
LEAST_PERCENT = 50


@scenario(
    "destination-broker-stalls", group=GROUP, full=3, quick=1, bare=True, shape=Shape(proxied=True),
    topics=(TopicPlan(name="backlog", writing="nobody", partitions=PARTITIONS, replicas=1),),
    flow={"replication.factor": 1}, cluster={"request.timeout.ms": 30_000}, struck=(BROKER_FROZEN, LANE_HELD),
    does=f"SIGSTOP of one of the destination's brokers amid a backlog, for {SKIPPED_S + FROZEN_S:.0f} s: the "
    "partitions of the other two keep at least half of their rate",
)  # fmt: skip
def destination_broker_stalls(stage: Stage) -> None:
    topic = stage.topic("backlog")
    _spread(stage)
    _fill(stage.source, topic)
    stage.source.network.slow(BYTES_PER_S, [Direction.ANSWERS])
    # The destination not through its proxy, which would accept the bytes that the frozen broker does not read.
    stage.start_mirror(destination=stage.destination.bootstrap_servers)
    stage.flowing()
    for _ in stage.repeat():
        victim = stage.chance.choice(stage.destination.cluster.brokers)
        own = [name for name in stage.names if _leader(name) == victim.node_id]
        others = [name for name in stage.names if name not in own]
        before = _rate(stage, others, BEFORE_S)
        earlier = len(stage.mirror.of("lane_stalled"))
        stage.destination.pause(victim)
        time.sleep(SKIPPED_S)
        held = _bytes(stage.destination, own)
        during = _rate(stage, others, FROZEN_S)
        took, left = _bytes(stage.destination, own) - held, _bytes(stage.source, own) - held
        stage.destination.resume(victim)
        stage.source.good_weather()
        stalled = [line["broker"] for line in stage.mirror.of("lane_stalled")[earlier:]]
        if not before:
            raise ChaosError(f"nothing was copied before the freeze; {stage.told()}")
        percent = round(100 * during / before)
        stage.figure(
            f"{before / 1e6:.1f} MB/s to the other two brokers before, {during / 1e6:.1f} MB/s while the third was "
            f"frozen: {percent} %; {left / 1e6:.0f} MB waited for broker {victim.node_id}, {took} bytes of them came, "
            f"set aside: {stalled}"
        )
        stage.seen(LANE_HELD, int(not took and left > 0))
        if percent < LEAST_PERCENT:
            raise ChaosError(f"the others kept {percent} % of their rate; {stage.told()}")
        if victim.node_id not in stalled:
            raise ChaosError(f"nothing was fetched without broker {victim.node_id}: no lane_stalled of it")
        stage.recovered()


def _leader(name: Name) -> int:
    """Returns the node id of a partition's leader at the destination. At the source, each broker leads a third of the
    partitions with consecutive numbers instead."""
    return name[1] % 3 + 1


def _spread(stage: Stage) -> None:
    """Creates the topics of both sides. Their leaders are placed so that every answer of a source broker has records
    for all destination brokers."""
    stage.create_topics()
    stage.destination.create(stage.topics)
    stage.source.reassign({name: [name[1] * 3 // PARTITIONS + 1] for name in stage.names})
    stage.destination.reassign({name: [_leader(name)] for name in stage.names})


def _fill(side: Side, topic: str) -> None:
    """Writes the backlog. No two records are equal."""
    producer = Producer({
        "bootstrap.servers": side.bootstrap_servers, "batch.num.messages": BATCH_RECORDS, "linger.ms": 50,
        "log_level": 0,
    })  # fmt: skip
    padding = "x" * RECORD_BYTES
    for number in range(BACKLOG_BYTES // RECORD_BYTES * PARTITIONS):
        value = f"{number} {padding}"
        while True:
            try:
                producer.produce(topic, value=value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(PATIENCE_S):
        raise ChaosError(f"{topic} at {side.name}: records were not taken")


def _rate(stage: Stage, names: Sequence[Name], seconds: float) -> float:
    """Measures for some seconds, and returns the bytes per second by which these partitions of the destination grow."""
    began_at, before = time.monotonic(), _bytes(stage.destination, names)
    time.sleep(seconds)
    rate = (_bytes(stage.destination, names) - before) / (time.monotonic() - began_at)
    stage.look()
    return rate


def _bytes(side: Side, names: Sequence[Name]) -> int:
    """Returns the total size of these partitions' logs on disk. That needs no answer of a broker, which may be
    frozen."""
    return sum(path.stat().st_size for topic, index in names for path in _segments(side, topic, index))


def _segments(side: Side, topic: str, index: int) -> list[Path]:
    return [path for one in side.cluster.brokers for path in (one.data_dir / f"{topic}-{index}").glob("*.log")]
