"""Finds out which of the flow's partitions are assigned to no member of the flow's group, on any machine."""

from collections.abc import Collection
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import ConsumerProtocolAssignment

from mirror.net.cluster import Cluster
from mirror.net.errors import ConnectionLost
from mirror.relay.assignment import Key
from mirror.service.group.expel import coordinator_of
from mirror.wire.errors import ErrorCode

SETTLED = frozenset({"Stable", "Empty", "Dead"})
"""States of a group that is not rebalancing."""


class Holders(NamedTuple):
    """The state of a group, as its coordinator describes it."""

    members: int
    unassigned: int | None
    """Number of partitions that are not assigned to a worker of the flow; None: not known, because the group is
    rebalancing or was not found."""
    strangers: tuple[str, ...] = ()
    """Members that are not workers of the flow but have some of these partitions: client id and host."""


async def holders(cluster: Cluster, group_id: str, keys: Collection[Key], *, mark: str = "") -> Holders:
    """Asks the group's coordinator to which members these partitions are assigned. ``mark``: suffix of the client ids
    of the flow's own members.

    Raises:
        Refused: no coordinator can be found.
        NetworkError: the coordinator does not answer.
    """
    node_id = await coordinator_of(cluster, group_id)
    answer = await cluster.call(DescribeGroupsRequest(groups=[group_id]), node_id=node_id)
    (group,) = answer.groups
    # From v6 on, DescribeGroups answers GROUP_ID_NOT_FOUND for an unknown group. It has no members.
    if group.error_code not in (0, ErrorCode.GROUP_ID_NOT_FOUND) or group.group_state not in SETTLED:
        return Holders(len(group.members), None)
    held: set[Key] = set()
    strangers: list[str] = []
    try:
        for member in group.members:
            has = _held(member.member_assignment)
            if member.client_id.endswith(mark):
                held |= has
            elif not has.isdisjoint(keys):
                strangers.append(f"{member.client_id} at {member.client_host.removeprefix('/')}")
    except Exception as error:
        # kafka.protocol raises whatever exceptions its codecs run into.
        raise ConnectionLost(f"{cluster.name}: DescribeGroups of {group_id}: malformed assignment") from error
    return Holders(len(group.members), sum(key not in held for key in keys), tuple(sorted(strangers)))


def _held(assignment: Any) -> set[Key]:
    if not assignment:
        return set()
    found = ConsumerProtocolAssignment.decode(bytes(assignment))
    return {(one.topic, index) for one in found.assigned_partitions for index in one.partitions}
