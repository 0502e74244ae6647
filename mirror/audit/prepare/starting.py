"""Reads from the flow's internal topic where copies begin that begin later than their source (``start.from``).

The source's offsets before a copy are no difference, because they were never to be copied. The audit's notes list them.
A worker that had already lost the partition may have written such an offset late, when another worker had begun to copy
in front of it. So with exact offsets, it does not count if the destination has copies in front of it.
"""

import asyncio
from collections.abc import Iterable, Mapping

from mirror.audit.model.places import Span, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.prepare.leading import filler_end, without_leader
from mirror.audit.prepare.offsets import log_spans
from mirror.net.cluster import Cluster
from mirror.net.errors import Damaged, StoredInOldFormat, Unreachable, Unreadable
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.entries.entry import StateError
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.internal.memory import UNREADABLE, passes
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.records.filler import filler_id, is_filler
from mirror.wire.errors import ErrorCode

AT_A_TIME = 50
"""How many partitions are examined at the same time: thousands of them may have filler in front of their copies."""


async def starting_offsets(
    source_cluster_id: str,
    destination: Cluster,
    keys: Iterable[TopicPartition],
    request: AuditRequest,
    ids: Mapping[str, str],
) -> dict[TopicPartition, StartingOffset]:
    """Returns the starting offsets of those partitions whose copies begin later than their source, according to the
    flow's internal topic. If that topic cannot be read, there are none: then the offsets before the copy are
    ``missing``.

    Args:
        source_cluster_id: the source's id, by which filler is recognized.
        destination: the cluster with the internal topic. Its metadata must have the copies' leaders.
        keys: the partitions, by their names at the source.
        request: the request of the audit.
        ids: the source's topic ids by name, as far as the cluster has ids; a starting offset counts only in the topic
            with the same id.

    Raises:
        AuditError: the destination does not tell the start or end of a log.
        NetworkError: the destination does not answer.
    """
    state = InternalTopic(destination, request.flow, lean=True)
    try:
        if not await state.open(create=False):
            return {}
    except StateError:
        return {}
    except UNREADABLE as error:
        if passes(error):
            raise
        return {}
    decided = (
        (key, state.ledger.starting(Subject(*key, request.destination_of(key.topic)), ids.get(key.topic)))
        for key in keys
    )
    found = {key: each for key, each in decided if each is not None}
    if not request.mapped:
        for key in await _begun_before(source_cluster_id, destination, found, request):
            del found[key]
    return found


async def _begun_before(
    source_cluster_id: str, destination: Cluster, found: Mapping[TopicPartition, StartingOffset], request: AuditRequest
) -> list[TopicPartition]:
    """Returns the partitions whose copies in fact began in front of these offsets."""
    starts, ends = await log_spans(destination, list(found))
    before = {key: Span(starts[key], min(each.offset, ends[key])) for key, each in found.items()}
    # Usually a log begins where its copy does, or later if retention has worked. Then there is nothing to read.
    asked = [key for key, span in before.items() if span.offsets]
    begun: list[TopicPartition] = []
    for at in range(0, len(asked), AT_A_TIME):
        some = asked[at : at + AT_A_TIME]
        fillers = [
            filler_id(flow=request.flow, cluster_id=source_cluster_id, topic=topic, partition=partition)
            for topic, partition in some
        ]
        answers = await asyncio.gather(
            *(
                _has_copies(destination, key, before[key], found[key].offset, filler)
                for key, filler in zip(some, fillers, strict=True)
            )
        )
        begun += [key for key, has_copies in zip(some, answers, strict=True) if has_copies]
    return begun


async def _has_copies(destination: Cluster, key: TopicPartition, before: Span, offset: int, filler: int) -> bool:
    """Returns True if the destination has anything but filler in front of this offset. ``before``: the offsets that its
    log has there."""
    leader = destination.leader(*key)
    if leader is None:
        raise without_leader(destination, key)
    log = PartitionLog(destination, destination.topics[key.topic], key.partition, leader)
    try:
        end = await filler_end(log, before, filler)
        segment = await log.read(end)
    except (Damaged, Unreadable, StoredInOldFormat) as error:
        if isinstance(error, Unreadable) and error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
            raise  # this says nothing about the log; the caller tries again
        return True  # this is no filler; the audit will say what it is
    if not segment.batches and segment.high_watermark > end:
        raise Unreachable(f"cluster {destination.name}: {log.name} has more, and shows nothing from offset {end} on")
    # Filler may have been appended since the log's end was asked for.
    return any(header.base_offset < offset and not is_filler(header, filler) for header, _ in segment.batches[:1])
