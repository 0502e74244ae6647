"""Consumer groups, by the word of their coordinator at the source."""

from contextlib import suppress

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

from chaos.sides import Name, Side
from chaos.waiting import until

__all__ = ["committed", "forget", "members"]

_TIMEOUT_S = 10.0


def members(side: Side, group: str) -> dict[str, frozenset[Name]]:
    """Each member of a group, and the partitions that it was given; empty while the coordinator does not answer."""
    with suppress(KafkaException, TimeoutError):
        found = side.admin.describe_consumer_groups([group], request_timeout=_TIMEOUT_S)[group].result(_TIMEOUT_S)
        return {
            member.member_id: frozenset(
                (one.topic, one.partition) for one in (member.assignment.topic_partitions if member.assignment else ())
            )
            for member in found.members
        }
    return {}


def committed(side: Side, group: str) -> dict[Name, int]:
    """The offsets that a group has committed."""
    with suppress(KafkaException, TimeoutError):
        asked = [ConsumerGroupTopicPartitions(group)]
        (found,) = side.admin.list_consumer_group_offsets(asked, request_timeout=_TIMEOUT_S).values()
        return {
            (one.topic, one.partition): one.offset
            for one in found.result(_TIMEOUT_S).topic_partitions or []
            if one.offset >= 0
        }
    return {}


def forget(side: Side, group: str) -> None:
    """Delete a group; one whose last member has just left may still be in use for a moment.

    Raises:
        ChaosError: it is still there.
    """

    def gone() -> bool:
        for future in side.admin.delete_consumer_groups([group]).values():
            with suppress(KafkaException):
                future.result(_TIMEOUT_S)
        groups = side.admin.list_consumer_groups().result(_TIMEOUT_S).valid
        return group not in {one.group_id for one in groups}

    until(gone, f"group {group} to be deleted")
