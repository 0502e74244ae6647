"""Keeps the configs of destination topics in step with the source's (``sync.topic.configs.enabled``).

Each look for topics compares the configs of ``sync.topic.configs``. What is set on the source topic is set on the
destination topic; what is set on the destination topic only is removed. MirrorMaker 2 does the same, with two
differences. A batch size limit is only raised, because batches that the source accepted under an earlier limit may
still have to be copied. And nothing is changed while a topic's cleanup is suspended, or if the topic is not a copy. If
somebody else, such as another flow into the same topic, changes a config back each time, it is left alone after
``MOST_TIMES``.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mirror.net.admin.configs import Resource, alter_configs
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.relay.events import EventLog
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.limits import MAX_MESSAGE_BYTES

FOR_EVER = str(1 << 62)
"""More bytes than any log holds, and more ms than have passed since 1970. This is the ``retention.ms`` of a topic whose
cleanup is suspended (``relay.leading.cleanup``)."""
RETENTION_MS = "retention.ms"
TOPIC_CONFIG_SOURCE = 1
"""config_source of a value that was set on the topic itself (DescribeConfigs v1 and later)."""

MOST_TIMES = 5
"""Times that a config is given the same value before it counts as contended. Then it is left to whoever else sets
it."""

Entries = Mapping[str, Any]
"""Config name -> the entry of DescribeConfigs."""


class TopicConfigs(NamedTuple):
    """A topic's configs on both sides."""

    here: Entries
    """At the source."""
    there: Entries
    """At the destination."""


class ConfigSync:
    """Changes configs of destination topics. A refused change is logged once."""

    def __init__(self, destination: Cluster, settings: RelaySettings, log: EventLog) -> None:
        self._destination = destination
        self._settings = settings
        self._log = log
        self._told: dict[str, str] = {}
        self._done: Counter[tuple[str, str, str | None]] = Counter()
        """How many times this process has given a topic's config this value (topic, config, value)."""
        self._unknown: set[str] = set()
        """Names of ``sync.topic.configs`` that were logged as unknown."""

    async def renew(self, topics: Mapping[str, TopicConfigs]) -> set[str]:
        """Brings the configs of these topics in step.

        Args:
            topics: name at the destination -> its configs, and those of its source topic.

        Returns:
            The topics that were changed. What a broker refuses is logged.
        """
        self._tell_unknown(topics.values())
        changes = {name: change for name, configs in topics.items() if (change := self._uncontended(name, configs))}
        if not changes:
            return set()
        refused: dict[str, str] = {}
        for name, change in changes.items():
            try:
                await alter_configs(self._destination, Resource.TOPIC, name, change)
            except NetworkError as error:
                refused[name] = str(error)
            text = told_of(change)
            if name in refused:
                self._refused(name, text, refused[name])
            else:
                self._told.pop(name, None)
                self._done.update((name, key, value) for key, value in change.items())
                self._log.info(
                    "topic_configs_changed",
                    topic=name,
                    detail=f"cluster {self._destination.name}: {text}, as at the source",
                )
        return changes.keys() - refused.keys()

    def _uncontended(self, name: str, configs: TopicConfigs) -> dict[str, str | None]:
        """Returns the changes that bring a topic in step, without those that somebody else has undone each time. Logs
        these, once for each value."""
        changes = changes_of(configs, self._settings.synced_configs, self._settings.fixed_configs)
        contended = [key for key, value in changes.items() if self._done[name, key, value] >= MOST_TIMES]
        for key in contended:
            value, has = changes.pop(key), configs.there[key].value
            if self._done[name, key, value] > MOST_TIMES:
                continue
            self._done[name, key, value] += 1
            self._log.warning(
                "topic_configs_contended",
                topic=name,
                detail=f"cluster {self._destination.name}: {told_of({key: value})} was set {MOST_TIMES} times, as at "
                f"the source, and each time somebody has set {has} again; it is left alone from now on",
                remedy="look for another flow into this topic with sync.topic.configs.enabled, and set it to false in "
                "all but one of them; it is set again once the source's value changes, or after a restart",
            )
        return changes

    def _tell_unknown(self, topics: Iterable[TopicConfigs]) -> None:
        """Logs each name that no config of any source topic has: it is probably misspelled."""
        known = {key for configs in topics for key in configs.here}
        for name in self._settings.synced_configs if known else ():
            if name in known or name in self._unknown:
                continue
            self._unknown.add(name)
            near = difflib.get_close_matches(name, known, n=1)
            self._log.warning(
                "topic_config_unknown",
                detail=f"sync.topic.configs names {name}, and the source's topics have no config of that name"
                + (f"; did you mean {near[0]}?" if near else ""),
                remedy="correct it, or take it off sync.topic.configs",
            )

    def _refused(self, name: str, text: str, why: str) -> None:
        if self._told.get(name) == f"{text}: {why}":
            return
        self._told[name] = f"{text}: {why}"
        self._log.warning(
            "topic_configs_refused",
            topic=name,
            detail=f"cluster {self._destination.name} does not take {text}: {why}",
            remedy="grant the mirror AlterConfigs on the topic, take the config off sync.topic.configs, or set "
            "sync.topic.configs.enabled: false",
        )


def told_of(change: Mapping[str, str | None]) -> str:
    """Returns the changes in words."""
    return ", ".join(f"{key}={'(default)' if value is None else value}" for key, value in change.items())


def changes_of(configs: TopicConfigs, synced: tuple[str, ...], fixed: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the changes that bring the destination topic in step: config name -> value; None to remove the topic's
    own value. Empty if either side's configs are not known, or a cleanup is suspended."""
    here, there = configs
    if not here or not there or FOR_EVER in (_own(here, RETENTION_MS), _own(there, RETENTION_MS)):
        return {}
    changes: dict[str, str | None] = {}
    for name in synced:
        if name in fixed or name not in there:
            continue
        wanted, has = _own(here, name), _own(there, name)
        if name == MAX_MESSAGE_BYTES:
            most = here[name].value if name in here else None
            if most is not None and int(most) > int(there[name].value):
                changes[name] = most
        elif wanted is not None:
            if wanted != there[name].value:
                changes[name] = wanted
        elif has is not None and name in here:
            changes[name] = None
    return changes


def _own(entries: Entries, name: str) -> str | None:
    """Returns the value that is set on the topic itself; None if none is."""
    entry = entries.get(name)
    return entry.value if entry is not None and entry.config_source == TOPIC_CONFIG_SOURCE else None
