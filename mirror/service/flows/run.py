"""One flow in a worker process: it copies the partitions that the group assigns to it, and reports to the supervisor.

A process may have several flows. They share its event loop and nothing else: each has its own connections, its own
group membership and its own ``buffer.memory``. So a flow that waits, fails or ends does not affect the others.

If the flow cannot start for a reason that may pass (a cluster that cannot be reached, a pattern that matches nothing
yet, a missing right), it reports this and tries again.

Shutdown has this order, in ``FlowRun._copy``: ``Relay.drain`` stops fetching, waits for what was fetched
(``drain.timeout.ms``) and writes to the internal topic; then commit, the last report, leave the group. Then the relay
(``_start_and_copy``) and the clusters (``_both``) are closed.
"""

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Unsupported
from mirror.net.options import ClusterOptions
from mirror.net.security.librdkafka import servers
from mirror.relay.assignment import Committable, Key
from mirror.relay.relay import NothingToMirror, Relay, SameCluster
from mirror.relay.watch.tracing import Told, Tracer
from mirror.service import channel as say
from mirror.service.channel import Channel, ChannelLog, FlowChannel
from mirror.service.flows.attempt import Attempt, Member
from mirror.service.flows.collector import settle, sweep
from mirror.service.flows.telling import breathe, keep_telling, send_snapshot
from mirror.service.group.member import Membership, PutOut
from mirror.service.group.overdue import Overdue
from mirror.service.sync.keeper import SyncKeeper
from mirror.service.telemetry.snapshot import Snapshots
from mirror.service.telemetry.usage.gc_stats import Pauses
from mirror.service.worker_settings import Handover

JOIN_SESSIONS = 3
JOIN_MARGIN_S = 60.0
WATCH_S = 0.5
MOST_WATCH_S = 4 * WATCH_S
"""Most seconds that one look adds to the time without an assignment: in a longer gap, the process itself was
stopped."""

FINAL = (SameCluster, Unsupported)
"""Errors for which waiting does not help: the configuration, or the brokers' version, has to change."""

CURRENT: ContextVar["FlowRun | None"] = ContextVar("flow", default=None)
"""The flow whose code is running. Callbacks of the event loop inherit it from the code that scheduled them."""


class NotJoined(Exception):
    """The consumer group has given this worker no assignment for too long."""


Join = Callable[[Relay, Handover, ChannelLog], Member]


def join_group(relay: Relay, handover: Handover, log: ChannelLog) -> Member:
    """Returns the worker's membership of the group, which has not joined yet."""
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
        final: True if waiting does not help.
        exception: the traceback, if it is a bug; otherwise empty.
        stuck: True if the member could not leave the group, so that only the end of the process removes it.
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
        """``stints``: yields numbers that are unique in this process. ``is_alone``: returns True if this is the only
        flow of the process."""
        self.handover = handover
        self.channel = FlowChannel(channel, handover.flow)
        self.log = ChannelLog(self.channel)
        self._join = join
        self._pauses = pauses
        self._stints = stints
        self._is_alone = is_alone
        self._stop = asyncio.Event()
        self.may_join = asyncio.Event()
        self.tracer = Tracer(self._traced)
        self._dialled: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.now = self._anew()
        """The current attempt; during a pause, the next one."""

    @property
    def ready_at(self) -> float | None:
        """When the current attempt became ready (the event loop's time); None: it has not."""
        return self.now.ready_at

    def _anew(self) -> Attempt:
        return Attempt(Snapshots(self._pauses, self._stints))

    # -- life --------------------------------------------------------------------------------------------------------

    async def attempt(self) -> FlowFailure | None:
        """Runs the flow. Returns None once it has stopped as requested, or the reason why it cannot go on."""
        CURRENT.set(self)
        self.now.running = asyncio.current_task()
        self.spawn(breathe(self.channel, self.now, self.handover.snapshot_interval_ms))
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
            return None  # stopped before anything was copied: there is nothing to drain
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            return FlowFailure(reason="bug", detail=detail, exception=traceback.format_exc(), stuck=self._is_stuck)
        finally:
            self.now.running = None
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def pause(self, seconds: float) -> bool:
        """Waits before another attempt. Returns True if it may follow; False, at once, if the flow has to stop."""
        if self._stop.is_set():
            return False  # the failed attempt is kept: ``stopped`` has still to report what it left undone
        self.now = self._anew()
        self.may_join.clear()
        asyncio.get_running_loop().call_soon(sweep)
        self.spawn(breathe(self.channel, self.now, self.handover.snapshot_interval_ms))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
        for task in self._tasks:
            task.cancel()
        return not self._stop.is_set()

    def stopped(self) -> None:
        """Reports that the flow has stopped as requested, and that nothing of it is left: the supervisor may hand it
        over again."""
        self.channel.send(say.STOPPED, drained=self.now.drained, pending=self.now.pending)
        # Cancelled timers stay in the event loop until their time, for hours. They keep the context in which they were
        # set, and with it this object (``CURRENT``). So it must not refer to the relay any more.
        self.now = self._anew()

    def tell(self, failed: FlowFailure, *, again_s: float | None) -> None:
        """Reports a failure. ``again_s``: seconds until the next attempt in this process; None: the process ends."""
        more = {"exception": failed.exception} if failed.exception else {}
        again = {"again_s": again_s} if again_s is not None else {}
        self.channel.send(
            say.FAILED, reason=failed.reason, detail=failed.detail, final=failed.final, **more, **again
        )  # fmt: skip

    async def _run(self) -> None:
        """Tries to start until it succeeds, and then copies until the flow has to stop.

        Raises:
            SameCluster, Unsupported: the flow cannot start, and waiting does not help.
            NetworkError, NotJoined, PutOut: the flow had started, and cannot go on.
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
                if self.now.ready_at is not None:
                    raise
                self.channel.send(say.WAITING, reason=type(error).__name__, detail=str(error))
            await asyncio.sleep(backoff.next_s())

    async def _start_and_copy(self) -> None:
        async with self._both() as (source, destination):
            relay = self.now.relay = Relay(
                source, destination, self.handover.relay, self.log, assigned=True, tracer=self.tracer
            )
            try:
                await relay.start()
                self.now.source = source
                settle()
                self.now.ready_at = asyncio.get_running_loop().time()
                self.channel.send(
                    say.READY,
                    partitions=len(relay.keys),
                    source_id=source.cluster_id,
                    destination_id=destination.cluster_id,
                )
                await self._copy(relay)
            finally:
                await relay.close()

    async def _open(self, name: str, options: ClusterOptions, opened: list[Cluster]) -> Cluster:
        """Opens a cluster, and appends it to ``opened``."""
        if name not in self._dialled:
            self._dialled.add(name)
            self.log.info("connecting", cluster=name, bootstrap_servers=options.bootstrap_servers)
        try:
            cluster = await Cluster.open(
                name,
                options,
                errors=self.now.watching.errors_of(name),
                durations=self.now.watching.durations_of(name),
                asked=self.now.watching.asked,
                unreached=self.now.watching.unreached,
            )
        except NetworkError:
            self.now.watching.reached(name, None)
            raise
        opened.append(cluster)
        self.now.watching.reached(name, cluster)
        return cluster

    @asynccontextmanager
    async def _both(self) -> AsyncIterator[tuple[Cluster, Cluster]]:
        """Opens source and destination at the same time, so that each is tried even if the other cannot be reached.
        Closes them at the end."""
        here, _, there = self.handover.flow.partition("->")
        opened: list[Cluster] = []
        try:
            # If this is cancelled while one of them connects, it has no result; ``opened`` has the other one, to close.
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
            self.now.watching.close()
            for cluster in opened:
                await cluster.close()

    async def _copy(self, relay: Relay) -> None:
        """Joins the group, copies the partitions that it assigns, and leaves it."""
        await self.may_join.wait()
        # From here on, a stop drains instead of cancelling this task.
        self.now.running = None
        handover = self.handover
        self.now.member = member = self._join(relay, handover, self.log)
        member.on_joined = lambda member_id: self.channel.send(say.JOINED, member=member_id)
        member.on_unknown_topic = relay.look_now
        telling = self.spawn(keep_telling(self.channel, self.now, relay, member, handover.snapshot_interval_ms))
        member.start(relay.pairs)
        self.now.sync = SyncKeeper(handover, self.log)
        self.spawn(self.now.sync.keep(relay))
        self.spawn(self.now.watching.ask_group(relay, relay.source, handover.group, self.log))
        try:
            await self._watch(relay, member, handover.group.commit_interval_ms / 1000)
            drained, pending = await relay.drain(), relay.pending
            positions: dict[Key, Committable] = relay.committable()
            member.commit(positions)
            # The last report on the partitions: once this member has left the group, it has none.
            telling.cancel()
            send_snapshot(self.channel, self.now, relay, member)
            await member.stop()
            self.now.drained, self.now.pending = drained, pending
        except Exception:
            self.now.drained, self.now.pending = not relay.pending, relay.pending
            if not self._is_alone():
                # The process goes on with its other flows, and the member's thread would go on sending heartbeats, so
                # it has to leave. If the process ends, another worker expels the member.
                await member.stop()
            raise
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    @property
    def _is_stuck(self) -> bool:
        return self.now.member is not None and not self.now.member.ended and not self._is_alone()

    async def _watch(self, relay: Relay, member: Member, commit_interval_s: float) -> None:
        """Waits until the flow has to stop. Until then, it commits regularly, and raises the errors of tasks and of the
        member."""
        loop = asyncio.get_running_loop()
        commit_at = loop.time() + commit_interval_s
        unseated = Overdue(loop.time, most_step_s=MOST_WATCH_S)
        assert relay.tasks.failed is not None
        while not self._stop.is_set():
            for failed in (self.now.bug, member.failed):
                if failed is not None:
                    raise failed
            if relay.tasks.failed.done():
                relay.tasks.failed.result()
            # While the source is down, no member gets an assignment, and a new process would get none, either.
            could_join = bool(self.now.watching.clusters.get(relay.source.name))
            if unseated.look(missing=could_join and not member.joined) >= self._join_patience_s():
                raise NotJoined(
                    f"the consumer group gave this worker no assignment, not even an empty one, for "
                    f"{self._join_patience_s():.0f} s; it is started again"
                )
            member.subscribe(relay.pairs)
            if loop.time() >= commit_at:
                commit_at = loop.time() + commit_interval_s
                member.commit(relay.committable())
            if self.tracer.on:
                self.tracer.committed(member.committed)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(WATCH_S, commit_interval_s))

    def _join_patience_s(self) -> float:
        """Returns the seconds to wait for an assignment: longer than the other members take to drain and to join again.
        After that time, this worker's own connection or library must be stuck, and a new client is made."""
        group = self.handover.group
        return (self.handover.relay.drain_timeout_ms + JOIN_SESSIONS * group.session_timeout_ms) / 1000 + JOIN_MARGIN_S

    # -- from outside ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Makes the flow drain and end; it ends at once if copying has not begun."""
        self._stop.set()
        if self.now.running is not None:
            self.now.running.cancel()
            self.now.running = None  # cancelled only once: its cleanup must not be cancelled

    def broken(self, error: BaseException) -> None:
        """Keeps an exception from a task or callback that nothing awaits. It is a bug, and ``_watch`` raises it,
        because the interrupted work would hang."""
        self.now.bug = self.now.bug or error

    def _traced(self, key: Key, told: Told) -> None:
        self.channel.send(say.TRACED, topic=key[0], partition=key[1], steps=told.steps, missed=told.missed)

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Starts a task that ends with the attempt. If it raises, the flow fails."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken(error)
