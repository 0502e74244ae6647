"""Consumer groups as their coordinators report them."""

from contextlib import suppress
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import ConsumerProtocolAssignment

from chaos.play.sides import Name, Side
from chaos.waiting import until
from chaos.witness.ask import ask

__all__ = ["committed", "forget", "has_member", "members"]

_TIMEOUT_S = 10.0
_SOON_S = 2.0
_DESCRIBE_VERSION = 1


def members(side: Side, group: str) -> dict[str, frozenset[Name]] | None:
    """Returns member id -> the member's assigned partitions; None if the coordinator does not answer. During a
    rebalance, no member has partitions."""
    found = _described(side, group)
    return None if found is None else {one.member_id: _assigned(one.member_assignment) for one in found.members}


def has_member(side: Side, group: str, client_id: str) -> bool | None:
    """Returns True if a client is a member of the group; None if the coordinator does not answer. ``client_id``: its
    client id, which must not be the beginning of another one."""
    found = members(side, group)
    return None if found is None else any(one.startswith(client_id) for one in found)


def _described(side: Side, group: str) -> Any:
    """Returns the coordinator's description of a group; None if no broker answers as its coordinator.

    librdkafka is not used. Its requests to a coordinator crash the process if a connection breaks at the wrong moment
    (librdkafka issue 4605), and once one stayed without an answer for 150 s while a member's heartbeats were answered.
    """
    for broker in side.awake:
        with suppress(OSError):
            (found,) = ask(
                broker.address, DescribeGroupsRequest(groups=[group]), _DESCRIBE_VERSION, timeout_s=_SOON_S
            ).groups
            if not found.error_code:  # other brokers answer that they are not its coordinator
                return found
    return None


def _assigned(assignment: bytes) -> frozenset[Name]:
    """Returns the partitions of a member. ``assignment``: an encoded ``ConsumerProtocolAssignment``, which is empty
    until the group's leader has sent the assignments."""
    if not assignment:
        return frozenset()
    topics = ConsumerProtocolAssignment.decode(assignment).assigned_partitions
    return frozenset((one.topic, index) for one in topics for index in one.partitions)


def committed(side: Side, group: str) -> dict[Name, int] | None:
    """Returns partition -> the offset that a group has committed; None if the coordinator does not answer."""
    with suppress(KafkaException, TimeoutError):
        asked = [ConsumerGroupTopicPartitions(group)]
        (found,) = side.admin.list_consumer_group_offsets(asked, request_timeout=_TIMEOUT_S).values()
        return {
            (one.topic, one.partition): one.offset
            for one in found.result(_TIMEOUT_S).topic_partitions or []
            if one.offset >= 0
        }
    return None


def forget(side: Side, group: str) -> None:
    """Deletes a group. Repeats the request, since a group whose last member has just left may still be in use.

    Raises:
        ChaosError: the group still exists when the timeout has expired.
    """

    def gone() -> bool:
        with suppress(KafkaException, TimeoutError):
            for future in side.admin.delete_consumer_groups([group], request_timeout=_TIMEOUT_S).values():
                with suppress(KafkaException, TimeoutError):
                    future.result(_TIMEOUT_S)
            groups = side.admin.list_consumer_groups(request_timeout=_TIMEOUT_S).result(_TIMEOUT_S).valid
            return group not in {one.group_id for one in groups}
        return False

    until(gone, f"group {group} to be deleted")
