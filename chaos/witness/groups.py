"""Consumer groups, as their coordinator reports them."""

from contextlib import suppress

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from kafka.protocol.admin import DescribeGroupsRequest

from chaos.play.sides import Name, Side
from chaos.waiting import until
from chaos.witness.ask import ask

__all__ = ["committed", "forget", "member_ids", "members"]

_TIMEOUT_S = 10.0
_SOON_S = 2.0
_DESCRIBE_VERSION = 1


def members(side: Side, group: str) -> dict[str, frozenset[Name]] | None:
    """Returns a group's members, each with its assigned partitions; None while the coordinator does not answer."""
    with suppress(KafkaException, TimeoutError):
        found = side.admin.describe_consumer_groups([group], request_timeout=_TIMEOUT_S)[group].result(_TIMEOUT_S)
        return {
            member.member_id: frozenset(
                (one.topic, one.partition) for one in (member.assignment.topic_partitions if member.assignment else ())
            )
            for member in found.members
        }
    return None


def member_ids(side: Side, group: str) -> frozenset[str] | None:
    """Returns the ids of a group's members; None while the coordinator does not answer.

    Use it while brokers come and go: librdkafka's requests to a coordinator crash the process when a connection breaks
    at the wrong moment (librdkafka's issue 4605).
    """
    for broker in side.awake:
        with suppress(OSError):
            (found,) = ask(
                broker.address, DescribeGroupsRequest(groups=[group]), _DESCRIBE_VERSION, timeout_s=_SOON_S
            ).groups
            if not found.error_code:  # other brokers answer that they do not coordinate it
                return frozenset(one.member_id for one in found.members)
    return None


def committed(side: Side, group: str) -> dict[Name, int] | None:
    """Returns the offsets that a group has committed; None if the coordinator does not answer."""
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
    """Delete a group; repeats the request, since a group whose last member has just left may still be in use.

    Raises:
        ChaosError: it is still there.
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
