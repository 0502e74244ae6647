"""Finds the topics that a log cleaner works on. Cleaners remove batches after they were copied, which explains gaps."""

from collections.abc import Iterable

from mirror.net.admin.configs import Resource, describe_configs
from mirror.net.cluster import Cluster

_POLICY = "cleanup.policy"


async def compacted(cluster: Cluster, topics: Iterable[str]) -> frozenset[str]:
    """Returns those of these topics whose cleanup.policy includes compact. Without the right to describe it, a topic
    counts as not compacted, which is the stricter case: no gap is excused.

    Raises:
        NetworkError: the cluster does not answer.
    """
    configs = await describe_configs(cluster, Resource.TOPIC, topics, keys=[_POLICY])
    return frozenset(
        topic for topic, has in configs.items() if _POLICY in has and "compact" in (has[_POLICY].value or "")
    )
