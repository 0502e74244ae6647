"""Finds the flow's topics at the source, and pairs them with the destination's, which are created if missing."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster, Topic
from mirror.net.configs import Resource, describe_configs
from mirror.net.errors import NetworkError, Refused
from mirror.offsetmap.fields import id_shown
from mirror.reasons import HaltReason
from mirror.records.admit import Terms
from mirror.relay.events import EventLog
from mirror.relay.halts import Halted
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.limits import MAX_MESSAGE_BYTES, NAMES, OF_BROKERS, Narrower, narrower, taken_over
from mirror.wire.errors import ErrorCode, error_name

CLEANUP_POLICY = "cleanup.policy"
TIMESTAMP_TYPE = "message.timestamp.type"
PATIENCE_S = 5.0
"""How long to wait at the start for brokers that do not answer, once another one has answered."""
CREATE_TIMEOUT_MS = 30_000
DEFAULT_REPLICATION_SINCE = 4
"""CreateTopics v4 takes -1 for the broker's default replication factor and partition count (KIP-464)."""
CREATE_TRIES = 10
CREATE_BACKOFF_MAX_MS = 1_000
THERE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
"""Results of CreateTopics with which the topic exists afterwards."""
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
LEARN_TRIES = 10
SETTLED_TRIES = 100
SETTLED_PAUSE_S = 0.1
TOPIC_CONFIG_SOURCE = 1
"""config_source of a value that was set on the topic itself (DescribeConfigs v1+)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A topic on both sides. ``halted`` is set if none of it can be mirrored, ``terms`` otherwise."""

    source: Topic
    destination: str
    terms: Terms = field(default_factory=Terms)
    partitions_there: int = 0
    halted: Halted | None = None
    narrower: tuple[Narrower, ...] = ()
    """Configs by which the destination refuses batches that the source takes. They are logged, and are no reason to
    halt before such a batch comes."""

    def halt_of(self, index: int) -> Halted | None:
        """Returns the halt if this partition cannot be mirrored, else None."""
        if self.halted is None and index >= self.partitions_there:
            detail = (
                f"{self.source.name}-{index}: the destination has {self.partitions_there} partitions, "
                f"the source has {len(self.source.leaders)}"
            )
            return Halted.of(HaltReason.FEWER_PARTITIONS, detail)
        return self.halted


async def pair_topics(source: Cluster, destination: Cluster, settings: RelaySettings, log: EventLog) -> list[Pair]:
    """Returns every topic of the flow that the source has now, with its counterpart, which is created if the flow says
    so. ``log``: gets a line for each topic that was created here.

    Raises:
        NetworkError: one of the clusters does not answer.
    """
    await _learn(source, settings)
    here = [topic for name, topic in sorted(source.topics.items()) if not topic.internal and settings.selects(name)]
    names = [topic.name for topic in here]
    if not names:
        return []
    wanted = _wanted(here, settings)
    failed = await destination.refresh(wanted)
    missing = {name: topic for name, topic in wanted.items() if name not in destination.topics}
    halted = {
        name: Halted.of(HaltReason.TOPIC_MISSING, f"{name} at {destination.name}: {error_name(code)}")
        for name, code in failed.items()
    }
    if missing and settings.create_topics:
        halted = await _create(source, destination, missing, settings, log)
        await _until_led(destination, [name for name in missing if name not in halted])
    present = [name for name in wanted if name in destination.topics]
    configs = await describe_topics(destination, present)
    origin = await describe_topics(source, names)
    return [
        _pair(topic, name, destination, origin.get(topic.name), configs.get(name), halted.get(name), settings)
        for topic, name in ((topic, settings.destination_of(topic.name)) for topic in here)
    ]


async def describe_pair(source: Cluster, destination: Cluster, topic: Topic, settings: RelaySettings) -> Pair:
    """Returns one topic with its counterpart, by the current configs.

    Raises:
        NetworkError: one of the clusters does not answer.
    """
    name = settings.destination_of(topic.name)
    origin, configs = await describe_topics(source, [topic.name]), await describe_topics(destination, [name])
    return _pair(topic, name, destination, origin.get(topic.name), configs.get(name), None, settings)


def _wanted(here: list[Topic], settings: RelaySettings) -> dict[str, Topic]:
    """Returns destination topic -> the source topic after which it is created: of several, the one with the most
    partitions."""
    wanted: dict[str, Topic] = {}
    for topic in here:
        name = settings.destination_of(topic.name)
        if name not in wanted or len(wanted[name].leaders) < len(topic.leaders):
            wanted[name] = topic
    return wanted


async def _learn(source: Cluster, settings: RelaySettings) -> None:
    """Refreshes all topics of the source. One that comes with an error (e.g. no leaders yet) is asked for again:
    otherwise it would be missing until the next look."""
    for _ in range(LEARN_TRIES):
        failed = await source.refresh(None)
        if not any(settings.selects(name) for name in failed):
            return
        await asyncio.sleep(SETTLED_PAUSE_S)


def _pair(
    topic: Topic,
    name_there: str,
    destination: Cluster,
    origin: dict[str, Any] | None,
    configs: dict[str, Any] | None,
    halted: Halted | None,
    settings: RelaySettings,
) -> Pair:
    there = destination.topics.get(name_there)
    if there is None:
        missing = f"{name_there} does not exist at {destination.name}, and topic.create is false"
        return Pair(source=topic, destination=name_there, halted=halted or Halted.of(HaltReason.TOPIC_MISSING, missing))
    values = {name: entry.value for name, entry in (configs or {}).items()}
    for name, wanted in settings.fixed_configs.items():
        value = values.get(name)
        if value is not None and value != wanted:
            detail = f"{name_there}: {name}={value}"
            return Pair(source=topic, destination=name_there, halted=Halted.of(HaltReason.DESTINATION_REWRITES, detail))
    largest = values.get(MAX_MESSAGE_BYTES)
    here = {name: entry.value for name, entry in (origin or {}).items()}
    lacks = tuple(narrower(here, values))
    terms = Terms(
        max_batch_size=int(largest) if largest else None,
        compacted="compact" in (here.get(CLEANUP_POLICY) or ""),
        compacted_there="compact" in (values.get(CLEANUP_POLICY) or ""),
        append_times=here.get(TIMESTAMP_TYPE) == "LogAppendTime",
        accept_gaps=settings.accept_gaps,
        strict=settings.strict,
        refuses=lacks,
    )
    if terms.strict and terms.compacted:
        detail = f"{topic.name} is compacted: {CLEANUP_POLICY}={here[CLEANUP_POLICY]}"
        return Pair(source=topic, destination=name_there, halted=Halted.of(HaltReason.NOT_STRICT, detail))
    return Pair(
        source=topic,
        destination=name_there,
        terms=terms,
        partitions_there=len(there.leaders),
        narrower=lacks,
    )


async def describe_brokers(cluster: Cluster, names: list[str]) -> list[dict[str, str]]:
    """Returns the values of these settings that each answering broker knows. Empty if no broker answers; an empty dict
    for a broker whose configs we may not describe."""

    async def ask(node_id: int) -> dict[str, str]:
        configs = await describe_configs(cluster, Resource.BROKER, [str(node_id)], keys=names, node_id=node_id)
        has = configs.get(str(node_id), {})
        return {name: has[name].value for name in names if name in has and has[name].value}

    try:
        return await cluster.ask_all(ask, patience_s=PATIENCE_S)
    except NetworkError:
        return []


async def _defaults(cluster: Cluster) -> dict[str, str]:
    """Returns the limits that a new topic has by its brokers' settings: the least value of each limit that all know."""
    told = [values for values in await describe_brokers(cluster, list(OF_BROKERS)) if values]
    known = [name for name in OF_BROKERS if told and all(name in values for values in told)]
    return {OF_BROKERS[name]: min((values[name] for values in told), key=int) for name in known}


async def describe_topics(cluster: Cluster, names: list[str]) -> dict[str, dict[str, Any]]:
    """Returns topic -> config name -> the broker's entry. Topics that we may not describe are left out: for those, only
    brokers judge batches."""
    return await describe_configs(cluster, Resource.TOPIC, names)


async def _create(
    source: Cluster, destination: Cluster, topics: dict[str, Topic], settings: RelaySettings, log: EventLog
) -> dict[str, Halted]:
    """Creates the topics as they are at the source: partitions, and the configs that were set there and matter.

    Args:
        source: the cluster that has them.
        destination: the cluster that gets them.
        topics: name at the destination -> the topic at the source.
        settings: the flow's.
        log: gets a line for each topic that was created.

    Returns:
        Topic -> the halt, for topics that could not be created.

    Raises:
        Refused: the controller moves, is busy or does not answer in time, at each of ``CREATE_TRIES`` tries.
        NetworkError: a cluster does not answer.
    """
    entries = await describe_topics(source, [topic.name for topic in topics.values()])
    defaults = await _defaults(destination)
    configs = {name: _configs_for(entries.get(topic.name, {}), defaults, settings) for name, topic in topics.items()}
    backoff = Backoff(least_ms=settings.backoff_ms, most_ms=CREATE_BACKOFF_MAX_MS)
    halted: dict[str, Halted] = {}
    while True:
        results = await _create_once(destination, topics, configs, settings)
        refused = {name: result for name, result in results.items() if result.error_code not in THERE}
        for name, result in results.items():
            if result.error_code == ErrorCode.NONE:
                _tell_created(log, destination, topics[name], result)
        for_now = {name: result for name, result in refused.items() if result.error_code in FOR_NOW}
        halted |= {
            name: Halted.of(
                HaltReason.CREATE_FAILED,
                f"{name} at {destination.name}: {error_name(result.error_code)}, {result.error_message or ''}",
            )
            for name, result in refused.items()
            if name not in for_now
        }
        if not for_now:
            return halted
        if backoff.tries == CREATE_TRIES - 1:
            name, result = next(iter(for_now.items()))
            raise Refused(f"cannot create {name} at {destination.name}", result.error_code, result.error_message)
        await asyncio.sleep(backoff.next_s())
        await destination.refresh([])
        topics = {name: topic for name, topic in topics.items() if name in for_now}


async def _create_once(
    destination: Cluster, topics: dict[str, Topic], configs: dict[str, dict[str, str]], settings: RelaySettings
) -> dict[str, Any]:
    """Sends one request to the controller. Returns topic -> the broker's result."""
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
    request = CreateTopicsRequest(topics=wanted, timeout_ms=CREATE_TIMEOUT_MS, validate_only=False)
    answer = await connection.call(request)
    return {result.name: result for result in answer.topics}


def _tell_created(log: EventLog, destination: Cluster, origin: Topic, result: Any) -> None:
    """Logs a created topic. ``result``: the broker's, which has the new topic's id since CreateTopics v7."""
    made = getattr(result, "topic_id", None)
    log.info(
        "topic_created",
        topic=result.name,
        topic_id=id_shown(made.bytes) if made and made.int else "",
        partitions=len(origin.leaders),
        detail=f"cluster {destination.name} had no topic {result.name}; it has the partitions of {origin.name}",
    )


def _configs_for(entries: dict[str, Any], defaults: dict[str, str], settings: RelaySettings) -> dict[str, str]:
    """Returns the configs of the new topic: the source topic's own settings that are synced, its batch size limit, and
    the configs that it needs, given its brokers' ``defaults``, to take every batch that the source took."""
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


async def _until_led(cluster: Cluster, names: list[str]) -> None:
    """Waits until every partition of the new topics has a leader: metadata lags behind creation."""
    for _ in range(SETTLED_TRIES):
        failed = await cluster.refresh(names)
        topics = [cluster.topics[name] for name in names if name in cluster.topics]
        if not failed and all(leader.node_id >= 0 for topic in topics for leader in topic.leaders.values()):
            return
        await asyncio.sleep(SETTLED_PAUSE_S)
    raise NetworkError(f"cluster {cluster.name}: new topics have no leaders: {', '.join(names)}")
