"""One flow in a worker process: it copies the partitions that the group assigns to it, and reports to the supervisor.

A process may have several flows. They share its event loop and nothing else: each has its own connections, its own seat
in its group and its own ``buffer.memory``. So a flow that waits, fails or ends holds up no other one.

If something keeps the flow from starting that may heal (a cluster that cannot be reached, a pattern that matches
nothing yet, a missing right), it reports that and tries again.

Shutdown order, here and nowhere else: stop fetching -> drain what is in flight (``drain.timeout.ms``) -> commit and
leave the group -> close.
"""

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Unsupported
from mirror.net.options import ClusterOptions
from mirror.net.security.librdkafka import servers
from mirror.relay.assignment import Committable, Key
from mirror.relay.relay import NothingToMirror, Relay, SameCluster
from mirror.relay.watch.tracing import Told, Tracer
from mirror.service import channel as say
from mirror.service.channel import Channel, ChannelLog, FlowChannel, Message
from mirror.service.flows.collector import settle, sweep
from mirror.service.group.expel import expel
from mirror.service.group.member import Membership, PutOut
from mirror.service.group.overdue import Overdue
from mirror.service.resume.resuming import flow_keys, resume
from mirror.service.sync.keeper import SyncKeeper
from mirror.service.telemetry.snapshot import Snapshots
from mirror.service.telemetry.usage.gc_stats import Pauses
from mirror.service.telemetry.watching import Watching
from mirror.service.worker_settings import Handover

JOIN_SESSIONS = 3
JOIN_MARGIN_S = 60.0
WATCH_S = 0.5
MOST_WATCH_S = 4 * WATCH_S
"""Most seconds that one look adds to the time without a seat: after a longer gap, the process itself was stopped."""

STARTING = "the worker is still starting; try again"
FINAL = (SameCluster, Unsupported)
"""Errors that no wait heals: the configuration, or the brokers' version, has to change."""

CURRENT: ContextVar["FlowRun | None"] = ContextVar("flow", default=None)
"""The flow whose code runs. Callbacks of the event loop inherit it from the code that asked for them."""


class NotJoined(Exception):
    """The consumer group has given this worker no assignment for too long."""


class Member(Protocol):
    """A seat in the group (``service.group.member.Membership``)."""

    committed: dict[Key, int]
    counters: dict[str, float]
    joined: bool
    failed: BaseException | None
    on_joined: Callable[[str], None]
    on_unknown_topic: Callable[[], None]

    @property
    def ended(self) -> bool:
        """True once nothing of it is left."""

    def start(self, topics: Any) -> None:
        """Joins the group."""

    def subscribe(self, topics: Any) -> None:
        """Subscribes to these topics instead."""

    def commit(self, positions: Any) -> None:
        """Commits these positions soon."""

    async def stop(self) -> None:
        """Leaves the group."""


Join = Callable[[Relay, Handover, ChannelLog], Member]


def join_group(relay: Relay, handover: Handover, log: ChannelLog) -> Member:
    """Returns the worker's seat in the group, not joined yet."""
    assert relay.assignment is not None
    return Membership(
        relay.assignment,
        handover.group,
        bootstrap=servers(handover.source),
        security=handover.source.connection.security,
        client_id=handover.source.connection.client_id,
        drain_timeout_ms=handover.relay.drain_timeout_ms,
        refresh_topics_interval_ms=handover.relay.refresh_topics_interval_ms,
        log=log,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFailure:
    """The reason why a flow cannot go on.

    Attributes:
        reason: a stable name.
        detail: what happened.
        final: True if no wait heals it.
        exception: the trace of a bug; else empty.
        stuck: True if its seat in the group could not be given up, so that only the end of the process frees it.
    """

    reason: str
    detail: str
    final: bool = False
    exception: str = ""
    stuck: bool = False


class FlowRun:
    """One flow in this process, over all its attempts."""

    def __init__(
        self,
        handover: Handover,
        channel: Channel,
        *,
        join: Join,
        pauses: Pauses,
        stints: Iterator[int],
        is_alone: Callable[[], bool],
    ) -> None:
        """``stints``: numbers that no flow of this process has used. ``is_alone``: tells whether this is the only flow
        of the process."""
        self.handover = handover
        self._channel = FlowChannel(channel, handover.flow)
        self._log = ChannelLog(self._channel)
        self._join = join
        self._pauses = pauses
        self._stints = stints
        self._is_alone = is_alone
        self._stop = asyncio.Event()
        self._may_join = asyncio.Event()
        self._tracer = Tracer(self._traced)
        self._dialled: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._renew()

    def _renew(self) -> None:
        """Sets what belongs to one attempt."""
        self.ready_at: float | None = None
        """When it had started: both clusters were reached, and there is something to copy."""
        self._bug: BaseException | None = None
        self._running: asyncio.Task[Any] | None = None
        self._relay: Relay | None = None
        self._source: Cluster | None = None
        self._member: Member | None = None
        self._sync: SyncKeeper | None = None
        self._watching = Watching()
        self._snapshots = Snapshots(self._pauses, self._stints)
        self._drained = True
        self._pending = 0

    # -- life --------------------------------------------------------------------------------------------------------

    async def attempt(self) -> FlowFailure | None:
        """Runs the flow. Returns None once it has stopped as told, or why it cannot go on."""
        CURRENT.set(self)
        self._running = asyncio.current_task()
        self._spawn(self._breathe(self.handover.snapshot_interval_ms))
        try:
            if self._stop.is_set():
                raise asyncio.CancelledError
            await self._run()
            return None
        except (NetworkError, SameCluster, NothingToMirror, NotJoined, PutOut) as error:
            return FlowFailure(
                reason=type(error).__name__, detail=str(error), final=isinstance(error, FINAL), stuck=self._is_stuck
            )
        except asyncio.CancelledError:
            if not self._stop.is_set():
                raise
            return None  # told to stop before anything was copied: there is nothing to drain
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            return FlowFailure(reason="bug", detail=detail, exception=traceback.format_exc(), stuck=self._is_stuck)
        finally:
            self._running = None
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def pause(self, seconds: float) -> bool:
        """Waits before another attempt, which may follow then. Returns False, at once, if it is told to stop."""
        if self._stop.is_set():
            return False  # what was left undone when it failed is still to be told: see ``stopped``
        self._renew()
        self._may_join.clear()
        asyncio.get_running_loop().call_soon(sweep)
        self._spawn(self._breathe(self.handover.snapshot_interval_ms))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
        for task in self._tasks:
            task.cancel()
        return not self._stop.is_set()

    def stopped(self) -> None:
        """Reports that it has stopped as told, and that nothing of it is left: it may be handed over anew."""
        self._channel.send(say.STOPPED, drained=self._drained, pending=self._pending)
        # Timers that were cancelled stay in the event loop until they would have come, for hours, with the context in
        # which they were set, and so with this object (``CURRENT``). It must not hold the relay.
        self._renew()

    def tell(self, failed: FlowFailure, *, again_s: float | None) -> None:
        """Reports a failure. ``again_s``: seconds until the next attempt in this process; None: the process ends."""
        more = {"exception": failed.exception} if failed.exception else {}
        again = {"again_s": again_s} if again_s is not None else {}
        self._channel.send(
            say.FAILED, reason=failed.reason, detail=failed.detail, final=failed.final, **more, **again
        )  # fmt: skip

    async def _run(self) -> None:
        """Tries until it has started, and then copies until it is told to stop.

        Raises:
            SameCluster, Unsupported: it cannot start, and no wait heals that.
            NetworkError, NotJoined, PutOut: it had started, and cannot go on.
        """
        options = self.handover.source
        backoff = Backoff(least_ms=options.backoff_ms, most_ms=options.backoff_max_ms)
        while True:
            try:
                await self._start_and_copy()
                return
            except FINAL:
                raise
            except (NetworkError, NothingToMirror) as error:
                if self.ready_at is not None:
                    raise
                self._channel.send(say.WAITING, reason=type(error).__name__, detail=str(error))
            await asyncio.sleep(backoff.next_s())

    async def _start_and_copy(self) -> None:
        async with self._both() as (source, destination):
            relay = self._relay = Relay(
                source, destination, self.handover.relay, self._log, assigned=True, tracer=self._tracer
            )
            try:
                await relay.start()
                self._source = source
                settle()
                self.ready_at = asyncio.get_running_loop().time()
                self._channel.send(
                    say.READY,
                    partitions=len(relay.keys),
                    source_id=source.cluster_id,
                    destination_id=destination.cluster_id,
                )
                await self._copy(relay)
            finally:
                await relay.close()

    async def _open(self, name: str, options: ClusterOptions, opened: list[Cluster]) -> Cluster:
        """Opens a cluster, and adds it to those that were opened."""
        if name not in self._dialled:
            self._dialled.add(name)
            self._log.info("connecting", cluster=name, bootstrap_servers=options.bootstrap_servers)
        try:
            cluster = await Cluster.open(
                name,
                options,
                errors=self._watching.errors_of(name),
                durations=self._watching.durations_of(name),
                asked=self._watching.asked,
                unreached=self._watching.unreached,
            )
        except NetworkError:
            self._watching.reached(name, None)
            raise
        opened.append(cluster)
        self._watching.reached(name, cluster)
        return cluster

    @asynccontextmanager
    async def _both(self) -> AsyncIterator[tuple[Cluster, Cluster]]:
        """Opens source and destination at the same time: if one of them is away, that says nothing about the other."""
        here, _, there = self.handover.flow.partition("->")
        opened: list[Cluster] = []
        try:
            # Cancelled while one of them connects, this has no result: what was opened is closed all the same.
            found = await asyncio.gather(
                self._open(here, self.handover.source, opened),
                self._open(there, self.handover.destination, opened),
                return_exceptions=True,
            )
            for each in found:
                if isinstance(each, BaseException):
                    raise each
            source, destination = found
            assert isinstance(source, Cluster)
            assert isinstance(destination, Cluster)
            yield source, destination
        finally:
            self._watching.close()
            for cluster in opened:
                await cluster.close()

    async def _copy(self, relay: Relay) -> None:
        """Joins the group, copies the partitions that it assigns, and leaves it."""
        await self._may_join.wait()
        # From here on, a stop drains and does not cancel.
        self._running = None
        handover = self.handover
        self._member = member = self._join(relay, handover, self._log)
        member.on_joined = lambda member_id: self._channel.send(say.JOINED, member=member_id)
        member.on_unknown_topic = relay.look_now
        telling = self._spawn(self._tell(relay, member, handover.snapshot_interval_ms))
        member.start(relay.pairs)
        self._sync = SyncKeeper(handover, self._log)
        self._spawn(self._sync.keep(relay))
        self._spawn(self._watching.ask_group(relay, relay.source, handover.group, self._log))
        try:
            await self._watch(relay, member, handover.group.commit_interval_ms / 1000)
            drained, pending = await relay.drain(), relay.pending
            positions: dict[Key, Committable] = relay.committable()
            member.commit(positions)
            # The last report on the partitions: once the group is left, nobody here has them.
            telling.cancel()
            self._send_snapshot(relay, member)
            await member.stop()
            self._drained, self._pending = drained, pending
        except Exception:
            self._drained, self._pending = not relay.pending, relay.pending
            if not self._is_alone():
                # The process goes on with its other flows: without this, the group would wait for this member, whose
                # thread goes on sending heartbeats. If the process ends, another worker has the member leave.
                await member.stop()
            raise
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    @property
    def _is_stuck(self) -> bool:
        return self._member is not None and not self._member.ended and not self._is_alone()

    async def _watch(self, relay: Relay, member: Member, commit_interval_s: float) -> None:
        """Waits until the flow is told to stop. Until then, commits regularly and raises what has failed."""
        loop = asyncio.get_running_loop()
        commit_at = loop.time() + commit_interval_s
        unseated = Overdue(loop.time, most_step_s=MOST_WATCH_S)
        assert relay.tasks.failed is not None
        while not self._stop.is_set():
            for failed in (self._bug, member.failed):
                if failed is not None:
                    raise failed
            if relay.tasks.failed.done():
                relay.tasks.failed.result()
            # While the source is away nobody gets a seat, and a new process would get none either.
            could_join = bool(self._watching.clusters.get(relay.source.name))
            if unseated.look(missing=could_join and not member.joined) >= self._join_patience_s():
                raise NotJoined(
                    f"the consumer group gave this worker no assignment, not even an empty one, for "
                    f"{self._join_patience_s():.0f} s; it is started again"
                )
            member.subscribe(relay.pairs)
            if loop.time() >= commit_at:
                commit_at = loop.time() + commit_interval_s
                member.commit(relay.committable())
            if self._tracer.on:
                self._tracer.committed(member.committed)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(WATCH_S, commit_interval_s))

    def _join_patience_s(self) -> float:
        """Returns the seconds to wait for an assignment: longer than the other members take to drain and to join again.
        After that, this worker's own connection or library hangs, and a new client has new ones."""
        group = self.handover.group
        return (self.handover.relay.drain_timeout_ms + JOIN_SESSIONS * group.session_timeout_ms) / 1000 + JOIN_MARGIN_S

    # -- reports -----------------------------------------------------------------------------------------------------

    async def _breathe(self, interval_ms: int) -> None:
        """Until there are snapshots, tells the supervisor that the event loop runs."""
        while self._member is None:
            watching = self._watching
            self._channel.send(
                say.ALIVE,
                clusters=watching.clusters,
                counters=watching.counters,
                silent=watching.silent,
                unreached=watching.unreached.now,
                unmatched=self._relay.refresh.unmatched if self._relay is not None else None,
            )
            await asyncio.sleep(interval_ms / 1000)

    async def _tell(self, relay: Relay, member: Member, interval_ms: int) -> None:
        while True:
            if not self._channel.full:  # if it is, the next one has what has changed since the last one
                self._send_snapshot(relay, member)
            await asyncio.sleep(interval_ms / 1000)

    def _send_snapshot(self, relay: Relay, member: Member) -> None:
        snapshot = self._snapshots.take(relay, member.committed, joined=int(member.joined))
        snapshot["counters"] |= member.counters | self._watching.counters
        snapshot["counters"]["dropped_messages"] = self._channel.dropped
        if self._sync is not None:
            snapshot["counters"] |= self._sync.counters
            snapshot["gauges"] |= self._sync.gauges
        snapshot["clusters"] = self._watching.clusters
        snapshot["unassigned"] = self._watching.unassigned
        snapshot["silent"] = self._watching.silent
        snapshot["unreached"] = self._watching.unreached.now
        self._channel.send(say.SNAPSHOT, **snapshot)

    # -- commands ----------------------------------------------------------------------------------------------------

    def obey(self, message: Message) -> None:
        """Obeys one of the supervisor's messages about this flow."""
        match message["kind"]:
            case say.JOIN:
                self._may_join.set()
            case say.KEYS:
                self._channel.send(say.REPLY, id=message["id"], keys=flow_keys(self._relay))
            case say.RESUME:
                self._spawn(self._resume(message))
            case say.PAUSE:
                self._spawn(self._pause(message))
            case say.LIMIT:
                self._limit(int(message["of_flow"]), message["of_topics"])
            case say.TRACE:
                self._trace((str(message["topic"]), int(message["partition"])), float(message["for_s"]))
            case say.EXPEL:
                self._spawn(self._expel(str(message["member"])))

    def _limit(self, flow: int, topics: Mapping[str, int]) -> None:
        """Copies on within other limits; the next attempt has them as well."""
        self.handover = self.handover.limited(flow, topics)
        if self._relay is not None:
            self._relay.limit(flow, self.handover.relay.topic_rate)

    def _trace(self, key: Key, for_s: float) -> None:
        """Follows a partition, here or when it comes here; over all attempts."""
        partition = self._relay.partitions.get(key) if self._relay is not None else None
        self._tracer.follow(key, for_s, partition)

    def _traced(self, key: Key, told: Told) -> None:
        self._channel.send(say.TRACED, topic=key[0], partition=key[1], steps=told.steps, missed=told.missed)

    def stop(self) -> None:
        """Drains and ends; ends at once if copying has not begun."""
        self._stop.set()
        if self._running is not None:
            self._running.cancel()
            self._running = None  # only once: what is being closed is not cancelled

    def broken(self, error: BaseException) -> None:
        """Keeps an exception from a callback, which nobody awaits. It is a bug, and what it interrupted hangs:
        ``_watch`` raises it."""
        self._bug = self._bug or error

    async def _resume(self, message: Message) -> None:
        """Resumes halted partitions at an operator's request, and replies with the outcomes, as far as known soon."""
        keys = _keys(message)
        why_not = dict.fromkeys(keys, STARTING)
        if self._relay is not None and self._member is not None:
            try:
                why_not = await resume(self._relay, keys, message["accept"], remade=message["remade"])
            except NetworkError as error:
                why_not = dict.fromkeys(keys, str(error))
        self._reply(message, why_not)

    async def _pause(self, message: Message) -> None:
        """Pauses partitions at an operator's request, and replies with the outcomes, as far as known soon."""
        keys = _keys(message)
        why_not = dict.fromkeys(keys, STARTING)
        if self._relay is not None and self._member is not None:
            why_not = await self._relay.pause_all(keys)
        self._reply(message, why_not)

    def _reply(self, message: Message, why_not: Mapping[Key, str]) -> None:
        self._channel.send(say.REPLY, id=message["id"], outcomes=[(*key, why) for key, why in why_not.items()])

    async def _expel(self, member: str) -> None:
        """Has a dead worker of this machine leave the group, which then need not wait for its session to end."""
        group = self.handover.group
        if self._source is None or group.protocol != "classic":
            return
        try:
            await expel(self._source, group.group_id, member)
        except NetworkError as error:
            self._log.info("member_not_expelled", member=member, detail=str(error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Starts a task that ends with the attempt. What it raises is the flow's failure."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken(error)


def _keys(message: Message) -> list[Key]:
    return [(str(topic), int(partition)) for topic, partition in message["keys"]]
