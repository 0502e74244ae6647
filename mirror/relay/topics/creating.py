"""Creates the flow's topics at the destination as the source has them, and adds partitions to them."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused, Unsupported
from mirror.net.metadata import Topic
from mirror.net.rights import ALTER, CREATE, DENIED, TOPIC, Right
from mirror.offsetmap.fields import id_shown
from mirror.reasons import HaltReason
from mirror.relay.events import EventLog
from mirror.relay.halts import Halted
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.describing import describe_brokers, describe_topics, right_to_configs
from mirror.relay.topics.limits import MAX_MESSAGE_BYTES, NAMES, OF_BROKERS, taken_over
from mirror.relay.topics.syncing import TOPIC_CONFIG_SOURCE
from mirror.wire.errors import ErrorCode, error_name

CREATE_TIMEOUT_MS = 30_000
DEFAULT_REPLICATION_SINCE = 4
"""From CreateTopics v4 on, -1 stands for the broker's default replication factor and partition count (KIP-464)."""
CREATE_TRIES = 10
CREATE_BACKOFF_MAX_MS = 1_000
THERE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
"""Error codes of CreateTopics after which the topic exists."""
FOR_NOW = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Temporary errors of CreateTopics: the controller moves, is busy, or was too slow."""
SETTLED_TRIES = 100
SETTLED_PAUSE_S = 0.1
MOST_AT_ONCE = 2_000
"""Most partitions in one request. A controller refuses more than 10,000 (POLICY_VIOLATION), and is busy with them for
long."""


async def _defaults(cluster: Cluster) -> dict[str, str]:
    """Returns the limits that a new topic gets from its brokers' settings: of each limit that all answering brokers
    know, the least value."""
    told = [values for values in await describe_brokers(cluster, list(OF_BROKERS)) if values]
    known = [name for name in OF_BROKERS if told and all(name in values for values in told)]
    return {OF_BROKERS[name]: min((values[name] for values in told), key=int) for name in known}


async def create(
    source: Cluster, destination: Cluster, topics: dict[str, Topic], settings: RelaySettings, log: EventLog
) -> dict[str, Halted]:
    """Creates the topics as they are at the source: with their partitions, and the configs that were set there and
    matter.

    Args:
        source: the cluster that has them.
        destination: the cluster that gets them.
        topics: name at the destination -> the source topic.
        settings: the flow's settings.
        log: gets a line for each topic that was created.

    Returns:
        Topic -> the halt, for topics that could not be created.

    Raises:
        Refused: the controller was moving, busy or too slow in each of ``CREATE_TRIES`` attempts.
        NetworkError: a cluster does not answer.
    """
    denied: set[str] = set()
    configs = await configs_of_new(source, destination, topics, settings, denied=denied)
    halted = {
        name: configs_not_known(source, destination, name, topic)
        for name, topic in topics.items()
        if topic.name in denied
    }
    topics = {name: topic for name, topic in topics.items() if name not in halted}
    backoff = Backoff(least_ms=settings.backoff_ms, most_ms=CREATE_BACKOFF_MAX_MS)
    waiting = deque(_pieces(topics))
    while waiting:
        piece = waiting.popleft()
        results = await _create_once(destination, piece, configs, settings)
        refused = {name: result for name, result in results.items() if result.error_code not in THERE}
        for name, result in results.items():
            if result.error_code == ErrorCode.NONE:
                _tell_created(log, destination, topics[name], result)
        for_now = {name: result for name, result in refused.items() if result.error_code in FOR_NOW}
        for half in _halves(piece, refused):
            waiting.append(half)
            refused = {name: result for name, result in refused.items() if name not in half}
        halted |= {
            name: Halted.of(
                HaltReason.CREATE_FAILED,
                f"{name} at {destination.name}: {_refusal(result, Right(CREATE, TOPIC, name, destination.name))}",
            )
            for name, result in refused.items()
            if name not in for_now
        }
        if for_now:
            if backoff.tries == CREATE_TRIES - 1:
                name, result = next(iter(for_now.items()))
                raise Refused(f"cannot create {name} at {destination.name}", result.error_code, result.error_message)
            await asyncio.sleep(backoff.next_s())
            await destination.refresh([])
            waiting.append({name: topics[name] for name in for_now})
    return halted


def configs_not_known(source: Cluster, destination: Cluster, name: str, topic: Topic) -> Halted:
    """Returns the halt for a topic that cannot be created as it is at the source, because its configs there may not be
    read."""
    lacks = right_to_configs(source, topic.name)
    reason = HaltReason.CREATE_FAILED
    detail = (
        f"{name} at {destination.name}: the configs of {topic.name} at {source.name}, such as cleanup.policy, may not "
        f"be read; the mirror's principal lacks {lacks}"
    )
    return Halted(reason.slug, detail, f"{reason.meaning} G{lacks.grant[1:]}, or create the topic by hand")


def _refusal(result: Any, needs: Right) -> str:
    """Returns the broker's error in words. If a right is missing, it is named."""
    told = f"{error_name(result.error_code)}, {result.error_message or 'without a word'}"
    return told + (f"; the mirror's principal lacks {needs}" if result.error_code in DENIED else "")


async def configs_of_new(
    source: Cluster,
    destination: Cluster,
    topics: Mapping[str, Topic],
    settings: RelaySettings,
    *,
    denied: set[str] | None = None,
) -> dict[str, dict[str, str]]:
    """Returns the configs with which these topics are created.

    Args:
        source, destination, topics, settings: as for ``create``.
        denied: gets the source topics whose configs may not be read.

    Raises:
        NetworkError: a cluster does not answer.
    """
    entries = await describe_topics(source, [topic.name for topic in topics.values()], denied=denied)
    defaults = await _defaults(destination)
    return {name: _configs_for(entries.get(topic.name, {}), defaults, settings) for name, topic in topics.items()}


async def try_out(
    destination: Cluster,
    topics: Mapping[str, Topic],
    configs: Mapping[str, dict[str, str]],
    settings: RelaySettings,
) -> dict[str, tuple[int, str]]:
    """Has the controller check whether it would create these topics, without creating any (``validate_only``).

    Returns:
        Topic -> error code and the controller's message, for each topic that it would not create, also because it
        exists.

    Raises:
        NetworkError: the cluster does not answer.
    """
    found: dict[str, tuple[int, str]] = {}
    waiting = deque(_pieces(topics))
    while waiting:
        piece = waiting.popleft()
        results = await _create_once(destination, piece, configs, settings, validate_only=True)
        refused = {name: result for name, result in results.items() if result.error_code}
        for half in _halves(piece, refused):
            waiting.append(half)
            refused = {name: result for name, result in refused.items() if name not in half}
        found |= {name: (result.error_code, result.error_message or "") for name, result in refused.items()}
    return found


def _halves(piece: Mapping[str, Topic], refused: Mapping[str, Any]) -> Iterable[dict[str, Topic]]:
    """Yields the topics of a request that were refused by a policy, in two halves. Either the request is too large, or
    an administrator's policy forbids a topic: a topic that is alone in a request shows which."""
    together = [name for name, result in refused.items() if result.error_code == ErrorCode.POLICY_VIOLATION]
    if len(piece) > 1 and together:
        middle = (len(together) + 1) // 2
        yield from ({name: piece[name] for name in some} for some in (together[:middle], together[middle:]) if some)


def _pieces(topics: Mapping[str, Topic]) -> Iterable[dict[str, Topic]]:
    """Yields the topics in pieces of at most ``MOST_AT_ONCE`` partitions. A topic with more is a piece by itself."""
    piece: dict[str, Topic] = {}
    size = 0
    for name, topic in topics.items():
        if piece and size + len(topic.leaders) > MOST_AT_ONCE:
            yield piece
            piece, size = {}, 0
        piece[name] = topic
        size += len(topic.leaders)
    if piece:
        yield piece


async def grow(destination: Cluster, wanted: Mapping[str, Topic], log: EventLog) -> dict[str, str]:
    """Adds partitions to topics that have fewer than the source.

    Args:
        destination: the cluster.
        wanted: name at the destination -> the source topic.
        log: gets a line for each topic that grew.

    Returns:
        Topic -> why that was not possible, for topics that did not grow.

    Raises:
        NetworkError: the cluster does not answer, or new partitions get no leaders.
    """
    fewer = with_fewer(destination, wanted)
    refused = await _grow_once(destination, fewer)
    for name, topic in fewer.items():
        if name not in refused:
            before, after = len(destination.topics[name].leaders), len(topic.leaders)
            log.info(
                "partitions_added",
                topic=name,
                partitions=after,
                detail=f"cluster {destination.name} had {before} of the {after} partitions of {topic.name}",
            )
    await until_led(destination, {name: len(topic.leaders) for name, topic in fewer.items() if name not in refused})
    # Another worker may have added them before us.
    await destination.refresh(list(refused))
    return refused


async def try_growing(destination: Cluster, wanted: Mapping[str, Topic]) -> dict[str, str]:
    """Has the controller check whether it would refuse ``grow``, without adding anything. Returns and raises as
    ``grow`` does."""
    return await _grow_once(destination, with_fewer(destination, wanted), validate_only=True)


def with_fewer(destination: Cluster, wanted: Mapping[str, Topic]) -> dict[str, Topic]:
    """Returns the topics that have fewer partitions at the destination than at the source."""
    return {
        name: topic
        for name, topic in wanted.items()
        if name in destination.topics and len(destination.topics[name].leaders) < len(topic.leaders)
    }


async def _grow_once(
    destination: Cluster, fewer: Mapping[str, Topic], *, validate_only: bool = False
) -> dict[str, str]:
    """Sends one request to the controller. Returns topic -> why it was refused."""
    if not fewer:
        return {}
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    topics = [kind(name=name, count=len(topic.leaders), assignments=None) for name, topic in fewer.items()]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=CREATE_TIMEOUT_MS, validate_only=validate_only)
    connection = await destination.control_of_controller()
    try:
        answer = await connection.call(request)
    except Unsupported as error:
        return dict.fromkeys(fewer, str(error))
    return {
        result.name: _refusal(result, Right(ALTER, TOPIC, result.name, destination.name))
        for result in answer.results
        if result.error_code
    }


async def _create_once(
    destination: Cluster,
    topics: Mapping[str, Topic],
    configs: Mapping[str, dict[str, str]],
    settings: RelaySettings,
    *,
    validate_only: bool = False,
) -> dict[str, Any]:
    """Sends one request to the controller. Returns topic -> the controller's result."""
    connection = await destination.control_of_controller()
    speaks = connection.api_versions.get(CreateTopicsRequest.API_KEY)
    replication = settings.replication_factor
    if replication < 0 and speaks is not None and speaks.most < DEFAULT_REPLICATION_SINCE:
        replication = min(3, len(destination.nodes))
    wanted = [
        CreateTopicsRequest.CreatableTopic(
            name=new_name,
            num_partitions=len(topic.leaders),
            replication_factor=replication,
            assignments=[],
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=name, value=value)
                for name, value in configs[new_name].items()
            ],
        )
        for new_name, topic in topics.items()
    ]
    request = CreateTopicsRequest(topics=wanted, timeout_ms=CREATE_TIMEOUT_MS, validate_only=validate_only)
    answer = await connection.call(request)
    return {result.name: result for result in answer.topics}


def _tell_created(log: EventLog, destination: Cluster, origin: Topic, result: Any) -> None:
    """Logs a created topic. ``result``: the controller's; from CreateTopics v7 on, it has the new topic's id."""
    made = getattr(result, "topic_id", None)
    log.info(
        "topic_created",
        topic=result.name,
        topic_id=id_shown(made.bytes) if made and made.int else "",
        partitions=len(origin.leaders),
        detail=f"cluster {destination.name} had no topic {result.name}; it has the partitions of {origin.name}",
    )


def _configs_for(entries: dict[str, Any], defaults: dict[str, str], settings: RelaySettings) -> dict[str, str]:
    """Returns the configs of the new topic: the synced ones that are set on the source topic, its batch size limit, and
    those that it needs, given its brokers' ``defaults``, to accept every batch that the source accepted."""
    configs = {
        name: entry.value
        for name, entry in entries.items()
        if name in settings.synced_configs
        and entry.value is not None
        and (entry.config_source == TOPIC_CONFIG_SOURCE or name == MAX_MESSAGE_BYTES)
        and (name in defaults or name not in NAMES or not defaults)
    }
    values = {name: entry.value for name, entry in entries.items()}
    return taken_over(values, defaults) | configs | settings.fixed_configs


async def until_led(cluster: Cluster, wanted: Mapping[str, int]) -> None:
    """Waits until every partition of these topics is there and has a leader, since metadata lag behind creation.
    ``wanted``: topic -> number of partitions.

    Raises:
        NetworkError: that takes longer than ``SETTLED_TRIES`` looks, or the cluster does not answer.
    """
    names = list(wanted)
    for _ in range(SETTLED_TRIES if names else 0):
        failed = await cluster.refresh(names)
        topics = [cluster.topics[name] for name in names if name in cluster.topics]
        whole = all(len(topic.leaders) >= wanted[topic.name] for topic in topics)
        if not failed and whole and all(leader.node_id >= 0 for topic in topics for leader in topic.leaders.values()):
            return
        await asyncio.sleep(SETTLED_PAUSE_S)
    if names:
        raise NetworkError(f"cluster {cluster.name}: new partitions have no leaders: {', '.join(names)}")
