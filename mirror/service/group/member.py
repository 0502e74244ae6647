"""A worker's membership in the consumer group at the source: it gets partitions assigned, and commits their offsets.

It is a librdkafka consumer that fetches nothing: it pauses each assigned partition at once. It runs in a thread of its
own, so that a slow coordinator delays nothing else; the data plane is notified of changes through the event loop.
Revoked partitions are drained first (the group waits for that), lost partitions are dropped.

While the coordinator does not answer, copying of the assigned partitions goes on until the session has expired.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from mirror.net.security.options import PLAINTEXT, SecurityOptions
from mirror.relay.assignment import Committable, Key, read_committed
from mirror.relay.events import EventLog
from mirror.relay.partition.claim import Committed
from mirror.service.group.client import GroupClients, consumer_config
from mirror.service.group.rebalances import Rebalances
from mirror.service.worker_settings import GroupSettings

POLL_S = 0.1
"""Longest time until the thread notices a change of the topics, a commit or a stop."""
COMMITTED_TIMEOUT_S = 5.0
DRAIN_MARGIN_S = 5.0
LEAVE_TIMEOUT_S = 15.0
SEAT_TIMEOUT_S = 10.0
"""Longest time that a change of the topics waits until the client has joined again after it lost its seat; then a new
client is made."""

_NOT_ALLOWED = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the group {group}",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Read on the mirrored topics",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster's rights that its brokers ask for",
}
_EVERY_DAY = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})
"""Connection errors. They are not logged here: the data plane has connections of its own, and reports their
problems."""
_NEXT_TIME = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS})
"""Errors of a commit that came too late, after a rebalance: the partitions' next owner, or the next commit, commits
again."""


LOST = (
    "the group has taken the partitions away: it heard no heartbeat of this worker for a session timeout, or the "
    "topics have changed; nothing more of them is copied here, and the next owner goes on"
)
"""The explanation of lost partitions for the log (ConsumerRebalanceListener.onPartitionsLost)."""
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
"""Errors that mean: a topic was deleted, or was recreated with fewer partitions."""


REJOIN_S = 2.0
"""The pause before another try to make a client, if its certificates or secrets could not be read."""


class PutOut(Exception):
    """The group has removed this member for good: librdkafka does not join again after a fatal error."""

    def __init__(self, settings: GroupSettings, error: KafkaError) -> None:
        taken = (
            f"; somebody else has joined as {settings.instance_id}: two machines have the same group.instance.id, "
            "which must differ between them"
        )
        doubled = "group.instance.id" in error.str()  # recognised by the text: the code only says that it is fatal
        super().__init__(f"group {settings.group_id}: {error.str()}{taken if doubled else ''}")


class Copying(Protocol):
    """Copies the assigned partitions; called in the event loop's thread (``relay.assignment.Assignment``)."""

    def assign(self, keys: Iterable[Key], committed: Mapping[Key, Committed] | None = None) -> None:
        """Starts to copy these partitions."""

    def revoke(self, keys: Iterable[Key], timeout_s: float) -> Coroutine[Any, Any, dict[Key, Committable]]:
        """Drains these partitions, for up to ``timeout_s``, and stops copying them; they are not ours from the call on.
        Returns the positions to commit."""

    def lose(self, keys: Iterable[Key]) -> None:
        """Stops copying these partitions at once, without draining: another worker may have them already."""


class Membership:
    """One worker's membership. It is made in the event loop; every public method is called in that thread."""

    def __init__(
        self,
        copying: Copying,
        settings: GroupSettings,
        *,
        bootstrap: str,
        client_id: str,
        drain_timeout_ms: int,
        refresh_topics_interval_ms: int,
        log: EventLog,
        security: SecurityOptions = PLAINTEXT,
    ) -> None:
        self._copying = copying
        self._settings = settings
        self._drain_timeout_s = drain_timeout_ms / 1000
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        """The context in which the thread's callbacks run in the event loop: it tells their flow
        (``service.flows.run.CURRENT``)."""
        self._topics: frozenset[str] = frozenset()
        self._subscribed: frozenset[str] = frozenset()
        self._seated = False
        """True if this client has ever had a seat."""
        self._waits_since: float | None = None
        """Since when a change of the topics has waited for the client to join again (monotonic); None: none waits."""
        self._rebalances = Rebalances()
        self._positions: Mapping[Key, Committable] | None = None
        self._ending = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)
        config = consumer_config(
            settings,
            bootstrap=bootstrap,
            client_id=client_id,
            drain_timeout_ms=drain_timeout_ms,
            refresh_topics_interval_ms=refresh_topics_interval_ms,
        )
        config |= {"error_cb": self._on_error, "on_commit": self._on_commit}
        self._clients = GroupClients(config, security, self._trouble)
        self._owned: set[Key] = set()
        self._told: set[str] = set()
        self.committed: dict[Key, int] = {}
        """Offsets of assigned partitions that the coordinator has accepted from this member."""
        self.counters: dict[str, float] = {}
        """Counters: rebalances/assigned, /revoked, /lost; commits/ok, /failed."""
        self.joined = False
        """True if the group has given this member an assignment (which may be empty), and the seat was not lost
        since."""
        self.failed: BaseException | None = None
        """The exception that ended the thread unexpectedly, or ``PutOut``."""
        self.on_joined: Callable[[str], None] = lambda _: None
        """Called in the event loop with the member's id after each assignment."""
        self.on_unknown_topic: Callable[[], None] = lambda: None
        """Called in the event loop when the group's client finds that a topic is gone; the data plane reports it."""

    # -- for the event loop's thread ---------------------------------------------------------------------------------

    def start(self, topics: Iterable[str]) -> None:
        """Joins the group."""
        self._topics = frozenset(topics)
        self._thread.start()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Sets the topics that the flow has now."""
        self._topics = frozenset(topics)

    def commit(self, positions: Mapping[Key, Committable]) -> None:
        """Commits these positions soon; those of partitions that are not assigned, and those that are committed
        already, are left out."""
        self._positions = positions

    async def stop(self) -> None:
        """Commits, leaves the group and ends the thread. Waits at most ``LEAVE_TIMEOUT_S`` for the coordinator.

        It does not wait for batches that are still in flight: drain the partitions before.
        """
        self._ending.set()
        try:
            await asyncio.wait_for(self._ended.wait(), LEAVE_TIMEOUT_S)
        except TimeoutError:
            self._log.warning(
                "group_not_left",
                group=self._settings.group_id,
                detail=f"its coordinator did not answer within {LEAVE_TIMEOUT_S:.0f} s",
                remedy="none is needed: the group lets the member go when its session is over",
            )

    @property
    def ended(self) -> bool:
        """True once the thread has ended: the group's client is closed."""
        return self._ended.is_set()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._take_part()
        except Exception as error:
            self.failed = error
        finally:
            self._tell(self._ended.set)

    def _take_part(self) -> None:
        while not self._ending.is_set():
            consumer = self._clients.make()
            if consumer is None:
                self._ending.wait(REJOIN_S)
                continue
            self._subscribed, self._seated, self._waits_since = frozenset(), False, None
            self._rebalances = Rebalances()
            try:
                self._poll(consumer)
                if self._positions is not None:
                    self._commit(consumer, self._positions)
            finally:
                # Revokes the assigned partitions, which commits them, and leaves the group.
                consumer.close()
                self._tell(self._is_out)

    def _trouble(self, told: str) -> None:
        """Logs once why no client can be made."""
        if told not in self._told:
            self._told.add(told)
            fields = {
                "group": self._settings.group_id,
                "detail": told,
                "remedy": "see the source's ssl and sasl settings",
            }
            self._tell(lambda: self._log.warning("group_trouble", **fields))

    def _poll(self, consumer: Consumer) -> None:
        """Polls until the membership ends, or until a new client is needed: the topics, certificates or secrets have
        changed, or this client has left a rebalance unfinished."""
        while not self._ending.is_set():
            if self._clients.outdated():
                return
            if self._rebalances.unfinished:
                self._log_replaced(self._rebalances.unfinished)
                return
            if self._topics != self._subscribed and self._topics and not self._subscribe(consumer):
                return
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is not None:
                self._on_error(message.error())
            positions, self._positions = self._positions, None
            if positions:
                self._commit(consumer, positions)

    def _subscribe(self, consumer: Consumer) -> bool:
        """
        Subscribes to the present topics, unless the seat was lost: librdkafka 2.16 ends the process (an assertion) if
        the topics of a member change after it has lost its seat and before it has joined again. So the change waits for
        that, but not for long: a member whose topics are all gone does not join at all.

        Returns:
            True if this client can still be used.
        """
        if self._seated and not consumer.memberid():
            now = time.monotonic()
            self._waits_since = now if self._waits_since is None else self._waits_since
            return now - self._waits_since < SEAT_TIMEOUT_S
        self._waits_since = None
        if self._seated:
            self._rebalances.resubscribed()
        self._subscribed = self._topics
        consumer.subscribe(
            sorted(self._subscribed), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        return True

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments, context=self._context)

    def _await(
        self, begin: Callable[[], Coroutine[Any, Any, dict[Key, Committable]]], timeout_s: float
    ) -> dict[Key, Committable]:
        """Calls ``begin`` in the event loop, and awaits the coroutine that it returns. Returns the result, or an empty
        dict if it is not done within ``timeout_s``.

        ``begin`` is called in order with the calls of ``_tell``. If the event loop hangs for longer than
        ``timeout_s``, it makes all these calls later, in the same order: an earlier revocation must not take away
        partitions that were assigned after it.
        """
        future: Future[dict[Key, Committable]] = Future()

        def run() -> None:
            task = self._loop.create_task(begin())
            task.add_done_callback(partial(_hand_over, future))
            # If the thread does not wait any more, the task is cancelled after its first step.
            future.add_done_callback(lambda _: self._tell(task.cancel) if future.cancelled() else None)

        # A copy: the event loop may have entered the context itself at that moment.
        self._loop.call_soon_threadsafe(run, context=self._context.copy())
        try:
            return future.result(timeout_s)
        except (TimeoutError, FutureCancelled):
            future.cancel()
            return {}

    # -- rebalances, in the thread, inside poll() and close() --------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        keys = {(one.topic, one.partition) for one in partitions}
        self._rebalances.assigned(consumer.consumer_group_metadata())
        self._seated = True
        self._told.clear()
        self._count("rebalances/assigned")
        if partitions:
            # With an explicit offset, librdkafka does not look for one; nothing is ever fetched from there.
            consumer.incremental_assign([TopicPartition(topic, index, 0) for topic, index in sorted(keys)])
            consumer.pause(partitions)
        committed = self._committed_of(consumer, partitions)
        self._owned |= keys
        if keys:
            self._log_moves("assigned", keys)
            self._tell(self._copying.assign, keys, committed)
        self._tell(self._has_joined, consumer.memberid() or "")

    def _is_out(self) -> None:
        """Notes, in the event loop, that the session has expired, or that another member has the seat."""
        self.joined = False

    def _has_joined(self, member_id: str) -> None:
        """Notes, in the event loop, that the group has given this member an assignment."""
        self.joined = True
        self.on_joined(member_id)

    def _committed_of(self, consumer: Consumer, partitions: list[TopicPartition]) -> dict[Key, Committed]:
        """Returns the group's committed offsets of these partitions; empty if the coordinator does not answer soon."""
        if not partitions:
            return {}
        try:
            found = consumer.committed(partitions, timeout=COMMITTED_TIMEOUT_S)
        except KafkaException as error:
            self._on_error(error.args[0])
            return {}
        return {
            (one.topic, one.partition): read_committed(one.offset, one.metadata or "")
            for one in found
            if one.error is None and one.offset >= 0
        }

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        keys = {(one.topic, one.partition) for one in partitions}
        # With the new protocol (KIP-848), the member's epoch may change between a revocation and the assignment.
        follows = self._settings.protocol == "classic" and any(topic in self._subscribed for topic, _ in keys)
        self._rebalances.revoked(consumer.consumer_group_metadata(), follows=follows)
        self._count("rebalances/revoked")
        ending = self._ending.is_set()
        drain_s = 0.0 if ending else self._drain_timeout_s
        if keys:
            if not ending:
                self._log_moves("revoked", keys)
            done = self._await(partial(self._copying.revoke, keys, drain_s), drain_s + DRAIN_MARGIN_S)
            self._commit(consumer, done, wait=True)
            self._disown(keys)
            consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        keys = {(one.topic, one.partition) for one in partitions}
        self._rebalances.lost()
        self._count("rebalances/lost")
        self._tell(self._is_out)
        self._disown(keys)
        if keys:
            self._log_moves("partitions_lost", keys, detail=LOST)
            self._tell(self._copying.lose, keys)
            consumer.incremental_unassign(partitions)

    def _disown(self, keys: set[Key]) -> None:
        self._owned -= keys
        self.committed = {key: offset for key, offset in self.committed.items() if key not in keys}

    def _log_moves(self, event: str, keys: set[Key], **more: str) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(keys):
            topics.setdefault(topic, []).append(index)
        fields = {"group": self._settings.group_id, "count": len(keys), "assignment": topics, **more}
        self._tell(lambda: self._log.info(event, **fields))

    def _log_replaced(self, why: str) -> None:
        group = self._settings.group_id
        self._tell(lambda: self._log.info("group_client_replaced", group=group, detail=why))

    # -- commits -----------------------------------------------------------------------------------------------------

    def _commit(self, consumer: Consumer, positions: Mapping[Key, Committable], *, wait: bool = False) -> None:
        """Commits those positions that belong to assigned partitions and are not committed yet. ``wait``: True to wait
        for the coordinator's answer."""
        offsets = [
            # -1 is "no epoch"; None is refused with a TypeError.
            TopicPartition(*key, found.offset, found.metadata, leader_epoch=max(found.epoch, -1))
            for key, found in positions.items()
            if key in self._owned and self.committed.get(key) != found.offset
        ]
        if not offsets:
            return
        try:
            if wait:
                consumer.commit(offsets=offsets, asynchronous=False)
            else:
                consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._commit_failed(error.args[0])

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Handles the result of a commit; called inside poll(), close() or the commit itself."""
        refused = error or next((one.error for one in partitions if one.error is not None), None)
        if refused is not None:
            self._commit_failed(refused)
            return
        self._count("commits/ok")
        self._told.clear()
        taken = {(one.topic, one.partition): one.offset for one in partitions}
        self.committed = {**self.committed, **{key: at for key, at in taken.items() if key in self._owned}}

    def _commit_failed(self, error: KafkaError) -> None:
        self._count("commits/failed")
        if error.code() in _NEXT_TIME or error.code() == KafkaError._NO_OFFSET:
            return
        if not self._tell_not_allowed(error):
            self._warn("offsets_not_committed", error, "none is needed: copying does not depend on it")

    # -- errors ------------------------------------------------------------------------------------------------------

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _GONE:
            self._tell(lambda: self.on_unknown_topic())
            return
        if error.code() in _EVERY_DAY or self._ending.is_set() or self._tell_not_allowed(error):
            return
        if error.code() == KafkaError._FATAL:
            self.failed = PutOut(self._settings, error)
            return
        self._warn("group_trouble", error, "see the source's brokers; copying goes on with what is assigned")

    def _tell_not_allowed(self, error: KafkaError) -> bool:
        """Logs a missing right once, with its name. Returns False for any other error."""
        right = _NOT_ALLOWED.get(error.code())
        if right is None:
            return False
        if right not in self._told:
            self._told.add(right)
            right = right.format(group=self._settings.group_id)
            self._warn("not_authorized", error, f"grant {right} at the source")
        return True

    def _warn(self, event: str, error: KafkaError, remedy: str) -> None:
        detail = f"{error.name()}: {error.str()}"
        self._tell(lambda: self._log.warning(event, group=self._settings.group_id, detail=detail, remedy=remedy))

    def _count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1


def _hand_over(future: Future[dict[Key, Committable]], task: asyncio.Task[dict[Key, Committable]]) -> None:
    """Passes the result of the task to the thread that waits for it, if it still waits."""
    if not future.set_running_or_notify_cancel():
        return
    if task.cancelled():
        future.set_exception(FutureCancelled())
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())
