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
"""Others may have filled a topic before the flow began, or since; not more of that than this is examined."""


class MappedPartition(NamedTuple):
    """The place of a partition's copy. ``read``: the destination offsets that the map covers; ``own``: the copy's
    producer ids; ``sharing``: those of the flow's other copies in the same partition, if topics are copied into one."""

    topic: str
    offsets: OffsetMap
    read: Span
    own: tuple[int, ...]
    sharing: tuple[int, ...] = ()

    def there(self, span: Span) -> Span:
        """Translates source offsets to the destination's."""
        begins, last = self.offsets.to_destination(span.start), self.offsets.to_destination(span.end - 1)
        start = begins.offset if begins else self.read.end
        return Span(start, max(start, last.offset + last.exact) if last else self.read.end)


class Strays(NamedTuple):
    """What was found of the flow outside of its map. ``notes``: where nobody looked."""

    findings: list[Finding]
    notes: list[str]


class Mapped(NamedTuple):
    """All partitions, their bounds as source offsets on both sides, and findings, for example on those that are not
    copies. ``notes``: what was not looked at. ``flow_ids``: the producer ids of all copies that the flow has, or had,
    audited or not."""

    partitions: dict[TopicPartition, MappedPartition]
    bounds: list[Bounds]
    findings: list[Finding]
    notes: list[str]
    flow_ids: frozenset[int] = frozenset()

    def take(self, strays: Strays) -> None:
        """Adds what was found outside of the map."""
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

    Raises:
        AuditError: the internal topic cannot be read.
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
        AuditError: it may not be read, or its broker cannot read it.
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
    """Returns the producer ids of all copies that the flow has, or had, in each partition of the destination; also of
    those that it is only about to have: ``computed``."""
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
    # While it waited, retention may have worked at both sides. At the source last: what is gone there is not lost here.
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
    # What is the flow's own behind the map was looked for above, where the translation ends.
    found.take(await _strays(key, theirs, Span(read.end, log.end), (), alien))


async def _in_spare(
    destination: Cluster,
    keys: Iterable[TopicPartition],
    request: AuditRequest,
    homes: Mapping[tuple[str, int], set[int]],
) -> list[Strays]:
    """Returns batches of the flow in partitions that only the destination has: no copy belongs there. Each is named by
    the first of the source's topics that are copied into this topic."""
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
    """Returns a finding for a partition of which the internal topic says nothing, if the source has any offsets."""
    detail = f"{state.topic} says nothing of it: not copied yet, or that topic was lost, and nothing can be compared"
    return [_finding(Kind.MISSING, key, here, None, 0, 0, detail)] if here.offsets else []


async def _strays(
    key: TopicPartition, log: PartitionLog, span: Span, own: Collection[int], alien: Collection[int]
) -> Strays:
    """Looks for batches of the flow outside of its map, in up to ``MOST_OUTSIDE_BYTES``.

    Args:
        key: the partition.
        log: its log at the destination.
        span: where to look, in the destination's offsets.
        own: the copy's producer ids. Such batches came from an earlier source topic, or their map was lost and
            everything was copied again.
        alien: those of copies that have never been in this partition.
    """
    ours, theirs = _Counted(), _Counted()
    at, size, why = span.start, 0, ""
    careful_until = 0  # a size
    while at < span.end and size < MOST_OUTSIDE_BYTES:
        most = ONE_BATCH if size < careful_until else READ_BYTES
        try:
            segment = await log.read(at, max_bytes=most)
        except (Damaged, Unreadable) as error:
            if most == ONE_BATCH:
                why = f"; {error}"
                break
            # Up to the damage, batch by batch. Behind all that this answer can have held, there was none after all.
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
        """Adds the next one."""
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
    """Returns the source offsets that the destination has, judging by the bounds of its ``log``."""
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
    log.converts = True  # The mirror copies messages of old formats; others' may stand before and among the copies.
    return log


def placed(tasks: Iterable[Task], partitions: Mapping[TopicPartition, MappedPartition]) -> tuple[Task, ...]:
    """Returns the tasks with the place of each range at the destination; unchanged if nothing is mapped."""
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
    """Returns findings with the destination's own offsets."""
    found = []
    for finding in findings:
        there = partitions.get(TopicPartition(finding.topic, -1 if finding.partition is None else finding.partition))
        if there is None or finding.destination is None:
            found.append(finding)
        else:
            found.append(replace(finding, destination=there.there(finding.destination)))
    return found
