"""One look at all groups of a flow: carries their offsets at the source over to the destination.

Kafka has no conditional commit. So for a few groups at a time, the destination's offsets are read, then the source's
offsets once more, and these are committed at once; if this takes too long, the groups are left for the next look. So if
two processes do this at the same time, the one that commits last has the newer offsets, unless it was held up in these
milliseconds.
"""

import asyncio
from collections.abc import Iterator, Mapping

from mirror.net.admin.groups import CONSUMER, EMPTY, Groups, Listed, Offsets
from mirror.net.admin.operations import cluster_operations
from mirror.net.admin.share import ShareGroups
from mirror.net.errors import NetworkError, Refused, Unsupported
from mirror.net.rights import DESCRIBE
from mirror.relay.assignment import read_committed
from mirror.relay.partition.claim import Committed
from mirror.service.offsets.sides import FlowSides
from mirror.service.offsets.translate import Translator
from mirror.service.sync.copies import DestinationPlace, FlowCopies
from mirror.service.sync.plan import NAMED, GroupPlan, GroupsPlan, GroupState, Key, WantedOffset, decide
from mirror.service.sync.settings import SyncSettings
from mirror.service.texts import some
from mirror.wire.errors import ErrorCode

AT_ONCE = 20
"""Groups whose offsets at the destination are read, and committed, together."""
FRESH_S = 5.0
"""After this time, the offsets that were read at the destination are not up to date any more."""
IN_USE = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
"""Errors of a commit for a group that has members by now."""
_ACTIVE = "it has members at the destination"
_ANOTHER_KIND = "a group of another kind has this name at the destination"
_NOWHERE = DestinationPlace(-1)
_RIGHTS = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class OffsetsSync:
    """Carries the offsets of a flow's groups over."""

    def __init__(self, flow: FlowSides, settings: SyncSettings, translator: Translator) -> None:
        """``translator``: open, with ``lazy``: its ``state`` is opened by ``look``."""
        self._flow = flow
        self._settings = settings
        self._translator = translator
        self._copies = FlowCopies(translator)
        self._here = Groups(translator.source)
        self._there = Groups(translator.destination)
        self._share_here = ShareGroups(translator.source)
        self._share_there = ShareGroups(translator.destination)

    async def look(self, *, apply: bool) -> GroupsPlan:
        """Looks at every selected group that has offsets of mirrored topics. ``apply``: True to commit the offsets that
        are due. If a broker of the source does not list its groups, the known groups are looked at, and
        ``GroupsPlan.failed`` is set.

        Raises:
            NetworkError: a cluster does not answer.
        """
        await self._copies.renew()
        listed, lacking = await self._here.listed()
        selected = {name: one for name, one in listed.items() if self._settings.selects(name)}
        # One that may not be described is in no list, unless the principal may describe the cluster.
        asked = {name: Listed(name, CONSUMER) for name in self._settings.named if name not in listed}
        plans = await self._read(asked | selected)
        await self._copies.look((row.topic, row.partition) for plan in plans for row in plan.rows)
        for plan in plans:
            plan.rows = [self._placed(row) for row in plan.rows]
        await self._skip_active(plans)
        sources = self._shared()
        waiting = [plan for plan in plans if plan.state is GroupState.IN_STEP]
        for at in range(0, len(waiting), AT_ONCE):
            await self._carry(waiting[at : at + AT_ONCE], sources, apply=apply)
        found = GroupsPlan(groups=plans, absent=self._absent(listed, plans), unseen=await self._unseen())
        if lacking:
            why = some(lacking, NAMED, between="; ")
            found.failed = f"not all groups of {self._aliases[0]} are known: {why}"
            found.remedy = "see that these brokers run, and have read their groups"
        return found

    def _absent(self, listed: Mapping[str, Listed], plans: list[GroupPlan]) -> dict[str, str]:
        """Returns the groups that are meant by name and that have nothing to carry over, and why."""
        known, here = {plan.group for plan in plans}, self._aliases[0]
        return {
            name: (
                f"no committed offsets of topics of the flow at {here}"
                if name in listed
                else f"no group of this name at {here}"
            )
            for name in self._settings.named
            if name not in known
        }

    async def _unseen(self) -> str:
        """Returns why there may be groups that no broker lists, as far as the source tells; empty: there are none."""
        here = self._aliases[0]
        try:
            rights = await cluster_operations(self._translator.source)
        except NetworkError:
            return ""
        if rights is None or DESCRIBE in rights:
            return ""
        return (
            f"{here} lists only groups that the mirror's principal may describe, and there may be others: grant it "
            f"Describe on the cluster at {here} to have all of them listed"
        )

    # -- the source ----------------------------------------------------------------------------------------------------

    async def _read(self, listed: dict[str, Listed]) -> list[GroupPlan]:
        """Returns a plan for each group that has offsets of mirrored topics, or whose offsets are not known."""
        names = sorted(name for name, one in listed.items() if one.has_offsets)
        shares = sorted(name for name, one in listed.items() if one.is_share)
        plans = []
        answers = await self._here.committed(names) | await self._share_here.committed(shares)
        for name, found in sorted(answers.items()):
            plan = GroupPlan(group=name, kind=listed[name].kind)
            if isinstance(found, NetworkError):
                self._stop(plan, found, f"Describe on group {name}", self._aliases[0])
                plans.append(plan)
            elif rows := list(self._rows(found)):
                plan.rows = rows
                plans.append(plan)
        return plans

    def _rows(self, found: Offsets) -> Iterator[WantedOffset]:
        """Yields the offsets of mirrored topics, without a place at the destination yet. Offsets that a mirror has
        committed for its own group are left out."""
        selection = self._flow.selection
        for (topic, partition), one in sorted(found.items()):
            # librdkafka includes the NUL at the end of a C string in the metadata.
            noted = read_committed(one.offset, one.metadata.rstrip("\0"))
            if selection.selects(topic) and noted == Committed(one.offset):
                yield WantedOffset(
                    topic, partition, one.offset, selection.destination_of(topic), _NOWHERE, one.metadata
                )

    def _placed(self, row: WantedOffset) -> WantedOffset:
        return row._replace(spot=self._copies.spot(row.topic, row.partition, row.offset))

    # -- the destination -----------------------------------------------------------------------------------------------

    @property
    def _aliases(self) -> tuple[str, str]:
        return self._flow.aliases

    async def _skip_active(self, plans: list[GroupPlan]) -> None:
        listed, _ = await self._there.listed()  # if a group in use is not listed, its commit will be refused
        states = await self._there.states(listed, [plan.group for plan in plans])
        for plan in plans:
            if plan.group in listed and listed[plan.group].is_share is not plan.is_share:
                plan.stop(GroupState.HELD, _ANOTHER_KIND)
            elif states.get(plan.group, "") not in EMPTY:
                plan.stop(GroupState.ACTIVE, _ACTIVE)

    def _shared(self) -> dict[Key, list[Key]]:
        """Returns destination partition -> its source partitions, for those with several."""
        selection = self._flow.selection
        if not selection.renames:
            return {}
        found: dict[Key, list[Key]] = {}
        for topic in self._translator.source.topics.values():
            for partition in topic.leaders if selection.selects(topic.name) else ():
                found.setdefault((selection.destination_of(topic.name), partition), []).append((topic.name, partition))
        return {into: keys for into, keys in found.items() if len(keys) > 1}

    async def _carry(self, plans: list[GroupPlan], sources: dict[Key, list[Key]], *, apply: bool) -> None:
        loop = asyncio.get_running_loop()
        fresh_until = loop.time() + FRESH_S
        there = await self._committed(plans, self._there, self._share_there)
        if apply:
            self._renew(plans, await self._committed(plans, self._here, self._share_here))
        due: list[GroupPlan] = []
        for plan in plans:
            now = there[plan.group]
            if isinstance(now, NetworkError):
                self._stop(plan, now, f"Read on group {plan.group}", self._aliases[1])
                continue
            decide(plan, now, sources)
            if plan.due:
                due.append(plan)
        if not apply:
            return
        if loop.time() > fresh_until:
            for plan in due:
                plan.stop(GroupState.FAILED, f"it took more than {FRESH_S:.0f} s to look at what it has there")
            return
        await asyncio.gather(*(self._commit(plan) for plan in due))

    @staticmethod
    async def _committed(plans: list[GroupPlan], groups: Groups, shares: Groups) -> dict[str, Offsets | NetworkError]:
        found = await groups.committed([plan.group for plan in plans if not plan.is_share])
        return found | await shares.committed([plan.group for plan in plans if plan.is_share])

    def _stop(self, plan: GroupPlan, error: NetworkError, right: str, alias: str) -> None:
        """Gives up a group for now because of an error. ``right``: the right to grant, if it is an authorization error.
        ``alias``: the cluster."""
        if isinstance(error, Unsupported) or getattr(error, "code", 0) == ErrorCode.UNSUPPORTED_VERSION:
            plan.stop(
                GroupState.UNSUPPORTED, f"the brokers of {alias} do not say where a {plan.kind} group is: {error}"
            )
        else:
            plan.stop(GroupState.FAILED, str(error), needed(error, right, alias))

    def _renew(self, plans: list[GroupPlan], here: dict[str, Offsets | NetworkError]) -> None:
        """Updates the plans with the offsets that the groups have committed at the source since, for the same
        partitions."""
        for plan in plans:
            found = here[plan.group]
            if not isinstance(found, NetworkError):
                now = {(row.topic, row.partition): row for row in self._rows(found)}
                plan.rows = [self._placed(now.get((row.topic, row.partition), row)) for row in plan.rows]

    async def _commit(self, plan: GroupPlan) -> None:
        offsets = {(move.topic, move.partition): move.to for move in plan.due}
        try:
            codes = await (self._share_there if plan.is_share else self._there).commit(plan.group, offsets)
        except NetworkError as error:
            self._stop(plan, error, f"Read on group {plan.group}", self._aliases[1])
            return
        plan.carried = sum(not code for code in codes.values())
        refused = {key: code for key, code in codes.items() if code}
        if refused:
            self._refused(plan, refused)

    def _refused(self, plan: GroupPlan, refused: dict[Key, int]) -> None:
        (topic, partition), code = next(iter(refused.items()))
        there = self._aliases[1]
        if code in IN_USE:
            plan.stop(GroupState.ACTIVE, _ACTIVE)
        elif code == ErrorCode.GROUP_ID_NOT_FOUND:
            plan.stop(GroupState.HELD, _ANOTHER_KIND)
        else:
            error = Refused(f"{there}: commit for group {plan.group}, {topic}-{partition}", code)
            of_group = code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            self._stop(plan, error, f"Read on group {plan.group}" if of_group else f"Read on topic {topic}", there)


def needed(error: NetworkError, right: str, alias: str) -> str:
    """Returns the remedy for an error that is caused by a missing right; empty for any other error."""
    return f"grant the mirror's principal {right} at {alias}" if getattr(error, "code", 0) in _RIGHTS else ""
