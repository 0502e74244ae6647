"""One flow in a worker process: it copies the partitions that the group assigns to it, and reports to the supervisor.

A process may have several flows. They share its event loop and nothing else: each has its own connections, its own seat
in its group and its own ``buffer.memory``. So a flow that waits, fails or ends holds up no other one.

If something keeps the flow from starting that may heal (a cluster that cannot be reached, a pattern that matches
nothing yet, a missing right), it reports that and tries again.

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
"""Most seconds that one look adds to the time without a seat: after a longer gap, the process itself was stopped."""

FINAL = (SameCluster, Unsupported)
"""Errors that no wait heals: the configuration, or the brokers' version, has to change."""

CURRENT: ContextVar["FlowRun | None"] = ContextVar("flow", default=None)
"""The flow whose code runs. Callbacks of the event loop inherit it from the code that asked for them."""


class NotJoined(Exception):
    """The consumer group has given this worker no assignment for too long."""


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
        """The present attempt, or the next one while it pauses."""

    @property
    def ready_at(self) -> float | None:
        """When the present attempt had started (the event loop's time); None: it has not."""
        return self.now.ready_at

    def _anew(self) -> Attempt:
        return Attempt(Snapshots(self._pauses, self._stints))

    # -- life --------------------------------------------------------------------------------------------------------

    async def attempt(self) -> FlowFailure | None:
        """Runs the flow. Returns None once it has stopped as told, or why it cannot go on."""
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
            return None  # told to stop before anything was copied: there is nothing to drain
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
        """Waits before another attempt, which may follow then. Returns False, at once, if it is told to stop."""
        if self._stop.is_set():
            return False  # what was left undone when it failed is still to be told: see ``stopped``
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
        """Reports that it has stopped as told, and that nothing of it is left: it may be handed over anew."""
        self.channel.send(say.STOPPED, drained=self.now.drained, pending=self.now.pending)
        # Timers that were cancelled stay in the event loop until they would have come, for hours, with the context in
        # which they were set, and so with this object (``CURRENT``). It must not hold the relay.
        self.now = self._anew()

    def tell(self, failed: FlowFailure, *, again_s: float | None) -> None:
        """Reports a failure. ``again_s``: seconds until the next attempt in this process; None: the process ends."""
        more = {"exception": failed.exception} if failed.exception else {}
        again = {"again_s": again_s} if again_s is not None else {}
        self.channel.send(
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
        """Opens a cluster, and adds it to those that were opened."""
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
            self.now.watching.close()
            for cluster in opened:
                await cluster.close()

    async def _copy(self, relay: Relay) -> None:
        """Joins the group, copies the partitions that it assigns, and leaves it."""
        await self.may_join.wait()
        # From here on, a stop drains and does not cancel.
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
            # The last report on the partitions: once the group is left, nobody here has them.
            telling.cancel()
            send_snapshot(self.channel, self.now, relay, member)
            await member.stop()
            self.now.drained, self.now.pending = drained, pending
        except Exception:
            self.now.drained, self.now.pending = not relay.pending, relay.pending
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
        return self.now.member is not None and not self.now.member.ended and not self._is_alone()

    async def _watch(self, relay: Relay, member: Member, commit_interval_s: float) -> None:
        """Waits until the flow is told to stop. Until then, commits regularly and raises what has failed."""
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
            # While the source is away nobody gets a seat, and a new process would get none either.
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
        After that, this worker's own connection or library hangs, and a new client has new ones."""
        group = self.handover.group
        return (self.handover.relay.drain_timeout_ms + JOIN_SESSIONS * group.session_timeout_ms) / 1000 + JOIN_MARGIN_S

    # -- from outside ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Drains and ends; ends at once if copying has not begun."""
        self._stop.set()
        if self.now.running is not None:
            self.now.running.cancel()
            self.now.running = None  # only once: what is being closed is not cancelled

    def broken(self, error: BaseException) -> None:
        """Keeps an exception from a callback, which nobody awaits. It is a bug, and what it interrupted hangs:
        ``_watch`` raises it."""
        self.now.bug = self.now.bug or error

    def _traced(self, key: Key, told: Told) -> None:
        self.channel.send(say.TRACED, topic=key[0], partition=key[1], steps=told.steps, missed=told.missed)

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Starts a task that ends with the attempt. What it raises is the flow's failure."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken(error)
