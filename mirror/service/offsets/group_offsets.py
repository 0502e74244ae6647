"""A consumer group's committed offsets and members at a cluster, by librdkafka's admin client.

``alias``: the cluster's name in the configuration.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.net.security.librdkafka import client_config
from mirror.service.config import ClusterSettings

_T = TypeVar("_T")

TIMEOUT_S = 30.0
BACKOFF_S = 0.2
SOON = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)
"""Errors that pass by themselves: a coordinator has just taken over the group, and still reads its state."""


class GroupError(Exception):
    """A cluster does not answer a question about a group, or refuses a commit; the message says what and why."""


def committed(settings: ClusterSettings, group: str, alias: str) -> list[TopicPartition]:
    """Returns all offsets that the group has committed; empty if there is no such group. Ask this before anything else
    about the group: it waits for the coordinator.

    Raises:
        GroupError: they cannot be read.
    """
    request = ConsumerGroupTopicPartitions(group)
    admin = _admin(settings)  # kept in a variable: the client's requests end with it
    try:
        _await_coordinator(settings, group)
        answer = asked(lambda: admin.list_consumer_group_offsets([request], request_timeout=TIMEOUT_S))
    except KafkaException as error:
        raise GroupError(f"cannot read the offsets of group {group} at {alias}: {error.args[0].str()}") from error
    return list(answer.topic_partitions)


def members(settings: ClusterSettings, group: str, alias: str) -> int:
    """Returns the number of the group's members: running consumers go on where they are, and commit over what is
    written.

    Raises:
        GroupError: the group cannot be described.
    """
    admin = _admin(settings)
    try:
        return len(asked(lambda: admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)).members)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return 0
        raise GroupError(f"cannot describe group {group} at {alias}: {error.args[0].str()}") from error


def commit(settings: ClusterSettings, group: str, alias: str, offsets: Iterable[TopicPartition]) -> None:
    """Commits these offsets for the group.

    Raises:
        GroupError: they were refused, or it is not certain that they were committed.
    """
    request = ConsumerGroupTopicPartitions(group, list(offsets))
    admin = _admin(settings)
    try:
        answer = asked(lambda: admin.alter_consumer_group_offsets([request], request_timeout=TIMEOUT_S))
    except KafkaException as error:
        raise GroupError(f"cannot commit for group {group} at {alias}: {error.args[0].str()}") from error
    for one in answer.topic_partitions:
        if one.error is not None:
            raise GroupError(f"cannot commit {one.topic}-{one.partition} for group {group}: {one.error.str()}")


def asked(ask: Callable[[], Mapping[str, Future[_T]]]) -> _T:
    """Returns the admin client's answer about one group; see ``patiently``.

    Raises:
        KafkaException: refused, or not answered in time.
    """
    return patiently(lambda: next(iter(ask().values())).result())


def patiently(attempt: Callable[[], _T]) -> _T:
    """Returns the result of ``attempt``. Retries for ``TIMEOUT_S`` while the coordinator is not ready (``SOON``).

    Raises:
        KafkaException: refused, or not answered in time.
    """
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return attempt()
        except KafkaException as error:
            if error.args[0].code() not in SOON or time.monotonic() >= until:
                raise
            time.sleep(BACKOFF_S)


def _await_coordinator(settings: ClusterSettings, group: str) -> None:
    """Waits until the group's coordinator answers. confluent-kafka 2.16.1 crashes (SIGSEGV) if its admin client is told
    that a coordinator still loads, as on a cluster that no group has used before; its consumer reports that instead.

    Raises:
        KafkaException: refused, or not answered in time.
    """
    consumer = Consumer({**_client(settings), "group.id": group, "enable.auto.commit": False})
    try:
        # Without a subscription the consumer does not join. The partition that it asks about does not matter.
        patiently(lambda: consumer.committed([TopicPartition("__consumer_offsets", 0)], timeout=TIMEOUT_S))
    finally:
        consumer.close()


def _admin(settings: ClusterSettings) -> AdminClient:
    return AdminClient(_client(settings))


def _client(settings: ClusterSettings) -> dict[str, Any]:
    return {
        "bootstrap.servers": settings.bootstrap_servers_text,
        "client.id": f"{settings.client_id}-offsets",
        **client_config(settings.security),
        "log_level": 0,
    }
