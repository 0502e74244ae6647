"""Reads the configs of brokers and topics, as far as the mirror may."""

from collections.abc import Iterable
from typing import Any

from mirror.net.admin.configs import Resource, describe_configs
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.rights import DESCRIBE_CONFIGS, TOPIC, Right
from mirror.relay.events import EventLog

NAMED = 5
"""Most topics that a log line names."""
PATIENCE_S = 5.0
"""How long to wait for brokers that do not answer, once another one has answered."""


async def describe_brokers(cluster: Cluster, names: list[str]) -> list[dict[str, str]]:
    """Returns the values of these settings, as a dict for each broker that answers. An empty list if no broker answers;
    an empty dict for a broker whose configs the mirror may not read."""

    async def ask(node_id: int) -> dict[str, str]:
        configs = await describe_configs(cluster, Resource.BROKER, [str(node_id)], keys=names, node_id=node_id)
        has = configs.get(str(node_id), {})
        return {name: has[name].value for name in names if name in has and has[name].value}

    try:
        return await cluster.ask_all(ask, patience_s=PATIENCE_S)
    except NetworkError:
        return []


async def describe_topics(
    cluster: Cluster, names: list[str], *, denied: set[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Returns topic -> config name -> the broker's entry. Topics whose configs the mirror may not read are left out:
    for these, only brokers judge batches. ``denied``: gets their names.

    Raises:
        NetworkError: the cluster does not answer.
    """
    return await describe_configs(cluster, Resource.TOPIC, names, denied=denied)


def right_to_configs(cluster: Cluster, topic: str) -> Right:
    """Returns the right that is needed to read a topic's configs."""
    return Right(DESCRIBE_CONFIGS, TOPIC, topic, cluster.name)


class Unread:
    """Logs topics whose configs may not be read: each once, and again when they may."""

    def __init__(self, log: EventLog, source: str) -> None:
        """``source``: the source cluster's name."""
        self._log = log
        self._source = source
        self._told: set[Right] = set()

    def tell(self, lacks: Iterable[Right]) -> None:
        """Logs what has changed. ``lacks``: the rights that are missing now."""
        now = set(lacks)
        new, ended, self._told = sorted(now - self._told), sorted(self._told - now), now
        for cluster in sorted({right.cluster for right in ended}):
            names = _named([right.name for right in ended if right.cluster == cluster])
            self._log.info(
                "configs_known", cluster=cluster, detail=f"the configs of {names} at cluster {cluster} are known now"
            )
        for cluster in sorted({right.cluster for right in new}):
            shown = _named([right.name for right in new if right.cluster == cluster])
            what = (
                "whether they are compacted, and what they hold, is not known: a gap in one halts its partition"
                if cluster == self._source
                else "settings that change, refuse or delete what is written are not seen before they do: check them"
            )
            self._log.warning(
                "configs_unknown",
                cluster=cluster,
                detail=f"the mirror may not read the configs of {shown} at cluster {cluster}, or its brokers cannot be "
                f"asked (before Kafka 0.11), and it assumes Kafka's defaults; {what}",
                remedy=f"grant the mirror's principal {DESCRIBE_CONFIGS} on these topics of cluster {cluster}; brokers "
                "that cannot be asked need nothing, but no topic is created without knowing its configs",
            )


def _named(names: list[str]) -> str:
    """Returns a few of the names, and the number of the others."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
