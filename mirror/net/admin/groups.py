"""Consumer groups of a cluster: their names, states and committed offsets.

Requests go to the groups' coordinators, many groups in a request. A coordinator that has just taken a group over is
still loading its state: it is asked again for a while.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from mirror.net.cluster import Cluster
from mirror.net.coordinator import GROUP, find_coordinators
from mirror.net.errors import ConnectionLost, NetworkError, Refused, Unreachable
from mirror.net.options import ClusterOptions, tool_options
from mirror.wire.errors import ErrorCode, error_name

PATIENCE_S = 30.0
"""How long requests to a coordinator that is not ready are repeated."""
PAUSE_S = 0.2
LIST_PATIENCE_S = 10.0
"""How long to wait for all brokers to list their groups, once one of them has answered."""
READY_S = 5.0
"""How long the request for a list is repeated to a broker that still loads groups."""
OFFSETS_TOPIC = "__consumer_offsets"
"""The topic in which brokers store groups. The leader of each partition lists the groups in it."""
MOST_GROUPS = 50
"""Groups in one OffsetFetch request."""
BY_NAME = 9
"""The last version of OffsetFetch and OffsetCommit that names topics; later ones have topic ids (KIP-848)."""
STATE_SINCE, KIND_SINCE = 4, 5
"""The first versions of ListGroups with the groups' states (Kafka 2.6) and kinds (4.0)."""
MANY_GROUPS_SINCE = 8
"""The first version of OffsetFetch for many groups at once."""
NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Errors that pass by themselves."""
EMPTY = frozenset({"Empty", "Dead", ""})
"""States of a group without members. The empty string: there is no such group."""
CONSUMER, SHARE = "consumer", "share"

Key = tuple[str, int]


class Listed(NamedTuple):
    """A group as a broker lists it.

    Attributes:
        group_id: name of the group.
        protocol_type: protocol type of its members; empty if the group has only offsets.
        state: Kafka's name of the group's state; empty if not known (before Kafka 2.6).
        kind: classic, consumer, share or streams; empty before Kafka 4.0, when all are classic.
    """

    group_id: str
    protocol_type: str
    state: str = ""
    kind: str = ""

    @property
    def is_share(self) -> bool:
        """True for a share group (KIP-932), which has no committed offsets."""
        return self.kind == SHARE

    @property
    def has_offsets(self) -> bool:
        """True for a group of consumers. Kafka Connect and others use the same protocol for groups without offsets."""
        return not self.is_share and (self.kind not in ("", "classic") or self.protocol_type in (CONSUMER, ""))


class Listing(NamedTuple):
    """The groups that the brokers list.

    Attributes:
        groups: group id -> group.
        lacking: why groups may be missing: one text for each broker that has not listed all of its groups, and for each
            partition of ``OFFSETS_TOPIC`` without a leader. Empty: the list is complete.
    """

    groups: dict[str, Listed]
    lacking: tuple[str, ...]


class CommittedOffset(NamedTuple):
    """A committed offset, and the metadata that the consumer committed with it."""

    offset: int
    metadata: str = ""


Offsets = dict[Key, CommittedOffset]


def groups_tool(options: ClusterOptions) -> str:
    """Returns Kafka's own tool for groups, with the options by which it reaches a cluster (``tool_options``)."""
    return f"kafka-consumer-groups.sh {tool_options(options.bootstrap, options.connection.security)}"


class Groups:
    """The groups of one cluster. Caches their coordinators, until a coordinator has moved."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes: dict[str, int] = {}

    async def listed(self) -> Listing:
        """Returns the groups that the brokers list. Without Describe on the cluster, brokers list only the groups that
        the mirror may describe.

        Raises:
            NetworkError: no broker answers.
        """
        name, until = self._cluster.name, asyncio.get_running_loop().time() + READY_S
        answers: dict[int, Any] = {}
        lacking = {node_id: f"broker {node_id} of {name}: no answer" for node_id in self._cluster.nodes}

        async def ask(node_id: int) -> None:
            try:
                while True:
                    answer = await self._cluster.call(
                        ListGroupsRequest(states_filter=[], types_filter=[]), node_id=node_id
                    )
                    if answer.error_code and answer.error_code not in NOT_READY:
                        raise Refused(f"broker {node_id} of {name}: ListGroups", answer.error_code)
                    answers[node_id] = answer
                    if not answer.error_code:
                        lacking.pop(node_id, None)
                        return
                    lacking[node_id] = f"broker {node_id} of {name}: {error_name(answer.error_code)}"
                    if asyncio.get_running_loop().time() >= until:
                        return
                    await asyncio.sleep(PAUSE_S)
            except NetworkError as error:
                lacking[node_id] = str(error)
                raise

        await self._cluster.ask_all(ask, patience_s=LIST_PATIENCE_S)
        listed = {
            group.group_id: Listed(
                group.group_id,
                group.protocol_type,
                (group.group_state or "") if answer.version >= STATE_SINCE else "",
                (group.group_type or "").lower() if answer.version >= KIND_SINCE else "",
            )
            for answer in answers.values()
            for group in answer.groups
        }
        return Listing(listed, (*(why for _, why in sorted(lacking.items())), *self._leaderless()))

    def _leaderless(self) -> list[str]:
        """Returns a text for each partition of ``OFFSETS_TOPIC`` that has no leader by the metadata: no broker lists
        its groups, and none answers with an error for them."""
        known = self._cluster.topics.get(OFFSETS_TOPIC)
        leaders = known.leaders if known is not None else {}
        name = self._cluster.name
        return [f"{name}: {OFFSETS_TOPIC}-{index} has no leader" for index, at in leaders.items() if at.node_id < 0]

    async def states(self, listed: Mapping[str, Listed], groups: Collection[str]) -> dict[str, str]:
        """Returns group id -> state for those of ``groups`` that are in ``listed``. A group whose state is in ``EMPTY``
        has no members.

        Raises:
            NetworkError: a coordinator cannot be found, or does not answer.
        """
        states = {name: listed[name].state for name in groups if name in listed}
        unknown = [name for name, state in states.items() if not state]
        if unknown:
            # Before Kafka 2.6, ListGroups has no states.
            states |= {name: state for name, (state, _) in (await self.described(unknown)).items()}
        return states

    async def in_use(self, groups: Collection[str]) -> set[str]:
        """Returns those of the groups that have members.

        Raises:
            NetworkError: as ``listed`` and ``states``; or one of the groups is not listed, and the list is incomplete.
        """
        listed, lacking = await self.listed()
        absent = [name for name in groups if name not in listed]
        if absent and lacking:
            raise Unreachable(
                f"{self._cluster.name}: not known whether group {absent[0]} is in use: {lacking[0]}. Try again once "
                "all brokers list their groups"
            )
        states = await self.states(listed, groups)
        return {name for name, state in states.items() if state not in EMPTY}

    async def described(self, groups: Collection[str]) -> dict[str, tuple[str, int]]:
        """Returns group id -> (state, number of members), as the coordinators describe the groups. Coordinators
        describe only classic groups: a group of another kind, or one that does not exist, has the state Dead.

        Raises:
            NetworkError: a coordinator cannot be found, or does not answer.
        """
        found: dict[str, tuple[str, int]] = {}
        failed: dict[str, NetworkError] = {}
        places = await self._places(groups, failed)
        for error in failed.values():
            raise error
        for node_id, names in places.items():
            answer = await self._cluster.call(DescribeGroupsRequest(groups=names), node_id=node_id)
            for group in answer.groups:
                if group.error_code and group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise Refused(f"{self._cluster.name}: DescribeGroups of {group.group_id}", group.error_code)
                found[group.group_id] = group.group_state, len(group.members)
        return found

    async def committed(
        self, groups: Collection[str], *, patience_s: float = PATIENCE_S
    ) -> dict[str, Offsets | NetworkError]:
        """Returns for each group its committed offsets, or the error for which they are not known. A group that does
        not exist has none. Brokers leave out topics that the mirror may not describe. ``patience_s``: how long
        coordinators that are not ready are asked again.

        Raises:
            NetworkError: no broker answers.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        found = await self._committed(groups)
        while (soon := [name for name, each in found.items() if _passes(each)]) and loop.time() < until:
            await asyncio.sleep(PAUSE_S)
            found |= await self._committed(soon)
        return found

    async def commit(self, group: str, offsets: Mapping[Key, CommittedOffset]) -> dict[Key, int]:
        """Commits offsets for a group without members. They have no leader epoch: with the epoch of another cluster, a
        consumer would read nothing. There is one try.

        Returns:
            The error code of each partition; 0: committed. If the group has members, it is UNKNOWN_MEMBER_ID.

        Raises:
            Refused: the coordinator cannot be found.
            NetworkError: the coordinator does not answer; the offsets may have been committed.
        """
        failed: dict[str, NetworkError] = {}
        places = await self._places([group], failed)
        for error in failed.values():
            raise error
        (node_id,) = places
        topics: dict[str, list[Any]] = {}
        one = OffsetCommitRequest.OffsetCommitRequestTopic
        for (topic, partition), offset in sorted(offsets.items()):
            topics.setdefault(topic, []).append(
                one.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1,
                    committed_metadata=offset.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=[one(name=topic, partitions=partitions) for topic, partitions in topics.items()],
        )
        try:
            answer = await self._cluster.call(request, node_id=node_id, version=BY_NAME)
        except NetworkError:
            self._nodes.pop(group, None)
            raise
        codes = {(row.name, each.partition_index): each.error_code for row in answer.topics for each in row.partitions}
        if not NOT_READY.isdisjoint(codes.values()):
            self._nodes.pop(group, None)
        if codes.keys() != offsets.keys():
            raise ConnectionLost(f"{self._cluster.name}: OffsetCommit of {group}: not the partitions that were asked")
        return codes

    # -- asking --------------------------------------------------------------------------------------------------------

    async def _places(self, groups: Collection[str], failed: dict[str, NetworkError]) -> dict[int, list[str]]:
        """Returns node id of a coordinator -> its groups. The error of each group without one goes into ``failed``."""
        unknown = [name for name in groups if name not in self._nodes]
        if unknown:
            answers = await find_coordinators(self._cluster, GROUP, unknown)
            for name, found in zip(unknown, answers, strict=True):
                if isinstance(found, NetworkError):
                    failed[name] = found
                else:
                    self._cluster.nodes.setdefault(found.node_id, found)
                    self._nodes[name] = found.node_id
        places: dict[int, list[str]] = {}
        for name in groups:
            if name in self._nodes:
                places.setdefault(self._nodes[name], []).append(name)
        return places

    async def _committed(self, groups: Collection[str]) -> dict[str, Offsets | NetworkError]:
        failed: dict[str, NetworkError] = {}
        places = await self._places(groups, failed)
        parts = [
            (node_id, names[at : at + MOST_GROUPS])
            for node_id, names in places.items()
            for at in range(0, len(names), MOST_GROUPS)
        ]
        found: dict[str, Offsets | NetworkError] = dict(failed)
        for (_, names), each in zip(parts, await asyncio.gather(*(self._fetch(*part) for part in parts)), strict=True):
            found |= each
            for name in names:
                if isinstance(each[name], NetworkError):
                    self._nodes.pop(name, None)
        return found

    async def _fetch(self, node_id: int, groups: list[str]) -> dict[str, Offsets | NetworkError]:
        try:
            connection = await self._cluster.control(node_id)
            version = connection.version_of(OffsetFetchRequest.API_KEY, (2, BY_NAME), "OffsetFetch")
            if version < MANY_GROUPS_SINCE:
                return {group: await self._fetch_one(node_id, group) for group in groups}
            one = OffsetFetchRequest.OffsetFetchRequestGroup
            asked = [one(group_id=group, member_id=None, member_epoch=-1, topics=None) for group in groups]
            request = OffsetFetchRequest(groups=asked, require_stable=False)
            answer = await self._cluster.call(request, node_id=node_id, version=BY_NAME)
        except NetworkError as error:
            return dict.fromkeys(groups, error)
        rows = {row.group_id: row for row in answer.groups}
        lost = ConnectionLost(f"{self._cluster.name}: OffsetFetch: a group is missing in the answer")
        return {group: self._offsets_of(group, rows[group]) if group in rows else lost for group in groups}

    async def _fetch_one(self, node_id: int, group: str) -> Offsets | NetworkError:
        """As ``_fetch``, for a broker from before Kafka 3.0, which answers for one group at a time."""
        request = OffsetFetchRequest(group_id=group, topics=None, require_stable=False)
        return self._offsets_of(group, await self._cluster.call(request, node_id=node_id))

    def _offsets_of(self, group: str, row: Any) -> Offsets | NetworkError:
        if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        if row.error_code:
            return Refused(f"{self._cluster.name}: OffsetFetch of group {group}", row.error_code)
        return {
            (topic.name, each.partition_index): CommittedOffset(each.committed_offset, each.metadata or "")
            for topic in row.topics
            for each in topic.partitions
            if not each.error_code and each.committed_offset >= 0
        }


def _passes(found: object) -> bool:
    return isinstance(found, Refused) and found.code in NOT_READY
