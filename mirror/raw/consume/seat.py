"""A raw consumer's membership in its group: a librdkafka consumer that fetches nothing, like that of the mirror itself
(``service.group.member``).

Unlike the mirror's, it has no thread of its own: rebalances happen inside ``poll`` and ``close``, in the program's
thread, and a program that does not poll for ``max.poll.interval.ms`` loses its partitions (KIP-62). Between polls,
librdkafka sends the heartbeats.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from mirror.net.errors import AuthenticationFailed
from mirror.net.options import ClusterOptions
from mirror.net.security.librdkafka import client_config, servers
from mirror.raw.errors import (
    BrokerError,
    CommitFailed,
    GroupFailed,
    InvalidConfig,
    NotAuthenticated,
    NotAuthorized,
    RawError,
    Unavailable,
    UnknownTopic,
)
from mirror.raw.model import TopicPartition
from mirror.raw.settings import ConsumerSettings
from mirror.service.group.client import consumer_config, silent_logger
from mirror.service.worker_settings import GroupSettings

Callback = Callable[[list[TopicPartition]], None]
REFRESH_TOPICS_MS = 60_000
"""How often the group looks for new topics that match a pattern."""

_NOT_ALLOWED = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the group {group}",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Read and Describe on the topics",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster's rights that its brokers ask for",
}
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_OVERTAKEN = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._ASSIGNMENT_LOST,
    }
)
"""Errors of a commit that came too late: a rebalance was faster."""


class GroupSeat:
    """See the module's docstring. A seat that subscribes to nothing only looks up and commits offsets.

    Args:
        settings: settings of the consumer.
        options: how to reach the cluster.
        on_assign, on_revoke, on_lost: called inside ``poll`` and ``close``, which raise the exceptions of these
            callbacks.

    Raises:
        InvalidConfig: librdkafka refuses the settings.
        NotAuthenticated: a secret cannot be read.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        options: ClusterOptions,
        *,
        on_assign: Callback,
        on_revoke: Callback,
        on_lost: Callback,
    ) -> None:
        self._settings = settings
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost
        self._failure: BaseException | None = None
        self._closing = False
        try:
            config = {**_config(settings, options), **client_config(settings.security), "error_cb": self._on_error}
            self._client = Consumer(config, logger=silent_logger())
        except AuthenticationFailed as error:
            raise NotAuthenticated(str(error)) from error
        except KafkaException as error:
            raise InvalidConfig(f"group.id: {error.args[0].str()}; see the keys of docs/RAW.md") from error

    def subscribe(self, topics: Iterable[str]) -> None:
        """Joins the group for these topics; a name that begins with ``^`` is a regular expression."""
        self._client.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._were_lost)

    def poll(self, timeout_s: float) -> None:
        """Handles events of the group, such as rebalances, for up to ``timeout_s``.

        Raises:
            RawError: a right is missing, a topic does not exist, or the seat is lost for good.
            Exception: as raised by a callback.
        """
        message = self._client.poll(timeout_s)
        if message is not None and message.error() is not None:
            self._on_error(message.error())
        self._raise()

    def close(self) -> None:
        """Gives up the partitions, which calls ``on_revoke``, and leaves the group. Raises the exception of
        ``on_revoke``, if there was one."""
        self._closing, self._failure = True, None
        self._client.close()
        self._raise()

    def _raise(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # -- offsets -----------------------------------------------------------------------------------------------------

    def committed(self, partitions: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        """Returns the group's committed offsets; partitions without one are left out.

        Raises:
            Unavailable: the coordinator did not answer in time.
            NotAuthorized: a right is missing.
        """
        try:
            found = self._client.committed([Place(*at) for at in partitions], timeout=timeout_s)
        except KafkaException as error:
            raise self._told(error.args[0], "the group's offsets") from error
        for one in found:
            if one.error is not None:
                raise self._told(one.error, f"the group's offset of {one.topic}-{one.partition}")
        return {TopicPartition(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    def commit(self, offsets: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Commits these offsets, each with the leader epoch of the batch before it (-1: not known), and waits until the
        coordinator has them.

        Raises:
            CommitFailed: the coordinator refuses the offsets.
            NotAuthorized: a right is missing.
        """
        wanted = [Place(*at, offset, leader_epoch=epoch) for at, (offset, epoch) in offsets.items()]
        try:
            done = self._client.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            raise self._not_committed(error.args[0]) from error
        for one in done or ():
            if one.error is not None:
                raise self._not_committed(one.error)

    def _not_committed(self, error: KafkaError) -> RawError:
        told = self._told(error, "commit")
        if isinstance(told, NotAuthorized):
            return told
        if error.code() in _OVERTAKEN:
            return CommitFailed(
                f"group {self._settings.group_id}: {error.name()}: another member has the partitions meanwhile, and "
                "reads on from the last committed offsets; go on with poll(), and commit in on_revoke"
            )
        return CommitFailed(f"{told}; commit() again")

    # -- rebalances, inside of poll() and close() --------------------------------------------------------------------

    def _assigned(self, client: Consumer, places: list[Place]) -> None:
        if places:
            # With an explicit offset, librdkafka does not look for one; nothing is ever fetched from there.
            client.incremental_assign([Place(one.topic, one.partition, 0) for one in places])
            client.pause(places)
        self._call(self._on_assign, places)

    def _revoked(self, client: Consumer, places: list[Place]) -> None:
        self._call(self._on_revoke, places)
        if places:
            client.incremental_unassign(places)

    def _were_lost(self, client: Consumer, places: list[Place]) -> None:
        self._call(self._on_lost, places)
        if places:
            client.incremental_unassign(places)

    def _call(self, callback: Callback, places: list[Place]) -> None:
        try:
            callback([TopicPartition(one.topic, one.partition) for one in places])
        except BaseException as error:  # raised later by poll() or close(), not through librdkafka's C code
            self._failure = self._failure or error

    # -- errors ------------------------------------------------------------------------------------------------------

    def _on_error(self, error: KafkaError) -> None:
        """Keeps an error that ``poll`` has to raise. Other errors are temporary, or fetches meet them as well."""
        code = error.code()
        if self._closing:
            return
        if code == KafkaError._FATAL or error.fatal():
            told: RawError = GroupFailed(
                f"group {self._settings.group_id}: {error.str()}; the seat is lost: check that no other process has "
                "this group.instance.id, and subscribe() again"
            )
        elif code in _NOT_ALLOWED or code in _UNKNOWN:
            told = self._told(error, "join")
        else:
            return
        self._failure = self._failure or told

    def _told(self, error: KafkaError, what: str) -> BrokerError:
        code = max(error.code(), 0)
        group = self._settings.group_id
        right = _NOT_ALLOWED.get(error.code())
        if right is not None:
            return NotAuthorized(f"{error.name()}: grant the principal {right.format(group=group)}", code)
        if error.code() in _UNKNOWN:
            return UnknownTopic(f"{error.str()}; create the topic, or subscribe() to others", code)
        return Unavailable(f"group {group}: {what}: {error.name()}: {error.str()}", code)


def _config(settings: ConsumerSettings, options: ClusterOptions) -> dict[str, Any]:
    """Returns librdkafka's settings, except those for TLS and SASL."""
    group = GroupSettings(
        group_id=settings.group_id,
        protocol=settings.group_protocol,
        instance_id=settings.group_instance_id,
        session_timeout_ms=settings.session_timeout_ms,
    )
    config = consumer_config(
        group,
        bootstrap=servers(options),
        client_id=settings.client_id,
        drain_timeout_ms=0,
        refresh_topics_interval_ms=REFRESH_TOPICS_MS,
    )
    # The group's client id has a mark that only the mirror's own members must have.
    return {**config, "client.id": settings.client_id, "max.poll.interval.ms": settings.max_poll_interval_ms}
