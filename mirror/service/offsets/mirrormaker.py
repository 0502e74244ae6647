"""``mirror offsets take-over``: lets a mapped flow go on where a stopped MirrorMaker 2 has ended.

MirrorMaker 2 is a source connector of Kafka Connect. For each source partition, Connect keeps the offset of the last
record that it knows to be copied, in a compacted topic at the destination. If MirrorMaker 2 did not end cleanly, it has
copied more than that. So the last record of each copy is searched for at the source, and the flow goes on behind it.
The offsets found are committed at the source for the group ``start.group``, with which ``start.from: committed``
begins.

At the destination, only committed records count: MirrorMaker 2 with ``exactly.once.source.support`` writes copies and
offsets in transactions, and records of an aborted transaction are not copies.

The command reads both clusters, and writes nothing except that commit.
"""

import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack
from enum import Enum
from typing import Any, NamedTuple

from mirror.net.admin.groups import CommittedOffset, Groups
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.logs.log import PartitionLog
from mirror.net.metadata import no_leader
from mirror.offsetmap.fields import MOST
from mirror.records.content.opening import NotOpened, Record, opened
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME
from mirror.records.transactions import Aborted
from mirror.service.offsets.sides import FlowSides
from mirror.service.texts import aligned, some
from mirror.wire.errors import error_name

READ_BYTES = 1 << 20
MOST_SEARCHED = 64 << 20
"""Bytes of keys and values in a source partition that are searched for the last record of its copy."""
UNREADABLE = (ValueError, TypeError, KeyError, RecursionError)
"""Exceptions on parsing a record that Connect has not written for a source connector."""
MOST_BACK = 1_000
"""Maximum number of reads back from a copy's end to find its last record. Behind that record there may be markers and
records of aborted transactions."""


class TakeOverError(Exception):
    """It is not known where the flow has to go on, or that could not be committed; the message says why and what to
    do."""


class Found(Enum):
    """The evidence for the offset at which a partition goes on. The values are shown to people."""

    SAME = "the copy's last record is the one before"
    LATER = "more was copied than MirrorMaker 2 had noted: the copy's last record is the one before"
    EMPTY = "the copy holds no record to compare; this is what MirrorMaker 2 had noted"
    UNSURE = "the copy's last record is not found at the source"


class TakenOver(NamedTuple):
    """A source partition, and the offset at which the flow goes on."""

    topic: str
    partition: int
    into: str
    noted: int
    """The offset behind the last record that Connect has noted as copied; 0: it has noted none."""
    offset: int
    """The source offset at which the flow goes on."""
    found: Found
    detail: str = ""


class TakeOver:
    """One run of the command. An async context manager that connects to both clusters."""

    def __init__(self, flow: FlowSides, *, offsets_topic: str = "", cluster: str = "") -> None:
        """
        Args:
            flow: the flow that takes over.
            offsets_topic: Connect's topic of source offsets (``offset.storage.topic``) at the destination; empty: the
                default of MirrorMaker 2's dedicated mode.
            cluster: the source's alias in MirrorMaker 2's configuration; empty: the alias in the flow's name.
        """
        self._flow = flow
        self._alias = cluster or flow.aliases[0]
        self.offsets_topic = offsets_topic or f"mm2-offsets.{self._alias}.internal"
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "TakeOver":
        async with self._stack as stack:
            here, there = self._flow.aliases
            self._source = await stack.enter_async_context(await Cluster.open(here, self._flow.source))
            self._destination = await stack.enter_async_context(await Cluster.open(there, self._flow.destination))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def look(self) -> list[TakenOver]:
        """Returns where each partition that MirrorMaker 2 has copied goes on, sorted. Only topics of the flow count.

        Raises:
            TakeOverError: the topic of offsets does not exist, cannot be read, or has nothing of the flow's topics; a
                copied topic may not be described at the source; a destination topic does not exist; or MirrorMaker 2
                visibly still runs, or has an open transaction.
            NetworkError: a cluster does not answer.
        """
        noted = await self._noted()
        await self._check_stopped()
        await self._source.refresh(None)
        selects, into = self._flow.selection.selects, self._flow.selection.destination_of
        await self._check_seen(sorted({topic for topic, _ in noted if selects(topic)} - self._source.topics.keys()))
        ours = {key: offset for key, offset in noted.items() if selects(key[0]) and key[0] in self._source.topics}
        if not ours:
            others = ", ".join(sorted({topic for topic, _ in noted})[:5])
            told = f"it has offsets of {others}" if others else f"it has none of cluster {self._alias}"
            raise TakeOverError(
                f"topic {self.offsets_topic} at {self._destination.name} has no offset of a topic that the flow "
                f"{self._flow.name} mirrors: {told}; give --cluster, the source's alias in MirrorMaker 2's "
                "configuration, or correct topics of the flow"
            )
        failed = await self._destination.refresh(sorted({into(topic) for topic, _ in ours}))
        gone = sorted(name for name in {into(topic) for topic, _ in ours} if failed.get(name) or not self._has(name))
        if gone:
            raise TakeOverError(
                f"{self._destination.name} has no topic {', '.join(gone)}, into which the flow would go on copying; "
                "give the flow the names that MirrorMaker 2 gave its copies (replication.policy, topic.rename)"
            )
        rows = [await self._place(*key, noted=offset + 1) for key, offset in ours.items()]
        return sorted([*rows, *await self._not_noted(set(ours))])

    async def commit(self, group: str, rows: list[TakenOver]) -> None:
        """Commits the offsets at the source.

        Args:
            group: the group of ``start.group``.
            rows: the partitions, each with its offset.

        Raises:
            TakeOverError: the commit was refused, or the group has other offsets already, so somebody may use it.
            NetworkError: the source does not answer.
        """
        groups = Groups(self._source)
        wanted = {(row.topic, row.partition): row.offset for row in rows}
        before = (await groups.committed([group]))[group]  # also waits until there is a coordinator
        if isinstance(before, NetworkError):
            raise before
        others = [key for key, each in before.items() if wanted.get(key) != each.offset]
        if others:
            topic, partition = min(others)
            raise TakeOverError(
                f"group {group} has committed offset {before[topic, partition].offset} of {topic}-{partition} at "
                f"{self._source.name}, which would be changed or is not of this flow: somebody else may use it; give "
                "start.group a new name"
            )
        codes = await groups.commit(group, {key: CommittedOffset(offset) for key, offset in wanted.items()})
        for (topic, partition), code in codes.items():
            if code:
                raise TakeOverError(
                    f"cannot commit {topic}-{partition} for group {group} at {self._source.name}: {error_name(code)}; "
                    "the group must have no members, and the principal needs Read on it"
                )

    async def _check_seen(self, topics: list[str]) -> None:
        """Checks that copied topics which the source does not list are gone. A list of all topics leaves out those that
        the principal may not describe.

        Raises:
            TakeOverError: some of them may exist, but may not be described.
        """
        if topics:
            await self._source.check_denied(topics)
        hidden = [name for name in topics if name in self._source.denied]
        if hidden:
            raise TakeOverError(
                f"MirrorMaker 2 has copied {some(hidden)}, which may not be described at {self._source.name}: grant "
                "the mirror's principal Describe on it, or have the flow exclude it"
            )

    def _has(self, topic: str) -> bool:
        return topic in self._destination.topics

    async def _check_stopped(self) -> None:
        """Checks that the group of MirrorMaker 2's dedicated mode has no members. Workers of other Connect clusters
        cannot be told apart from MirrorMaker 2's.

        Raises:
            TakeOverError: the group has members.
        """
        group = f"{self._alias}-mm2"
        _, members = (await Groups(self._destination).described([group]))[group]
        if members:
            raise TakeOverError(
                f"MirrorMaker 2 still runs: group {group} at {self._destination.name} has {members} "
                f"member{'s' if members > 1 else ''}; stop it first, and wait until they are gone"
            )

    # -- what Connect has written down ---------------------------------------------------------------------------------

    async def _noted(self) -> Mapping[tuple[str, int], int]:
        """Returns what Connect has noted: (topic, partition) of the source -> offset of the last copied record."""
        failed = await self._destination.refresh([self.offsets_topic])
        topic = self._destination.topics.get(self.offsets_topic)
        if topic is None or failed.get(self.offsets_topic):
            raise TakeOverError(
                f"{self._destination.name} has no topic {self.offsets_topic}; give --offsets-topic, Connect's "
                "offset.storage.topic (with Strimzi, mirrormaker2-cluster-offsets by default), and --cluster if "
                "MirrorMaker 2 names the source otherwise"
            )
        noted: dict[tuple[str, int], int] = {}
        for index in sorted(topic.leaders):
            log = self._log(self._destination, self.offsets_topic, index)
            try:
                async for record in _records(log, await log.start(), await _settled_end(log), committed=True):
                    place = self._place_of(record.key)
                    if place is None:
                        continue
                    offset = _offset_of(record.value)
                    if offset is None:
                        noted.pop(place, None)
                    else:
                        noted[place] = offset
            except NotOpened as error:
                raise TakeOverError(
                    f"{self.offsets_topic}-{index} cannot be read: {error}; nothing else tells where MirrorMaker 2 "
                    "has ended"
                ) from error
        return noted

    def _place_of(self, key: bytes | None) -> tuple[str, int] | None:
        """Returns topic and partition of a record key that Connect has written for MirrorMaker 2's source connector;
        None for any other key, or another source cluster."""
        try:
            connector, place = json.loads(key or b"")
            topic, partition, cluster = place["topic"], place["partition"], place["cluster"]
        except UNREADABLE:
            return None
        wanted = str(connector).endswith("MirrorSourceConnector") and cluster == self._alias
        return (topic, partition) if wanted and isinstance(topic, str) and type(partition) is int else None

    async def _not_noted(self, noted: Collection[tuple[str, int]]) -> list[TakenOver]:
        """Returns partitions of the flow's topics that have a copy, but are not ``noted``. The flow would copy them
        from the beginning, so that the records of the copy would be there twice."""
        selects, into = self._flow.selection.selects, self._flow.selection.destination_of
        topics = {name: topic for name, topic in self._source.topics.items() if selects(name)}
        await self._destination.refresh(sorted(map(into, topics)))
        rows = []
        for name, topic in topics.items():
            copy = self._destination.topics.get(into(name))
            for index in topic.leaders:
                if (name, index) in noted or copy is None or index not in copy.leaders:
                    continue
                why = "MirrorMaker 2 has noted nothing of it, and the copy holds records"
                try:
                    if await _last(self._log(self._destination, into(name), index)) is None:
                        continue
                except (NotOpened, _TooFar) as error:
                    why = str(error)
                rows.append(TakenOver(name, index, into(name), 0, 0, Found.UNSURE, why))
        return rows

    # -- what shows it -------------------------------------------------------------------------------------------------

    async def _place(self, topic: str, partition: int, *, noted: int) -> TakenOver:
        """Returns where a partition goes on. ``noted``: the offset behind the last record that Connect has noted."""
        into = self._flow.selection.destination_of(topic)

        def row(offset: int, found: Found, detail: str = "") -> TakenOver:
            return TakenOver(topic, partition, into, noted, offset, found, detail)

        try:
            here, there = self._log(self._source, topic, partition), self._log(self._destination, into, partition)
            last = await _last(there)
            start, end = await here.start(), await here.visible_end()
            if last is None:
                if noted > end:
                    return row(noted, Found.UNSURE, f"more is noted than the source has: it ends at {end}")
                return row(noted, Found.EMPTY)
            matches, searched, cut = [], 0, False
            async for record in _records(here, max(start, noted - 1), end):
                if _same(record, last):
                    matches.append(record.offset)
                searched += len(record.key or b"") + len(record.value or b"")
                if searched > MOST_SEARCHED:
                    cut = True
                    break
        except (NotOpened, _TooFar) as error:
            return row(noted, Found.UNSURE, str(error))
        if len(matches) == 1 and cut and last.append_time and matches[0] != noted - 1:
            # Key and value may come again behind what was searched. With timestamps, they would do so nearby.
            why = f"offset {matches[0]} is like it, but only {MOST_SEARCHED >> 20} MiB were searched for others"
            return row(noted, Found.UNSURE, f"{why}, and the destination's broker has set its timestamp")
        if len(matches) == 1:
            return row(matches[0] + 1, Found.SAME if matches[0] == noted - 1 else Found.LATER)
        why = f"{len(matches)} records from there on are like it" if matches else f"from offset {noted - 1} on"
        return row(noted, Found.UNSURE, why)

    def _log(self, cluster: Cluster, topic: str, index: int) -> PartitionLog:
        known, leader = cluster.topics.get(topic), cluster.leader(topic, index)
        if known is None or leader is None:
            raise no_leader(cluster.name, topic, index, known)
        return PartitionLog(cluster, known, index, leader)


class _Last(NamedTuple):
    """The last record of a copy. ``append_time``: True if the destination's broker has set its timestamp."""

    record: Record
    append_time: bool


class _TooFar(Exception):
    """The last record of a copy was not found within ``MOST_BACK`` reads."""


async def _settled_end(log: PartitionLog) -> int:
    """Returns the high watermark of a log.

    Raises:
        TakeOverError: a transaction is open in the log.
    """
    start, end = await log.start(), await log.visible_end()
    # Any Fetch answer has the last stable offset.
    stable = (await log.read(end - 1)).last_stable_offset if end > start else end
    if 0 <= stable < end:
        raise TakeOverError(
            f"a transaction is still open in {log.name} from offset {stable} on; stop MirrorMaker 2, and wait until "
            "the transaction is aborted (its transaction.timeout.ms)"
        )
    return end


async def _last(log: PartitionLog) -> _Last | None:
    """Returns the last committed record of a log; None if the log has none.

    Raises:
        TakeOverError: a transaction is open.
        NotOpened: a batch cannot be opened.
        _TooFar: the record was not found within ``MOST_BACK`` reads.
    """
    start, at = await log.start(), await _settled_end(log)
    for _ in range(MOST_BACK):
        if at <= start:
            return None
        segment = await log.read(at - 1, committed=True)
        if not segment.batches:
            at -= 1
            continue
        header, batch = segment.batches[0]
        if not header.is_control and header.record_count and not Aborted(segment.aborted).drops(header):
            *_, record = opened(header, bytes(batch[HEADER_SIZE:]))
            return _Last(record, bool(header.attributes & LOG_APPEND_TIME))
        at = min(at - 1, header.base_offset)
    if at > start:
        raise _TooFar(f"the last {MOST_BACK} batches of {log.name} hold no record that counts")
    return None


async def _records(log: PartitionLog, start: int, end: int, *, committed: bool = False) -> AsyncIterator[Record]:
    """Yields the records of a log in ``[start, end)``. ``committed``: True to leave out those of aborted
    transactions."""
    at = start
    while at < end:
        segment = await log.read(at, max_bytes=READ_BYTES, committed=committed)
        if not segment.batches:
            return
        aborted = Aborted(segment.aborted)
        for header, batch in segment.batches:
            if not aborted.follow(header, batch) and not header.is_control:
                for record in opened(header, bytes(batch[HEADER_SIZE:])):
                    if start <= record.offset < end:
                        yield record
            at = max(at + 1, header.next_offset)


def _same(record: Record, last: _Last) -> bool:
    """Returns True if ``last`` may be the copy of this source record: key, value and timestamp are equal. The timestamp
    is not compared if the destination's broker has set it."""
    copy = last.record
    same = (record.key, record.value) == (copy.key, copy.value)
    return same and (last.append_time or record.timestamp == copy.timestamp)


def _offset_of(value: bytes | None) -> int | None:
    """Returns the offset in a record value that Connect has written; None for a tombstone or any other value."""
    try:
        offset = json.loads(value or b"null")["offset"]
    except UNREADABLE:
        return None
    return offset if type(offset) is int and 0 <= offset < MOST else None


def as_data(flow: str, group: str, rows: list[TakenOver], *, committed: bool) -> dict[str, Any]:
    """Returns the result as an object for JSON.

    Args:
        flow: name of the flow.
        group: the group of ``start.group``.
        rows: the partitions.
        committed: True if their offsets were committed.
    """
    return {
        "flow": flow,
        "group": group,
        "committed": committed,
        "partitions": [row._asdict() | {"found": row.found.name.lower()} for row in rows],
    }


def as_text(data: dict[str, Any]) -> str:
    """Returns the object of ``as_data`` as a table for people. Pure."""
    table = [("TOPIC", "PARTITION", "INTO", "NOTED", "GOES ON AT", "BECAUSE")]
    for row in data["partitions"]:
        why = Found[row["found"].upper()].value + (f" ({row['detail']})" if row["detail"] else "")
        table.append((row["topic"], str(row["partition"]), row["into"], str(row["noted"]), str(row["offset"]), why))
    return "\n".join(aligned(table))
