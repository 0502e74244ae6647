"""Asks a cluster what it is: versions, rights, quotas, disks, how fast it answers."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import (
    DescribeClientQuotasRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeTransactionsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from mirror.net.admin.operations import cluster_operations, operations_of
from mirror.net.cluster import Cluster
from mirror.net.coordinator import MOST_IDS
from mirror.net.errors import NetworkError, Refused
from mirror.relay.topics.describing import PATIENCE_S, describe_brokers
from mirror.service.plan.ask.readonly import ReadOnlyCluster
from mirror.service.plan.model import ClusterFacts, Disk, Quota, Rights
from mirror.wire.errors import ErrorCode

RIGHTS_SINCE = {MetadataRequest.API_KEY: 8, DescribeGroupsRequest.API_KEY: 3}
"""The versions from which answers have operations."""
GROUP_WITHOUT_ERROR = 5
"""The last DescribeGroups version that describes a group that does not exist, with what we may do with it."""
ROUND_TRIPS = 3
_EXACT, _DEFAULT = 0, 1
"""Match types of DescribeClientQuotas."""
OF_NEW_TOPICS = (
    "default.replication.factor",
    "log.retention.bytes",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "min.insync.replicas",
)
"""Broker configs that are the defaults of topics."""


async def cluster_facts(cluster: ReadOnlyCluster, topics: Collection[str], user: str) -> ClusterFacts:
    """Asks all brokers of a cluster.

    Args:
        cluster: the cluster.
        topics: whose sizes are asked for.
        user: the name by which the mirror authenticates itself; empty: not known. For quotas.

    Raises:
        NetworkError: no broker answers.
    """
    apis = await _common_apis(cluster)
    defaults = [values for values in await describe_brokers(cluster, list(OF_NEW_TOPICS)) if values]
    disks, sizes = await _disks(cluster, apis, topics)
    return ClusterFacts(
        name=cluster.name,
        cluster_id=cluster.cluster_id,
        brokers=len(cluster.nodes),
        apis=apis,
        rights=await cluster_operations(cluster),
        quotas=await _quotas(cluster, apis, user),
        disks=disks,
        sizes=sizes,
        round_trip_s=await _round_trip_s(cluster),
        defaults=defaults[0] if defaults else {},
        down=dict(cluster.down),
    )


async def _common_apis(cluster: Cluster) -> dict[int, int]:
    """Returns API key -> the highest version that every broker which answers speaks."""

    async def speaks(node_id: int) -> dict[int, int]:
        connection = await cluster.control(node_id)
        return {key: versions.most for key, versions in connection.api_versions.items()}

    told = await cluster.ask_all(speaks, patience_s=PATIENCE_S)
    return {key: min(one[key] for one in told) for key in told[0] if all(key in one for one in told)}


async def _quotas(cluster: Cluster, apis: Mapping[int, int], user: str) -> tuple[Quota, ...] | None:
    """Returns the quotas that may apply to this client: by its client id, by its user, and by their defaults."""
    if DescribeClientQuotasRequest.API_KEY not in apis:
        return None
    one = DescribeClientQuotasRequest.ComponentData
    client_id = cluster.options.connection.client_id
    asked: list[list[Any]] = [
        [one(entity_type=kind, match_type=match, match=name)]
        for kind, match, name in (
            ("client-id", _EXACT, client_id),
            ("client-id", _DEFAULT, None),
            ("user", _EXACT, user or None),
            ("user", _DEFAULT, None),
        )
        if match == _DEFAULT or name
    ]
    found: dict[tuple[str, str], Quota] = {}
    for components in asked:
        answer = await cluster.call(DescribeClientQuotasRequest(components=components, strict=False))
        if answer.error_code:
            return None
        for entry in answer.entries or ():
            parts = {part.entity_type: part.entity_name for part in entry.entity}
            if parts.get("client-id") in (None, client_id) and parts.get("user") in (None, user) and "ip" not in parts:
                entity = ", ".join(f"{kind} {name or '(default)'}" for kind, name in sorted(parts.items()))
                for value in entry.values:
                    found[entity, value.key] = Quota(entity, value.key, value.value)
    return tuple(found[key] for key in sorted(found))


async def _disks(
    cluster: Cluster, apis: Mapping[int, int], topics: Collection[str]
) -> tuple[dict[int, Disk] | None, dict[tuple[str, int], int] | None]:
    """Returns the disks of each broker that tells, and the size of each partition's largest replica."""
    if DescribeLogDirsRequest.API_KEY not in apis:
        return None, None
    one = DescribeLogDirsRequest.DescribableLogDirTopic
    known = [cluster.topics[name] for name in topics if name in cluster.topics]
    wanted = [one(topic=topic.name, partitions=sorted(topic.leaders)) for topic in known]

    async def ask(node_id: int) -> tuple[int, Any]:
        return node_id, await cluster.call(DescribeLogDirsRequest(topics=wanted), node_id=node_id)

    try:
        answers = await cluster.ask_all(ask, patience_s=PATIENCE_S)
    except NetworkError:
        return None, None
    disks: dict[int, Disk] = {}
    sizes: dict[tuple[str, int], int] = {}
    for node_id, answer in answers:
        if not answer.results or any(row.error_code for row in answer.results):
            continue  # without the right to Describe the cluster, there are no results
        rows = answer.results
        told = all(getattr(row, "usable_bytes", -1) >= 0 for row in rows)
        disks[node_id] = (
            Disk(sum(row.total_bytes for row in rows), sum(row.usable_bytes for row in rows))
            if told
            else (Disk(-1, -1))
        )
        for row in rows:
            for topic in row.topics:
                for partition in topic.partitions:
                    key = topic.name, partition.partition_index
                    sizes[key] = max(sizes.get(key, 0), partition.partition_size)
    return (disks, sizes) if disks else (None, None)


async def _round_trip_s(cluster: Cluster) -> float:
    """Returns the shortest time of a few small requests, in seconds."""
    least = float("inf")
    for _ in range(ROUND_TRIPS):
        began = time.monotonic()
        await cluster.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        least = min(least, time.monotonic() - began)
    return least


async def topic_rights(cluster: Cluster, names: Iterable[str]) -> tuple[dict[str, Rights | None], dict[str, Any]]:
    """Asks for topics with what we may do with them.

    Returns:
        Topic -> operations (None: the broker does not tell), and topic -> its entry in the Metadata answer. A topic
        that the broker answers with an error is in neither.

    Raises:
        NetworkError: no broker answers.
    """
    kind = MetadataRequest.MetadataRequestTopic
    wanted = [kind(name=name) for name in names]
    if not wanted:
        return {}, {}
    connection = await cluster.control_of_any()
    speaks = connection.api_versions.get(MetadataRequest.API_KEY)
    tells = speaks is not None and speaks.most >= RIGHTS_SINCE[MetadataRequest.API_KEY]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=tells)
    answer = await connection.call(request)
    entries = {topic.name: topic for topic in answer.topics if not topic.error_code}
    return {name: operations_of(entry.authorized_operations) if tells else None for name, entry in entries.items()}, (
        entries
    )


async def group_rights(cluster: Cluster, group_id: str) -> tuple[Rights | None, bool]:
    """Returns what ``groups_rights`` does of one group. Raises the same."""
    return (await groups_rights(cluster, [group_id]))[group_id]


async def groups_rights(cluster: Cluster, names: Sequence[str]) -> dict[str, tuple[Rights | None, bool]]:
    """Asks every broker for the groups, since finding coordinators may have the brokers create the topic of groups.

    Returns:
        Group -> the operations on it (None: nobody tells), and whether even describing it is forbidden.

    Raises:
        NetworkError: no broker answers.
    """

    async def ask(node_id: int) -> list[Any]:
        request = DescribeGroupsRequest(groups=list(names), include_authorized_operations=True)
        connection = await cluster.control(node_id)
        speaks = connection.api_versions.get(DescribeGroupsRequest.API_KEY)
        if speaks is None or speaks.most < RIGHTS_SINCE[DescribeGroupsRequest.API_KEY]:
            return []
        return list((await connection.call(request, version=GROUP_WITHOUT_ERROR)).groups)

    found: dict[str, tuple[Rights | None, bool]] = dict.fromkeys(names, (None, False))
    for one in (each for answer in await cluster.ask_all(ask, patience_s=PATIENCE_S) for each in answer):
        if one.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            found[one.group_id] = (None, True)
        elif not one.error_code and found[one.group_id] == (None, False):
            found[one.group_id] = (operations_of(one.authorized_operations), False)
    return found


async def owners(cluster: Cluster, ids: Sequence[str]) -> dict[str, int]:
    """Returns transactional id -> producer id of its last owner, for those that a coordinator knows. Every broker is
    asked, since finding a coordinator may have the brokers create the topic of transactions.

    Raises:
        NetworkError: no broker answers.
    """

    async def ask(node_id: int) -> dict[str, int]:
        connection = await cluster.control(node_id)
        found: dict[str, int] = {}
        if DescribeTransactionsRequest.API_KEY not in connection.api_versions:
            return found
        for at in range(0, len(ids), MOST_IDS):
            answer = await connection.call(DescribeTransactionsRequest(transactional_ids=ids[at : at + MOST_IDS]))
            found |= {row.transactional_id: row.producer_id for row in answer.transaction_states if not row.error_code}
        return found

    answers = await cluster.ask_all(ask, patience_s=PATIENCE_S) if ids else []
    return {name: producer_id for one in answers for name, producer_id in one.items()}


async def ids_forbidden(cluster: Cluster, transactional_id: str) -> bool | None:
    """Returns True if we may not describe our transactional ids; None if the brokers do not tell (before Kafka 3.0).
    Any broker says so, its coordinator or not."""

    async def ask(node_id: int) -> int | None:
        connection = await cluster.control(node_id)
        if DescribeTransactionsRequest.API_KEY not in connection.api_versions:
            return None
        answer = await connection.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]))
        return int(answer.transaction_states[0].error_code)

    try:
        codes = [code for code in await cluster.ask_all(ask, patience_s=PATIENCE_S) if code is not None]
    except Refused:
        return None
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED in codes if codes else None
