"""Finds leading filler that consumers of the destination still see.

The copy of a log that begins at offset N begins with filler up to N, which is deleted once it is complete. Brokers save
a log's new start only once a minute, so a crash right after the deletion brings the filler back. Consumers that begin
at the earliest offset then read records without content. Filler is written only into empty logs and deleted from the
front, so there is filler if, and only if, the log's first batch is filler.
"""

from collections.abc import Iterable
from typing import NamedTuple

from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Span, TopicPartition
from mirror.net.cluster import Cluster
from mirror.net.errors import Damaged, StoredInOldFormat, Unreachable, Unreadable
from mirror.net.logs.log import PartitionLog
from mirror.records.filler import filler_id, is_filler


class VisibleFiller(NamedTuple):
    """The leading filler that consumers see. ``findings``: one for each log with filler. ``notes``: lines on logs whose
    beginning cannot be read, so that it is not known whether they have filler."""

    findings: list[Finding]
    notes: list[str]


async def visible_filler(
    destination: Cluster, bounds: Iterable[Bounds], *, flow: str, source_cluster_id: str
) -> VisibleFiller:
    """Returns a finding for each partition of the destination whose log begins with filler.

    Raises:
        NetworkError: a leader does not answer, or there is none.
    """
    found = VisibleFiller([], [])
    for known in bounds:
        before = Span(known.destination.start, min(known.source.start, known.destination.end))
        leader = destination.leader(known.topic, known.partition)
        if not before.offsets:
            continue
        if leader is None:
            raise without_leader(destination, known.key)
        log = PartitionLog(destination, destination.topics[known.topic], known.partition, leader)
        filler = filler_id(
            flow=flow, cluster_id=source_cluster_id, topic=known.topic, partition=known.partition
        )  # fmt: skip
        try:
            end = await filler_end(log, before, filler)
        except (Damaged, Unreadable, StoredInOldFormat) as error:
            found.notes.append(
                f"{log.name}: whether leading filler is visible in front of offset {before.end} is not known: {error}"
            )
            continue
        if end > before.start:
            found.findings.append(
                Finding(
                    kind=Kind.FILLER, topic=known.topic, partition=known.partition, source=None,
                    destination=Span(before.start, end), batches=0, records=end - before.start,
                    detail="leading filler is visible, and read as records without content; the mirror deletes it "
                    "when it takes the partition again",
                )
            )  # fmt: skip
    return found


def without_leader(cluster: Cluster, key: TopicPartition) -> Unreachable:
    """Returns the error for a partition without a leader."""
    return Unreachable(
        f"cluster {cluster.name}: topic {key.topic} partition {key.partition} has no leader; check that its leader is "
        "up"
    )


async def filler_end(log: PartitionLog, before: Span, filler: int) -> int:
    """Returns the offset at which the filler ends, or ``before.start`` if there is none. It is found by binary search.

    Args:
        log: the destination's log.
        before: the offsets in which filler may be. They lie below the high watermark.
        filler: the producer id of the filler.

    Raises:
        Damaged: the batch at an offset is damaged.
        Unreadable: the broker cannot read its log there.
        StoredInOldFormat: there is a message of magic 0 or 1.
        NetworkError: a leader does not answer, or its high watermark is lower than before.
    """
    low, high = before
    at = before.start
    while low < high:
        segment = await log.read(at)
        if not segment.batches and segment.high_watermark < before.end:
            raise Unreachable(f"{log.name} ends at {before.end}, and is to be read to {segment.high_watermark} only")
        first = segment.batches[0][0] if segment.batches else None
        if first is not None and is_filler(first, filler):
            low = max(low, min(first.next_offset, before.end))
        elif at == before.start:
            return before.start
        else:
            high = at
        at = low + (high - low) // 2
    return low
