"""Finds the flow's topics at the source, and pairs them with the destination's topics, which are created if missing."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mirror.net.cluster import Cluster
from mirror.net.metadata import Topic, not_described
from mirror.net.rights import DENIED, Right
from mirror.offsetmap.fields import INTERNAL_PREFIXES, is_topic
from mirror.reasons import HaltReason
from mirror.records.admit import Terms
from mirror.relay.events import EventLog
from mirror.relay.halts import Halted, halted_by_lack
from mirror.relay.settings import APPEND_TIME, HALT, TIMESTAMP_TYPE, RelaySettings
from mirror.relay.topics.copies import KnownCopies
from mirror.relay.topics.creating import SETTLED_PAUSE_S, create, grow, until_led, with_fewer
from mirror.relay.topics.describing import describe_topics, right_to_configs
from mirror.relay.topics.limits import (
    MAX_MESSAGE_BYTES,
    Narrower,
    Values,
    narrower,
)
from mirror.relay.topics.syncing import RETENTION_MS, ConfigSync, TopicConfigs
from mirror.wire.errors import error_name

CLEANUP_POLICY = "cleanup.policy"
LEARN_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A topic on both sides. ``halted`` is set if none of it can be mirrored; otherwise ``terms`` count."""

    source: Topic
    destination: str
    terms: Terms = field(default_factory=Terms)
    partitions_there: int = 0
    halted: Halted | None = None
    ungrown: str = ""
    """Why the destination topic did not get the partitions that it lacks; empty if it lacks none, or nobody has
    tried."""
    strange: str = ""
    """Why no partitions may be added to the destination topic: it is not known to be a copy. Empty if they may be
    added."""
    narrower: tuple[Narrower, ...] = ()
    """Configs with which the destination refuses batches that the source accepts. They are logged. A partition halts
    only when such a batch comes."""
    unread: tuple[Right, ...] = ()
    """The rights to read configs that the mirror lacks."""
    retention_s: float | None = None
    """How long the source keeps records, in seconds; None if that is not limited, or not known."""

    def halt_of(self, index: int) -> Halted | None:
        """Returns the halt if this partition cannot be mirrored; otherwise None."""
        if self.halted is None and index >= self.partitions_there:
            detail = (
                f"{self.source.name}-{index}: the destination has {self.partitions_there} partitions, "
                f"the source has {len(self.source.leaders)}"
                + (f"; adding them was refused: {self.ungrown}" if self.ungrown else "")
                + (f"; none are added: {self.strange}" if self.strange else "")
            )
            reason = HaltReason.FEWER_PARTITIONS_STRANGE if self.strange else HaltReason.FEWER_PARTITIONS
            return Halted.of(reason, detail)
        return self.halted


async def pair_topics(
    source: Cluster,
    destination: Cluster,
    settings: RelaySettings,
    log: EventLog,
    *,
    copies: KnownCopies | None = None,
    sync: ConfigSync | None = None,
) -> list[Pair]:
    """Returns every topic of the flow that the source has now, with its counterpart, which is created if the flow says
    so.

    Args:
        source: the cluster that has the topics.
        destination: the cluster that they are copied to.
        settings: the flow's settings.
        log: gets a line for each topic that is created or grows.
        copies: says which destination topics may be changed; None: none may, except when they are created.
        sync: keeps the configs of the destination's topics in step; None: they stay as they are.

    Raises:
        NetworkError: one of the clusters does not answer.
    """
    await _learn(source, settings)
    here = [topic for name, topic in sorted(source.topics.items()) if not topic.internal and settings.selects(name)]
    names = [topic.name for topic in here]
    if not names:
        return []
    wanted = {name: topic for name, topic in wanted_topics(here, settings).items() if not unusable(name)}
    failed = await destination.refresh(wanted)
    halted = {
        name: _hidden(destination.name, name)
        if code in DENIED
        else Halted.of(HaltReason.TOPIC_MISSING, f"{name} at {destination.name}: {error_name(code)}")
        for name, code in failed.items()
    }
    # A topic that may not be described may exist.
    missing = {
        name: topic
        for name, topic in wanted.items()
        if name not in destination.topics and name not in destination.denied
    }
    if missing and settings.create_topics:
        created = await create(source, destination, missing, settings, log)
        halted = {name: each for name, each in halted.items() if name not in missing} | created
        await until_led(
            destination, {name: len(topic.leaders) for name, topic in missing.items() if name not in halted}
        )
    # Where others write too, more partitions would send their keys elsewhere. An operator has to decide that.
    ungrown: dict[str, str] = {}
    strange: dict[str, str] = {}
    if copies is not None and settings.create_topics and not settings.mapped:
        fewer = with_fewer(destination, wanted)
        strange = await copies.strange(fewer)
        ungrown = await grow(destination, {name: topic for name, topic in fewer.items() if name not in strange}, log)
    present = [name for name in wanted if name in destination.topics]
    unread_there: set[str] = set()
    unread_here: set[str] = set()
    configs = await describe_topics(destination, present, denied=unread_there)
    origin = await describe_topics(source, names, denied=unread_here)
    if sync is not None and copies is not None and settings.sync_configs:
        copied = [
            topic
            for topic in here
            if (there := destination.topics.get(settings.destination_of(topic.name))) and copies.is_copy(topic, there)
        ]
        changed = await sync.renew(in_step(here, copied, origin, configs, settings))
        configs |= await describe_topics(destination, sorted(changed))
    return [
        replace(
            _pair(topic, name, destination, origin.get(topic.name), configs.get(name), halted.get(name), settings),
            retention_s=retention_of({key: entry.value for key, entry in origin.get(topic.name, {}).items()}),
            ungrown=ungrown.get(name, ""),
            strange=strange.get(name, ""),
            unread=(
                *([right_to_configs(source, topic.name)] if topic.name in unread_here else ()),
                *([right_to_configs(destination, name)] if name in unread_there else ()),
            ),
        )
        for topic, name in ((topic, settings.destination_of(topic.name)) for topic in here)
    ]


def in_step(
    here: list[Topic],
    copied: list[Topic],
    origin: Mapping[str, Any],
    configs: Mapping[str, Any],
    settings: RelaySettings,
) -> dict[str, TopicConfigs]:
    """Returns the configs of both sides for each destination topic that is the copy of one source topic, as far as they
    may be read. A destination topic with several source topics has none that it could follow, so it is left out.

    Args:
        here: the flow's topics at the source.
        copied: those of them that are known to have a copy.
        origin, configs: configs of the source topics, and of the destination topics.
        settings: the flow's settings.
    """
    sources = Counter(settings.destination_of(topic.name) for topic in here)
    return {
        name: TopicConfigs(origin[topic.name], configs[name])
        for topic, name in ((topic, settings.destination_of(topic.name)) for topic in copied)
        if sources[name] == 1 and topic.name in origin and name in configs
    }


async def describe_pair(source: Cluster, destination: Cluster, topic: Topic, settings: RelaySettings) -> Pair:
    """Returns one topic with its counterpart, according to the current configs.

    Raises:
        NetworkError: one of the clusters does not answer.
    """
    name = settings.destination_of(topic.name)
    origin, configs = await describe_topics(source, [topic.name]), await describe_topics(destination, [name])
    return _pair(topic, name, destination, origin.get(topic.name), configs.get(name), None, settings)


def unusable(name: str) -> str:
    """Returns why nothing may be copied into a topic of this name, which a rename or prefix has made; empty if it
    may."""
    if not is_topic(name):
        return f"{name!r}, of {len(name)} characters, is no name of a topic"
    if name.startswith(INTERNAL_PREFIXES):
        return f"topics that begin with {' or '.join(INTERNAL_PREFIXES)} belong to Kafka or to the mirror"
    return ""


def _hidden(cluster: str, name: str) -> Halted:
    """Returns the halt for a destination topic that may not be described."""
    error = not_described(cluster, name)
    assert error.lacks is not None
    return halted_by_lack(str(error), error.lacks)


def wanted_topics(here: list[Topic], settings: RelaySettings) -> dict[str, Topic]:
    """Returns destination topic -> the source topic after which it is created. Of several source topics, that is the
    one with the most partitions."""
    wanted: dict[str, Topic] = {}
    for topic in here:
        name = settings.destination_of(topic.name)
        if name not in wanted or len(wanted[name].leaders) < len(topic.leaders):
            wanted[name] = topic
    return wanted


async def _learn(source: Cluster, settings: RelaySettings) -> None:
    """Refreshes all topics of the source. A topic that comes with an error (without leaders, for example) is asked for
    again: otherwise it would be missing until the next look."""
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
    if why := unusable(name_there):
        detail = f"{topic.name} would be copied into {name_there} at {destination.name}: {why}"
        return Pair(source=topic, destination=name_there, halted=Halted.of(HaltReason.INVALID_TOPIC, detail))
    there = destination.topics.get(name_there)
    if there is None:
        missing = f"{name_there} does not exist at {destination.name}, and topic.create is false"
        return Pair(source=topic, destination=name_there, halted=halted or Halted.of(HaltReason.TOPIC_MISSING, missing))
    values = {name: entry.value for name, entry in (configs or {}).items()}
    for name in settings.fixed_configs:
        value = values.get(name)
        if not settings.takes(name, value):
            detail = f"{name_there}: {name}={value}"
            return Pair(source=topic, destination=name_there, halted=Halted.of(HaltReason.DESTINATION_REWRITES, detail))
    here = {name: entry.value for name, entry in (origin or {}).items()}
    lacks = tuple(narrower(here, values))
    terms = terms_of(here, values, settings, lacks)
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


def retention_of(here: Values) -> float | None:
    """Returns after how many seconds a topic with these configs may delete a record; None if it never does so by time,
    or if that is not known."""
    text = here.get(RETENTION_MS)
    if text is None or int(text) < 0 or "delete" not in (here.get(CLEANUP_POLICY) or ""):
        return None
    return int(text) / 1000


def terms_of(here: Values, there: Values, settings: RelaySettings, lacks: tuple[Narrower, ...] = ()) -> Terms:
    """Returns the terms that follow from the configs of the topics on both sides. ``lacks``: the configs with which the
    destination accepts less."""
    largest = there.get(MAX_MESSAGE_BYTES)
    limit = int(largest) if largest else None
    rewrites = settings.rewrites and not settings.strict
    compacted = "compact" in (here.get(CLEANUP_POLICY) or "")
    return Terms(
        max_batch_size=limit,
        compacted=compacted,
        compacted_there="compact" in (there.get(CLEANUP_POLICY) or ""),
        append_times=here.get(TIMESTAMP_TYPE) == APPEND_TIME,
        takes_append_times=settings.append_times,
        codec=settings.codec,
        append_times_there=there.get(TIMESTAMP_TYPE) == APPEND_TIME,
        accept_gaps=settings.accept_gaps,
        rewrites=rewrites,
        # Cleaners leave no borders among old messages. Without equal offsets, nothing would say where a copy belongs.
        converts=rewrites and not (settings.mapped and compacted),
        passes_over=limit if rewrites and not settings.mapped and settings.oversize_record != HALT else None,
        rebatches=settings.rebatches if rewrites and not settings.mapped else 0,
        strict=settings.strict,
        refuses=lacks,
    )
