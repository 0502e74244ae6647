"""Creates the ACLs of mirrored topics at the destination, for consumers of the copies.

They never grant the right to change a copy: only reading and describing are allowed, and All becomes Read, as with
MirrorMaker 2. What the source denies of these operations is denied at the destination, too; a denial that cannot be
created there means that nobody is allowed what it denies. ACLs at the destination are never removed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafka.protocol.admin import ACLOperation

from mirror.net.admin.acls import (
    ALLOW,
    DENY,
    EVERY_TOPIC,
    LITERAL,
    PREFIXED,
    TopicAcl,
    create_topic_acls,
    describe_topic_acls,
)
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused
from mirror.offsetmap.fields import id_text
from mirror.offsetmap.internal.ledger import Ledger
from mirror.service.offsets.sides import FlowSides
from mirror.service.sync.offsets import needed
from mirror.wire.errors import ErrorCode

MOST = 5_000
"""Most ACLs that are created at one look; the others are created at the next."""
_READ, _DESCRIBE, _CONFIGS = int(ACLOperation.READ), int(ACLOperation.DESCRIBE), int(ACLOperation.DESCRIBE_CONFIGS)
_ALL = int(ACLOperation.ALL)
GRANTED: Mapping[int, int] = {_READ: _READ, _DESCRIBE: _DESCRIBE, _CONFIGS: _CONFIGS, _ALL: _READ}
"""Operation allowed at the source -> operation allowed at the destination. Other operations are for writers, and are
not copied."""
DENIED: Mapping[int, tuple[int, ...]] = {
    _READ: (_READ,), _DESCRIBE: (_DESCRIBE,), _CONFIGS: (_CONFIGS,), _ALL: (_READ, _DESCRIBE, _CONFIGS)
}  # fmt: skip
"""Operation denied at the source -> operations denied at the destination. Writing is never denied: the mirror itself
writes there."""
IMPLIED: Mapping[int, tuple[int, ...]] = {_READ: (_READ, _DESCRIBE), _DESCRIBE: (_DESCRIBE,), _CONFIGS: (_CONFIGS,)}
"""Operation allowed at the destination -> operations that brokers permit by that. (A denial implies nothing.)"""
EVERYBODY = "User:*"


@dataclass(slots=True, kw_only=True)
class AclsPlan:
    """The result of one look at the ACLs.

    Attributes:
        wanted: the ACLs that the destination should have, according to the source's.
        lacking: those of them that the destination lacks.
        created: number of ACLs that were created.
        topics: number of source topics whose copies were looked at. The others of the flow are not known as copied, by
            what the mirror has written to the internal topic.
        failed: why some or all of it failed; empty if nothing failed.
        remedy: what to do about the failure.
        off: True if a cluster has no authorizer, and so no ACLs.
    """

    wanted: list[TopicAcl] = field(default_factory=list)
    lacking: list[TopicAcl] = field(default_factory=list)
    created: int = 0
    topics: int = 0
    failed: str = ""
    remedy: str = ""
    off: bool = False


def wanted_acls(acls: Iterable[TopicAcl], topics: Mapping[str, Collection[str]]) -> set[TopicAcl]:
    """Returns the ACLs that the destination should have. Pure.

    Args:
        acls: the ACLs of the source's topics, of every kind of pattern.
        topics: destination topic -> the source topics that are copied into it. If there are several, an operation is
            allowed only if the same ACL allows it for each of them, and denied if it is denied for one of them.

    Returns:
        Literal ACLs, one for each topic: a prefix would also match topics that are not copies.
    """
    literal: dict[str, list[TopicAcl]] = {}
    prefixed: list[TopicAcl] = []
    for acl in acls:
        if acl.pattern == LITERAL:
            literal.setdefault(acl.name, []).append(acl)
        elif acl.pattern == PREFIXED:
            prefixed.append(acl)

    def all_about(topic: str) -> list[TopicAcl]:
        exact = literal.get(topic, []) + literal.get(EVERY_TOPIC, [])
        return exact + [acl for acl in prefixed if topic.startswith(acl.name)]

    found: set[TopicAcl] = set()
    for into, sources in topics.items():
        about = [all_about(topic) for topic in sources]
        denied = {
            acl._replace(name=into, pattern=LITERAL, operation=operation)
            for some in about
            for acl in some
            if acl.permission == DENY
            for operation in DENIED.get(acl.operation, ())
        }
        granted = set.intersection(*(_granted(into, some) for some in about)) if about else set()
        # An ACL that denies it to everybody would deny it to the mirror as well. So it is just not allowed to anybody,
        # nor is what implies it.
        nobody = {acl.operation for acl in denied if acl.principal == EVERYBODY}
        found |= {acl for acl in denied if acl.principal != EVERYBODY}
        found |= {acl for acl in granted if nobody.isdisjoint(IMPLIED[acl.operation])}
    return found


def _granted(into: str, acls: Iterable[TopicAcl]) -> set[TopicAcl]:
    return {
        acl._replace(name=into, pattern=LITERAL, operation=GRANTED[acl.operation])
        for acl in acls
        if acl.permission == ALLOW and acl.operation in GRANTED
    }


async def sync_acls(
    flow: FlowSides, source: Cluster, destination: Cluster, known: Ledger | None, *, apply: bool
) -> AclsPlan:
    """Looks at the ACLs of all mirrored topics that have a copy.

    Args:
        flow: the flow.
        source, destination: the flow's clusters.
        known: the ledger of the flow's copies, from the internal topic; None: there is none.
        apply: True to create missing ACLs.

    Raises:
        NetworkError: a cluster does not answer.
    """
    plan = AclsPlan()
    here, there = flow.aliases
    acls = {}
    for cluster, alias in ((source, here), (destination, there)):
        await cluster.refresh(None)
        try:
            acls[alias] = await describe_topic_acls(cluster)
        except Refused as error:
            plan.off = error.code == ErrorCode.SECURITY_DISABLED
            plan.failed = f"{alias} has no authorizer, and so no ACLs" if plan.off else str(error)
            plan.remedy = needed(error, "Describe on the cluster", alias)
            return plan
    topics: dict[str, list[str]] = {}
    for topic in sorted(source.topics):
        into = flow.selection.destination_of(topic)
        if known is not None and flow.selection.selects(topic) and into in destination.topics:
            here_now, there_now = source.topics[topic], destination.topics[into]
            ids = id_text(here_now.topic_id), id_text(there_now.topic_id)
            # The destination topic may be another topic of the same name, not a copy: its readers may be others.
            if known.is_copy(topic, into, here_now.leaders, *ids):
                topics.setdefault(into, []).append(topic)
    plan.topics = sum(map(len, topics.values()))
    plan.wanted = sorted(wanted_acls(acls[here], topics))
    plan.lacking = [acl for acl in plan.wanted if acl not in acls[there]]
    if apply and plan.lacking:
        await _create(plan, destination, there)
    return plan


async def _create(plan: AclsPlan, destination: Cluster, alias: str) -> None:
    """Creates denials before grants. A topic whose denials are not all there yet gets no grant: that would be valid
    without them until the next look, or for good if they are refused."""
    denials = [acl for acl in plan.lacking if acl.permission == DENY]
    results: dict[TopicAcl, Refused | None] = {}

    async def create(acls: list[TopicAcl]) -> None:
        results.update(zip(acls, await create_topic_acls(destination, acls), strict=True))

    try:
        await create(denials[:MOST])
        waiting = {acl.name for acl, error in results.items() if error is not None}
        grants = [acl for acl in plan.lacking if acl.permission == ALLOW and acl.name not in waiting]
        await create(grants[: MOST - len(results)])
    except NetworkError as error:
        plan.failed = str(error)
    refused = [error for error in results.values() if error is not None]
    plan.created = len(results) - len(refused)
    if refused and not plan.failed:
        plan.failed = f"{len(refused)} of {len(results)} ACLs: {refused[0]}"
        plan.remedy = needed(refused[0], "Alter on the cluster", alias)
