"""``offsets: mapped``: loads the flow's offset map, so that the destination can be read at the source's offsets.

The map is written by the mirror itself, so the audit treats it as a claim to be checked. Each batch that it places
somewhere must be there, equal to the source's, and each batch of the flow must be in it.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from mirror.audit.errors import AuditError
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Span, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.prepare.plan import Task, copied
from mirror.net.cluster import Cluster
from mirror.net.errors import Damaged, Refused, Unreachable, Unreadable
from mirror.net.logs.log import PartitionLog
from mirror.net.logs.reading import ONE_BATCH
from mirror.offsetmap.compare.alignment import Ambiguous, Differs
from mirror.offsetmap.entries.entry import StateError
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.memory import StateUnusable, passes
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.offsetmap.runs import OffsetMap
from mirror.offsetmap.translation import Translation, translation
from mirror.records.header import BatchHeader
from mirror.records.identity import producer_id

POLL_S = 0.5
READ_BYTES = 4 << 20
MOST_OUTSIDE_BYTES = 4 << 30
"""The maximum that is searched for batches of the flow outside of its map, in one place: other writers may have filled
the topic."""


class MappedPartition(NamedTuple):
    """The place of a partition's copy. ``topic``: its name at the destination. ``read``: the destination offsets that
    the map covers and the log still has. ``own``: the copy's producer ids. ``sharing``: the producer ids of the flow's
    other copies in the same partition, if several topics are copied into one."""

    topic: str
    offsets: OffsetMap
    read: Span
    own: tuple[int, ...]
    sharing: tuple[int, ...] = ()

    def there(self, span: Span) -> Span:
        """Returns the destination offsets of these source offsets, according to the map."""
        begins, last = self.offsets.to_destination(span.start), self.offsets.to_destination(span.end - 1)
        start = begins.offset if begins else self.read.end
        return Span(start, max(start, last.offset + last.exact) if last else self.read.end)


class Strays(NamedTuple):
    """The batches of the flow that were found outside of its map. ``notes``: lines on the places that were not
    searched.
    """

    findings: list[Finding]
    notes: list[str]


class Mapped(NamedTuple):
    """The place and the bounds of all partitions. ``partitions``: those that the map has. ``bounds``: as source
    offsets, on both sides. ``findings``: for example on partitions that are no copies. ``notes``: lines on what was not
    examined. ``flow_ids``: the producer ids of all present and former copies of the flow, audited or not."""

    partitions: dict[TopicPartition, MappedPartition]
    bounds: list[Bounds]
    findings: list[Finding]
    notes: list[str]
    flow_ids: frozenset[int] = frozenset()

    def take(self, strays: Strays) -> None:
        """Adds these findings and notes."""
        self.findings.extend(strays.findings)
        self.notes.extend(strays.notes)


async def freeze_mapped(
    source: Cluster,
    destination: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    request: AuditRequest,
) -> Mapped:
    """Returns the map of every partition, once it reaches the source's end or ``catch_up_s`` is over.

    Args:
        source: its metadata must have the topics.
        destination: its metadata must have the topics.
        starts: where each partition's audited offsets begin at the source.
        ends: where they end.
        request: the request of the audit.

    Raises:
        AuditError: the internal topic cannot be read, or it cannot be told which batches behind the last checkpoint
            were copied.
        NetworkError: a cluster does not answer.
    """
    state = InternalTopic(destination, request.flow)
    found = Mapped({}, [], [], [])
    computed = {key: _computed(source, key, request) for key in ends}
    deadline = time.monotonic() + request.catch_up_s
    try:
        written = await _is_written(state, destination)
        homes = _at_home(state, request, source.cluster_id, computed)
        for key, end in sorted(ends.items()):
            if written:
                await _freeze(
                    found,
                    state,
                    source,
                    destination,
                    key,
                    Span(starts[key], end),
                    request,
                    deadline,
                    computed[key],
                    homes,
                )
            else:
                found.findings.extend(_unknown(key, Span(starts[key], end), state))
        for one_of in await _in_spare(destination, ends, request, homes):
            found.take(one_of)
        for key, one in found.partitions.items():
            here = homes[one.topic, key.partition]
            found.partitions[key] = one._replace(sharing=tuple(sorted(here - set(one.own))))
        found = found._replace(flow_ids=frozenset().union(*homes.values()))
    except (StateError, StateUnusable) as error:
        raise AuditError(
            f"the offset map in topic {state.topic} of cluster {destination.name} cannot be read: {error}",
            "it is written by mirrors of this flow only; see what else writes there",
        ) from error
    return found


async def _is_written(state: InternalTopic, destination: Cluster) -> bool:
    """Opens the internal topic. Returns False if there is none.

    Raises:
        AuditError: the audit may not read it, or its broker cannot read it.
    """
    try:
        return await state.open(create=False)
    except Refused as error:
        if passes(error):
            raise
        remedy = "grant the audit's principal Read and Describe on it"
        if isinstance(error, Unreadable):
            remedy = "its leader fails to read its own log: see that broker's log and disk, then run the audit again"
        raise AuditError(
            f"the offset map in topic {state.topic} of cluster {destination.name} cannot be read: {error}", remedy
        ) from error


def _at_home(
    state: InternalTopic, request: AuditRequest, cluster_id: str, computed: Mapping[TopicPartition, int]
) -> dict[tuple[str, int], set[int]]:
    """Returns the producer ids of all present and former copies of the flow, by destination topic and partition.
    ``computed``: the ids of the audited partitions, which are included even if nothing was copied yet."""
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for key, each in computed.items():
        found[request.destination_of(key.topic), key.partition].add(each)
    for one in state.ledger.subjects:
        known = producer_id(flow=request.flow, cluster_id=cluster_id, topic=one.topic, partition=one.partition)
        found[one.destination, one.partition] |= {known, *state.ledger.own(one)}
    return found


async def _freeze(
    found: Mapped,
    state: InternalTopic,
    source: Cluster,
    destination: Cluster,
    key: TopicPartition,
    here: Span,
    request: AuditRequest,
    deadline: float,
    computed: int,
    homes: Mapping[tuple[str, int], set[int]],
) -> None:
    ours = _log(source, key.topic, key.partition)
    theirs = _log(destination, request.destination_of(key.topic), key.partition)
    while True:
        try:
            known = await translation(state, ours, theirs, committed=request.committed, own=[computed])
        except Ambiguous as error:
            raise AuditError(
                f"{key.topic} partition {key.partition}: behind the flow's last checkpoint, it cannot be told which of "
                f"the source's batches were copied: {error}",
                "the source has deleted what would tell; start the mirror, and audit again once it has found its place",
            ) from error
        except Differs as error:
            found.findings.append(
                _finding(
                    Kind.WHOLESALE, key, here, None, 0, 0,
                    f"behind the flow's checkpoint the logs are no copies: {error}",
                )
            )  # fmt: skip
            return
        if (known is not None and known.source_end >= here.end) or time.monotonic() >= deadline:
            break
        await asyncio.sleep(POLL_S)
        await state.load()
    side = Subject(key.topic, key.partition, theirs.topic.name)
    own = {computed} | state.ledger.own(side)
    here_at_home = homes.get((theirs.topic.name, key.partition), set())
    alien = set().union(*homes.values()) - here_at_home - own
    log = Span(*await asyncio.gather(theirs.start(), theirs.visible_end()))
    # During the wait, retention may have worked on both sides. The source is asked last: what it has deleted, too, is
    # not missing at the destination.
    here = Span(min(max(here.start, await ours.start()), here.end), here.end)
    if known is None:
        found.findings.extend(_unknown(key, here, state))
        found.take(await _strays(key, theirs, log, own, alien))
        return
    first = known.map[0].destination if len(known.map) else known.destination_end
    start = max(log.start, first)
    read = Span(start, max(start, min(known.destination_end, log.end)))
    found.partitions[key] = MappedPartition(theirs.topic.name, known.map, read, tuple(sorted(own)))
    found.bounds.append(_bounds(key, here, _reach(known, here, log, first)))
    found.take(await _strays(key, theirs, Span(log.start, min(first, log.end)), own, alien))
    # Behind the map, the translation above has already looked for batches under the copy's own producer ids.
    found.take(await _strays(key, theirs, Span(read.end, log.end), (), alien))


async def _in_spare(
    destination: Cluster,
    keys: Iterable[TopicPartition],
    request: AuditRequest,
    homes: Mapping[tuple[str, int], set[int]],
) -> list[Strays]:
    """Searches the partitions that only the destination has, where no copy belongs, for batches of the flow. Findings
    name the first of the source's topics that are copied into this topic."""
    topics: dict[str, str] = {}
    audited: set[tuple[str, int]] = set()
    for key in sorted(keys):
        there = request.destination_of(key.topic)
        topics.setdefault(there, key.topic)
        audited.add((there, key.partition))
    everybody = set().union(*homes.values())
    found: list[Strays] = []
    for there, topic in topics.items():
        for partition in sorted(set(destination.topics[there].leaders)):
            if (there, partition) in audited:
                continue
            log = _log(destination, there, partition)
            span = Span(*await asyncio.gather(log.start(), log.visible_end()))
            alien = everybody - homes.get((there, partition), set())
            found.append(await _strays(TopicPartition(topic, partition), log, span, (), alien))
    return found


def _computed(source: Cluster, key: TopicPartition, request: AuditRequest) -> int:
    return producer_id(flow=request.flow, cluster_id=source.cluster_id, topic=key.topic, partition=key.partition)


def _unknown(key: TopicPartition, here: Span, state: InternalTopic) -> list[Finding]:
    """Returns a finding for a partition that is not in the internal topic, if the source has any offsets."""
    detail = f"{state.topic} says nothing of it: not copied yet, or that topic was lost, and nothing can be compared"
    return [_finding(Kind.MISSING, key, here, None, 0, 0, detail)] if here.offsets else []


async def _strays(
    key: TopicPartition, log: PartitionLog, span: Span, own: Collection[int], alien: Collection[int]
) -> Strays:
    """Searches for batches of the flow outside of its map, in up to ``MOST_OUTSIDE_BYTES``.

    Args:
        key: the partition.
        log: its log at the destination.
        span: the destination offsets to search.
        own: the copy's producer ids. Such batches came from an earlier source topic, or their map was lost and
            everything was copied again: ``unverifiable``.
        alien: the producer ids of copies that have never been in this partition. Such batches are ``extra``.
    """
    ours, theirs = _Counted(), _Counted()
    at, size, why = span.start, 0, ""
    careful_until = 0  # bytes: up to this size, one batch is read at a time
    while at < span.end and size < MOST_OUTSIDE_BYTES:
        most = ONE_BATCH if size < careful_until else READ_BYTES
        try:
            segment = await log.read(at, max_bytes=most)
        except (Damaged, Unreadable) as error:
            if most == ONE_BATCH:
                why = f"; {error}"
                break
            # Reads batch by batch up to the damage. After READ_BYTES more, there was no damage after all.
            careful_until = size + READ_BYTES
            continue
        if not segment.batches:
            if segment.high_watermark < span.end:
                raise Unreachable(
                    f"{log.name} ends at {span.end}, and is to be read to {segment.high_watermark} only; run the audit "
                    "again"
                )
            why = f"; the broker shows nothing from {at} on"
            break
        for header, _ in segment.batches:
            if header.base_offset < span.end and not header.is_control:
                if header.producer_id in own:
                    ours.take(header)
                elif header.producer_id in alien:
                    theirs.take(header)
            at, size = header.next_offset, size + header.size
    findings = [
        _finding(
            kind, key, None, Span(some.start, some.end), some.batches, some.records,
            f"batches of the flow that its offset map does not have: {why}",
        )
        for kind, some, why in (
            (Kind.UNVERIFIABLE, ours, "of an earlier source topic, or copied twice"),
            (Kind.EXTRA, theirs, "they are under the producer ids of other partitions' copies"),
        )
        if some.batches
    ]  # fmt: skip
    if at >= span.end:
        return Strays(findings, [])
    note = (
        f"{log.name}: outside of the offset map, batches of the flow were looked for in the first {_gib(size)} of what "
        f"is there; offsets {at} to {span.end - 1} were not looked at{why}"
    )
    return Strays(findings, [note])


@dataclass(slots=True)
class _Counted:
    """Batches from the one at ``start`` to the one before ``end``, and their records."""

    start: int = 0
    end: int = 0
    batches: int = 0
    records: int = 0

    def take(self, header: BatchHeader) -> None:
        """Adds the next batch."""
        if not self.batches:
            self.start = header.base_offset
        self.end = header.next_offset
        self.batches += 1
        self.records += header.record_count


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _finding(
    kind: Kind, key: TopicPartition, here: Span | None, there: Span | None, batches: int, records: int, detail: str
) -> Finding:
    return Finding(
        kind=kind, topic=key.topic, partition=key.partition, source=here, destination=there, batches=batches,
        records=records, detail=detail,
    )  # fmt: skip


def _reach(known: Translation, here: Span, log: Span, first: int) -> Span:
    """Returns the source offsets that the destination has, according to the map and the bounds of its ``log``.
    ``first``: the destination offset at which the map begins."""
    start, end = here.start, min(known.source_end, here.end)
    if log.start > first:
        start = max(start, known.to_source(log.start).offset)
    if log.end < known.destination_end:
        end = min(end, known.to_source(log.end).offset)
    return Span(start, max(start, end))


def _bounds(key: TopicPartition, source: Span, destination: Span) -> Bounds:
    return Bounds(topic=key.topic, partition=key.partition, source=source, destination=destination)


def _log(cluster: Cluster, topic: str, partition: int) -> PartitionLog:
    leader = cluster.leader(topic, partition)
    if leader is None:
        raise Unreachable(
            f"cluster {cluster.name}: topic {topic} partition {partition} has no leader; check that its leader is up"
        )
    log = PartitionLog(cluster, cluster.topics[topic], partition, leader)
    log.converts = True  # The mirror copies messages of old formats, and other writers may have written some.
    return log


def placed(tasks: Iterable[Task], partitions: Mapping[TopicPartition, MappedPartition]) -> tuple[Task, ...]:
    """Returns the tasks with the place of each range at the destination (``Range.copied``). Without partitions, the
    tasks are unchanged."""
    if not partitions:
        return tuple(tasks)
    return tuple(
        tuple(
            wanted._replace(
                copied=copied(
                    there.offsets, wanted.start, wanted.end,
                    topic=there.topic, bounds=there.read, own=there.own, shift=wanted.shift, sharing=there.sharing,
                )
            )
            for wanted in task
            for there in [partitions[wanted.key]]
        )
        for task in tasks
    )  # fmt: skip


def at_destination(findings: Iterable[Finding], partitions: Mapping[TopicPartition, MappedPartition]) -> list[Finding]:
    """Returns the findings with their destination spans translated from source offsets to the destination's own.
    Partitions that are not mapped stay unchanged."""
    found = []
    for finding in findings:
        there = partitions.get(TopicPartition(finding.topic, -1 if finding.partition is None else finding.partition))
        if there is None or finding.destination is None:
            found.append(finding)
        else:
            found.append(replace(finding, destination=there.there(finding.destination)))
    return found
