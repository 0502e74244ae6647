"""Line P04: whether the mirror's principal has the rights that the flow needs, as far as brokers tell that without a
write."""

from collections.abc import Iterator

from kafka.protocol.admin import DescribeProducersRequest

from mirror.foretold import Line
from mirror.net.rights import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    IDEMPOTENT_WRITE,
    READ,
    WRITE,
)
from mirror.reasons import HaltReason
from mirror.service.plan.model import FlowFacts, Level, PlanFinding, Rights, TopicFacts
from mirror.service.texts import many, some
from mirror.wire.versions import FETCH_KEY

ALTER_WRITES_MARKERS = 17
"""The Fetch version of Kafka 3.9, since which Alter on the cluster is enough to write markers."""
NAMED = 5
"""Maximum number of groups that a finding names."""
NEEDED_HERE, NEEDED_THERE = (READ,), (READ, WRITE)


def lacking(rights: Rights | None, *names: str) -> list[str]:
    """Returns those of the operations that the principal may not do. Empty if ``rights`` is None (not known)."""
    return [name for name in names if rights is not None and name not in rights]


def right_names(lacks: list[str]) -> str:
    """Returns the operations as text, with "and" in between."""
    return " and ".join(lacks)


def may_write_markers(flow: FlowFacts) -> bool | None:
    """Returns True if the mirror's principal may write markers at the destination; None if that is not known."""
    cluster = flow.destination
    if cluster.rights is None:
        return None
    alter = ALTER in cluster.rights and cluster.apis.get(FETCH_KEY, 0) >= ALTER_WRITES_MARKERS
    return alter or CLUSTER_ACTION in cluster.rights


def of_flow(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Checks the rights on the clusters, the flow's group, the internal topic and the transactional ids; also those for
    groups and ACLs, if the flow keeps them in step."""
    yield from _of_group(flow)
    if flow.sync.offsets:
        yield from _of_carried(flow)
    if flow.sync.acls:
        yield from _of_acls(flow)
    lacks = lacking(flow.internal_rights, READ, WRITE)
    if lacks:
        yield _refused(f"{flow.internal_topic} at {flow.destination.name}", lacks)
    there = flow.destination
    if there.rights is None:
        yield PlanFinding(
            Line.RIGHTS, Level.TOLD, f"cluster {there.name}: its brokers do not tell what the principal may do there"
        )
    if not flow.settings.mapped and not flow.settings.fill_by_transaction and may_write_markers(flow) is False:
        need = "Alter" if there.apis.get(FETCH_KEY, 0) >= ALTER_WRITES_MARKERS else "ClusterAction"
        yield PlanFinding(
            Line.RIGHTS,
            Level.WARNS,
            f"cluster {there.name}: the principal may not write markers; a partition with offsets without a record "
            "halts (fill_not_permitted)",
            f"grant it {need} on the cluster, or set fill: transaction, or offsets: mapped",
        )
    if lacking(there.rights, DESCRIBE_CONFIGS):
        yield PlanFinding(
            Line.RIGHTS,
            Level.WARNS,
            f"cluster {there.name}: producer.id.expiration.ms cannot be read, and Kafka's default is assumed",
            "grant the principal DescribeConfigs on the cluster",
        )
    if DescribeProducersRequest.API_KEY not in there.apis and lacking(there.rights, IDEMPOTENT_WRITE):
        yield PlanFinding(
            Line.RIGHTS,
            Level.REFUSED,
            f"cluster {there.name}: the principal may not produce idempotently",
            HaltReason.CLUSTER_AUTHORIZATION.remedy,
            HaltReason.CLUSTER_AUTHORIZATION.slug,
        )
    if flow.ids_forbidden:
        needed = flow.settings.fill_by_transaction
        reason = HaltReason.FILL_NOT_PERMITTED.slug if needed else ""
        yield PlanFinding(
            Line.RIGHTS,
            Level.REFUSED if needed else Level.WARNS,
            f"cluster {there.name}: the principal may not describe its transactional ids: "
            + ("holes cannot be filled" if needed else "two workers that fill one hole at the same moment cannot tell"),
            "grant it Write and Describe on transactional ids that begin with 'mirror.'",
            reason,
        )


def _of_group(flow: FlowFacts) -> Iterator[PlanFinding]:
    where = f"group {flow.group_id} at {flow.source.name}"
    if flow.group_forbidden or lacking(flow.group_rights, READ):
        yield PlanFinding(
            Line.RIGHTS,
            Level.REFUSED,
            f"{where}: the principal may not read it, so that no worker gets a partition",
            "grant it Read on the group",
        )
    elif flow.group_rights is None:
        yield PlanFinding(
            Line.RIGHTS, Level.TOLD, f"{where}: its brokers do not tell what the principal may do with it"
        )


def _of_carried(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Checks the rights on the groups whose offsets would be carried over."""
    if flow.groups_unknown:
        yield PlanFinding(Line.RIGHTS, Level.UNKNOWN, flow.groups_unknown)
    for cluster, operation, verb, rights in (
        (flow.source, DESCRIBE, "describe", {each.name: each.here for each in flow.groups}),
        (flow.destination, READ, "read", {each.name: each.there for each in flow.groups}),
    ):
        lacks = [name for name, each in rights.items() if lacking(each, operation)]
        if lacks:
            yield PlanFinding(
                Line.RIGHTS,
                Level.WARNS,
                f"groups at {cluster.name}: the principal may not {verb} {some(lacks, NAMED)}; their offsets are not "
                "carried over",
                f"grant it {operation} on them (sync.group.offsets.enabled)",
            )
        untold = [name for name, each in rights.items() if each is None]
        if untold:
            yield PlanFinding(
                Line.RIGHTS,
                Level.TOLD,
                f"groups at {cluster.name}: its brokers do not tell what the principal may do with "
                f"{some(untold, NAMED)}",
            )
    if flow.groups_more:
        yield PlanFinding(
            Line.RIGHTS,
            Level.TOLD,
            f"of {many(flow.groups_more, 'more group')} it was not asked what the principal may do",
        )
    if lacking(flow.source.rights, DESCRIBE):
        yield PlanFinding(
            Line.RIGHTS,
            Level.TOLD,
            f"cluster {flow.source.name} lists only groups that the principal may describe: offsets of others are not "
            "carried over, and nothing tells of them",
            "grant it Describe on the cluster to have all of them listed (sync.group.offsets.enabled)",
        )


def _of_acls(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Checks the rights to list ACLs at the source and to create them for the copies."""
    here, there = flow.source, flow.destination
    if here.rights is None:
        yield PlanFinding(
            Line.RIGHTS, Level.TOLD, f"cluster {here.name}: its brokers do not tell what the principal may do there"
        )
    for cluster, operation, verb in ((here, DESCRIBE, "list"), (there, ALTER, "create")):
        if lacking(cluster.rights, operation):
            yield PlanFinding(
                Line.RIGHTS,
                Level.WARNS,
                f"cluster {cluster.name}: the principal may not {verb} ACLs, so none are created for copies",
                f"grant it {operation} on the cluster (sync.topic.acls.enabled)",
            )


def of_topic(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Checks the rights on both topics."""
    here, there = f"{topic.name} at {flow.source.name}", f"{topic.pair.destination} at {flow.destination.name}"
    if lacks := lacking(topic.rights_here, *NEEDED_HERE):
        yield _refused(here, lacks)
    if topic.exists and (lacks := lacking(topic.rights_there, *NEEDED_THERE)):
        yield _refused(there, lacks)
    blind = [
        name
        for name, rights in ((here, topic.rights_here), (there, topic.rights_there))
        if lacking(rights, DESCRIBE_CONFIGS)
    ]
    if blind:
        yield PlanFinding(
            Line.RIGHTS,
            Level.WARNS,
            f"{' and '.join(blind)}: the configs cannot be read, so nothing tells beforehand what is refused",
            "grant the principal DescribeConfigs on the topic",
        )
    if flow.settings.sync_configs and topic.exists and lacking(topic.rights_there, ALTER_CONFIGS):
        yield PlanFinding(
            Line.RIGHTS,
            Level.WARNS,
            f"{there}: the principal may not change its configs, so they are not kept as at the source",
            "grant it AlterConfigs on the topic (sync.topic.configs.enabled)",
        )
    if topic.grown and lacking(topic.rights_there, ALTER):
        yield PlanFinding(
            Line.RIGHTS,
            Level.WARNS,
            f"{there}: the principal may not add partitions",
            "grant it Alter on the topic, or add them by hand",
        )


def _refused(what: str, lacks: list[str]) -> PlanFinding:
    named = right_names(lacks)
    return PlanFinding(
        Line.RIGHTS,
        Level.REFUSED,
        f"{what}: the principal lacks {named}",
        f"grant it {named} there",
        HaltReason.AUTHORIZATION.slug,
    )
