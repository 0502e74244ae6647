"""The process that keeps groups' offsets and topics' ACLs in step, at regular intervals.

It is a separate process, so that copying goes on however long this takes and whatever happens to it. A worker starts it
(``sync.keeper``), sends it the settings over a channel, and gets log lines and counters. It ends when the channel is
closed.
"""

import asyncio
import os
import signal
import socket
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence

from mirror.net.errors import NetworkError
from mirror.parent import die_with
from mirror.service import channel as say
from mirror.service.channel import Channel, ChannelLog
from mirror.service.exits import EXIT_FAILED, EXIT_OK
from mirror.service.sync.acls import AclsPlan
from mirror.service.sync.look import Sync
from mirror.service.sync.plan import NO_GROUP, GroupPlan, GroupState
from mirror.service.sync.settings import ACLS, GROUPS
from mirror.service.worker_settings import Handover

AGAIN_S = 600.0
"""A problem is logged when it begins, and then at this interval."""
NAMED = 5
"""Most groups or ACLs that a log line names."""
OK, FAILED, OFF = "ok", "failed", "off"
"""The results of a look. off: a cluster has no ACLs."""


class Trouble:
    """Logs problems: each when it begins and then every ``AGAIN_S``, and once when all are over."""

    def __init__(self, log: ChannelLog, event: str, part: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._event = event
        self._part = part
        self._clock = clock
        self._told: dict[str, float] = {}
        """Kind of a problem that was logged and still exists -> when it was logged."""

    def look(self, found: Sequence[tuple[str, str, str]]) -> None:
        """Takes the present problems, each as (kind, detail, remedy); empty if there are none. While a kind of problem
        lasts, changes of its detail are not logged."""
        now, before = self._clock(), self._told
        self._told = {}
        for kind, detail, remedy in found:
            told_at = self._told.get(kind, before.get(kind, -AGAIN_S))
            if now - told_at >= AGAIN_S:
                told_at = now
                fields = {"remedy": remedy} if remedy else {}
                self._log.warning(self._event, detail=detail, **fields)
            self._told[kind] = told_at
        if before and not self._told:
            self._log.info("sync_back", part=self._part)


class Syncing:
    """Keeps groups' offsets and ACLs in step."""

    def __init__(self, handover: Handover, channel: Channel) -> None:
        self._handover = handover
        self._settings = handover.sync
        self._channel = channel
        self._log = ChannelLog(channel)
        self._counters: dict[str, float] = {}
        self._gauges: dict[str, float] = {}
        self._group_trouble = Trouble(self._log, "group_offsets_not_synced", GROUPS)
        self._acl_trouble = Trouble(self._log, "topic_acls_not_synced", ACLS)
        self._acls_off = False
        self._none_told = False
        self._sync: Sync | None = None
        self._opening = asyncio.Lock()

    async def run(self) -> None:
        """Runs both parts, each at its own interval, until cancelled."""
        self._channel.send(say.READY)
        settings = self._settings
        parts: list[Awaitable[None]] = []
        if settings.offsets:
            parts.append(self._keep(GROUPS, self._groups, self._group_trouble, settings.offsets_interval_ms / 1000))
        if settings.acls:
            parts.append(self._keep(ACLS, self._acls, self._acl_trouble, settings.acls_interval_ms / 1000))
        try:
            await asyncio.gather(*parts)
        finally:
            if self._sync is not None:
                await self._sync.__aexit__()

    async def _keep(self, part: str, look: Callable[[Sync], Awaitable[str]], trouble: Trouble, every_s: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_at = loop.time()
            try:
                result = await look(await self._opened())
            except NetworkError as error:
                result = FAILED
                trouble.look([(error.slug, str(error), "")])
            self._count(f"syncs/{part}/{result}")
            if result == OK:
                self._gauges[f"synced_at_s/{part}"] = time.time()
            if not self._channel.full:
                self._channel.send(say.SNAPSHOT, counters=self._counters, gauges=self._gauges)
            await asyncio.sleep(max(0.0, began_at + every_s - loop.time()))

    async def _opened(self) -> Sync:
        async with self._opening:
            if self._sync is None:
                sync = Sync(self._handover.sides, self._settings)
                try:
                    await sync.__aenter__()
                except BaseException:
                    await sync.__aexit__()
                    raise
                self._sync = sync
            return self._sync

    def _count(self, name: str, more: int = 1) -> None:
        self._counters[name] = self._counters.get(name, 0) + more

    # -- groups --------------------------------------------------------------------------------------------------------

    async def _groups(self, sync: Sync) -> str:
        found = await sync.groups(apply=True)
        plans = found.groups
        moved = [plan for plan in plans if plan.carried]
        self._count("synced_offsets", sum(plan.carried for plan in moved))
        for state in GroupState:
            self._gauges[f"synced_groups/{state.value}"] = sum(plan.state is state for plan in plans)
        if moved:
            self._log.info(
                "group_offsets_synced",
                count=len(moved),
                offsets=sum(plan.carried for plan in moved),
                groups=[plan.group for plan in moved[:NAMED]],
            )
        none = not plans and not found.failed
        if none and not self._none_told:
            self._log.info("group_offsets_none", detail=NO_GROUP)
        self._none_told = none
        told = _told([plan for plan in plans if plan.state is GroupState.FAILED])
        if found.failed:
            told.append(("unlisted", found.failed, found.remedy))
        self._group_trouble.look(told)
        return FAILED if told else OK

    # -- ACLs ----------------------------------------------------------------------------------------------------------

    async def _acls(self, sync: Sync) -> str:
        plan: AclsPlan = await sync.acls(apply=True)
        if plan.off:
            if not self._acls_off:
                self._acls_off = True
                self._log.warning("topic_acls_off", detail=plan.failed, remedy="set sync.topic.acls.enabled: false")
            return OFF
        self._acls_off = False
        self._count("created_acls", plan.created)
        if plan.created:
            self._log.info("topic_acls_synced", count=plan.created, acls=[acl.text for acl in plan.lacking[:NAMED]])
        self._acl_trouble.look([(plan.remedy, plan.failed, plan.remedy)] if plan.failed else [])
        return FAILED if plan.failed else OK


def _told(failed: Sequence[GroupPlan]) -> list[tuple[str, str, str]]:
    """Returns the problems to log for the groups that failed: one for each of a few groups, and one for the number of
    others."""
    told = [(f"{plan.group} {plan.remedy}", f"group {plan.group}: {plan.why}", plan.remedy) for plan in failed[:NAMED]]
    if len(failed) > NAMED:
        told.append(("more", f"{len(failed) - NAMED} more groups; `mirror sync --dry-run` shows them all", ""))
    return told


async def _serve(sock: socket.socket) -> int:
    """Runs until the channel ends. After the settings, this process gets no messages: any message means stop, like the
    end of the channel."""
    channel = await Channel.open(sock)
    first = await channel.receive()
    if first is None:
        return EXIT_FAILED
    syncing = asyncio.get_running_loop().create_task(Syncing(Handover.unpack(first["settings"]), channel).run())
    ended = asyncio.get_running_loop().create_task(channel.receive())
    try:
        await asyncio.wait((syncing, ended), return_when=asyncio.FIRST_COMPLETED)
        if syncing.done():
            syncing.result()
        return EXIT_OK
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"
        channel.send(say.FAILED, reason="bug", detail=detail, exception=traceback.format_exc())
        return EXIT_FAILED
    finally:
        for task in (syncing, ended):
            task.cancel()
        await asyncio.gather(syncing, ended, return_exceptions=True)
        await channel.close()


def main(descriptor: int, parent_pid: int) -> None:
    """Runs the process. ``descriptor``: its end of the channel, inherited. ``parent_pid``: the worker's process id."""
    # Signals may be sent to all processes of a service: this one ends when its worker does.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    die_with(parent_pid, exit_code=EXIT_FAILED)
    # Not ``asyncio.run``: at its end, it would wait for threads that resolve host names, while a name server hangs.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    os._exit(loop.run_until_complete(_serve(socket.socket(fileno=descriptor))))
