"""Checks of the batches that were read from a partition."""

from collections.abc import Iterator

from mirror.foretold import Line, line_of
from mirror.reasons import HaltReason
from mirror.relay.settings import APPEND_TIME, TIMESTAMP_TYPE
from mirror.relay.topics.limits import AFTER, BEFORE, SEGMENT_BYTES, limit_of
from mirror.service.plan.checks.partitions import of_halt
from mirror.service.plan.checks.rights import may_write_markers
from mirror.service.plan.checks.topics import ZSTD_SINCE, number
from mirror.service.plan.model import FlowFacts, Level, PartitionFacts, PlanFinding, TopicFacts
from mirror.service.texts import duration_text
from mirror.wire.versions import PRODUCE_KEY

CLOCK_MS = 60_000
"""A record that is ahead of this host's clock by more than this shows that clocks differ."""
MANY_HOLES = 0.5
"""Share of offsets without a record above which ``offsets: mapped`` is recommended, as the running mirror does."""
RETENTION_MS, RETENTION_BYTES = "retention.ms", "retention.bytes"


def judged(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Lines P07 to P10, P12, P27, P29, P30: the halts that would follow, by the relay's verdicts on the batches."""
    for halted in one.sample.halts.values() if one.sample is not None else ():
        yield of_halt(halted)


def rewritten(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Lines P07 to P10, P13: tells how many batches would be opened and rewritten."""
    sample = one.sample
    for slug, count in sorted(sample.rewritten.items()) if sample is not None else ():
        line = line_of(slug) or Line.REWRITES
        assert sample is not None
        yield PlanFinding(
            line,
            Level.TOLD,
            f"{count:,} of {max(count, sample.batches):,} batches that were read would be opened and rewritten "
            f"({slug}): their records keep their offsets, and cost more than batches that are copied as they are",
        )


def batch_size(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P10: refuses batches that are larger than the destination's ``segment.bytes``. Batches above
    ``max.message.bytes`` are found by ``judged``."""
    segment = number(topic.there, SEGMENT_BYTES)
    if one.sample is not None and segment is not None and one.sample.largest > segment:
        reason = HaltReason.TOO_LARGE_FOR_SEGMENT
        detail = f"a batch has {one.sample.largest} bytes, and segment.bytes of the destination topic is {segment}"
        yield PlanFinding(Line.BATCH_SIZE, Level.REFUSED, detail, reason.remedy, reason.slug)


def timestamps(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P11: refuses timestamps that the destination topic does not take."""
    if one.sample is None or one.sample.newest_ms < 0:
        return
    ahead, behind = one.sample.newest_ms - flow.now_ms, flow.now_ms - one.sample.oldest_ms
    for name, found, way in ((AFTER, ahead, "ahead of"), (BEFORE, behind, "behind")):
        limit = limit_of(topic.there, name)
        if limit is not None and found > limit:
            reason = HaltReason.INVALID_TIMESTAMP
            yield PlanFinding(
                Line.TIMESTAMPS,
                Level.REFUSED,
                f"a batch's newest record is {duration_text(found / 1000)} {way} this host's clock, and the "
                f"destination topic takes {duration_text(limit / 1000)} ({name}={limit})",
                reason.remedy,
                reason.slug,
            )


def clocks(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P06: warns if a record's timestamp is in the future. Nothing else shows that clocks differ, since brokers do
    not tell their time."""
    ahead = one.sample.newest_ms - flow.now_ms if one.sample is not None else 0
    if ahead > CLOCK_MS:
        yield PlanFinding(
            Line.CLOCKS,
            Level.WARNS,
            f"a record's timestamp is {duration_text(ahead / 1000)} ahead of this host's clock: the clock of its "
            "producer (or the source's broker), or this one, is wrong. Nothing else shows it: brokers do not tell "
            "their time",
            "see that all of them synchronise their clocks; the mirror relies on less than 15 minutes",
        )


def codec(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P12: refuses zstd batches if not all brokers of the destination know zstd."""
    speaks = flow.destination.apis.get(PRODUCE_KEY)
    if one.sample is not None and "zstd" in one.sample.codecs and speaks is not None and speaks < ZSTD_SINCE:
        reason = HaltReason.UNSUPPORTED_CODEC
        detail = f"batches are zstd, which not all brokers of {flow.destination.name} know"
        yield PlanFinding(Line.CODEC, Level.REFUSED, detail, reason.remedy, reason.slug)


def holes(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P23: the share of offsets without a record, and whether the mirror may fill them."""
    sample = one.sample
    if sample is None or not sample.hole_offsets or flow.settings.mapped:
        return
    share = sample.hole_offsets / sample.offsets
    causes = ", ".join(f"{count:,} {cause}" for cause, count in sorted(sample.holes.items()))
    detail = f"{share:.1%} of the offsets that were read have no record ({causes})"
    if not flow.settings.fill_by_transaction and may_write_markers(flow) is False:
        reason = HaltReason.FILL_NOT_PERMITTED
        yield PlanFinding(Line.HOLES, Level.REFUSED, detail, reason.remedy, reason.slug)
    elif share > MANY_HOLES:
        yield PlanFinding(
            Line.HOLES,
            Level.WARNS,
            f"{detail}: each range of them costs a few round trips",
            "offsets: mapped leaves them out, if offsets need not be the same",
        )
    else:
        yield PlanFinding(Line.HOLES, Level.TOLD, detail)


def null_keys(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P31: refuses a record without a key that a compacted destination topic would refuse."""
    if one.sample is not None and one.sample.null_key >= 0:
        reason = HaltReason.REFUSED
        detail = f"the record at offset {one.sample.null_key} has no key, and the destination topic is compacted"
        yield PlanFinding(
            Line.NULL_KEYS, Level.REFUSED, detail, "set cleanup.policy of the destination topic to the source's",
            reason.slug,
        )  # fmt: skip


def destination_retention(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P25: warns if the destination topic would delete records soon after they are copied."""
    retention = number(topic.there, RETENTION_MS)
    policy = topic.there.get("cleanup.policy") or "delete"
    due_ms = one.sample.due_ms if one.sample is not None else -1
    appended = topic.there.get(TIMESTAMP_TYPE) == APPEND_TIME  # then retention counts from the time of the append
    if one.backlog and retention is not None and retention >= 0 and "delete" in policy and due_ms >= 0 and not appended:
        age = flow.now_ms - due_ms
        if age > retention:
            yield PlanFinding(
                Line.DESTINATION_RETENTION,
                Level.WARNS,
                f"records that are due are {duration_text(age / 1000)} old, and {topic.pair.destination} at "
                f"{flow.destination.name} deletes what is older than {duration_text(retention / 1000)} (retention.ms)",
                "raise retention.ms of the destination topic if they are to be kept",
            )


def source_size(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Iterator[PlanFinding]:
    """Line P24, by size: warns if the source's log is as large as its ``retention.bytes``. By time, this is checked
    once the duration of the copy is estimated (``estimate.source_retention``)."""
    most = number(topic.here, RETENTION_BYTES)
    size = (flow.source.sizes or {}).get((topic.name, one.index))
    policy = topic.here.get("cleanup.policy") or "delete"
    if one.backlog and size is not None and most is not None and 0 <= most <= size and "delete" in policy:
        yield PlanFinding(
            Line.SOURCE_RETENTION,
            Level.WARNS,
            f"the log has {size} bytes at {flow.source.name}, and retention.bytes is {most}: with each new segment the "
            "oldest one is deleted, copied or not",
            "raise retention.bytes of the source topic until the mirror has caught up",
        )


CHECKS = (
    judged, rewritten, batch_size, timestamps, clocks, codec, holes, null_keys, destination_retention, source_size,
)  # fmt: skip
