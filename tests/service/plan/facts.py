"""Facts as the clusters might tell them, for checks without a cluster."""

from typing import Any

from mirror.net.metadata import Leader, Topic
from mirror.records.admit import Terms
from mirror.relay.topics.pairing import Pair
from mirror.service.plan.model import ClusterFacts, FlowFacts, PartitionFacts, Sample, TopicFacts
from tests.relay.stage.flows import settings

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
APIS = {0: 13, 1: 17, 3: 13, 26: 5, 35: 4, 61: 0, 65: 0}
"""Kafka 4: Produce, Fetch, Metadata, EndTxn, DescribeLogDirs, DescribeProducers, DescribeTransactions."""
EVERYTHING = frozenset(
    {"Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs", "ClusterAction",
     "IdempotentWrite"}
)  # fmt: skip


def cluster(name: str, **changes: Any) -> ClusterFacts:
    usual: dict[str, Any] = {"name": name, "cluster_id": f"id-{name}", "apis": APIS, "rights": EVERYTHING}
    return ClusterFacts(**usual | changes)


def flow(
    *, here: dict[str, Any] | None = None, there: dict[str, Any] | None = None,
    relay: dict[str, Any] | None = None, **changes: Any,
) -> FlowFacts:  # fmt: skip
    """A flow with which all is well. ``here``, ``there``: of its clusters; ``relay``: of its settings."""
    usual: dict[str, Any] = {
        "name": "source->destination",
        "settings": settings(**relay or {}),
        "source": cluster("source", **here or {}),
        "destination": cluster("destination", **there or {}),
        "now_ms": NOW_MS,
        "topics_n": 1,
        "internal_topic": "mirror-internal.source_to_destination",
        "internal_rights": EVERYTHING,
        "group_id": "mirror-source->destination",
        "group_rights": EVERYTHING,
        "ids_forbidden": False,
    }
    return FlowFacts(**usual | changes)


def topic(
    name: str = "t", *, partitions: int = 1, terms: Terms | None = None, pair: dict[str, Any] | None = None,
    **changes: Any,
) -> TopicFacts:  # fmt: skip
    """A topic that is on both sides."""
    here = Topic(name=name, topic_id=None, internal=False, leaders={index: Leader(1, 0) for index in range(partitions)})
    of_pair: dict[str, Any] = {
        "source": here, "destination": name, "terms": terms or Terms(), "partitions_there": partitions,
    }  # fmt: skip
    usual: dict[str, Any] = {
        "pair": Pair(**of_pair | (pair or {})),
        "partitions": partitions,
        "partitions_there": partitions,
        "rights_here": EVERYTHING,
        "rights_there": EVERYTHING,
        "replicas": 3,
    }
    return TopicFacts(**usual | changes)


def partition(*, sample: dict[str, Any] | None = None, **changes: Any) -> PartitionFacts:
    """A partition with 100 offsets to copy. ``sample``: what its batches show."""
    usual: dict[str, Any] = {
        "index": 0, "start": 0, "end": 100, "there_start": 0, "there_end": 0, "due": 0, "in_sync": 3, "replicas": 3,
        "sample": Sample(**{"batches": 10, "size": 1_000, "offsets": 100, "records": 100} | (sample or {})),
    }  # fmt: skip
    return PartitionFacts(**usual | changes)
