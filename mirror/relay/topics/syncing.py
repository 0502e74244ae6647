"""Keeps the configs of destination topics in step with the source's (``sync.topic.configs.enabled``).

Each look for topics compares the configs of ``sync.topic.configs``. What is set on the source topic is set on the
destination's; what is set there only is removed. As MirrorMaker 2 does it, but for two things: a batch size limit is
only raised, because batches that the source took under the former one may still have to be copied; and nothing is
touched while a topic's cleanup is suspended.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka.protocol.admin import IncrementalAlterConfigsRequest

from mirror.net.cluster import Cluster
from mirror.net.configs import Resource
from mirror.net.errors import NetworkError
from mirror.relay.events import EventLog
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.limits import MAX_MESSAGE_BYTES
from mirror.wire.errors import ErrorCode, error_name

FOR_EVER = str(1 << 62)
"""More bytes than any log holds, and more ms than have passed since 1970: the ``retention.ms`` of a topic whose cleanup
is suspended (``relay.leading.cleanup``)."""
RETENTION_MS = "retention.ms"
TOPIC_CONFIG_SOURCE = 1
"""config_source of a value that was set on the topic itself (DescribeConfigs v1+)."""
SET, DELETE = 0, 1
"""IncrementalAlterConfigs' operations (KIP-339, Kafka 2.3)."""

Entries = Mapping[str, Any]
"""Config name -> DescribeConfigs' entry."""


class Failure(NamedTuple):
    """Why a broker did not alter a topic: its error code and text."""

    code: int
    message: str


class TopicConfigs(NamedTuple):
    """A topic's configs on both sides."""

    here: Entries
    """At the source."""
    there: Entries
    """At the destination."""


class ConfigSync:
    """Changes configs of destination topics. What is refused is logged once."""

    def __init__(self, destination: Cluster, settings: RelaySettings, log: EventLog) -> None:
        self._destination = destination
        self._settings = settings
        self._log = log
        self._told: dict[str, str] = {}

    async def renew(self, topics: Mapping[str, TopicConfigs]) -> set[str]:
        """Brings the configs of these topics in step. Returns the topics that were changed.

        Args:
            topics: name at the destination -> its configs, and those of its source topic.
        """
        changes = {
            name: change
            for name, configs in topics.items()
            if (change := changes_of(configs, self._settings.synced_configs, self._settings.fixed_configs))
        }
        if not changes:
            return set()
        try:
            failed = await alter(self._destination, changes)
            refused = {name: f"{error_name(each.code)}, {each.message}".rstrip(", ") for name, each in failed.items()}
        except NetworkError as error:
            refused = dict.fromkeys(changes, str(error))
        for name, change in changes.items():
            text = ", ".join(f"{key}={'(default)' if value is None else value}" for key, value in change.items())
            if name in refused:
                self._refused(name, text, refused[name])
            else:
                self._told.pop(name, None)
                self._log.info(
                    "topic_configs_changed",
                    topic=name,
                    detail=f"cluster {self._destination.name}: {text}, as at the source",
                )
        return changes.keys() - refused.keys()

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


def changes_of(configs: TopicConfigs, synced: tuple[str, ...], fixed: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the changes that bring the destination topic in step: config name -> value; None: its own is removed."""
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


async def alter(destination: Cluster, changes: Mapping[str, Mapping[str, str | None]]) -> dict[str, "Failure"]:
    """Changes topics' configs. Returns topic -> why it was refused.

    Args:
        destination: the cluster.
        changes: topic -> config name -> value; None: the topic's own value is removed.

    Raises:
        NetworkError: the cluster does not answer, or is older than Kafka 2.3.
    """
    one = IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [
        one(
            resource_type=Resource.TOPIC,
            resource_name=topic,
            configs=[
                one.AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
                for name, value in values.items()
            ],
        )
        for topic, values in changes.items()
    ]
    answer = await destination.call(IncrementalAlterConfigsRequest(resources=resources, validate_only=False))
    return {
        result.resource_name: Failure(result.error_code, result.error_message or "")
        for result in answer.responses
        if result.error_code != ErrorCode.NONE
    }


def _own(entries: Entries, name: str) -> str | None:
    """Returns the value that is set on the topic itself; None: there is none."""
    entry = entries.get(name)
    return entry.value if entry is not None and entry.config_source == TOPIC_CONFIG_SOURCE else None
