"""Where the copies begin that begin later than their source (``start.from``). The flow's internal topic has that.

What the source has before is no difference: it was never to be copied. The result says how much that is.
"""

from collections.abc import Iterable, Mapping

from mirror.audit.model.places import TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.net.cluster import Cluster
from mirror.offsetmap.entries.entry import StateError
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.internal.memory import UNREADABLE
from mirror.offsetmap.internal.topic import InternalTopic


async def starting_offsets(
    destination: Cluster, keys: Iterable[TopicPartition], request: AuditRequest, ids: Mapping[str, str]
) -> dict[TopicPartition, StartingOffset]:
    """Returns where the copies of these partitions begin, of those that begin later than their source by what the
    flow's internal topic says. If that cannot be read, there are none: then what is not there is ``missing``.

    Args:
        destination: the cluster with the internal topic.
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
    except (*UNREADABLE, StateError):
        return {}
    found = {
        key: state.ledger.starting(Subject(*key, request.destination_of(key.topic)), ids.get(key.topic)) for key in keys
    }
    return {key: each for key, each in found.items() if each is not None}
