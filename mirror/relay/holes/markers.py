"""Fills holes of the source at the destination with one ABORT marker per offset (docs/DESIGN.md#37-filling-a-hole).

Markers are not idempotent, and a response to writing them proves nothing. So nothing else of the partition is in flight
while its hole is filled, and the log end is looked at before each write and after the last. Any unexpected end is
doubt. The partition is then located again, and settled first, because markers without a response may still arrive.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from mirror.net.errors import NetworkError, NotSent, Refused
from mirror.net.logs.log import Marker
from mirror.reasons import HaltReason
from mirror.records.identity import Identity
from mirror.relay.events import EventLog
from mirror.relay.halts import Halted, PartitionHalted
from mirror.relay.locate.resync import POLL_S, barrier
from mirror.relay.locate.rules import Readable, Writable
from mirror.relay.outcome import END_MOVED, Moved, NotOurs
from mirror.relay.partition.clock import since_boot
from mirror.wire.errors import ErrorCode

CHUNK = 1_000
"""Markers of one partition in one request. They take about 50 ms of a broker's time."""
FRESH_S = 0.5
"""If the last look at the log end is older than this, it is repeated before markers are written. In between, this
process may have been stopped, and another worker may have filled the hole."""
LOOKS = 3
"""Most such looks before a write. From a cluster that is farther away than ``FRESH_S``, no look is ever fresh
enough."""
NOT_PERMITTED = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})


class Pace:
    """Limits the markers per second, over all partitions of the process (``max.fill.per.second``)."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._free_at = 0.0
        self._turn = asyncio.Lock()

    async def take(self, count: int) -> None:
        """Waits until ``count`` markers may be written. First come, first served; a cancelled caller takes nothing."""
        async with self._turn:
            if (pause_s := self._free_at - time.monotonic()) > 0:
                await asyncio.sleep(pause_s)
            self._free_at = max(time.monotonic(), self._free_at) + count / self._per_second


class MarkerWriter(Protocol):
    """A way to write markers at the destination."""

    most: int
    """Most markers per call."""
    at_once: bool
    """True if the markers are in the log when the call returns."""

    async def write(self, count: int) -> None:
        """Asks the broker to write ``count`` markers."""


class ByMarkers:
    """Writes markers by WriteTxnMarkers requests: the default (``fill: markers``)."""

    most = CHUNK
    at_once = True

    def __init__(self, there: Writable, before: Identity, coordinator_epoch: int) -> None:
        """
        Args:
            there: the destination's log.
            before: the identity of a data batch in the hole's place.
            coordinator_epoch: above that of any predecessor, so that brokers refuse a predecessor's late markers from
                the first of these markers on.
        """
        self._there = there
        self._marker = Marker(before.marker.producer_id, before.marker.epoch, coordinator_epoch)

    async def write(self, count: int) -> None:
        """Writes all markers in one request."""
        await self._there.write_markers(self._marker, count)


class ByTransactions:
    """Writes markers by aborting empty transactions (``fill: transaction``). This needs no right on the cluster, and
    guarantees less: the coordinator repeats a marker by itself if the partition's leader dies meanwhile, which halts
    ``overfilled``."""

    most = 1
    at_once = False

    def __init__(self, abort: Callable[[], Awaitable[None]]) -> None:
        """``abort``: aborts one empty transaction on the partition."""
        self._abort = abort

    async def write(self, count: int) -> None:
        """Writes one marker; ``count`` must be 1."""
        assert count == 1
        await self._abort()


class MarkerRun:
    """Fills one hole of one partition. Call ``run`` once."""

    def __init__(
        self,
        there: Readable,
        offset: int,
        count: int,
        *,
        writer: MarkerWriter,
        owns: Callable[[], Awaitable[bool]],
        pace: Pace,
        log: EventLog,
        patience_s: float = 30.0,
    ) -> None:
        """Fills ``count`` offsets from ``offset`` on, which is where the log ``there`` has to end now.

        Args:
            there: the destination's log.
            offset: the first offset of the hole.
            count: number of offsets to fill.
            writer: writes the markers.
            owns: returns True if this worker still owns the partition, according to the transaction coordinator.
            pace: shared by all partitions of the process.
            log: gets events about waiting for replication.
            patience_s: time within which markers have to be in the log, if the writer is not ``at_once``.
        """
        self._there = there
        self._offset = offset
        self._until = offset + count
        self._writer = writer
        self._owns = owns
        self._pace = pace
        self._log = log
        self._patience_s = patience_s
        self._looked_at = 0.0
        self._sent = False

    async def run(self) -> None:
        """Fills the hole. The log then ends behind it.

        Raises:
            NotOurs: another worker has taken the partition over.
            Moved: the log does not end where it should, or possibly does not.
            PartitionHalted: the mirror may not write markers.
            NetworkError: a look failed before any marker was sent. After one was sent, this is ``Moved``.
        """
        end = self._offset
        await self._look_at_both(end)
        while end < self._until:
            count = min(self._until - end, self._writer.most)
            await self._pace.take(count)
            for _ in range(LOOKS):
                if since_boot() - self._looked_at <= FRESH_S:
                    break
                await self._look_at_both(end)
            if await self._write(count):
                await self._look(end + count, before=end)
                end += count

    async def _look_at_both(self, end: int) -> None:
        """Checks that the partition is still ours, and that the log ends at ``end``."""
        owns, _ = await asyncio.gather(self._owns(), self._look(end))
        if not owns:
            raise NotOurs(self._there.name)

    async def _write(self, count: int) -> bool:
        """Writes ``count`` markers. Returns False if they were not sent: they had to wait, so the last look at the log
        end is too old."""
        sent_before, self._sent = self._sent, True
        try:
            await self._writer.write(count)
        except NotSent:
            self._sent, self._looked_at = sent_before, -math.inf
            return False
        except Refused as error:
            if error.code in NOT_PERMITTED:
                halted = Halted.of(HaltReason.FILL_NOT_PERMITTED, str(error), lacks=error.lacks)
                raise PartitionHalted(halted) from error
            raise Moved("marker_refused", str(error), unsettled=True) from error
        except NetworkError as error:
            raise Moved("marker_unanswered", str(error), unsettled=True) from error
        return True

    async def _look(self, expected: int, *, before: int | None = None) -> None:
        """Checks that the log ends at ``expected``.

        Args:
            expected: the end.
            before: the end before a write whose markers may not be in the log yet; None: there was no write.

        Raises:
            Moved: the log ends elsewhere; or it could not be looked at, and markers were sent.
            NetworkError: it could not be looked at, and no marker was sent.
        """
        give_up_at = since_boot() + self._patience_s
        while True:
            self._looked_at = since_boot()
            try:
                end = await barrier(self._there, self._log)
            except NetworkError as error:
                if self._sent:
                    raise Moved(error.slug, str(error), unsettled=True) from error
                raise
            if end == expected:
                return
            if self._writer.at_once or end != before or self._looked_at > give_up_at:
                detail = f"{self._there.name} ends at {end}, expected {expected}"
                raise Moved(END_MOVED, detail, unsettled=self._sent)
            await asyncio.sleep(POLL_S / 10)
