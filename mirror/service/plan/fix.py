"""``mirror plan --fix``: repairs what can be repaired without any risk, and nothing else.

* Topics and partitions that the destination lacks are created, as the mirror itself would create them.
* ``max.message.bytes`` of a destination topic is raised.
* ``compression.type`` and ``message.timestamp.type`` of a destination topic that holds no record are set, unless the
  flow accepts their present values. If the topic holds records, somebody may rely on the present values.
"""

from collections.abc import Iterable
from typing import NamedTuple

from mirror.net.admin.configs import Resource, alter_configs
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.creating import create, grow
from mirror.relay.topics.limits import MAX_MESSAGE_BYTES
from mirror.relay.topics.pairing import wanted_topics
from mirror.service.plan.ask.readonly import Silence
from mirror.service.plan.model import TopicFacts

CREATE, GROW, CONFIGURE = "create", "add partitions", "set"


class Act(NamedTuple):
    """One repair of a destination topic.

    Attributes:
        kind: ``CREATE``, ``GROW`` or ``CONFIGURE``.
        topic: name of the destination topic.
        told: the repair in words.
        config, value: the config to set, and its new value; empty for other kinds.
        failed: why the repair failed; empty: it was done, or is only shown.
    """

    kind: str
    topic: str
    told: str
    config: str = ""
    value: str = ""
    failed: str = ""


def acts_for(topics: Iterable[TopicFacts], settings: RelaySettings, destination: str) -> list[Act]:
    """Returns the repairs that are safe, at most one for each destination topic and kind or config.

    Args:
        topics: the topics that may be changed (``Report.fixable``).
        settings: settings of the flow.
        destination: name of the destination cluster.
    """
    acts: dict[tuple[str, str], Act] = {}
    for topic in topics:
        name = topic.pair.destination
        for act in _of_topic(topic, settings, destination):
            known = acts.get((name, act.config or act.kind))
            if known is None or (act.config == MAX_MESSAGE_BYTES and int(act.value) > int(known.value)):
                acts[name, act.config or act.kind] = act
    return list(acts.values())


def _of_topic(topic: TopicFacts, settings: RelaySettings, destination: str) -> Iterable[Act]:
    name = topic.pair.destination
    if topic.created and topic.refusal is None:
        yield Act(CREATE, name, f"create {name} at {destination}, with {topic.partitions} partitions")
    if topic.grown:
        more = topic.partitions - topic.partitions_there
        yield Act(GROW, name, f"add {more} partitions to {name} at {destination}")
    if not topic.exists:
        return
    for lack in topic.pair.narrower:
        if lack.name == MAX_MESSAGE_BYTES:
            yield _set(name, destination, lack.name, str(lack.enough), str(lack.there))
    if topic.empty:
        for config, wanted in settings.fixed_configs.items():
            value = topic.there.get(config)
            if value is not None and not settings.takes(config, value):
                yield _set(name, destination, config, wanted, value)


def _set(topic: str, destination: str, config: str, value: str, before: str) -> Act:
    return Act(CONFIGURE, topic, f"set {config}={value} on {topic} at {destination} (it is {before})", config, value)


async def done(
    acts: list[Act], topics: Iterable[TopicFacts], source: Cluster, destination: Cluster, settings: RelaySettings
) -> list[Act]:
    """Does the repairs, and returns them with the cause of those that failed.

    Args:
        acts: what ``acts_for`` has returned.
        topics: all topics of the flow that were found.
        source: the source cluster.
        destination: the destination cluster, opened for writing.
        settings: settings of the flow.
    """
    found = list(topics)
    wanted = wanted_topics([topic.pair.source for topic in found], settings)
    await destination.refresh(list(wanted))
    outcome: dict[Act, str] = {}
    made = {act.topic: wanted[act.topic] for act in acts if act.kind == CREATE}
    grown = {act.topic: wanted[act.topic] for act in acts if act.kind == GROW}
    why: dict[str, str] = {}
    try:
        halted = await create(source, destination, made, settings, Silence()) if made else {}
        why |= {name: each.detail for name, each in halted.items()}
    except NetworkError as error:
        why |= dict.fromkeys(made, str(error))
    try:
        why |= await grow(destination, grown, Silence()) if grown else {}
    except NetworkError as error:
        why |= dict.fromkeys(grown, str(error))
    for act in acts:
        if act.kind != CONFIGURE:
            outcome[act] = why.get(act.topic, "")
            continue
        try:
            await alter_configs(destination, Resource.TOPIC, act.topic, {act.config: act.value})
            outcome[act] = ""
        except NetworkError as error:
            outcome[act] = str(error)
    return [act._replace(failed=outcome[act]) for act in acts]
