"""What the principal may do with a cluster, as its brokers report it (KIP-430)."""

from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest

from mirror.net.cluster import Cluster
from mirror.net.rights import OPERATION_CODES

IN_METADATA = (8, 10)
"""The Metadata versions that have a cluster's operations; later, DescribeCluster has them."""


def operations_of(codes: object) -> frozenset[str] | None:
    """Returns the operations of an ``authorized_operations`` field, as ``kafka.protocol`` decodes it: a set of codes.
    None if the broker did not tell."""
    if not isinstance(codes, set):
        return None
    return frozenset(name for name, code in OPERATION_CODES.items() if code in codes)


async def cluster_operations(cluster: Cluster) -> frozenset[str] | None:
    """Returns the operations on the cluster that the principal may do; none of them without the right to describe it.
    None: the broker that was asked does not tell.

    Raises:
        NetworkError: no broker answers.
    """
    connection = await cluster.control_of_any()
    apis = connection.api_versions
    if DescribeClusterRequest.API_KEY in apis:
        answer = await connection.call(DescribeClusterRequest(include_cluster_authorized_operations=True))
        return None if answer.error_code else operations_of(answer.authorized_operations)
    least, most = IN_METADATA
    if MetadataRequest.API_KEY not in apis or apis[MetadataRequest.API_KEY].most < least:
        return None
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=True)
    return operations_of((await connection.call(request, version=most)).authorized_operations)
