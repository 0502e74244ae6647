"""The configs of brokers and topics, as far as we may ask for them."""

from typing import Any

from mirror.net.cluster import Cluster
from mirror.net.configs import Resource, describe_configs
from mirror.net.errors import NetworkError

PATIENCE_S = 5.0
"""How long to wait at the start for brokers that do not answer, once another one has answered."""


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


async def describe_topics(cluster: Cluster, names: list[str]) -> dict[str, dict[str, Any]]:
    """Returns topic -> config name -> the broker's entry. Topics that we may not describe are left out: for those, only
    brokers judge batches."""
    return await describe_configs(cluster, Resource.TOPIC, names)
