"""Checks of a topic: does it exist on both sides, and do its configs fit?"""

from collections.abc import Iterator

from mirror.foretold import Line, line_of
from mirror.reasons import HaltReason
from mirror.records.header import Codec
from mirror.relay.settings import APPEND_TIME, TIMESTAMP_TYPE
from mirror.relay.topics.limits import MAX_MESSAGE_BYTES
from mirror.relay.topics.syncing import told_of
from mirror.service.plan.model import FlowFacts, Level, PlanFinding, TopicFacts
from mirror.wire.versions import PRODUCE_KEY

MIN_IN_SYNC = "min.insync.replicas"
ZSTD_SINCE = 7
"""The Produce version since which brokers accept zstd (KIP-110)."""


def creation(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Line P14: whether the destination topic can be created. If it is missing and would not be created,
    ``partitions.paired`` refuses it."""
    if not topic.created:
        return
    if topic.refusal is not None:
        halted = topic.refusal
        yield PlanFinding(
            line_of(halted.reason) or Line.CREATION, Level.REFUSED, halted.detail, halted.remedy, halted.reason
        )
    elif topic.uncertain:
        yield PlanFinding(
            Line.CREATION, Level.UNKNOWN, f"whether it can be created: {topic.uncertain}", "plan again in a moment"
        )
    else:
        replicas = str(topic.replicas) if topic.replicas > 0 else "the cluster's default"
        yield PlanFinding(
            Line.CREATION,
            Level.TOLD,
            f"{topic.pair.destination} is created at {flow.destination.name}; partitions: {topic.partitions}, "
            f"replicas: {replicas}",
        )


def partitions(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Line P15: partitions that are added, or that only the destination has. If partitions are missing and would not be
    added, ``partitions.paired`` refuses them."""
    there = topic.partitions_there
    if topic.grown:
        yield PlanFinding(
            Line.PARTITIONS,
            Level.TOLD,
            f"{topic.partitions - there} partitions are added to {topic.pair.destination} at {flow.destination.name}",
        )
    elif topic.exists and there > topic.partitions and not flow.settings.mapped:
        yield PlanFinding(
            Line.PARTITIONS,
            Level.WARNS,
            f"{topic.pair.destination} has {there} partitions at {flow.destination.name}, and the source has "
            f"{topic.partitions}: the others stay empty, and keys go elsewhere for whoever writes there later",
            "create the topic with as many partitions as the source's, unless this is wanted",
        )


def not_grown(flow: FlowFacts, topic: TopicFacts) -> PlanFinding:
    """Line P15: returns the finding for a destination topic that lacks partitions, and whose other partitions show that
    it is not a copy."""
    reason = HaltReason.FEWER_PARTITIONS_STRANGE
    return PlanFinding(
        Line.PARTITIONS,
        Level.REFUSED,
        f"{topic.pair.destination} has {topic.partitions_there} of {topic.partitions} partitions at "
        f"{flow.destination.name}, and none are added",
        reason.told,
        reason.slug,
    )


def altered(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Line P36: configs of the destination topic that the mirror would change. For topics that look like copies
    only."""
    if topic.altered:
        yield PlanFinding(
            Line.CONFIGS,
            Level.TOLD,
            f"{topic.pair.destination} at {flow.destination.name} gets {told_of(topic.altered)}, as at the source "
            "(sync.topic.configs.enabled)",
        )


def append_times(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Line P13: warns if the destination's broker sets its own timestamps, and the flow accepts that."""
    terms = topic.pair.terms
    if terms.takes_append_times and terms.append_times_there:
        yield PlanFinding(
            Line.REWRITES,
            Level.WARNS,
            f"{topic.pair.destination} at {flow.destination.name} has {TIMESTAMP_TYPE}={APPEND_TIME}: its broker puts "
            "the time of the append in the place of the records' own, which consumers there do not see "
            "(destination.timestamps: append)",
            f"set {TIMESTAMP_TYPE}=CreateTime on the destination topic, unless this is wanted",
        )


def codec(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Line P13: tells that batches are compressed again, if the flow sets a codec. Line P12: refuses that codec if not
    all brokers of the destination know it."""
    wanted = topic.pair.terms.codec
    if wanted is None:
        return
    name = flow.settings.compression
    yield PlanFinding(
        Line.REWRITES,
        Level.TOLD,
        f"each batch of {topic.name} that is not {name} is opened and compressed anew (compression.type: {name}), "
        "which costs many times the CPU of a copy as it is",
    )
    speaks = flow.destination.apis.get(PRODUCE_KEY)
    if wanted == Codec.ZSTD and speaks is not None and speaks < ZSTD_SINCE:
        reason = HaltReason.UNSUPPORTED_CODEC
        detail = f"compression.type is zstd, which not all brokers of {flow.destination.name} know"
        yield PlanFinding(Line.CODEC, Level.REFUSED, detail, "set another compression.type for the flow", reason.slug)


def rebatches(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Line P13: tells that small batches are merged into larger ones."""
    below = topic.pair.terms.rebatches
    if below:
        yield PlanFinding(
            Line.REWRITES,
            Level.TOLD,
            f"batches of {topic.name} of less than {below} bytes become larger ones at {flow.destination.name}, at the "
            "same offsets (mode)",
        )


def batch_size(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Line P10, by the configs alone: whether the destination topic takes batches as large as those of the source."""
    for lack in topic.pair.narrower:
        if lack.name == MAX_MESSAGE_BYTES:
            yield PlanFinding(
                Line.BATCH_SIZE,
                Level.WARNS,
                f"{topic.pair.destination} at {flow.destination.name} takes batches of {lack.there} bytes, the source "
                f"up to {lack.enough}; a partition that comes to a larger one halts (too_large)",
                f"set {lack.name}={lack.enough} on the destination topic",
            )


def timestamps(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Line P11, by the configs alone: whether the destination topic takes all timestamps that the source takes."""
    for lack in topic.pair.narrower:
        if lack.name != MAX_MESSAGE_BYTES:
            yield PlanFinding(
                Line.TIMESTAMPS,
                Level.WARNS,
                f"{topic.pair.destination} at {flow.destination.name} has {lack.name}={lack.there}, and {lack.enough} "
                "is needed to take whatever the source takes; a partition that comes to another batch halts "
                "(invalid_timestamp)",
                f"set {lack.name}={lack.enough} on the destination topic",
            )


def null_keys(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Line P31, by the configs alone: warns if only the destination topic is compacted."""
    if topic.pair.terms.compacted_there and not topic.pair.terms.compacted:
        yield PlanFinding(
            Line.NULL_KEYS,
            Level.WARNS,
            f"{topic.pair.destination} is compacted at {flow.destination.name}, and the source's topic is not: a "
            "record without a key halts the partition (refused), and superseded records are removed there",
            "set cleanup.policy of the destination topic to the source's",
        )


def replicas(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Line P26: whether a topic that would be created has enough replicas for ``min.insync.replicas``."""
    needed = number(topic.there, MIN_IN_SYNC)
    if topic.created and needed is not None and 0 < topic.replicas < needed:
        yield PlanFinding(
            Line.REPLICAS,
            Level.WARNS,
            f"{topic.pair.destination} is created with {topic.replicas} replicas, and {MIN_IN_SYNC} is {needed}: "
            "nothing can be written to it",
            "raise replication.factor of the flow",
        )


def number(values: object, name: str) -> int | None:
    """Returns a topic config as a number; None if it is not known. ``values``: configs by name."""
    value = values.get(name) if hasattr(values, "get") else None
    return int(value) if value else None


CHECKS = (creation, partitions, append_times, codec, rebatches, batch_size, timestamps, null_keys, replicas)
