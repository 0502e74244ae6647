"""Finds leading filler that consumers of the destination still see.

A copy of a log that begins at offset N begins with filler up to N, which is deleted once it is complete. Brokers write
down a log's new start only once a minute, so a crash right after the deletion brings the filler back. Consumers that
begin at the earliest offset would then read records without content. Filler is written only into empty logs and deleted
from the front, so it exists if, and only if, the log's first batch is filler.
"""

from collections.abc import Iterable

from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Span
from mirror.net.cluster import Cluster
from mirror.net.logs.log import PartitionLog
from mirror.records.filler import filler_id, is_filler


async def visible_filler(
    destination: Cluster, bounds: Iterable[Bounds], *, flow: str, source_cluster_id: str
) -> list[Finding]:
    """Returns a finding for each partition of the destination whose log begins with filler.

    Raises:
        NetworkError: a leader does not answer.
    """
    found: list[Finding] = []
    for known in bounds:
        before = Span(known.destination.start, min(known.source.start, known.destination.end))
        leader = destination.leader(known.topic, known.partition)
        if not before.offsets or leader is None:
            continue
        log = PartitionLog(destination, destination.topics[known.topic], known.partition, leader)
        filler = filler_id(
            flow=flow, cluster_id=source_cluster_id, topic=known.topic, partition=known.partition
        )  # fmt: skip
        end = await _end(log, before, filler)
        if end > before.start:
            found.append(
                Finding(
                    kind=Kind.FILLER, topic=known.topic, partition=known.partition, source=None,
                    destination=Span(before.start, end), batches=0, records=end - before.start,
                    detail="leading filler is visible, and read as records without content; the mirror deletes it "
                    "when it takes the partition again",
                )
            )  # fmt: skip
    return found


async def _end(log: PartitionLog, before: Span, filler: int) -> int:
    """Returns the offset at which the filler ends, or ``before.start`` without filler. A binary search."""
    low, high = before
    at = before.start
    while low < high:
        first = await log.batch_at(at)
        if first is not None and is_filler(first[0], filler):
            low = max(low, min(first[0].next_offset, before.end))
        elif at == before.start:
            return before.start
        else:
            high = at
        at = low + (high - low) // 2
    return low
