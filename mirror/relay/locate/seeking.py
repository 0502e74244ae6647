"""Locates partitions for as long as it takes: many at a time, with growing pauses, on fresh metadata."""

import asyncio
import random
import time
from typing import Self

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import Damaged, NetworkError, Refused, StoredInOldFormat, Unreachable, Unreadable, Unsupported
from mirror.net.metadata import Leader
from mirror.net.rights import Right
from mirror.offsetmap.fields import TopicIds
from mirror.reasons import HaltReason
from mirror.relay.halts import Halted, PartitionHalted, halted_by_damage
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.outcome import NotOurs
from mirror.relay.partition.location import Location
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase

AT_ONCE = 64
"""Partitions that are located at the same time per destination broker. Each takes about eight small requests. The seats
are per broker, so that a broker that hangs takes none from the partitions of other brokers."""
REFRESH_AT_MOST_EVERY_S = 0.2
WARN_AFTER_TRIES = 6
UNREADABLE_LOOKS = 8
"""Times that a broker may fail to read a log before that counts as damage. With the default backoff, that takes about
13 s."""
LEFT_FOR_SETTLES = (5.0, 15.0)
"""A partition that another worker has taken over is left alone for a random time in this range, in multiples of
``settle.ms``."""
MOST_STEPS = 16
"""Number of steps by which consecutive doubts can lengthen the pause. The pause reaches its upper bound long before."""


LACKING_PAUSE_S = 3.0
"""Least pause between two attempts while a right is missing. Somebody has to grant it, so there is no hurry."""
LACKING_TOLD_EVERY_S = 60.0
"""Seconds between two log lines about the same missing right, however many partitions lack it."""


class LocatingSeat:
    """One of the seats at a broker. It is given back while its partition only waits. So thousands of partitions whose
    logs' ends have to stand still can wait at the same time."""

    def __init__(self, seats: asyncio.Semaphore) -> None:
        self._seats = seats
        self._held = False

    async def __aenter__(self) -> Self:
        await self._seats.acquire()
        self._held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._give_back()

    async def rest(self, seconds: float) -> None:
        """Gives the seat back, waits for ``seconds``, and then waits for a seat again."""
        self._give_back()
        await asyncio.sleep(seconds)
        await self._seats.acquire()
        self._held = True

    def _give_back(self) -> None:
        if self._held:
            self._held = False
            self._seats.release()


class Seeking:
    """Locates all partitions of a process."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._seats: dict[int, asyncio.Semaphore] = {}
        self._refreshing = asyncio.Lock()
        self._looked_at: dict[Partition, Leader | None] = {}
        """The source leader whose log was read last, for each partition that is being located."""
        self._looked_in: dict[Partition, TopicIds] = {}
        """The ids of both topics as known when the last look began, for each partition that is being located."""
        self._lacked: dict[Partition, Right] = {}
        """The right that each partition lacked at its last look."""
        self._told_at: dict[Right, float] = {}
        """When the lack of a right was logged last (monotonic)."""

    async def seek(self, partition: Partition, *, takeover: bool) -> None:
        """Locates the partition, however long it takes, and then places or halts it."""
        try:
            await self._seek(partition, takeover=takeover)
        finally:
            self._looked_at.pop(partition, None)
            self._looked_in.pop(partition, None)
            if (lacked := self._lacked.pop(partition, None)) is not None:
                self._told_at.pop(lacked, None)

    async def _seek(self, partition: Partition, *, takeover: bool) -> None:
        relay, settings, began = self._relay, self._relay.settings, time.monotonic()
        partition.wait("where it goes on is looked for")
        backoff = Backoff(least_ms=settings.backoff_ms, most_ms=settings.backoff_max_ms)
        if partition.claim.taken_over:
            if not partition.claim.unowned:
                await self._leave_to_the_other()
            partition.claim.return_to()
        elif partition.claim.doubts:
            await _pause(partition, backoff)
        unreadable = 0
        while True:
            try:
                # For a takeover, metadata must be newer than its beginning: since the last topic refresh, another topic
                # may have got that name.
                since = began if takeover and not backoff.tries else time.monotonic()
                found = await self._look(partition, since, takeover=takeover)
                if isinstance(found, Location):
                    await relay.loops.behind(partition)
                    break
                self._halt(partition, found)
                return
            except (PartitionHalted, Unsupported, Damaged, Unreadable, StoredInOldFormat) as error:
                unreadable += isinstance(error, Unreadable)
                partition.wait(str(error), failed=True)
                halted = _halted_by(error, relay.source.name)
                if isinstance(error, Unreadable) and unreadable < UNREADABLE_LOOKS:
                    await asyncio.sleep(backoff.next_s())
                elif await self._stands(partition, halted, backoff):
                    self._halt(partition, halted)
                    return
            except NotOurs as error:
                partition.wait(str(error), failed=True)
                relay.log.info(
                    "resync", topic=partition.topic, partition=partition.index, cause=error.slug, detail=str(error)
                )
                if partition.claim.unowned:
                    await asyncio.sleep(backoff.next_s())
                else:
                    await self._leave_to_the_other()
                takeover = True
            except NetworkError as error:
                await self._wait(partition, error, backoff)
        self._place(partition, found)

    def _place(self, partition: Partition, found: Location) -> None:
        """Places the partition, unless it has been halted meanwhile. That cancels this task, but ``asyncio.wait_for``
        of Python 3.11 loses a cancellation that comes together with its result."""
        if partition.phase is Phase.LOCATING:
            self._relay.place(partition, found)

    def _halt(self, partition: Partition, halted: Halted) -> None:
        """Halts the partition, unless it has been halted meanwhile (``_place``)."""
        if partition.phase is Phase.LOCATING:
            self._relay.halt(partition, halted)

    async def _wait(self, partition: Partition, error: NetworkError, backoff: Backoff) -> None:
        """Logs that the partition could not be located, and waits until the next attempt."""
        partition.wait(str(error), failed=True)
        if isinstance(error, Refused) and error.lacks is not None:
            self._lacked[partition] = error.lacks
            self._tell_lack(partition, error.lacks, str(error))
            await asyncio.sleep(max(backoff.next_s(), LACKING_PAUSE_S))
            return
        # New topics and freshly started brokers have no leader for a moment: warn only if that lasts.
        tell = self._relay.log.warning if backoff.tries >= WARN_AFTER_TRIES else self._relay.log.info
        tell("position_unknown", topic=partition.topic, partition=partition.index, detail=str(error))
        await asyncio.sleep(backoff.next_s())

    def _tell_lack(self, partition: Partition, lacks: Right, detail: str) -> None:
        """Logs that partitions cannot be located because a right is missing: at most every ``LACKING_TOLD_EVERY_S``."""
        now = time.monotonic()
        if now - self._told_at.get(lacks, float("-inf")) >= LACKING_TOLD_EVERY_S:
            self._told_at[lacks] = now
            self._relay.log.warning(
                "not_authorized",
                topic=partition.topic,
                partition=partition.index,
                detail=detail,
                remedy=f"{lacks.grant}; it is tried every {LACKING_PAUSE_S:g} s until then",
            )

    async def _look(self, partition: Partition, since: float, *, takeover: bool) -> Location | Halted:
        """Locates the partition once, in a seat, on metadata that is about as new as ``since`` (monotonic) or newer.

        Returns:
            The location, or the halt if a suspected verdict is confirmed now.

        Raises:
            PartitionHalted, NotOurs, NetworkError: as ``Locator.locate``.
        """
        relay = self._relay
        seats = self._seats_at(partition)
        here = _led(relay.source, partition.topic, partition.index)
        there = _led(relay.destination, partition.destination, partition.index)
        if seats.locked():
            partition.wait(f"{AT_ONCE} other positions are looked for at {there}")
        async with LocatingSeat(seats) as seat:
            partition.wait(f"both logs are looked at: {here}, {there}")
            await self._refresh(partition, since)
            self._looked_in[partition] = relay.pins.ids(partition)
            leader = relay.destination.leader(partition.destination, partition.index)
            if late_s := partition.claim.waits_for_late(leader):
                raise Unreachable(
                    f"{there} may still read what was sent before its connection was lost: {late_s:.1f} s"
                )
            if takeover:
                await relay.pins.recall(partition)
            await relay.loops.before(partition)
            if partition.claim.suspected is not None:
                halted = await relay.verdicts.confirmed(partition)
                if halted is not None and not await self._made_anew(partition, halted):
                    return halted
            self._looked_at[partition] = relay.source.leader(partition.topic, partition.index)
            return await relay.locator.locate(partition, takeover=takeover, rest=seat.rest)

    async def _stands(self, partition: Partition, halted: Halted, backoff: Backoff) -> bool:
        """Returns True if a verdict is final. Otherwise the next look decides; this waits before it and logs why,
        unless the verdict only has to be confirmed. A verdict that a topic was recreated is not final as long as the
        brokers do not agree on that: the broker that was asked may be behind."""
        if halted.at_ms or halted.reason != HaltReason.RECREATED.slug:
            if self._relay.verdicts.suspect(partition, halted):
                return False
            stands = not await self._made_anew(partition, halted)
        else:
            try:
                await self._relay.locator.check_ids(partition)
            except NetworkError as error:
                await self._wait(partition, error, backoff)
                return False
            # A broker that is not behind may have replaced the answer on which the verdict is based.
            stands = self._looked_in.get(partition) == self._relay.pins.ids(partition)
        if not stands:
            # Without the pause, a broker that is behind for days would keep the partition looking.
            changed = f"what the brokers told of the topics and leaders has changed meanwhile ({halted.detail})"
            await self._wait(partition, Unreachable(changed), backoff)
        return stands

    async def _made_anew(self, partition: Partition, halted: Halted) -> bool:
        """Returns True if a verdict is, or may be, about another topic than was meant: a log's end is requested by
        topic name, and another topic may have that name by now. Also returns True if the verdict is about a log that is
        no longer the source's: a leader that was deposed in an unclean election serves its old log until it hears of
        that. In these cases, the next look decides."""
        if halted.at_ms or halted.reason == HaltReason.RECREATED.slug:
            return False
        try:
            await self._refresh(partition, time.monotonic() + REFRESH_AT_MOST_EVERY_S)
            self._relay.locator.logs(partition)
        except PartitionHalted as stop:
            return stop.halted.reason == HaltReason.RECREATED.slug
        except NetworkError:
            return True  # cannot be determined now
        leader = self._relay.source.leader(partition.topic, partition.index)
        return self._looked_at.get(partition, leader) != leader

    def _seats_at(self, partition: Partition) -> asyncio.Semaphore:
        """Returns the seats at the destination broker that leads the partition, as last heard. Partitions without a
        leader share seats (node id -1)."""
        leader = self._relay.destination.leader(partition.destination, partition.index)
        node_id = -1 if leader is None else leader.node_id
        return self._seats.setdefault(node_id, asyncio.Semaphore(AT_ONCE))

    async def _leave_to_the_other(self) -> None:
        """Sleeps long enough for the other worker to make progress. The time is random: otherwise the two would take
        the partition from each other again and again."""
        await asyncio.sleep(self._relay.settings.settle_ms / 1000 * random.uniform(*LEFT_FOR_SETTLES))

    async def _refresh(self, partition: Partition, since: float) -> None:
        """Refreshes the metadata of both clusters if what they say about the partition's topics is older than ``since``
        minus ``REFRESH_AT_MOST_EVERY_S``. Many partitions share one refresh."""
        wanted_at = since - REFRESH_AT_MOST_EVERY_S
        async with self._refreshing:
            partitions = self._relay.partitions.values()
            if self._relay.source.refreshed_of(partition.topic) < wanted_at:
                await self._relay.source.refresh(sorted({each.topic for each in partitions}))
            if self._relay.destination.refreshed_of(partition.destination) < wanted_at:
                await self._relay.destination.refresh(sorted({each.destination for each in partitions}))


def _led(cluster: Cluster, topic: str, index: int) -> str:
    """Returns the partition's leader in the cluster, as last heard, for messages."""
    leader = cluster.leader(topic, index)
    return f"cluster {cluster.name}, {'no leader' if leader is None else f'broker {leader.node_id}'}"


async def _pause(partition: Partition, backoff: Backoff) -> None:
    """Waits, longer after each consecutive doubt."""
    for _ in range(min(partition.claim.doubts - 1, MOST_STEPS)):
        backoff.next_s()
    await asyncio.sleep(backoff.next_s())


def _halted_by(error: PartitionHalted | Unsupported | Damaged | Unreadable | StoredInOldFormat, source: str) -> Halted:
    """Returns the halt that the error means. ``source``: the source cluster's name."""
    if isinstance(error, PartitionHalted):
        return error.halted
    if isinstance(error, Damaged | Unreadable):
        return halted_by_damage(error, source)
    if isinstance(error, StoredInOldFormat):
        # The mirror has never written such a format.
        return Halted.of(HaltReason.OLD_FORMAT if error.cluster == source else HaltReason.FOREIGN_WRITER, str(error))
    return Halted.of(HaltReason.NO_COMMON_VERSION, str(error))
