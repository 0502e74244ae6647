"""Finds the topics that a log cleaner works on. It removes batches after they were copied, which explains gaps."""

from collections.abc import Iterable

from kafka.protocol.admin import DescribeConfigsRequest

from mirror.net.cluster import Cluster

_TOPIC = 2
"""The resource type of a topic in DescribeConfigs."""
_POLICY = "cleanup.policy"


async def compacted(cluster: Cluster, topics: Iterable[str]) -> frozenset[str]:
    """Returns those of these topics whose cleanup.policy includes compact. Without the right to describe it, a topic
    counts as not compacted, which is the stricter case: no gap is excused.

    Raises:
        NetworkError: the cluster does not answer.
    """
    kind = DescribeConfigsRequest.DescribeConfigsResource
    wanted = [kind(resource_type=_TOPIC, resource_name=name, configuration_keys=[_POLICY]) for name in topics]
    if not wanted:
        return frozenset()
    request = DescribeConfigsRequest(resources=wanted, include_synonyms=False, include_documentation=False)
    return frozenset(
        result.resource_name
        for result in (await cluster.call(request)).results
        if not result.error_code
        and any(entry.name == _POLICY and "compact" in (entry.value or "") for entry in result.configs)
    )
