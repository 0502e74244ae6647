"""Topic and broker configs, by DescribeConfigs and IncrementalAlterConfigs."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from mirror.net.cluster import Cluster
from mirror.net.errors import ConnectionLost, Refused, Unsupported
from mirror.net.metadata import ANY_NODE
from mirror.net.rights import ALTER_CONFIGS, DENIED, TOPIC, Right

_SET, _DELETE = 0, 1


class Resource(IntEnum):
    """Kinds of resources with configs; the values are Kafka's numbers for them."""

    TOPIC = 2
    BROKER = 4


async def describe_configs(
    cluster: Cluster,
    kind: Resource,
    names: Iterable[str],
    *,
    keys: list[str] | None = None,
    node_id: int = ANY_NODE,
    denied: set[str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Returns resource name -> config name -> the broker's entry (``value``, ``config_source``, ``is_default``).

    Args:
        cluster: the cluster to ask.
        kind: kind of the resources.
        names: topics, or node ids as text. Without any, no request is sent.
        keys: names of the configs; None: all. Brokers may answer with others, too.
        node_id: the broker to ask; by default any.
        denied: the names of the resources that the mirror may not describe are added to it.

    A resource that the mirror may not describe is left out. A broker from before Kafka 0.11 does not know the request:
    all its resources count as such.

    Raises:
        NetworkError: the cluster does not answer.
    """
    wanted = list(names)
    if not wanted:
        return {}
    try:
        answer = await cluster.call(_question(kind, wanted, keys), node_id=node_id)
    except Unsupported:
        if denied is not None:
            denied.update(wanted)
        return {}
    except ConnectionLost:
        if keys is None:
            raise
        # Tansu 0.6.0 closes the connection when it is asked for named configs.
        answer = await cluster.call(_question(kind, wanted, None), node_id=node_id)
    if denied is not None:
        denied.update(result.resource_name for result in answer.results if result.error_code in DENIED)
    return {
        result.resource_name: {entry.name: entry for entry in result.configs}
        for result in answer.results
        if not result.error_code
    }


def _question(kind: Resource, names: Iterable[str], keys: list[str] | None) -> DescribeConfigsRequest:
    one = DescribeConfigsRequest.DescribeConfigsResource
    resources = [one(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names]
    return DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)


async def alter_configs(cluster: Cluster, kind: Resource, name: str, values: Mapping[str, str | None]) -> None:
    """Sets configs of one resource, and leaves the others as they are (Kafka 2.3 and later).

    Args:
        cluster: the cluster.
        kind: kind of the resource.
        name: name of the resource.
        values: config name -> value; None removes the resource's own value, so that the broker's default applies.

    Raises:
        Refused: the brokers do not allow it.
        NetworkError: the cluster does not answer.
    """
    one = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        one.AlterableConfig(name=config, config_operation=_DELETE if value is None else _SET, value=value)
        for config, value in values.items()
    ]
    resource = one(resource_type=kind, resource_name=name, configs=configs)
    answer = await cluster.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    for result in answer.responses:
        if result.error_code:
            what = f"{cluster.name}: IncrementalAlterConfigs of {name}"
            needs = Right(ALTER_CONFIGS, TOPIC, name, cluster.name) if kind is Resource.TOPIC else None
            raise Refused(what, result.error_code, result.error_message, needs=needs)
