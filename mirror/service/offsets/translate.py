"""``mirror offsets translate``: translates an offset, or all offsets of a consumer group, into those of the other side.

The command reads both clusters and the internal topic. It writes only with ``--apply``: a group's offsets at the
destination. The mirror may run meanwhile, or not.
"""

import shlex
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import NamedTuple, Self

from mirror.net.admin.groups import EMPTY, CommittedOffset, Groups, Offsets, groups_tool
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused
from mirror.net.logs.log import PartitionLog
from mirror.net.metadata import no_leader
from mirror.net.options import ClusterOptions
from mirror.net.rights import DENIED, DESCRIBE, GROUP, READ, TOPIC, Right
from mirror.offsetmap.compare.lockstep import lost_from
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.offsetmap.runs import MappedOffset
from mirror.offsetmap.translation import Translation, translation
from mirror.records.identity import producer_id
from mirror.service.offsets.copied import NOT_YET, why_elsewhere, why_no_copy
from mirror.service.offsets.sides import FlowSides
from mirror.service.texts import aligned, some
from mirror.wire.errors import ErrorCode, error_name

NAMED = 5
"""Maximum number of topics or partitions that a line of text names."""

EXACT = "this flow has offsets: exact: every offset is the same on both sides"


class NotTranslated(Exception):
    """An offset cannot be translated, or must not be committed; the message says why and what to do."""


class GroupError(Exception):
    """A cluster does not answer a request about a group, or refuses a commit; the message says which, and why."""


class TranslatedRow(NamedTuple):
    """An offset that a group has committed at the source.

    Attributes:
        topic, partition, offset: the committed offset at the source.
        destination: the destination topic.
        place: the translated offset; None: the record that the group would read next is not copied yet.
        deleted: True if the destination has deleted the records at the translated offset. ``place`` is its log start
            then.
    """

    topic: str
    partition: int
    offset: int
    destination: str
    place: MappedOffset | None
    deleted: bool = False


class Commit(NamedTuple):
    """An offset to commit at the destination.

    Attributes:
        topic, partition, offset: the offset to commit, at the destination.
        now: the group's present committed offset there; -1: none.
        of: number of source partitions that go into this partition and of which the group has an offset.
    """

    topic: str
    partition: int
    offset: int
    now: int
    of: int

    @property
    def is_rewind(self) -> bool:
        """True if the offset is lower than the group's present one at the destination."""
        return self.offset < self.now


class MovedGroup(NamedTuple):
    """A group's committed offsets at the source, translated, and those that it has at the destination."""

    group: str
    rows: list[TranslatedRow]
    unread: list[tuple[str, int, bool]]
    """(topic, partition, shared): source partitions of which the group has no offset, although it has one of the same
    topic, or of the same destination partition. ``shared``: True in the latter case."""
    others: list[str]
    """Topics of which the group has offsets, but which the flow does not mirror."""
    there: dict[tuple[str, int], int]
    """The group's present offsets at the destination."""

    @property
    def commits(self) -> list[Commit]:
        """The offsets that ``--apply`` commits. If several source partitions go into one destination partition, the
        lowest of their offsets counts, so that records are read again rather than missed."""
        places: dict[tuple[str, int], list[int]] = {}
        for row in self.rows:
            if row.place is not None:
                places.setdefault((row.destination, row.partition), []).append(row.place.offset)
        return [Commit(*key, min(found), self.there.get(key, -1), len(found)) for key, found in sorted(places.items())]


class Translator:
    """Translates offsets of a flow. An async context manager that connects to both clusters.

    Attributes:
        source, destination: the clusters.
        state: the flow's internal topic.
        exact: True if offsets are the same on both sides.
    """

    def __init__(self, flow: FlowSides, *, lazy: bool = False) -> None:
        """``lazy``: True if the caller opens ``state`` itself. Otherwise it is opened on entry, and it is an error if
        there is no internal topic."""
        self._flow = flow
        self._lazy = lazy
        self.exact = flow.exact
        self._alias, self._alias_there = flow.aliases
        self._known: dict[tuple[str, int], Translation] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with self._stack as stack:
            self.source = await self._open(stack, self._alias, self._flow.source)
            self.destination = await self._open(stack, self._alias_there, self._flow.destination)
            self.state = InternalTopic(self.destination, self._flow.id, lean=self.exact)
            if not self._lazy and not await self.state.open(create=False):
                raise NotTranslated(
                    f"cluster {self._alias_there} has no topic {self.state.topic}: the flow has copied nothing yet, "
                    "or that topic was deleted"
                )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @staticmethod
    async def _open(stack: AsyncExitStack, alias: str, options: ClusterOptions) -> Cluster:
        return await stack.enter_async_context(await Cluster.open(alias, options))

    def destination_of(self, topic: str) -> str:
        """Returns the topic that a source topic is copied into."""
        return self._flow.selection.destination_of(topic)

    def subject(self, topic: str, partition: int) -> Subject:
        """Returns the subject under which the internal topic has its entries about a partition's copy."""
        return Subject(topic, partition, self.destination_of(topic))

    async def renew(self) -> dict[str, int]:
        """Drops everything that is cached, and reads the metadata and the internal topic again. Offsets are then
        translated as of now. The internal topic must be open.

        Returns:
            Topic -> error code with which the source has answered; empty: no error.
        """
        self._known.clear()
        failed = await self.source.refresh(None)
        await self.destination.refresh(None)
        await self.state.load()
        return failed

    # -- single offsets ------------------------------------------------------------------------------------------------

    async def to_destination(self, topic: str, partition: int, offset: int) -> MappedOffset | None:
        """Returns where a reader of the source at ``offset`` goes on at the destination; None: that is not copied yet.

        Raises:
            NotTranslated: the flow has no such partition, has copied nothing of it, or an offset may be another record
                at the destination.
            NetworkError, Differs: see ``offsetmap.translation``.
        """
        if self.exact:
            return (await self.place(topic, partition, offset))[0]
        return (await self.of(topic, partition)).to_destination(offset)

    async def to_source(self, topic: str, partition: int, offset: int) -> MappedOffset:
        """Returns where a reader of the destination at ``offset`` goes on at the source. Raises: as
        ``to_destination``."""
        if self.exact:
            await self.copy(topic, partition)
            return MappedOffset(offset, exact=True)
        return (await self.of(topic, partition)).to_source(offset)

    async def copied_to(self, topic: str, partition: int) -> int:
        """Returns the source offset up to which everything is at the destination. Raises: as ``to_destination``."""
        if self.exact:
            _, there = await self.copy(topic, partition)
            return await there.visible_end()
        return (await self.of(topic, partition)).source_end

    async def of(self, topic: str, partition: int) -> Translation:
        """Returns the translation of a partition with ``offsets: mapped``. It is cached until ``renew``. Raises: as
        ``to_destination``."""
        found = self._known.get((topic, partition))
        if found is None:
            found = self._known[topic, partition] = await self._look(topic, partition)
        return found

    async def copy(self, topic: str, partition: int) -> tuple[PartitionLog, PartitionLog]:
        """Returns the source's and the destination's log of a partition with ``offsets: exact``.

        Raises:
            NotTranslated: the flow has no such partition; or according to the internal topic, an offset may be another
                record at the destination.
            NetworkError: a cluster does not answer.
        """
        here, there = await self._logs(topic, partition)
        why = why_no_copy(self.state.ledger, self.subject(topic, partition), here, there)
        if why:
            raise NotTranslated(self.told_no_copy(there, why))
        return here, there

    def told_no_copy(self, there: PartitionLog, why: str) -> str:
        """Returns the message for a destination log that is not known as a copy. ``why``: what ``why_no_copy`` has
        returned."""
        if why != NOT_YET:
            return why
        return (
            f"{there.name} is not known as a copy of this flow, since {self.state.topic} says nothing of it: nothing "
            "was copied into it yet, or that topic was lost (then start the mirror, which compares both logs)"
        )

    async def _logs(self, topic: str, partition: int) -> tuple[PartitionLog, PartitionLog]:
        """Returns the source's and the destination's log of a partition. Raises NotTranslated if the flow does not
        mirror the partition, or if it has halted for a reason after which an offset may be another record there."""
        if not self._flow.selection.selects(topic):
            raise NotTranslated(f"flow {self._flow.name} does not mirror topic {topic}; give its name at the source")
        here = await self.log(self.source, topic, partition)
        there = await self.log(self.destination, self.destination_of(topic), partition)
        halted = why_elsewhere(self.state.ledger, self.subject(topic, partition), here, there)
        if halted:
            raise NotTranslated(halted)
        return here, there

    async def _look(self, topic: str, partition: int) -> Translation:
        here, there = await self._logs(topic, partition)
        own = {producer_id(flow=self._flow.id, cluster_id=self.source.cluster_id, topic=topic, partition=partition)}
        found = await translation(self.state, here, there, committed=self._flow.committed, own=own)
        if found is None:
            raise NotTranslated(
                f"topic {self.state.topic} of cluster {self._alias_there} says nothing of {topic}-{partition}: "
                "nothing of it was copied yet, or that topic was deleted (then the partition halts, checkpoint_lost)"
            )
        own |= self.state.ledger.own(self.subject(topic, partition))
        end = await there.visible_end()
        if await lost_from(there, found.noted, own, end):
            raise NotTranslated(
                f"{there.name} ends at {end} or has others' records where copies up to {found.noted} were noted: "
                "it has lost its end. The mirror copies that again when it locates the partition, as after a restart; "
                "then try again"
            )
        return found

    async def log(self, cluster: Cluster, topic: str, partition: int) -> PartitionLog:
        """Returns the log of a partition of one of the clusters.

        Raises:
            NotTranslated: the cluster has no such partition.
            NetworkError: the cluster does not answer, or the partition has no leader.
        """
        failed = await cluster.refresh([topic]) if cluster.leader(topic, partition) is None else {}
        code = failed.get(topic)
        if code is not None and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Refused(f"cluster {cluster.name}: Metadata of {topic}", code)
        known = cluster.topics.get(topic)
        if known is None or partition not in known.leaders:
            raise NotTranslated(f"cluster {cluster.name} has no partition {topic}-{partition}")
        leader = cluster.leader(topic, partition)
        if leader is None:
            raise no_leader(cluster.name, topic, partition, known)
        return PartitionLog(cluster, known, partition, leader)

    # -- consumer groups -----------------------------------------------------------------------------------------------

    async def group(self, group: str) -> MovedGroup:
        """Returns the group's committed offsets of the flow's topics at the source, translated.

        Raises:
            NotTranslated: the group has none; or see ``to_destination``.
            GroupError: the group's offsets at a cluster cannot be read.
        """
        selection = self._flow.selection
        rows, others = [], set[str]()
        for (topic, partition), one in (await self._committed(self.source, group)).items():
            if selection.selects(topic):
                place, log_start = await self.place(topic, partition, one.offset)
                row = TranslatedRow(topic, partition, one.offset, selection.destination_of(topic), place)
                if place is not None and place.offset < log_start:
                    # With an offset below the log start, a consumer begins where auto.offset.reset says: by default at
                    # the end, so that it would miss records.
                    row = row._replace(place=MappedOffset(log_start, exact=False), deleted=True)
                rows.append(row)
            else:
                others.add(topic)
        if not rows:
            raise NotTranslated(
                f"group {group} has committed no offset of a topic of {self._flow.name} at {self._alias}"
            )
        there = {key: one.offset for key, one in (await self._committed(self.destination, group)).items()}
        return MovedGroup(group, sorted(rows), await self._unread(rows), sorted(others), there)

    @staticmethod
    async def _committed(cluster: Cluster, group: str) -> Offsets:
        found = (await Groups(cluster).committed([group]))[group]
        if isinstance(found, NetworkError):
            told = f"cannot read the offsets of group {group} at {cluster.name}: {found}"
            code = found.code if isinstance(found, Refused) else 0
            raise GroupError(told + _remedy(code, Right(DESCRIBE, GROUP, group, cluster.name))) from found
        return found

    async def place(self, topic: str, partition: int, offset: int) -> tuple[MappedOffset | None, int]:
        """Returns the result of ``to_destination``, and the destination's log start offset. With ``offsets: exact``,
        the first is None if the destination's log ends before the offset. Raises: as ``to_destination``."""
        if self.exact:
            _, there = await self.copy(topic, partition)
            place = MappedOffset(offset, exact=True) if offset <= await there.visible_end() else None
            return place, await there.start()
        known = await self.of(topic, partition)
        return known.to_destination(offset), known.log_start

    async def _unread(self, rows: Iterable[TranslatedRow]) -> list[tuple[str, int, bool]]:
        """Returns the value for ``MovedGroup.unread``. ``rows``: the offsets that the group has."""
        selection = self._flow.selection
        had, topics = {(row.topic, row.partition) for row in rows}, {row.topic for row in rows}
        wanted = {(row.destination, row.partition) for row in rows}
        await self.source.refresh(None)
        found = []
        for topic in self.source.topics.values():
            for partition in topic.leaders if selection.selects(topic.name) else ():
                shared = (selection.destination_of(topic.name), partition) in wanted
                if (topic.name, partition) not in had and (shared or topic.name in topics):
                    found.append((topic.name, partition, shared))
        return sorted(found)

    async def check(self, moved: MovedGroup, *, allow_rewind: bool = False) -> None:
        """Checks that ``apply`` may commit the offsets of a group.

        If several source topics go into one, the group needs an offset of each. If it has none of one topic, nothing
        tells from where the group reads that topic, and the offsets of the others may be behind the topic's records.

        Args:
            moved: the group.
            allow_rewind: True if offsets may be lower than those that the group has at the destination.

        Raises:
            NotTranslated: the offsets must not be committed; the message says why and what to do.
            GroupError: it is not known whether the group has members at the destination.
        """
        group = shlex.quote(moved.group)
        for row in moved.rows:
            if row.place is None:
                raise NotTranslated(
                    f"{row.topic}-{row.partition}: offset {row.offset} is not copied yet; stop the group's consumers "
                    f"at {self._alias}, and apply again when the mirror has caught up"
                )
        missing = [f"{topic}:{partition}" for topic, partition, shared in moved.unread if shared]
        if missing and not self.exact:
            options = " ".join(f"--topic {each}" for each in missing)
            raise NotTranslated(
                f"group {moved.group} has committed no offset of {', '.join(missing)} at {self._alias}, and it goes "
                f"into the same destination partition as what the group has read. Say at {self._alias} from where the "
                "group reads it (--to-latest skips what is there now), then apply again: "
                f"{groups_tool(self._flow.source)} --group {group} --reset-offsets {options} --to-earliest --execute"
            )
        back = [
            f"{one.topic}-{one.partition} ({one.now}, back to {one.offset})" for one in moved.commits if one.is_rewind
        ]
        if back and not allow_rewind:
            raise NotTranslated(
                f"group {moved.group} has read further at {self._alias_there}: {some(back, NAMED)}. It has moved "
                "already; --allow-rewind commits the lower offsets all the same, and the group reads these records "
                "again"
            )
        there = await self._members(moved.group)
        if there:
            raise NotTranslated(
                f"group {moved.group} has {there} at {self._alias_there}, which "
                f"would commit over it; stop its consumers there, then apply again. "
                f"{groups_tool(self._flow.destination)} --group {group} --describe --members names them"
            )

    async def _members(self, group: str) -> str:
        """Returns how many members the group has at the destination, in words; empty: none."""
        try:
            groups = Groups(self.destination)
            _, count = (await groups.described([group]))[group]
            if count:
                return f"{count} member{'s' if count > 1 else ''}"
            # If a group has members although no broker lists it, its coordinator refuses the commit.
            listed = (await groups.listed()).groups.get(group)
        except NetworkError as error:
            told = f"cannot describe group {group} at {self._alias_there}: {error}"
            code = error.code if isinstance(error, Refused) else 0
            raise GroupError(told + _remedy(code, Right(DESCRIBE, GROUP, group, self._alias_there))) from error
        return "members" if listed is not None and listed.state not in EMPTY else ""

    async def apply(self, group: str, commits: Iterable[Commit]) -> None:
        """Commits the offsets at the destination, for the same group id. They have no leader epoch: with the source's
        epoch, a consumer would read nothing.

        Raises:
            GroupError: the commit failed.
        """
        offsets = {(one.topic, one.partition): CommittedOffset(one.offset) for one in commits}
        try:
            codes = await Groups(self.destination).commit(group, offsets)
        except NetworkError as error:
            raise GroupError(f"cannot commit for group {group} at {self._alias_there}: {error}") from error
        for (topic, partition), code in codes.items():
            if code:
                of = (GROUP, group) if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else (TOPIC, topic)
                told = f"cannot commit {topic}-{partition} for group {group}: {error_name(code)}"
                raise GroupError(told + _remedy(code, Right(READ, *of, self._alias_there)))

    def told(self, moved: MovedGroup) -> list[str]:
        """Returns lines of text with the group's offsets on both sides, and with those that ``apply`` commits."""
        lines = [("topic", "partition", "source", "into", "destination", "")]
        for row in moved.rows:
            there = str(row.place.offset) if row.place else "-"
            note = "not copied yet" if row.place is None else "" if row.place.exact else "next record, here or behind"
            note = "deleted before there" if row.deleted else note
            lines.append((row.topic, str(row.partition), str(row.offset), row.destination, there, note))
        found = aligned(lines)
        if self.exact:
            found.append(EXACT)
        found += ["", f"for group {moved.group} at {self._alias_there}:"]
        commits = [("topic", "partition", "commit", "committed now", "")]
        for one in moved.commits:
            notes = ["it would go back"] if one.is_rewind else []
            if one.of > 1:
                notes.append(f"the least of {one.of} topics: some records of the others are read again")
            now = str(one.now) if one.now >= 0 else "-"
            commits.append((one.topic, str(one.partition), str(one.offset), now, "; ".join(notes)))
        found += aligned(commits)
        behind = [f"{topic}:{partition}" for topic, partition, shared in moved.unread if not shared or self.exact]
        if behind:
            found.append(f"without an offset at {self._alias}, so none is committed: {some(behind, NAMED)}")
        if moved.others:
            found.append(f"not of this flow, so not translated: {some(moved.others, NAMED)}")
        return found


async def translate_offset(flow: FlowSides, topic: str, partition: int, offset: int, *, to_source: bool) -> str:
    """Translates one offset, and returns the answer as text: the offset, then perhaps a remark.

    Args:
        flow: the flow.
        topic: name of the topic at the source.
        partition: its partition.
        offset: the offset to translate.
        to_source: True to translate from the destination to the source; False for the other direction.

    Raises:
        NotTranslated: the offset cannot be translated, or is not copied yet.
        NetworkError, Differs: see ``offsetmap.translation``.
    """
    async with Translator(flow) as translator:
        if to_source:
            place = await translator.to_source(topic, partition, offset)
            if translator.exact:
                return f"{offset}\n{EXACT}"
            why = f"offset {offset} there holds no record of {topic}-{partition}"
            return _told(place, why, "is, or will be")
        found, log_start = await translator.place(topic, partition, offset)
        if found is None:
            end = await translator.copied_to(topic, partition)
            raise NotTranslated(f"{topic}-{partition} is copied up to offset {end}, not to {offset} yet")
        if found.offset < log_start:
            name = f"{translator.destination_of(topic)}-{partition} at {flow.aliases[1]}"
            return f"{log_start}\n{name} begins there: what was at offset {found.offset} is deleted"
        if translator.exact:
            return f"{offset}\n{EXACT}"
        if not found.exact and found.offset >= (await translator.of(topic, partition)).destination_end:
            later = "what comes of it will be at this offset or behind it"
            return f"{found.offset}\nnothing of {topic}-{partition} is copied from offset {offset} on; {later}"
        return _told(found, f"{topic}-{partition} has no record at offset {offset}, or none that is copied", "is")


def _told(place: MappedOffset, why: str, there: str) -> str:
    return f"{place.offset}" + ("" if place.exact else f"\n{why}; this is where the next one {there}")


def _remedy(code: int, right: Right) -> str:
    """Returns what to do about an error that is caused by a missing right; empty for any other error."""
    return f"; {right.grant}" if code in DENIED else ""


async def translate_group(
    flow: FlowSides, group: str, *, apply: bool, tell: Callable[[str], None], allow_rewind: bool = False
) -> str:
    """Shows a group's offsets on both sides, and commits them at the destination if that is requested.

    Args:
        flow: the flow.
        group: name of the group.
        apply: True to commit the offsets.
        tell: gets the tables of offsets, as one text.
        allow_rewind: True if offsets may be lower than those that the group has at the destination.

    Returns:
        What was done, in words. Without ``apply``, also why it would refuse.

    Raises:
        NotTranslated: the group has no offsets, or they may not be committed; nothing was committed.
        GroupError: the group's offsets at a cluster cannot be read, or the commit itself failed.
        NetworkError, Differs: see ``offsetmap.translation``.
    """
    async with Translator(flow) as translator:
        moved = await translator.group(group)
        tell("\n".join(translator.told(moved)))
        try:
            await translator.check(moved, allow_rewind=allow_rewind)
        except (NotTranslated, GroupError) as error:
            if apply:
                raise NotTranslated(f"nothing was committed: {error}") from error
            return f"nothing was committed; --apply would refuse: {error}"
        if not apply:
            return "nothing was committed; --apply commits this"
        await translator.apply(group, moved.commits)
        return f"committed {len(moved.commits)} offset{'s' if len(moved.commits) > 1 else ''} for group {group}"
