"""Asks a cluster for its versions, rights, quotas, disks and round-trip time."""

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
"""API key -> version since which answers have the operations that the principal may do (KIP-430)."""
GROUP_WITHOUT_ERROR = 5
"""The last DescribeGroups version that answers for a group which does not exist without an error, with the operations
that the principal may do."""
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
    """Asks the brokers of a cluster for all facts about it.

    Args:
        cluster: the cluster.
        topics: names of the topics whose sizes are asked for.
        user: name with which the mirror authenticates, for its quotas; empty: not known.

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
    """Returns API key -> highest version that every broker which answers supports."""

    async def speaks(node_id: int) -> dict[int, int]:
        connection = await cluster.control(node_id)
        return {key: versions.most for key, versions in connection.api_versions.items()}

    told = await cluster.ask_all(speaks, patience_s=PATIENCE_S)
    return {key: min(one[key] for one in told) for key in told[0] if all(key in one for one in told)}


async def _quotas(cluster: Cluster, apis: Mapping[int, int], user: str) -> tuple[Quota, ...] | None:
    """Returns the quotas that may apply to this client: those of its client id, of its user, and the defaults of both.
    None: the brokers do not tell."""
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
    """Returns node id -> disks of the broker, and (topic, partition) -> bytes of the largest replica. Both are None if
    no broker tells."""
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
            continue  # without Describe on the cluster, the answer has no results
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
    """Returns the shortest time in seconds that one of a few small requests takes."""
    least = float("inf")
    for _ in range(ROUND_TRIPS):
        began = time.monotonic()
        await cluster.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        least = min(least, time.monotonic() - began)
    return least


async def topic_rights(cluster: Cluster, names: Iterable[str]) -> tuple[dict[str, Rights | None], dict[str, Any]]:
    """Asks for topics, with the operations on them that the principal may do.

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
    """Returns the result of ``groups_rights`` for one group. Raises: as there."""
    return (await groups_rights(cluster, [group_id]))[group_id]


async def groups_rights(cluster: Cluster, names: Sequence[str]) -> dict[str, tuple[Rights | None, bool]]:
    """Asks every broker for the rights on groups. Coordinators are not looked up, since FindCoordinator lets brokers
    create ``__consumer_offsets``.

    Returns:
        Group -> the operations that the principal may do (None: no broker tells), and True if the principal may not
        even describe it.

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
    """Returns transactional id -> producer id of its last owner, for the ids that a coordinator knows. Every broker is
    asked, since FindCoordinator lets brokers create ``__transaction_state``.

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
    """Returns True if the principal may not describe its transactional ids; None if the brokers do not tell (before
    Kafka 3.0). Any broker tells that, not only the id's coordinator."""

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
