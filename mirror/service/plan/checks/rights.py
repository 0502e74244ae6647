"""P04: whether the mirror's principal has the rights that the flow needs, as far as brokers tell without a write."""

from collections.abc import Iterator

from kafka.protocol.admin import DescribeProducersRequest

from mirror.foretold import Line
from mirror.net.rights import ALTER, CLUSTER_ACTION, DESCRIBE_CONFIGS, IDEMPOTENT_WRITE, READ, WRITE
from mirror.reasons import HaltReason
from mirror.service.plan.model import FlowFacts, Level, PlanFinding, Rights, TopicFacts
from mirror.wire.versions import FETCH_KEY

ALTER_WRITES_MARKERS = 17
"""The Fetch version that came with Kafka 3.9, from which Alter on the cluster is enough for markers."""
NEEDED_HERE, NEEDED_THERE = (READ,), (READ, WRITE)


def lacking(rights: Rights | None, *names: str) -> list[str]:
    """Returns those of the operations that the principal may not do; none if that is not known."""
    return [name for name in names if rights is not None and name not in rights]


def right_names(lacks: list[str]) -> str:
    """Returns operations as Kafka's tools write them, in words."""
    return " and ".join(lacks)


def may_write_markers(flow: FlowFacts) -> bool | None:
    """Returns True if the mirror may write markers at the destination; None if that is not known."""
    cluster = flow.destination
    if cluster.rights is None:
        return None
    alter = ALTER in cluster.rights and cluster.apis.get(FETCH_KEY, 0) >= ALTER_WRITES_MARKERS
    return alter or CLUSTER_ACTION in cluster.rights


def of_flow(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Checks the rights on the clusters, the group, the internal topic and the transactional ids."""
    yield from _of_group(flow)
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
