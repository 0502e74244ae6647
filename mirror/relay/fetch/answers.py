"""Processes Fetch responses: forwards their batches, and acts on errors of partitions."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from mirror.net.buffers import Frame
from mirror.net.rights import READ, TOPIC, Right
from mirror.reasons import HaltReason
from mirror.records.admit import Halt
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.scan import Remainder, measure
from mirror.relay.fetch.link import Asked, PartitionKey
from mirror.relay.halts import Halted, halted_by_batch, halted_by_error
from mirror.relay.holes.gaps import epoch_damaged
from mirror.relay.hot.forward import forward
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.wire.errors import UNREADABLE, Reaction, error_name, error_slug, outcome_of
from mirror.wire.fetch import NO_REPLICA, Fetched, FetchResponse

LEAST_EMPTIES = 4
"""Consecutive empty responses below the source's end after which the source's log is examined. It is examined again
after twice as many, and so on."""
UNREADABLE_DOUBTS = 8
"""Consecutive doubts after which UNKNOWN_SERVER_ERROR counts as damage."""


class Given(NamedTuple):
    """Partitions of a response, in its order."""

    gave: list[Partition]
    """Partitions that gave data."""
    cut: list[Partition]
    """Partitions for which the response has only a part of a batch. The batch comes whole once they are first in a
    request."""


class Answers:
    """Processes the responses of one source broker."""

    def __init__(self, relay: Orchestrator, node_id: int) -> None:
        self._relay = relay
        self._node_id = node_id

    def take(self, frame: Frame, fetch: FetchResponse, asked: Mapping[PartitionKey, Asked], *, short: bool) -> Given:
        """Forwards the batches of a response.

        Args:
            frame: the response.
            fetch: the response, parsed.
            asked: the requested partitions with the generation of each; other partitions in the response are ignored.
            short: True if the response had room left, so that an empty slice is not for lack of room.

        Returns:
            The partitions that gave data, and those whose batch was cut off.
        """
        if fetch.error and not fetch.partitions:
            self._refuse_all(fetch.error, asked)
        relay = self._relay
        committed, now = relay.settings.committed, time.monotonic()
        forgotten_ms = relay.forgets_before_ms()
        gave, cut = list[Partition](), list[Partition]()
        first_at = next((fetched.start for fetched in fetch.partitions if fetched.end > fetched.start), -1)
        for fetched in fetch.partitions:
            # Unpacked at once, because access to a single named field costs more than all of this.
            topic, index, error, high_watermark, last_stable, _, _, diverging, _, preferred, start, end = fetched
            partition, generation = asked.get((topic, index), (None, 0))
            if partition is None or partition.phase is not Phase.ACTIVE or partition.cursor.generation != generation:
                continue
            cursor = partition.cursor
            if partition.queue.parked:
                continue
            if error or fetch.error:
                self._refused(partition, fetched, fetch)
                continue
            readable = last_stable if committed else high_watermark
            cursor.fetched(readable, now, high_watermark - readable)
            if diverging is not None:
                epoch, end_offset = diverging
                detail = (
                    f"offset {cursor.due} is due, the source's log of epoch {epoch} ends at {end_offset}: only the "
                    f"destination has what the source had from there on"
                )
                relay.diverged(partition, Halted.of(HaltReason.SOURCE_TRUNCATED, detail))
            elif preferred not in (NO_REPLICA, self._node_id):
                relay.replicas.prefer(partition, preferred)
            elif end > start:
                due = cursor.due
                if relay.limits.any:
                    relay.limits.came(partition, end - start)
                self._forward(frame, fetched, partition, first=start == first_at, forgotten_ms=forgotten_ms)
                (cut if cursor.due == due else gave).append(partition)
            elif short:
                self.gave_nothing(partition, alone=first_at < 0)
        return Given(gave, cut)

    def _forward(
        self, frame: Frame, fetched: Fetched, partition: Partition, *, first: bool, forgotten_ms: float
    ) -> None:
        cursor = partition.cursor
        queue = partition.queue
        due, epoch = cursor.due, cursor.last_epoch
        _, _, _, _, _, _, aborted, _, _, _, start, end = fetched
        found = forward(
            frame, start, end, partition, self._relay.inner_loop, aborted, cursor.high_watermark, self._relay.rewriter,
        )  # fmt: skip
        cursor.answered()
        now_due = cursor.due
        if now_due != due:
            if cursor.last_epoch != epoch:
                self._check_epoch(partition, epoch)
            if queue.old or queue.freshness.bound_ms < forgotten_ms:
                self._widen(partition, forgotten_ms)
                if partition.phase is not Phase.ACTIVE:
                    return
        if found is None and first and measure(frame.body, start, end) is Remainder.PARTIAL:
            # The first batch of a response comes whole (KIP-74). If it does not, its length is impossible.
            found = Halt(reason=HaltReason.CORRUPT, detail=f"{end - start} bytes at offset {due} hold no whole batch")
        if now_due > due:
            cursor.gave((end - start) / (now_due - due))
        if queue.copied is not None:
            self._relay.jump(partition)
        if queue.outbox:
            assert queue.lane is not None, partition.name
            looks = (queue.old or queue.unsure) and not queue.queued
            if looks and queue.must_confirm(self._relay.settings.fresh_s):
                self._relay.reconfirm(partition)
            else:
                queue.offer()
        if isinstance(found, Halt):
            self._relay.halt_when_drained(partition, halted_by_batch(found))
        elif found is not None:
            self._relay.look(partition)

    def _widen(self, partition: Partition, forgotten_ms: float) -> None:
        """Adapts the window to the batches that were fetched. For old ones, it is as wide as is safe; or the position
        is settled before anything is sent."""
        queue = partition.queue
        queue.widen(self._relay.settings.max_in_flight, forgotten_ms)
        if queue.must_settle:
            self._relay.settle(partition)
        elif queue.window == 1 and queue.in_flight:
            queue.withhold()

    def gave_nothing(self, partition: Partition, *, alone: bool) -> None:
        """Notes an empty slice for a partition, which was not for lack of room.

        Args:
            partition: the partition.
            alone: True if no other partition of the response had data either.
        """
        # It has no data for now, whatever its end says. It must not take room in the request from other partitions.
        cursor = partition.cursor
        cursor.gave(0.0)
        if alone and cursor.due < cursor.high_watermark:
            # A single empty response may come from a broker that is slow to update its end. But a damaged batch is
            # never found, however often it is requested.
            empties = cursor.empty()
            if empties >= LEAST_EMPTIES and not empties & (empties - 1):
                self._relay.look(partition)

    def _check_epoch(self, partition: Partition, before: int) -> None:
        """Checks that the leader epoch of batches neither falls nor exceeds the leader's, because no checksum covers
        it. An impossible epoch is not sent back to the broker, which would conclude that the log was truncated."""
        cursor = partition.cursor
        epoch, most = cursor.last_epoch, cursor.leader_epoch
        if (epoch < before and epoch != NO_LEADER_EPOCH) or 0 <= most < epoch:
            cursor.distrust_epoch()
            epoch_damaged(self._relay.log, partition, f"{epoch}, behind {before}, of {most}")

    def _refused(self, partition: Partition, fetched: Fetched, fetch: FetchResponse) -> None:
        """Acts on an error code for one partition: it halts, or comes into doubt."""
        relay = self._relay
        code = fetched.error or fetch.error
        if fetched.leader is not None:
            relay.source.hint(partition.topic, partition.index, fetched.leader, fetch.nodes)
        relay.source.failed("Fetch", error_slug(code))
        outcome = outcome_of(code)
        where = f"{relay.source.name}, fetch at {partition.cursor.due}"
        if code in UNREADABLE and (outcome is Reaction.HALT or partition.claim.doubts >= UNREADABLE_DOUBTS):
            unread = -1 if outcome is Reaction.HALT else partition.cursor.due
            relay.halt(partition, Halted.of(HaltReason.CORRUPT, f"{where}: {error_name(code)}", unread=unread))
        elif outcome is Reaction.HALT:
            needs = Right(READ, TOPIC, partition.topic, relay.source.name)
            relay.halt(partition, halted_by_error(code, where, None, needs=needs))
        else:
            relay.doubt_now(
                partition, error_slug(code), f"{relay.source.name} broker {self._node_id}: {error_name(code)}"
            )

    def _refuse_all(self, code: int, asked: Mapping[PartitionKey, Asked]) -> None:
        """Acts on an error code for the whole request, in a response without partitions."""
        self._relay.source.failed("Fetch", error_slug(code))
        detail = f"{self._relay.source.name} broker {self._node_id}: {error_name(code)}"
        for partition, generation in list(asked.values()):
            if partition.cursor.generation == generation:
                self._relay.doubt_now(partition, error_slug(code), detail)
