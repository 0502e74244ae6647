"""The ACLs of mirrored topics, created at the destination for whoever reads the copies.

Nobody gets a right to change a copy by this: what is allowed is reading and describing, and All becomes Read, as with
MirrorMaker 2. What is denied of that at the source is denied at the destination. Nothing is ever removed there.
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
"""ACLs that are created at one look; the others come at the next."""
_READ, _DESCRIBE, _CONFIGS = int(ACLOperation.READ), int(ACLOperation.DESCRIBE), int(ACLOperation.DESCRIBE_CONFIGS)
_ALL = int(ACLOperation.ALL)
GRANTED: Mapping[int, int] = {_READ: _READ, _DESCRIBE: _DESCRIBE, _CONFIGS: _CONFIGS, _ALL: _READ}
"""What is allowed at the source -> what is allowed at the destination. Everything else is for those who write."""
DENIED: Mapping[int, tuple[int, ...]] = {
    _READ: (_READ,), _DESCRIBE: (_DESCRIBE,), _CONFIGS: (_CONFIGS,), _ALL: (_READ, _DESCRIBE, _CONFIGS)
}  # fmt: skip
"""What is denied. Nothing of writing: the mirror itself writes there."""
EVERYBODY = "User:*"


@dataclass(slots=True, kw_only=True)
class AclsPlan:
    """One look at the ACLs.

    Attributes:
        wanted: those that the destination should have, by the source's.
        lacking: those of them that it has not.
        created: the number that were created.
        failed: why it could not be done, or not all of it; empty: it was.
        remedy: what to do about that.
        off: True if a cluster has no authorizer, so that there are none.
    """

    wanted: list[TopicAcl] = field(default_factory=list)
    lacking: list[TopicAcl] = field(default_factory=list)
    created: int = 0
    failed: str = ""
    remedy: str = ""
    off: bool = False


def wanted_acls(acls: Iterable[TopicAcl], topics: Mapping[str, Collection[str]]) -> set[TopicAcl]:
    """Returns what the destination should have. Pure.

    Args:
        acls: of the source's topics, of every kind of pattern.
        topics: topic of the destination -> the topics of the source that go into it. If they are several, somebody may
            read it who may read each of them, by the same ACL, and must not who must not read one.

    Returns:
        Literal ACLs, one for each topic: a pattern would hold for topics that are no copies as well.
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
        # Denied to everybody, it would be denied to the mirror, too: it is then allowed to nobody.
        nobody = {acl.operation for acl in denied if acl.principal == EVERYBODY}
        found |= {acl for acl in denied if acl.principal != EVERYBODY}
        found |= {acl for acl in granted if acl.operation not in nobody}
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
    """Looks at the ACLs of all mirrored topics that are copied.

    Args:
        flow: the flow.
        source, destination: its clusters.
        known: what the mirror has written down of its copies; None: nothing.
        apply: also create those that are missing.

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
            # Who may read a topic here need not be one who may read another of the same name there.
            if known.is_copy(topic, into, here_now.leaders, *ids):
                topics.setdefault(into, []).append(topic)
    plan.wanted = sorted(wanted_acls(acls[here], topics))
    plan.lacking = [acl for acl in plan.wanted if acl not in acls[there]]
    if apply and plan.lacking:
        await _create(plan, destination, there)
    return plan


async def _create(plan: AclsPlan, destination: Cluster, alias: str) -> None:
    try:
        results = await create_topic_acls(destination, plan.lacking[:MOST])
    except NetworkError as error:
        plan.failed = str(error)
        return
    refused = [error for error in results if error is not None]
    plan.created = len(results) - len(refused)
    if refused:
        plan.failed = f"{len(refused)} of {len(results)} ACLs: {refused[0]}"
        plan.remedy = needed(refused[0], "Alter on the cluster", alias)
