"""Checks of a partition: the relay's verdicts on the topics, on the internal topic and on both logs."""

from collections.abc import Iterator

from mirror.foretold import Line, line_of
from mirror.net.rights import ALTER_CONFIGS, DELETE
from mirror.reasons import PAUSED, HaltReason
from mirror.relay.halts import Halted
from mirror.service.plan.checks.rights import lacking
from mirror.service.plan.checks.topics import MIN_IN_SYNC, number
from mirror.service.plan.model import FlowFacts, Level, PartitionFacts, PlanFinding, TopicFacts


def of_halt(halted: Halted, detail: str = "") -> PlanFinding:
    """Returns the finding for a halt that would follow. ``detail``: text to add to the halt's detail."""
    line = line_of(halted.reason) or Line.PREFIX
    return PlanFinding(line, Level.REFUSED, halted.detail + detail, halted.remedy, halted.reason)


def paired(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Lines P13, P14, P15, P30: the relay's verdict on the two topics."""
    if topic.created or (topic.grown and one.index >= topic.partitions_there):
        return
    halted = topic.pair.halt_of(one.index)
    if halted is None:
        return
    seen = ", ".join(sorted(one.sample.codecs)) if one.sample is not None else ""
    rewrites = halted.reason == HaltReason.DESTINATION_REWRITES.slug and seen
    yield of_halt(halted, f"; the source's batches that were read are {seen}" if rewrites else "")


def located(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Lines P16 to P21, P24, P28, P29, P32: the relay's verdict on both logs and on the internal topic."""
    if one.halted is None:
        return
    found = of_halt(one.halted)
    if one.halted.reason == PAUSED:
        yield PlanFinding(Line.HALTED, Level.TOLD, "an operator has paused it", one.halted.remedy)
        return
    if one.kept:
        found = found._replace(line=Line.HALTED, detail=f"it has halted before ({found.reason}): {found.detail}")
    yield found


def begun_anew(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P21: tells that a topic was recreated before anything was copied."""
    if one.begun_anew:
        yield PlanFinding(
            Line.RECREATED, Level.TOLD, "a topic was recreated before anything was copied: the copy begins again"
        )


def starting_offset(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P38: tells where the copy begins, if not with the source."""
    if one.left_out and one.halted is None:
        yield PlanFinding(
            Line.STARTING,
            Level.TOLD,
            f"the copy begins at offset {one.start:,} (start.from: {flow.settings.start_from}): {one.left_out:,} "
            "offsets that the source has before that are not copied",
        )


def leading_filler(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P22: the offsets before the copy's first record that have to be filled; also line P04, if the rights to
    delete the filler are missing."""
    if not one.leading or one.halted is not None:
        return
    most = flow.settings.max_leading_filler
    if one.leading > most:
        reason = HaltReason.LEADING_OFFSETS
        yield PlanFinding(
            Line.LEADING,
            Level.REFUSED,
            f"the copy begins {one.leading:,} offsets behind what the destination has, and max.leading.filler is "
            f"{most:,}",
            reason.remedy,
            reason.slug,
        )
        return
    yield PlanFinding(
        Line.LEADING,
        Level.TOLD,
        f"the copy begins at offset {one.start:,}: {one.leading:,} offsets are filled at the destination and deleted "
        "again; meanwhile, a consumer that begins at the earliest offset reads records without content",
    )
    lacks = lacking(topic.rights_there, DELETE) if topic.exists else []
    if topic.exists and topic.pair.terms.compacted_there:
        lacks += lacking(topic.rights_there, ALTER_CONFIGS)
    if lacks:
        yield PlanFinding(
            Line.RIGHTS,
            Level.REFUSED,
            f"{topic.pair.destination} at {flow.destination.name}: the principal lacks {' and '.join(lacks)}, without "
            "which the filler cannot be deleted again",
            "grant it Delete on the topic, and AlterConfigs if the topic is compacted",
            HaltReason.LEADING_OFFSETS.slug,
        )


def replicas(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P26: whether enough replicas of the destination partition are in sync."""
    needed = number(topic.there, MIN_IN_SYNC)
    if topic.exists and needed is not None and 0 <= one.in_sync < needed:
        yield PlanFinding(
            Line.REPLICAS,
            Level.WARNS,
            f"{one.in_sync} of {one.replicas} replicas are in sync at {flow.destination.name}, and {MIN_IN_SYNC} is "
            f"{needed}: nothing is written until more are",
            "bring the replicas' brokers back, or lower min.insync.replicas",
        )


def reached(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P35: what could not be found out about the partition."""
    if one.unknown:
        yield PlanFinding(Line.REACHED, Level.UNKNOWN, f"not known: {one.unknown}", "plan again once that is answered")


CHECKS = (paired, located, begun_anew, starting_offset, leading_filler, replicas, reached)
