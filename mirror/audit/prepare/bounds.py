"""Freezes what is compared before anything is read: topics, partitions, and the offsets of both logs.

Order matters on clusters that are in use. The source's end is frozen first. Then the destination has ``catch_up_s`` to
reach it, because a running mirror has batches on their way. If the destination's log begins later than the source's
did, the source is asked for its start again, because retention may have worked on both sides. A destination end is a
finding only if it is beyond the source's end *as it is afterwards*.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mirror.audit.errors import AuditError
from mirror.audit.judge.mapped import MappedPartition, freeze_mapped
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.model.request import AuditRequest, Endpoint
from mirror.audit.model.result import Undecided
from mirror.audit.prepare.offsets import EARLIEST, LATEST, list_offsets, log_spans
from mirror.audit.prepare.policies import compacted
from mirror.audit.prepare.starting import starting_offsets
from mirror.net.cluster import Cluster
from mirror.net.options import ClusterOptions, ConnectionOptions
from mirror.offsetmap.fields import id_text
from mirror.wire.errors import ErrorCode, error_name

POLL_S = 0.2
INTERNAL_PREFIX = "__"


def cluster_options(endpoint: Endpoint) -> ClusterOptions:
    """Returns the options for connecting to this endpoint."""
    return ClusterOptions(
        bootstrap=endpoint.bootstrap,
        connection=ConnectionOptions(
            client_id=endpoint.client_id,
            request_timeout_s=endpoint.request_timeout_s,
            setup_timeout_s=endpoint.setup_timeout_s,
            security=endpoint.security,
            reads_only=True,
        ),
    )


class BegunLater(NamedTuple):
    """The offsets of the source in front of a copy that begins later. ``start_from``: the setting that decided it."""

    key: TopicPartition
    span: Span
    start_from: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """The bounds of every partition on both sides, and the findings from while they were determined."""

    source_cluster_id: str
    destination_cluster_id: str
    bounds: tuple[Bounds, ...]
    findings: tuple[Finding, ...]
    source_topic_ids: dict[str, str]
    destination_topic_ids: dict[str, str]
    compacted: Mapping[Side, frozenset[str]] = field(default_factory=dict)
    """The compacted topics of each side, by their names at the source."""
    alone: tuple[str, ...] = ()
    """Topics that the flow selects and only the destination has."""
    mapped: Mapping[TopicPartition, MappedPartition] = field(default_factory=dict)
    """With ``offsets: mapped``: the place of each partition's copy."""
    undecided: tuple[Undecided, ...] = ()
    """Offsets behind open transactions, on either side."""
    begun: tuple[BegunLater, ...] = ()
    """Offsets that the source has, and that were never to be copied (``start.from``)."""
    notes: tuple[str, ...] = ()
    """Lines that say what was not examined."""
    flow_ids: frozenset[int] = frozenset()
    """With ``offsets: mapped``: the producer ids of all present and former copies of the flow."""


async def freeze(source: Cluster, destination: Cluster, request: AuditRequest) -> Frozen:
    """Freezes the bounds of both clusters, in the order that the module's docstring describes.

    Raises:
        AuditError: both sides are the same cluster, there is nothing to audit, a partition has no leader, or a cluster
            answers with an error.
        NetworkError: a cluster does not answer.
    """
    _check_two(source, destination)
    names, absent = await selected(source, request)
    there = {name: request.destination_of(name) for name in names}
    alone = await _alone(destination, request, names) if not request.mapped else ()
    failed = await destination.refresh(sorted(set(there.values())))
    for name in names:
        error = _absence(destination, there[name], failed)
        denied = failed.get(there[name]) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        # A topic that matches a pattern and is not there is a finding of another kind: missing. It is added below.
        if error is not None and (denied or name in request.topics):
            absent[name] = error
    names = _present(names, absent)
    findings = [_not_there(name, error) for name, error in sorted(absent.items())]
    wanted: list[TopicPartition] = []
    spare: list[TopicPartition] = []
    for name in names:
        ours, theirs = partitions(source, name), partitions(destination, there[name])
        if not theirs:
            named = f"topic {there[name]}" if there[name] != name else "the topic"
            findings.append(_absent(name, None, f"{named} is not at {destination.name}"))
        else:
            findings += [_absent(name, p, f"{destination.name} has no such partition") for p in sorted(ours - theirs)]
            # With offsets: mapped, others may write to the topic too, and partitions may be theirs alone:
            # ``freeze_mapped`` looks for the flow's batches there.
            spare += [TopicPartition(name, p) for p in sorted(theirs - ours)] if not request.mapped else []
        wanted += [TopicPartition(name, p) for p in sorted(ours & theirs)]
    # This may read many logs, so it comes first. From here on, little time should pass between the questions to both
    # sides.
    decided = await starting_offsets(source.cluster_id, destination, wanted, request, _topic_ids(source, names))
    high = await list_offsets(source, wanted, LATEST)
    starts, ends = await log_spans(source, wanted, committed=request.committed)
    begun: list[BegunLater] = []
    for key, each in decided.items():
        before, starts[key] = starts[key], max(starts[key], min(each.offset, ends[key]))
        if starts[key] > before:
            begun.append(BegunLater(key, Span(before, starts[key]), each.start_from))
    undecided = _undecided(Side.SOURCE, ends, high) if request.committed else []
    copies = [TopicPartition(there[key.topic], key.partition) for key in wanted]
    high = await list_offsets(destination, copies, LATEST)
    undecided += _undecided(Side.DESTINATION, await list_offsets(destination, copies, LATEST, committed=True), high)
    mapped: dict[TopicPartition, MappedPartition] = {}
    notes: list[str] = []
    flow_ids: frozenset[int] = frozenset()
    if request.mapped:
        found = await freeze_mapped(source, destination, starts, ends, request)
        mapped, bounds, notes, flow_ids = found.partitions, found.bounds, found.notes, found.flow_ids
        findings += found.findings
    else:
        bounds = await _freeze_destination(source, destination, starts, ends, request)
    findings += await _spare(destination, source.name, spare)
    cleaned_there = await compacted(destination, {name for name in there.values() if partitions(destination, name)})
    return Frozen(
        source_cluster_id=source.cluster_id,
        destination_cluster_id=destination.cluster_id,
        bounds=tuple(bounds),
        findings=tuple(findings),
        source_topic_ids=_topic_ids(source, names),
        destination_topic_ids=_topic_ids(destination, there.values()),
        alone=alone,
        mapped=mapped,
        undecided=tuple(undecided),
        begun=tuple(begun),
        notes=tuple(notes),
        flow_ids=flow_ids,
        compacted={
            Side.SOURCE: await compacted(source, names),
            Side.DESTINATION: frozenset(name for name in names if there[name] in cleaned_there),
        },
    )


def _undecided(side: Side, stable: Mapping[TopicPartition, int], high: Mapping[TopicPartition, int]) -> list[Undecided]:
    """Returns the partitions with an open transaction: their last stable offset is below a high watermark that was read
    earlier."""
    return [
        Undecided(side, key.topic, key.partition, Span(stable[key], end))
        for key, end in sorted(high.items())
        if stable[key] < end
    ]


def _check_two(source: Cluster, destination: Cluster) -> None:
    """Refuses one cluster on both sides: a topic compared with itself is always identical.

    Raises:
        AuditError: both sides have the same cluster id, or a broker in common.
    """
    same_id = source.cluster_id and source.cluster_id == destination.cluster_id
    ours = {(node.host, node.port) for node in source.nodes.values()}
    if same_id or ours & {(node.host, node.port) for node in destination.nodes.values()}:
        raise AuditError(
            f"{source.name} and {destination.name} are the same cluster ({source.cluster_id or 'by its brokers'})",
            "give each its own bootstrap.servers: a topic compared with itself is always identical",
        )


async def selected(cluster: Cluster, request: AuditRequest) -> tuple[list[str], dict[str, AuditError]]:
    """Selects the topics to audit at the source.

    Returns:
        The selected topics that exist, sorted; and for each of the others, the error that says why it cannot be
        audited. The caller makes a finding of each error, because these topics would silently go without an audit.

    Raises:
        AuditError: no topic is selected, none of the selected ones exists, or the cluster answers with another error.
        NetworkError: the cluster does not answer.
    """
    names = set(request.topics)
    if request.selects is not None:
        names |= _selected(cluster, await cluster.refresh(None), request.selects)
    if not names:
        raise AuditError(
            f"flow {request.flow} selects no topic of cluster {cluster.name}", "check topics and exclude of the flow"
        )
    failed = await cluster.refresh(sorted(names))
    absences = ((name, _absence(cluster, name, failed)) for name in sorted(names))
    absent = {name: error for name, error in absences if error is not None}
    return _present(sorted(names), absent), absent


def _present(names: Iterable[str], absent: Mapping[str, AuditError]) -> list[str]:
    """Returns the topics that are not absent.

    Raises:
        AuditError: all of them are absent; the error is that of the first one.
    """
    left = [name for name in names if name not in absent]
    if not left:
        raise absent[min(absent)]
    return left


def _selected(cluster: Cluster, failed: Iterable[str], selects: Callable[[str], bool]) -> set[str]:
    """Returns the selected topics among all that the cluster shows to this principal, without internal ones.
    ``failed``: topics that it shows with an error."""
    shown = {name for name, topic in cluster.topics.items() if not topic.internal} | {*failed}
    return {name for name in shown if not name.startswith(INTERNAL_PREFIX) and selects(name)}


async def _alone(destination: Cluster, request: AuditRequest, names: Iterable[str]) -> tuple[str, ...]:
    """Returns the destination's topics that the flow selects and the source does not have."""
    if request.selects is None:
        return ()
    failed = await destination.refresh(None)
    return tuple(sorted(_selected(destination, failed, request.selects) - set(names)))


def _not_there(topic: str, error: AuditError) -> Finding:
    return replace(_absent(topic, None, error.problem), kind=Kind.ABSENT)


def _absence(cluster: Cluster, name: str, failed: Mapping[str, int]) -> AuditError | None:
    """Returns the error for a topic that does not exist, or that this principal may not see; otherwise None.

    Raises:
        AuditError: the cluster answers with another error.
    """
    code = failed.get(name, ErrorCode.NONE)
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return AuditError(
            f"topic {name} of cluster {cluster.name} may not be read",
            "grant the audit's principal Read and Describe on it",
        )
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION) or (
        not code and name not in cluster.topics
    ):
        return AuditError(
            f"topic {name} is not at cluster {cluster.name}",
            "correct the flow's topics, or exclude it; a topic that the audit's principal may not see looks the same",
        )
    if code:
        raise AuditError(f"topic {name} of cluster {cluster.name}: {error_name(code)}", "run the audit again")
    return None


def partitions(cluster: Cluster, topic: str) -> set[int]:
    """Returns all partitions of a topic, including those without a leader; none if the topic does not exist."""
    known = cluster.topics.get(topic)
    return set(known.leaders) if known else set()


def _topic_ids(cluster: Cluster, names: Iterable[str]) -> dict[str, str]:
    known = ((name, cluster.topics.get(name)) for name in names)
    return {name: text for name, topic in known if topic and (text := id_text(topic.topic_id))}


def _absent(topic: str, partition: int | None, detail: str) -> Finding:
    return Finding(
        kind=Kind.MISSING, topic=topic, partition=partition, source=None, destination=None,
        batches=0, records=0, detail=detail,
    )  # fmt: skip


async def _freeze_destination(
    source: Cluster,
    destination: Cluster,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    request: AuditRequest,
) -> list[Bounds]:
    deadline = time.monotonic() + request.catch_up_s
    their_starts, their_ends = await log_spans(destination, list(ends))
    # Retention may have worked on both sides since the source's starts were frozen. What the source has deleted, too,
    # is not missing.
    later = [key for key, start in starts.items() if their_starts[key] > start]
    gone = await list_offsets(source, later, EARLIEST)
    starts = starts | {key: min(max(starts[key], start), ends[key]) for key, start in gone.items()}
    while (behind := [key for key, end in ends.items() if their_ends[key] < end]) and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
        their_ends.update(await list_offsets(destination, behind, LATEST))
    beyond = [key for key, end in ends.items() if their_ends[key] > end]
    # The mirror may have copied more since the source's end was frozen. Then the source's end has moved, too.
    now = await list_offsets(source, beyond, LATEST, committed=request.committed)
    return [
        Bounds(
            topic=key.topic,
            partition=key.partition,
            source=Span(starts[key], end),
            destination=Span(their_starts[key], end if end < their_ends[key] <= now.get(key, end) else their_ends[key]),
        )
        for key, end in sorted(ends.items())
    ]


async def _spare(destination: Cluster, source_name: str, spare: list[TopicPartition]) -> list[Finding]:
    """Returns a finding for each non-empty partition that only the destination has."""
    starts, ends = await log_spans(destination, spare)
    return [
        Finding(
            kind=Kind.EXTRA, topic=key.topic, partition=key.partition, source=None,
            destination=Span(starts[key], ends[key]), batches=0, records=0,
            detail=f"{source_name} has no such partition",
        )
        for key in spare if ends[key] > starts[key]
    ]  # fmt: skip


def outside(
    bounds: Bounds, source_name: str, destination_name: str, shift: int = 0, *, ended: bool = False
) -> list[Finding]:
    """Returns the findings that follow from the bounds alone: offsets of one side that the other side's log does not
    have. These offsets were not read.

    A destination that begins after the source's start lacks offsets that the source still has. Retention may have been
    quicker there, or they were never copied; the logs cannot tell, so it is a finding. The reverse is no finding: the
    source no longer has anything to compare with.

    Args:
        bounds: the partition's bounds.
        source_name: alias of the source, for the findings.
        destination_name: alias of the destination.
        shift: by how many offsets the end of the destination's log was found to have moved.
        ended: both logs were examined to their ends, so nothing is concluded from the ends here.
    """
    source, destination = bounds.source, bounds.destination
    found: list[Finding] = []

    def add(kind: Kind, ours: Span | None, theirs: Span | None, detail: str) -> None:
        found.append(
            Finding(
                kind=kind, topic=bounds.topic, partition=bounds.partition, source=ours, destination=theirs,
                batches=0, records=0, detail=detail,
            )
        )  # fmt: skip

    below = Span(source.start, min(destination.start, source.end))
    if below.offsets:
        add(
            Kind.MISSING, below, None,
            f"{destination_name} begins at {destination.start}: removed there by retention, or never copied",
        )  # fmt: skip
    if ended:
        return found
    lag = Span(max(destination.end - shift, source.start, below.end if below.offsets else 0), source.end)
    if lag.offsets:
        add(Kind.MISSING, lag, None, f"{destination_name} ends at {destination.end}: not copied yet, or lost")
    extra = Span(max(source.end + shift, destination.start), destination.end)
    if extra.offsets:
        add(Kind.EXTRA, None, extra, f"{source_name} ends at {source.end}")
    return found
