"""Where the copies begin that begin later than their source (``start.from``). The flow's internal topic has that.

What the source has before is no difference: it was never to be copied. The result says how much that is. A worker that
had lost the partition may have written such an offset late, when others had begun to copy before it. With exact
offsets, it does not count if the destination has copies in front of it.
"""

from collections.abc import Iterable, Mapping

from mirror.audit.model.places import Span, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.prepare.leading import filler_end, without_leader
from mirror.net.cluster import Cluster
from mirror.net.errors import Damaged, StoredInOldFormat, Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.entries.entry import StateError
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.internal.memory import UNREADABLE, passes
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.records.filler import filler_id


async def starting_offsets(
    source_cluster_id: str,
    destination: Cluster,
    keys: Iterable[TopicPartition],
    request: AuditRequest,
    ids: Mapping[str, str],
) -> dict[TopicPartition, StartingOffset]:
    """Returns where the copies of these partitions begin, of those that begin later than their source by what the
    flow's internal topic says. If that cannot be read, there are none: then what is not there is ``missing``.

    Args:
        source_cluster_id: the source's id, by which filler is known.
        destination: the cluster with the internal topic. It knows the copies' leaders.
        keys: the partitions, by their names at the source.
        request: what is audited.
        ids: of the source's topics, where they have some; a starting offset counts only in this very topic.

    Raises:
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
    found: dict[TopicPartition, StartingOffset] = {}
    for key in keys:
        each = state.ledger.starting(Subject(*key, request.destination_of(key.topic)), ids.get(key.topic))
        if each is None:
            continue
        filler = filler_id(
            flow=request.flow, cluster_id=source_cluster_id, topic=key.topic, partition=key.partition
        )  # fmt: skip
        if request.mapped or not await _began_before(destination, key, each.offset, filler):
            found[key] = each
    return found


async def _began_before(destination: Cluster, key: TopicPartition, offset: int, filler: int) -> bool:
    """Returns True if the destination has anything but filler in front of this offset."""
    leader = destination.leader(*key)
    if leader is None:
        raise without_leader(destination, key)
    log = PartitionLog(destination, destination.topics[key.topic], key.partition, leader)
    before = Span(await log.start(), min(offset, await log.visible_end()))
    if not before.offsets:
        return False
    try:
        end = await filler_end(log, before, filler)
        segment = await log.read(end)
    except (Damaged, StoredInOldFormat):
        return True  # no filler; what it is, the audit says
    if not segment.batches and segment.high_watermark > end:
        raise Unreachable(f"cluster {destination.name}: {log.name} has more, and shows nothing from offset {end} on")
    return any(header.base_offset < offset for header, _ in segment.batches[:1])
