"""The facts that a look at a partition's two logs needs: the logs as it sees them, the facts about the flow, and the
identity that continues the destination's log (``continued``). ``relay.locate.resync`` decides from them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mirror.net.logs.log import Marker, Producer, Segment
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.records.admit import Terms
from mirror.records.header import BatchHeader
from mirror.records.identity import Identity, same_owner
from mirror.relay.locate.evidence import Unseen
from mirror.relay.locate.tails import Tail

Rest = Callable[[float], Awaitable[object]]
"""Waits for this many seconds, or longer. Nothing large may be held meanwhile: thousands of partitions rest at a
time."""


class Readable(Protocol):
    """A partition's log, for reading. See ``net.logs.log.PartitionLog``."""

    @property
    def name(self) -> str:
        """topic-partition at cluster."""

    async def start(self) -> int:
        """Returns the first offset that the log still has."""

    async def true_end(self) -> int:
        """Returns the leader's log end."""

    async def visible_end(self) -> int:
        """Returns the leader's high watermark."""

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """Returns whole batches, starting with the one that holds ``offset``."""

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        """Returns the header and the bytes of the batch that holds ``offset``, or of the next one; None if there is
        none."""


class Writable(Readable, Protocol):
    """The destination's log."""

    async def producers(self) -> list[Producer] | None:
        """Returns the producers that the log's leader remembers; None if it cannot be asked."""

    async def write_markers(self, marker: Marker, count: int) -> None:
        """Appends ``count`` markers. A response does not prove that they were appended."""


class SourceLogStart(Readable, Protocol):
    """The source's log. ``floor``: its log start offset as of the last ``start``; it may lie inside a batch."""

    floor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncRules:
    """The facts about the flow and the partition that a resync needs.

    Attributes:
        name: topic-partition, for messages.
        owner: the flow's producer id for this partition, rotation 0.
        filler: the producer id of its leading filler.
        settle_s: how long the log's end must stand still: longer than bytes of a dead predecessor can still arrive.
        rest: waits for that time.
        committed: True if the source is read as a read_committed consumer reads it.
        window: number of batches that a predecessor may have had in flight.
        terms: the topic's terms.
        accept_gap: go on without records that retention deleted before they were copied (``on.gap``).
        accept_loss: an operator has accepted, this once, what ``on.gap`` does not cover: records that were filled; with
            ``offsets: mapped``, a copy whose account is lost, or can be read in several ways.
        gaps_to: records before this offset were accepted as lost by an earlier decision, which is written down.
        aborted_to: aborted data before this offset was filled, although the source is read uncommitted now.
        adopted: batches before this offset are older than the flow, and equal the source's all the same
            (``Pin.adopted``).
        adopted_epoch: epoch of the destination's leader at that time: batches of a later epoch are not adopted. -1: not
            known.
        next_epoch: the broker has forgotten our producer id (error 59), so it accepts only a new epoch.
        unread: base offset of a batch that was acknowledged, but may not be there as it was sent; -1: there is none.
        strict: the copy carries the source's producer fields, so these must be equal, too.
        led_to: this process has filled the offsets before the source's first record up to here; -1: it has filled none.
        pinned: the source is, by its id, the topic that was copied before.
        opening: held while batches are opened to be compared: one pair at a time in a process.
        vouch: checks that this is the source that was copied, where nothing can be compared
            (``relay.locate.evidence``).
        kept: checks that no leader of the source has lost what was copied, where the last batches compare as equal.
        passed: returns which records were passed over (``oversize.record``), according to the internal topic: offset ->
            leader epoch of the source's record there, or the digest of an old message.
        coordinator_epoch: the least one for markers: above any that a previous owner used, although that owner may have
            seen the same log.
        starting: where the copy begins, if that is behind the source's start.
        forgets_before_ms: the destination may have forgotten a batch whose newest record is older (ms since 1970).
    """

    name: str
    owner: int
    filler: int
    settle_s: float
    rest: Rest = asyncio.sleep
    committed: bool = True
    window: int = 5
    terms: Terms = field(default_factory=Terms)
    accept_gap: bool = False
    accept_loss: bool = False
    next_epoch: bool = False
    unread: int = -1
    strict: bool = False
    gaps_to: int = 0
    aborted_to: int = 0
    adopted: int = 0
    adopted_epoch: int = -1
    coordinator_epoch: int = 0
    starting: StartingOffset | None = None
    forgets_before_ms: float = 0.0
    led_to: int = -1
    pinned: bool = False
    opening: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)
    vouch: Callable[[Unseen], Awaitable[int]] | None = field(default=None, compare=False)
    kept: Callable[[Unseen], Awaitable[None]] | None = field(default=None, compare=False)
    passed: Callable[[], Awaitable[Mapping[int, int | str]]] | None = field(default=None, compare=False)

    def is_own(self, header: BatchHeader) -> bool:
        """Returns True if the batch is the flow's data, in any rotation of its producer id, or was adopted by the
        flow."""
        return same_owner(header.producer_id, self.owner) or self.is_adopted(header)

    def is_adopted(self, header: BatchHeader) -> bool:
        """Returns True if the batch is older than the flow, and belongs at its offsets. If the destination has lost its
        end since, what stands in its place now has a later leader epoch."""
        return header.last_offset < self.adopted and (
            self.adopted_epoch < 0 or header.leader_epoch <= self.adopted_epoch
        )


def ours(known: Sequence[Producer] | None, owner: int) -> list[Producer]:
    """Returns the producers among ``known`` that are this partition's own, in any rotation of ``owner``. ``known``:
    those that a leader remembers; None: not known."""
    return [state for state in known or () if same_owner(state.producer_id, owner)]


def coordinator_epoch(known: Sequence[Producer] | None, rules: ResyncRules) -> int:
    """Returns the coordinator epoch of the next markers. From then on, brokers refuse late markers of another look at
    the log, or of another owner. Returns 0 if the leader cannot be asked: a broker that knows a higher epoch than ours
    would refuse our markers for ever."""
    if known is None:
        return 0
    return max(
        1 + max((state.coordinator_epoch for state in ours(known, rules.owner)), default=-1), rules.coordinator_epoch
    )


def armed(tail: Tail, known: Sequence[Producer] | None, rules: ResyncRules) -> bool:
    """Returns True if the leader remembers the very batch that we continue from: then it recognises any late repeat.
    After an adopted batch, the leader knows no sequence of ours, and accepts any."""
    last = tail.marker or (tail.data[0] if tail.data else None)
    if last is None or known is None or not (rules.strict or same_owner(last.producer_id, rules.owner)):
        return False
    return any(
        (state.producer_id, state.epoch) == (last.producer_id, last.producer_epoch)
        and (last.is_control or state.last_sequence == last.last_sequence)
        for state in known
    )


def continued(tail: Tail, known: Sequence[Producer] | None, rules: ResyncRules, end: int) -> Identity:
    """Returns the identity of the next data batch.

    After data (P, e, last): (P, e, last + 1). After markers (P, odd e): (P, e + 1, 0), or (P + 1, 0, 0) past the last
    epoch. A marker with an older identity than the data does not count. If the log has neither, the identity follows
    from what the broker remembers of our producer; if that is nothing, it is (owner, 0, 0).
    """
    if tail.marker is not None:
        identity = _identity(tail.marker).behind_markers()
    elif tail.data is not None and same_owner(tail.data[0].producer_id, rules.owner):
        last = _identity(tail.data[0])
        # Markers of others behind our data take their offsets all the same.
        identity = last.after(1) if tail.holes_from == end else last.behind_markers()
    else:
        states = ours(known, rules.owner)
        if not states:
            return Identity(rules.owner, 0, 0)
        newest = max(states, key=lambda state: (state.producer_id, state.epoch))
        last = Identity(newest.producer_id, newest.epoch, max(newest.last_sequence, 0))
        identity = last.behind_markers() if newest.epoch & 1 else last.after(newest.last_sequence >= 0)
    return identity.behind_markers() if rules.next_epoch else identity


def _identity(header: BatchHeader) -> Identity:
    return Identity(header.producer_id, header.producer_epoch, 0 if header.is_control else header.last_sequence)
