"""Which topics a log cleaner works on: there, batches go away after they were copied, and gaps say so."""

from collections.abc import Iterable

from kafka.protocol.admin import DescribeConfigsRequest

from mirror.net.cluster import Cluster

_TOPIC = 2
"""Resource type of a topic."""
_POLICY = "cleanup.policy"


async def compacted(cluster: Cluster, topics: Iterable[str]) -> frozenset[str]:
    """Those of these topics whose cleanup.policy includes compact. Without the right to look, a topic is taken for one
    that is not compacted: that forgives nothing.

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
