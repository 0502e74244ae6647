"""Checks of a flow and its two clusters."""

from collections.abc import Iterator

from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest
from kafka.protocol.producer import EndTxnRequest

from mirror.foretold import Line
from mirror.reasons import HaltReason
from mirror.service.plan.model import ClusterFacts, FlowFacts, Level, PlanFinding


def same_cluster(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Line P01: refuses a flow whose source and destination are the same cluster."""
    if flow.source.cluster_id and flow.source.cluster_id == flow.destination.cluster_id:
        yield PlanFinding(
            Line.SAME_CLUSTER,
            Level.REFUSED,
            f"{flow.source.name} and {flow.destination.name} are the same cluster ({flow.source.cluster_id}), and each "
            "topic would be copied into itself",
            "check bootstrap.servers of both",
        )


def topics_matched(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Line P02: whether any topic is mirrored, and which entries of ``topics`` match nothing."""
    if not flow.topics_n:
        yield PlanFinding(
            Line.TOPICS,
            Level.REFUSED,
            f"no topic of cluster {flow.source.name} is mirrored",
            "check topics and exclude (names are matched whole), and that the principal may Describe the topics",
        )
        return
    for entry in flow.unmatched:
        yield PlanFinding(
            Line.TOPICS,
            Level.WARNS,
            f"cluster {flow.source.name} has no topic that {entry} matches",
            "check the entry, and that the principal may Describe the topic",
        )


def versions(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Line P03: what the versions of the brokers do not allow. If a cluster supports no common version at all, it
    cannot be asked, and there is no plan of the flow."""
    here, there = flow.source, flow.destination
    if flow.without_ids:
        yield PlanFinding(
            Line.VERSIONS,
            Level.TOLD,
            f"cluster {here.name}: topics have no ids (Kafka 2.8): a recreated topic is noticed by the batch that was "
            "copied last only",
        )
    for key, lost in (
        (
            DescribeProducersRequest.API_KEY,
            "the leaders cannot be asked for producers (Kafka 2.8): each position has to stand still for settle.ms",
        ),
        (
            DescribeTransactionsRequest.API_KEY,
            "owners cannot be asked for (Kafka 3.0): only the log's end is checked before a hole is filled",
        ),
    ):
        if there.apis and key not in there.apis:
            yield PlanFinding(Line.VERSIONS, Level.TOLD, f"cluster {there.name}: {lost}")
    if not there.apis or EndTxnRequest.API_KEY in there.apis:
        return
    if flow.settings.mapped:
        reason = HaltReason.NO_COMMON_VERSION
        yield PlanFinding(
            Line.VERSIONS,
            Level.REFUSED,
            f"cluster {there.name} has no EndTxn, by which a takeover is fenced with offsets: mapped",
            reason.told,
            reason.slug,
        )
        return
    yield PlanFinding(
        Line.VERSIONS,
        Level.WARNS,
        f"cluster {there.name} has no EndTxn, so it is not Apache Kafka: it may take only producer ids that it has "
        "given out itself, as Tansu does (producer_ids_refused), and holes cannot be filled",
        "try it with a topic of a few records, or mirror to another cluster",
    )


def internal_topic(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Line P05: whether the internal topic can be used, or created."""
    where = f"{flow.internal_topic} at {flow.destination.name}"
    if flow.internal_refused:
        yield PlanFinding(
            Line.INTERNAL_TOPIC,
            Level.REFUSED,
            f"{where}: {flow.internal_refused}; without it, nothing is copied",
            "grant the principal Create, Read, Write and Describe on it; or create it by hand, with one partition and "
            "cleanup.policy=compact",
        )
    elif flow.internal_unknown:
        yield PlanFinding(Line.INTERNAL_TOPIC, Level.UNKNOWN, f"{where}: {flow.internal_unknown}")
    elif not flow.internal_exists:
        yield PlanFinding(Line.INTERNAL_TOPIC, Level.TOLD, f"{where} is created")


def reached(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Line P35: the brokers that could not be asked."""
    for cluster in (flow.source, flow.destination):
        for node_id, why in sorted(cluster.down.items()):
            yield PlanFinding(
                Line.REACHED,
                Level.UNKNOWN,
                f"broker {node_id} of cluster {cluster.name} could not be asked: {why}",
                "start it, or see why it does not answer, and plan again",
            )


def unread(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Line P35: how many partitions have records of which no batch was read."""
    if flow.unsampled_n:
        yield PlanFinding(
            Line.REACHED,
            Level.WARNS,
            f"no batch of {flow.unsampled_n:,} partitions was looked at, since {flow.sampled_bytes:,} bytes were read "
            "of the others",
            "raise --sample-bytes, or plan topic by topic (--topic)",
        )


def quotas(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Line P34: the quotas on reading from the source and on writing to the destination."""
    for cluster, key in ((flow.source, "consumer_byte_rate"), (flow.destination, "producer_byte_rate")):
        for quota in cluster.quotas or ():
            if quota.key == key:
                yield PlanFinding(
                    Line.QUOTAS,
                    Level.TOLD,
                    f"cluster {cluster.name}: {key} of {quota.entity} is {quota.value:,.0f} bytes/s for each broker",
                )


def quota_rate(cluster: ClusterFacts, key: str) -> float:
    """Returns the bytes per second that a cluster's quotas allow the mirror on all brokers together; 0: no limit.
    ``key``: Kafka's name of the quota."""
    limits = [quota.value for quota in cluster.quotas or () if quota.key == key]
    return min(limits) * cluster.brokers if limits else 0.0


CHECKS = (same_cluster, topics_matched, versions, internal_topic, quotas)
"""The checks that need no partition. ``reached`` and ``unread`` are made after the partitions were asked for."""
