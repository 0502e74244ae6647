"""A worker process: it copies the partitions that the group assigns to it, and reports to the supervisor.

If something keeps it from starting that may heal (a cluster that cannot be reached, a pattern that matches nothing yet,
a missing right), the worker reports it and tries again. A problem that cannot heal ends the process (``FINAL``).

Small on purpose: no configuration model, no metrics, no terminal. Settings come over its channel, log lines and
snapshots go over it. The end of the channel ends the process: a worker does not outlive its supervisor.

Shutdown order, here and nowhere else: stop fetching -> drain what is in flight (``drain.timeout.ms``) -> commit and
leave the group -> close.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Unsupported
from mirror.net.options import ClusterOptions
from mirror.parent import die_with
from mirror.relay.assignment import Committable, Key
from mirror.relay.relay import NothingToMirror, Relay, SameCluster
from mirror.service import channel as say
from mirror.service.channel import Channel, ChannelLog, Message
from mirror.service.exits import EXIT_FAILED, EXIT_OK
from mirror.service.group.expel import expel
from mirror.service.group.member import Membership, PutOut
from mirror.service.group.overdue import Overdue
from mirror.service.resume.resuming import flow_keys, resume
from mirror.service.sync.keeper import SyncKeeper
from mirror.service.telemetry.gc_stats import Pauses
from mirror.service.telemetry.snapshot import Snapshots
from mirror.service.telemetry.watching import Watching
from mirror.service.worker_settings import Handover

JOIN_SESSIONS = 3
JOIN_MARGIN_S = 60.0
WATCH_S = 0.5
MOST_WATCH_S = 4 * WATCH_S
"""Most seconds that one look adds to the time without a seat: after a longer gap, the process itself was stopped."""
CONTAINERS_MORE = 50_000
"""The garbage collector runs when this many more containers live than at its last run. Thousands of batches wait at any
time, none of them in a cycle; with Python's default (700) the collector would walk all of them again and again."""


FINAL = (SameCluster, Unsupported)
"""Errors that no wait heals: the configuration, or the brokers' version, has to change."""


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

    def start(self, topics: Any) -> None:
        """Joins the group."""

    def subscribe(self, topics: Any) -> None:
        """Subscribes to these topics instead."""

    def commit(self, positions: Any) -> None:
        """Commits these positions soon."""

    async def stop(self) -> None:
        """Leaves the group."""


def join_group(relay: Relay, handover: Handover, log: ChannelLog) -> Member:
    """Returns the worker's seat in the group, not joined yet."""
    assert relay.assignment is not None
    return Membership(
        relay.assignment,
        handover.group,
        bootstrap=handover.source.bootstrap_servers,
        security=handover.source.connection.security,
        client_id=handover.source.connection.client_id,
        drain_timeout_ms=handover.relay.drain_timeout_ms,
        refresh_topics_interval_ms=handover.relay.refresh_topics_interval_ms,
        log=log,
    )


class Worker:
    """Runs until it is told to stop, or cannot go on."""

    def __init__(self, channel: Channel, *, join: Callable[[Relay, Handover, ChannelLog], Member] = join_group) -> None:
        self._channel = channel
        self._join = join
        self._log = ChannelLog(channel)
        self._stop = asyncio.Event()
        self._may_join = asyncio.Event()
        self._ready = False
        """True once it has started: both clusters were reached, and there is something to copy."""
        self._bug: BaseException | None = None
        self._running: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._relay: Relay | None = None
        self._source: Cluster | None = None
        self._dialled: set[str] = set()
        self._member: Member | None = None
        self._sync: SyncKeeper | None = None
        self._handover: Handover | None = None
        self._pauses = Pauses()
        self._snapshots = Snapshots(self._pauses)
        self._watching = Watching()

    async def run(self) -> int:
        """Runs the worker. Returns the exit code: 0 stopped as told, 1 could not go on."""
        first = await self._channel.receive()
        if first is None:
            return EXIT_FAILED
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._broken)
        self._handover = handover = Handover.unpack(first["settings"])
        self._running = asyncio.current_task()
        obeying = loop.create_task(self._obey())
        self._spawn(self._breathe(handover.snapshot_interval_ms))
        self._pauses.watch()
        try:
            return await self._run(handover)
        except (NetworkError, SameCluster, NothingToMirror, NotJoined, PutOut) as error:
            self._channel.send(
                say.FAILED, reason=type(error).__name__, detail=str(error), final=isinstance(error, FINAL)
            )
            return EXIT_FAILED
        except asyncio.CancelledError:
            if not self._stop.is_set():
                raise
            # Told to stop before anything was copied: there is nothing to drain.
            self._channel.send(say.STOPPED, drained=True, pending=0)
            return EXIT_OK
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            self._channel.send(say.FAILED, reason="bug", detail=detail, exception=traceback.format_exc())
            return EXIT_FAILED
        finally:
            self._pauses.end()
            for task in (obeying, *self._tasks):
                task.cancel()
            await asyncio.gather(obeying, *self._tasks, return_exceptions=True)
            await self._channel.close()

    async def _run(self, handover: Handover) -> int:
        """Tries until it has started, and then copies until it is told to stop.

        Raises:
            SameCluster, Unsupported: it cannot start, and no wait heals that.
            NetworkError, NotJoined, PutOut: it had started, and cannot go on.
        """
        options = handover.source
        backoff = Backoff(least_ms=options.backoff_ms, most_ms=options.backoff_max_ms)
        while True:
            try:
                return await self._start_and_copy(handover)
            except FINAL:
                raise
            except (NetworkError, NothingToMirror) as error:
                if self._ready:
                    raise
                self._channel.send(say.WAITING, reason=type(error).__name__, detail=str(error))
            await asyncio.sleep(backoff.next_s())

    async def _start_and_copy(self, handover: Handover) -> int:
        async with self._both(handover) as (source, destination):
            relay = self._relay = Relay(source, destination, handover.relay, self._log, assigned=True)
            try:
                await relay.start()
                self._source = source
                # Everything loaded by now stays for good: the collector need not walk it again.
                gc.collect()
                gc.freeze()
                gc.set_threshold(CONTAINERS_MORE)
                self._ready = True
                self._channel.send(
                    say.READY,
                    partitions=len(relay.keys),
                    source_id=source.cluster_id,
                    destination_id=destination.cluster_id,
                )
                await self._copy(relay, handover)
                return EXIT_OK
            finally:
                await relay.close()

    async def _open(self, name: str, options: ClusterOptions) -> Cluster:
        if name not in self._dialled:
            self._dialled.add(name)
            self._log.info("connecting", cluster=name, bootstrap_servers=options.bootstrap_servers)
        try:
            cluster = await Cluster.open(
                name,
                options,
                errors=self._watching.errors_of(name),
                asked=self._watching.asked,
                unreached=self._watching.unreached,
            )
        except NetworkError:
            self._watching.reached(name, None)
            raise
        self._watching.reached(name, cluster)
        return cluster

    @asynccontextmanager
    async def _both(self, handover: Handover) -> AsyncIterator[tuple[Cluster, Cluster]]:
        """Opens source and destination at the same time: if one of them is away, that says nothing about the other."""
        here, _, there = handover.flow.partition("->")
        found = await asyncio.gather(
            self._open(here, handover.source), self._open(there, handover.destination), return_exceptions=True
        )
        try:
            for each in found:
                if isinstance(each, BaseException):
                    raise each
            source, destination = found
            assert isinstance(source, Cluster)
            assert isinstance(destination, Cluster)
            yield source, destination
        finally:
            self._watching.close()
            for each in found:
                if isinstance(each, Cluster):
                    await each.close()

    async def _copy(self, relay: Relay, handover: Handover) -> None:
        """Joins the group, copies the partitions that it assigns, and leaves it."""
        await self._may_join.wait()
        # From here on, a stop drains and does not cancel.
        self._running = None
        self._member = member = self._join(relay, handover, self._log)
        member.on_joined = lambda member_id: self._channel.send(say.JOINED, member=member_id)
        member.on_unknown_topic = relay.look_now
        telling = asyncio.get_running_loop().create_task(self._tell(relay, member, handover.snapshot_interval_ms))
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
            self._channel.send(say.STOPPED, drained=drained, pending=pending)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _watch(self, relay: Relay, member: Member, commit_interval_s: float) -> None:
        """Waits until the worker is told to stop. Until then, commits regularly and raises what has failed."""
        loop = asyncio.get_running_loop()
        commit_at = loop.time() + commit_interval_s
        unseated = Overdue(loop.time, most_step_s=MOST_WATCH_S)
        assert relay.failed is not None
        while not self._stop.is_set():
            for failed in (self._bug, member.failed):
                if failed is not None:
                    raise failed
            if relay.failed.done():
                relay.failed.result()
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
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(WATCH_S, commit_interval_s))

    def _join_patience_s(self) -> float:
        """Returns the seconds to wait for an assignment: longer than the other members take to drain and to join again.
        After that, this worker's own connection or library hangs, and a new process has new ones."""
        assert self._handover is not None
        group = self._handover.group
        return (self._handover.relay.drain_timeout_ms + JOIN_SESSIONS * group.session_timeout_ms) / 1000 + JOIN_MARGIN_S

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
            self._send_snapshot(relay, member)
            await asyncio.sleep(interval_ms / 1000)

    def _send_snapshot(self, relay: Relay, member: Member) -> None:
        snapshot = self._snapshots.take(
            relay, member.committed, joined=int(member.joined), dropped_messages=self._channel.dropped
        )
        snapshot["counters"] |= member.counters | self._watching.counters
        if self._sync is not None:
            snapshot["counters"] |= self._sync.counters
            snapshot["gauges"] |= self._sync.gauges
        snapshot["clusters"] = self._watching.clusters
        snapshot["unassigned"] = self._watching.unassigned
        snapshot["silent"] = self._watching.silent
        snapshot["unreached"] = self._watching.unreached.now
        self._channel.send(say.SNAPSHOT, **snapshot)

    # -- commands ----------------------------------------------------------------------------------------------------

    async def _obey(self) -> None:
        """Obeys the supervisor's messages. When the supervisor is gone, this process ends too."""
        while (message := await self._channel.receive()) is not None:
            kind = message["kind"]
            if kind == say.JOIN:
                self._may_join.set()
            elif kind == say.STOP:
                self.stop()
            elif kind == say.KEYS:
                self._channel.send(say.REPLY, id=message["id"], keys=flow_keys(self._relay))
            elif kind in (say.RESUME, say.EXPEL):
                self._spawn(self._resume(message) if kind == say.RESUME else self._expel(message))
        self.abandon()

    def abandon(self) -> None:
        """Ends the process at once, as the supervisor is gone. Nothing is lost: the position is at the destination."""
        os._exit(EXIT_FAILED)

    def stop(self) -> None:
        """Drains and ends; ends at once if copying has not begun."""
        self._stop.set()
        if self._running is not None:
            self._running.cancel()

    def hung_up(self) -> None:
        """Handles SIGHUP, which is the supervisor's and changes nothing here."""
        self._log.info("not_reloaded", signal="SIGHUP", detail="a worker reads no configuration; nothing stops")

    async def _resume(self, message: Message) -> None:
        """Resumes halted partitions at an operator's request, and replies with the outcomes, as far as known soon."""
        keys: list[Key] = [(str(topic), int(partition)) for topic, partition in message["keys"]]
        why_not = dict.fromkeys(keys, "the worker is still starting; try again")
        if self._relay is not None and self._member is not None:
            try:
                why_not = await resume(self._relay, keys, message["accept"], remade=message["remade"])
            except NetworkError as error:
                why_not = dict.fromkeys(keys, str(error))
        self._channel.send(say.REPLY, id=message["id"], outcomes=[(*key, why) for key, why in why_not.items()])

    async def _expel(self, message: Message) -> None:
        """Has a dead worker of this machine leave the group, which then need not wait for its session to end."""
        assert self._handover is not None
        if self._source is None or self._handover.group.protocol != "classic":
            return
        member = str(message["member"])
        try:
            await expel(self._source, self._handover.group.group_id, member)
        except NetworkError as error:
            self._log.info("member_not_expelled", member=member, detail=str(error))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._bug = self._bug or error

    def _broken(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Keeps an exception from a callback, which nobody awaits. It is a bug, and what it interrupted hangs:
        ``_watch`` raises it."""
        error = context.get("exception")
        self._bug = self._bug or (error if isinstance(error, Exception) else RuntimeError(context["message"]))


async def _serve(sock: socket.socket) -> int:
    worker = Worker(await Channel.open(sock))
    # SIGINT from a terminal goes to the supervisor, which tells us; SIGTERM may go to all of a service's processes.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, worker.hung_up)
    return await worker.run()


def main(descriptor: int, parent_pid: int) -> None:
    """Runs the process. ``descriptor``: its end of the channel, inherited. ``parent_pid``: the supervisor's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    die_with(parent_pid, exit_code=EXIT_FAILED)
    code = asyncio.run(_serve(socket.socket(fileno=descriptor)))
    # Everything is reported and closed; whatever librdkafka still waits for is not worth waiting for.
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)
