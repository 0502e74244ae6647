"""Pairs the flow's topics as the relay does, without creating any, and asks the controller whether it would create
topics and partitions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.metadata import Topic
from mirror.reasons import HaltReason
from mirror.relay.halts import Halted
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.creating import FOR_NOW, configs_not_known, configs_of_new, try_growing, try_out
from mirror.relay.topics.describing import describe_topics
from mirror.relay.topics.limits import narrower
from mirror.relay.topics.pairing import Pair, in_step, pair_topics, terms_of, unusable, wanted_topics
from mirror.relay.topics.syncing import Entries, changes_of
from mirror.service.plan.ask.clusters import topic_rights
from mirror.service.plan.ask.readonly import Silence
from mirror.service.plan.model import NOT_KNOWN, Rights, TopicFacts, Values
from mirror.wire.errors import ErrorCode, error_name

MOST_TOPICS = 500
"""Maximum number of topics in one request."""
HOUR_MS, MINUTE_MS = 3_600_000, 60_000


class Topics:
    """The flow's topics on both sides.

    Attributes:
        found: the topics that the source has, sorted.
    """

    def __init__(self, found: list[TopicFacts], entries_there: Mapping[str, Any]) -> None:
        """``entries_there``: destination topic -> its entry in a Metadata answer, which has the replicas."""
        self.found = found
        self._replicas = {
            (name, row.partition_index): (len(row.isr_nodes or ()), len(row.replica_nodes or ()))
            for name, entry in entries_there.items()
            for row in entry.partitions
        }

    def replicas(self, topic: TopicFacts, index: int) -> tuple[int, int]:
        """Returns the number of in-sync replicas of a destination partition, and of all its replicas; -1: not known."""
        return self._replicas.get((topic.pair.destination, index), (NOT_KNOWN, NOT_KNOWN))


async def topics_of(
    source: Cluster,
    destination: Cluster,
    settings: RelaySettings,
    defaults: Mapping[str, str],
    *,
    only: Callable[[str], bool],
) -> Topics:
    """Asks for all topics of the flow.

    Args:
        source, destination: the clusters.
        settings: settings of the flow.
        defaults: the destination brokers' defaults for new topics.
        only: returns True for topics to ask about, of those that the flow mirrors.

    Raises:
        NetworkError: a cluster does not answer.
    """
    selected = replace(settings, create_topics=False, selects=lambda name: settings.selects(name) and only(name))
    pairs = await pair_topics(source, destination, selected, Silence())
    missing = [pair for pair in pairs if pair.destination not in destination.topics and not unusable(pair.destination)]
    wanted = wanted_topics([pair.source for pair in pairs], settings)
    there = [name for name in wanted if name in destination.topics]
    new = {pair.destination: wanted[pair.destination] for pair in missing} if settings.create_topics else {}
    planned, not_known = await _planned(source, destination, new, settings)
    refused, uncertain = await _try_out(destination, {name: new[name] for name in planned}, planned, settings)
    refused |= not_known
    ungrown = await _try_growing(destination, {name: wanted[name] for name in there}, settings)
    entries_here = await _described(source, [pair.source.name for pair in pairs])
    entries_there = await _described(destination, there)
    configs_here, configs_there = _values(entries_here), _values(entries_there)
    altered = _altered(pairs, entries_here, entries_there, settings)
    rights_here, _ = await _rights(source, [pair.source.name for pair in pairs])
    rights_there, rows_there = await _rights(destination, there)
    created = {pair.destination for pair in missing} if settings.create_topics else set()
    found = []
    for pair in pairs:
        name, here = pair.destination, configs_here.get(pair.source.name, {})
        config = _would_have(planned.get(name, {}), defaults) if name in created else configs_there.get(name, {})
        if name in created:
            pair = replace(pair, halted=None, terms=terms_of(here, config, settings))
        partitions_there = len(destination.topics[name].leaders) if name in destination.topics else 0
        if pair.halted is not None:
            # The relay stops at the first thing that is wrong. The plan shows all of them.
            lacks = tuple(narrower(here, config))
            pair = replace(pair, terms=terms_of(here, config, settings, lacks), narrower=lacks)
        grown = (
            name in there
            and settings.create_topics
            and not settings.mapped
            and partitions_there < len(pair.source.leaders)
        )
        found.append(
            TopicFacts(
                pair=replace(pair, ungrown=ungrown.get(name, "")),
                partitions=len(pair.source.leaders),
                partitions_there=partitions_there,
                exists=name in destination.topics,
                created=name in created,
                grown=grown and not ungrown.get(name),
                refusal=refused.get(name),
                uncertain=uncertain.get(name, ""),
                here=here,
                there=config,
                rights_here=rights_here.get(pair.source.name),
                rights_there=rights_there.get(name),
                altered=altered.get(name, {}),
                replicas=_replicas(rows_there.get(name), settings, defaults),
            )
        )
    return Topics(found, rows_there)


async def _planned(
    source: Cluster, destination: Cluster, new: Mapping[str, Topic], settings: RelaySettings
) -> tuple[dict[str, dict[str, str]], dict[str, Halted]]:
    """Returns new topic -> the configs that it would get; and new topic -> the halt that would follow, for topics that
    would not be created because the configs of their source topic may not be read."""
    if not new:
        return {}, {}
    denied: set[str] = set()
    planned = await configs_of_new(source, destination, new, settings, denied=denied)
    not_known = {
        name: configs_not_known(source, destination, name, topic) for name, topic in new.items() if topic.name in denied
    }
    return {name: configs for name, configs in planned.items() if name not in not_known}, not_known


async def _try_out(
    destination: Cluster,
    new: Mapping[str, Topic],
    planned: Mapping[str, dict[str, str]],
    settings: RelaySettings,
) -> tuple[dict[str, Halted], dict[str, str]]:
    """Asks the controller whether it would create topics.

    Returns:
        Topic that it would refuse -> the halt that would follow; and topic for which it cannot tell at present -> why.
    """
    if not new:
        return {}, {}
    try:
        answers = await try_out(destination, new, planned, settings)
    except NetworkError as error:
        return {}, dict.fromkeys(new, str(error))
    refused: dict[str, Halted] = {}
    uncertain: dict[str, str] = {}
    for name, (code, message) in answers.items():
        told = f"{name} at {destination.name}: {error_name(code)}" + (f", {message}" if message else "")
        if code in FOR_NOW:
            uncertain[name] = told
        elif code == ErrorCode.TOPIC_ALREADY_EXISTS:
            refused[name] = Halted.of(HaltReason.AUTHORIZATION, f"{told} and is not shown: Describe is missing")
        else:
            refused[name] = Halted.of(HaltReason.CREATE_FAILED, told)
    return refused, uncertain


async def _try_growing(destination: Cluster, present: Mapping[str, Topic], settings: RelaySettings) -> dict[str, str]:
    if not settings.create_topics or settings.mapped:
        return {}
    try:
        return await try_growing(destination, present)
    except NetworkError as error:
        return {name: str(error) for name in present}


async def _described(cluster: Cluster, names: Iterable[str]) -> dict[str, Entries]:
    found: dict[str, Entries] = {}
    for some in _pieces(names):
        found |= await describe_topics(cluster, list(some))
    return found


def _values(found: Mapping[str, Entries]) -> dict[str, Values]:
    return {name: {key: entry.value for key, entry in entries.items()} for name, entries in found.items()}


def _altered(
    pairs: Sequence[Pair], here: Mapping[str, Entries], there: Mapping[str, Entries], settings: RelaySettings
) -> dict[str, dict[str, str | None]]:
    """Returns destination topic -> the configs that the mirror would change if the topic is its copy."""
    if not settings.sync_configs:
        return {}
    compared = in_step([pair.source for pair in pairs], [pair.source for pair in pairs], here, there, settings)
    return {
        name: changes_of(configs, settings.synced_configs, settings.fixed_configs) for name, configs in compared.items()
    }


async def _rights(cluster: Cluster, names: Iterable[str]) -> tuple[dict[str, Rights | None], dict[str, Any]]:
    rights: dict[str, Rights | None] = {}
    entries: dict[str, Any] = {}
    for some in _pieces(names):
        more, rows = await topic_rights(cluster, some)
        rights |= more
        entries |= rows
    return rights, entries


def _would_have(configs: Mapping[str, str], defaults: Mapping[str, str]) -> Values:
    """Returns the configs of a topic that is created with ``configs``. Of the brokers' ``defaults``, only those are
    added that the checks need."""
    retention = default_retention_ms(defaults)
    values: dict[str, str | None] = {"min.insync.replicas": defaults.get("min.insync.replicas")}
    if retention is not None:
        values["retention.ms"] = str(retention)
    return {**values, **configs}


def default_retention_ms(defaults: Mapping[str, str]) -> int | None:
    """Returns ``retention.ms`` of a new topic by its brokers' configs: ms count before minutes, and minutes before
    hours. -1: no limit; None: not known."""
    for name, unit in (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)):
        value = defaults.get(name)
        if value:
            return int(value) * unit if int(value) >= 0 else -1
    return None


def _replicas(entry: Any, settings: RelaySettings, defaults: Mapping[str, str]) -> int:
    """Returns the replication factor of the destination topic, or that with which it would be created; -1: not
    known."""
    if entry is not None and entry.partitions:
        return max(len(row.replica_nodes or ()) for row in entry.partitions)
    if settings.replication_factor > 0:
        return settings.replication_factor
    return int(defaults.get("default.replication.factor", NOT_KNOWN))


def _pieces(names: Iterable[str]) -> Iterator[list[str]]:
    """Yields lists of names, each for one request."""
    rest = iter(names)
    while piece := list(islice(rest, MOST_TOPICS)):
        yield piece
