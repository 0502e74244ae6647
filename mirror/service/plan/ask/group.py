"""Asks the source for the offsets that a group has committed, without joining the group and without letting brokers
create a topic."""

from typing import Any

from kafka.protocol.consumer import OffsetFetchRequest

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.relay.assignment import Key, read_committed
from mirror.relay.partition.claim import Committed
from mirror.relay.topics.describing import PATIENCE_S

MANY_GROUPS_SINCE, TOPIC_IDS_SINCE = 8, 10
"""The OffsetFetch versions since which a request has several groups, and since which topics are named by id only."""
ALL_TOPICS_SINCE = 2


async def committed(cluster: Cluster, group_id: str) -> dict[Key, Committed]:
    """Returns partition -> what the group has committed. Empty if no broker tells.

    Every broker is asked; only the group's coordinator answers with offsets. The coordinator is not looked up, since
    FindCoordinator lets brokers create ``__consumer_offsets``.
    """

    async def ask(node_id: int) -> list[tuple[Key, Committed]]:
        connection = await cluster.control(node_id)
        speaks = connection.api_versions.get(OffsetFetchRequest.API_KEY)
        if speaks is None or speaks.most < ALL_TOPICS_SINCE:
            return []
        if speaks.most >= MANY_GROUPS_SINCE:
            one = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)
            request = OffsetFetchRequest(groups=[one], require_stable=False)
            (group,) = (await connection.call(request, version=TOPIC_IDS_SINCE - 1)).groups
            return [] if group.error_code else list(_rows(group.topics))
        answer = await connection.call(OffsetFetchRequest(group_id=group_id, topics=None, require_stable=False))
        return [] if answer.error_code else list(_rows(answer.topics))

    try:
        answers = await cluster.ask_all(ask, patience_s=PATIENCE_S)
    except NetworkError:
        return {}
    return {key: found for rows in answers for key, found in rows}


def _rows(topics: Any) -> list[tuple[Key, Committed]]:
    # confluent-kafka, with which the mirror commits, also sends the NUL at the end of the metadata's C string.
    return [
        ((topic.name, row.partition_index), read_committed(row.committed_offset, (row.metadata or "").rstrip("\0")))
        for topic in topics
        for row in topic.partitions
        if not row.error_code and row.committed_offset >= 0
    ]
