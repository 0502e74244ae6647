"""Searches for strays (``offsets: mapped``): batches of a former owner between acknowledged ones. That is done before
anything behind them is written down.

A leader forgets who owns a partition while its last batch is old. Then it accepts a batch of a former owner, or one of
ours a second time. The next look at both logs begins at a checkpoint and reads nothing before it. So a stray before a
checkpoint would stay for good, and nobody would see it.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress

from mirror.net.errors import Damaged, NetworkError, Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.records.header import BatchHeader
from mirror.relay.halts import PartitionHalted
from mirror.relay.locate.tails import SCAN_BYTES
from mirror.relay.mapped.copied import Between, CopiedRuns, Unwritten
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition

LOOK_BYTES = 256 << 10
"""Bytes per read. Most ranges are small, and lie close together or far apart."""
WIDE = 10_000
"""A range with at least this many offsets is read in pieces of ``SCAN_BYTES``."""


class Strays:
    """Searches for strays in all partitions of a process. Brokers are asked in parallel, so that a frozen one does not
    delay others."""

    def __init__(
        self, relay: Orchestrator, write: Callable[[Collection[Partition], list[Unwritten]], Awaitable[None]]
    ) -> None:
        """``write``: writes down the accounts of partitions in which no strays were found."""
        self._relay = relay
        self._write = write
        self._looking: dict[int, asyncio.Task[None]] = {}
        self._waiting: set[CopiedRuns] = set()
        self._stale: set[str] = set()
        """Topics whose leaders may have changed."""

    def concerns(self, copied: CopiedRuns) -> bool:
        """Returns True if the partition must not be written down yet: it has to be searched first, or is being
        searched, or has a stray."""
        return bool(copied.between) or copied.astray or copied in self._waiting

    def look(self, partitions: Iterable[Partition], *, closed: Collection[CopiedRuns]) -> None:
        """Searches those partitions that are not being searched yet, in the background, and has them written down.

        Args:
            partitions: partitions that ``concerns`` is True for.
            closed: accounts behind which nothing more will be sent.
        """
        by_node: defaultdict[int, list[tuple[Partition, CopiedRuns]]] = defaultdict(list)
        for partition in partitions:
            copied = partition.queue.copied
            assert copied is not None, partition.name
            if copied.astray:
                self._doubt(partition, "it was located meanwhile, by what was acknowledged")
            elif copied not in self._waiting:
                by_node[partition.claim.destination_leader].append((partition, copied))
        for node_id, task in list(self._looking.items()):
            if task.done():
                self._looking.pop(node_id).result()
        for node_id, some in by_node.items():
            if node_id not in self._looking:
                self._waiting.update(copied for _, copied in some)
                self._looking[node_id] = asyncio.get_running_loop().create_task(self._look(some, closed))

    async def ended(self) -> None:
        """Waits until all searches have ended."""
        await asyncio.gather(*self._looking.values())

    def close(self) -> None:
        """Cancels all searches."""
        for task in self._looking.values():
            task.cancel()

    async def _look(self, some: list[tuple[Partition, CopiedRuns]], closed: Collection[CopiedRuns]) -> None:
        looked: list[Partition] = []
        accounts: list[Unwritten] = []
        try:
            await self._refresh()
            for partition, copied in some:
                # The account is taken before the search: batches that are acknowledged during the search may have
                # strays before them that it misses.
                account = Unwritten.of(copied, closed=copied in closed)
                if await self._is_clear(partition, copied):
                    looked.append(partition)
                    accounts.append(account)
            await self._write(looked, accounts)
        finally:
            self._waiting.difference_update(copied for _, copied in some)

    async def _refresh(self) -> None:
        stale, self._stale = self._stale, set()
        if stale:
            with suppress(NetworkError):  # if the cluster cannot be reached, that is reported elsewhere
                await self._relay.destination.refresh(sorted(stale))

    async def _is_clear(self, partition: Partition, copied: CopiedRuns) -> bool:
        places = list(copied.between)
        try:
            _, there = self._relay.locator.logs(partition)
            stray = await first_own(there, copied.own, places)
        except Damaged as error:
            # Nobody knows whose batch this is. A look at both logs from the checkpoint on finds it as well, and halts.
            copied.astray = True
            self._doubt(partition, str(error))
            return False
        except (NetworkError, PartitionHalted) as error:
            # The range is searched again later. The data path reports why it cannot be read now.
            self._stale.add(partition.destination)
            if copied.open_map.overflows:
                self._relay.doubt_now(partition, "state_not_written", str(error))
            return False
        if partition.queue.copied is not copied:
            return False
        if stray is not None:
            copied.astray = True
            where = f"{there.name} at offset {stray.base_offset}, epoch {stray.producer_epoch}"
            self._doubt(partition, f"{where}: a batch of this flow that was not acknowledged")
            return False
        for _ in places:
            copied.between.popleft()
        return True

    def _doubt(self, partition: Partition, detail: str) -> None:
        """Has the partition located again from what is written down, which lies before the stray. Both logs are
        compared from there."""
        self._relay.doubt_now(partition, "stray", detail)


async def first_own(there: PartitionLog, own: Collection[int], places: Iterable[Between]) -> BatchHeader | None:
    """Returns the first batch in these ranges that has one of the flow's own producer ids; None if there is none, or if
    it is deleted.

    Args:
        there: the destination's log.
        own: the flow's own producer ids.
        places: the ranges, in ascending order.

    Raises:
        NetworkError: cannot be determined now.
    """
    left, offset = deque(places), await there.start()
    while left:
        place = left[0]
        offset = max(offset, place.start)
        if offset >= place.end:
            left.popleft()
            continue
        wide = place.end - offset >= WIDE
        segment = await there.read(offset, max_bytes=SCAN_BYTES if wide else LOOK_BYTES)
        if not segment.batches:
            if segment.high_watermark < place.end:
                raise Unreachable(f"{there.name}: nothing is to be read at offset {offset} now")
            left.popleft()  # a log cleaner has removed what stood there
        for header, _ in segment.batches:
            offset = header.next_offset
            while left and left[0].end <= header.base_offset:
                left.popleft()
            if left and left[0].start <= header.base_offset and header.producer_id in own and not header.is_control:
                return header
    return None
