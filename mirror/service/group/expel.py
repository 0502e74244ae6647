"""Removes a dead member from its group, so that its partitions need not wait for its session to end."""

from typing import Any

from kafka.protocol.consumer import LeaveGroupRequest

from mirror.net.cluster import Cluster
from mirror.net.coordinator import GROUP, find_coordinators
from mirror.net.errors import NetworkError, Refused
from mirror.net.rights import GROUP as RIGHT_TO_GROUP
from mirror.net.rights import READ, Right
from mirror.wire.errors import ErrorCode

SEVERAL_MEMBERS_SINCE = 3
"""The first version of LeaveGroup with a list of members."""


async def expel(cluster: Cluster, group_id: str, member_id: str) -> None:
    """Removes a member from the group (LeaveGroup) that cannot do it itself any more, because its process has died.

    Raises:
        Refused: the coordinator refuses. An unknown member is not an error: the group has already removed it.
        NetworkError: the coordinator cannot be found or does not answer.
    """
    node_id = await coordinator_of(cluster, group_id)
    member = LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=None, reason="worker died")
    connection = await cluster.control(node_id)
    speaks = connection.api_versions.get(LeaveGroupRequest.API_KEY)
    if speaks is not None and speaks.most < SEVERAL_MEMBERS_SINCE:
        request: Any = LeaveGroupRequest(group_id=group_id, member_id=member_id)
    else:
        request = LeaveGroupRequest(group_id=group_id, members=[member])
    answer = await cluster.call(request, node_id=node_id)
    if answer.error_code and answer.error_code != ErrorCode.UNKNOWN_MEMBER_ID:
        needs = Right(READ, RIGHT_TO_GROUP, group_id, cluster.name)
        raise Refused(f"{cluster.name}: LeaveGroup of {group_id}", answer.error_code, needs=needs)


async def coordinator_of(cluster: Cluster, group_id: str) -> int:
    """Returns the node id of the group's coordinator.

    Raises:
        Refused: there is no coordinator at present.
        NetworkError: no broker answers.
    """
    (found,) = await find_coordinators(cluster, GROUP, [group_id])
    if isinstance(found, NetworkError):
        raise found
    return found.node_id
