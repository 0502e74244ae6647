"""The source's side of a partition: what to fetch next, and what is known of the source's log.

Mostly the fetcher and what it calls change it (``relay.fetch``, ``relay.hot.forward``, ``relay.holes``), with the
methods. Nothing outside this module assigns the attributes (``tests/relay/partition/test_parts.py``).
"""

import math
import time
from collections import deque
from typing import NamedTuple

from mirror.records.admit import NOT_INSIDE
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.identity import Identity
from mirror.relay.halts import Halted
from mirror.relay.partition.location import Location

MARKS = 4
"""Record sets that are remembered by their last batch. A partition has fewer frames under way, so at least one of these
is acknowledged."""


NO_REPLICA = -1
BEHIND_BYTES = 512 * 1024
"""A partition with this much left to fetch is behind."""
CAUGHT_UP_BYTES = 64 * 1024
"""One that is behind has caught up when it has less than this left."""


class Hearing:
    """The moment at which a broker last said that nothing has changed for all the partitions that share this object."""

    __slots__ = ("at_s",)

    def __init__(self) -> None:
        self.at_s = -math.inf
        """By the monotonic clock, in s."""


class Ahead(NamedTuple):
    """The source has no batch from ``due`` to ``base_offset``, where the next batch begins."""

    due: int
    base_offset: int
    proven: bool
    """True if the gap was verified from all sides (``relay.holes.gaps``). Otherwise the batch is only known to be the
    next one in the file."""


class Mark(NamedTuple):
    """The last batch of a record set that was put into the queue."""

    next_offset: int
    leader_epoch: int
    header: bytes
    """Its 61 bytes, as the source has them."""


class Cursor:
    """Where fetching stands in the source's partition."""

    __slots__ = (
        "_fetched_at",
        "_heard_at",
        "_hearing",
        "ahead",
        "aligned",
        "batch_size",
        "crowded",
        "due",
        "empties",
        "ending",
        "floor",
        "followed_until",
        "generation",
        "held_back",
        "high_watermark",
        "identity",
        "inside",
        "last_epoch",
        "leader",
        "leader_epoch",
        "looking",
        "marks",
        "max_timestamp",
        "record_size",
        "replica",
        "rewritten",
        "source_start",
    )

    def __init__(self) -> None:
        self.due = 0
        """The next source offset to fetch. All offsets below are acknowledged, under way or in the outbox."""
        self.identity = Identity(0, 0, 0)
        """Of the next batch to be fetched."""
        self.generation = 0
        """Counts the positions that were fetched from. An answer to a fetch of an earlier generation is dropped."""
        self.leader = self.leader_epoch = NO_LEADER_EPOCH
        """The source's leader, as of the last position: node id and leader epoch. -1: not known."""
        self.replica = NO_REPLICA
        """The follower that is fetched from instead of the leader (KIP-392); -1: none."""
        self.followed_until = -math.inf
        """Until then, by the monotonic clock, in s."""
        self.last_epoch = NO_LEADER_EPOCH
        """Leader epoch of the batch before ``due``, which the next Fetch sends. -1: not known."""
        self.aligned = False
        """True if ``due`` is known to be where a source batch ended: then no batch may begin before it and reach it."""
        self.inside = NOT_INSIDE
        """Base offset of the source batch that is known to hold ``due``, where that is not its first offset."""
        self.rewritten: deque[tuple[int, int]] = deque()
        """First and next offset of the source batches that were rewritten, and may not all be acknowledged."""
        self.ahead: Ahead | None = None
        """What is known of a gap at ``due``."""
        self.looking = False
        """True while the source is being looked at (``relay.holes.gaps``). Nothing is fetched meanwhile."""
        self.ending: Halted | None = None
        """The partition halts with this once all that was fetched is acknowledged. Nothing more is fetched."""
        self.empties = 0
        """Consecutive answers that had nothing at ``due``, although the source says that it ends behind it."""
        self.floor = self.source_start = 0
        """As of the last position: the source's first offset, and the base offset of the batch that holds it."""
        self.high_watermark = -1
        """The source's end as last heard: what a consumer of the configured isolation level may read. -1: never."""
        self._fetched_at = self._heard_at = -math.inf
        self._hearing: Hearing | None = None
        self.held_back = 0
        """Offsets behind ``high_watermark`` that an open transaction keeps from consumers."""
        self.max_timestamp = -1
        """Of the last batch forwarded, in ms since 1970."""
        self.batch_size = 0
        """Mean size of the batches in the last record set, in bytes."""
        self.record_size = 0.0
        """Mean size per offset in the last record set, in bytes. 0 until there was one, and after an empty answer."""
        self.crowded = 0
        """Bytes worth requesting, if the holes lie so close together that some of the last answer was dropped again;
        otherwise 0."""
        self.marks: deque[Mark] = deque(maxlen=MARKS)

    # -- positions -----------------------------------------------------------------------------------------------------

    def start(self, location: Location) -> None:
        """Takes its place; fetching begins at ``location.offset``."""
        self.due = location.offset
        self._forget_marks(location.offset)
        self.floor, self.source_start = location.floor, location.source_start
        self.identity = location.identity
        self.leader, self.leader_epoch = location.source_leader
        self.replica = NO_REPLICA
        # No checksum covers leader epochs: one above the leader's cannot be.
        impossible = 0 <= self.leader_epoch < location.last_epoch
        self.last_epoch = NO_LEADER_EPOCH if impossible else location.last_epoch
        self.aligned = location.last_epoch != NO_LEADER_EPOCH
        self.inside = location.inside
        self.rewritten.clear()
        self.ahead, self.looking, self.empties = None, False, 0
        self.fetched(max(self.high_watermark, location.source_end), time.monotonic())
        self.generation += 1

    def _forget_marks(self, due: int) -> None:
        """What was fetched from ``due`` on and did not arrive is fetched again: perhaps as another batch, if the source
        lost it."""
        while self.marks and self.marks[-1].next_offset > due:
            self.marks.pop()

    @property
    def broker(self) -> int:
        """The broker that is fetched from: its node id."""
        return self.leader if self.replica == NO_REPLICA else self.replica

    def follow(self, replica: int, until_s: float) -> None:
        """From now on this follower is fetched from; the leader is asked again at ``until_s`` (monotonic)."""
        self.replica, self.followed_until = replica, until_s
        self.generation += 1

    def leave(self) -> None:
        """From now on the leader is fetched from."""
        self.replica = NO_REPLICA
        self.generation += 1

    def drop(self) -> None:
        """The position is not certain any more: answers that are still due count for nothing."""
        self.ending = None
        self.held_back = 0
        self.generation += 1

    def disown(self) -> None:
        """An answer under way is dropped; nothing else changes."""
        self.generation += 1

    def skip_to(self, due: int, identity: Identity) -> None:
        """The offsets up to ``due`` are not fetched. ``identity``: of the next batch."""
        self.due, self.identity = due, identity
        self.last_epoch = NO_LEADER_EPOCH

    def rewind(self, due: int, identity: Identity, ahead: Ahead | None) -> None:
        """What was fetched from ``due`` on was dropped, and is fetched again.

        Args:
            due: the first offset of it.
            identity: of the batch there.
            ahead: the gap there, if it is one; None: what was known of a gap stays.
        """
        self._forget_marks(due)
        self.skip_to(due, identity)
        self.inside = next((base for base, end in self.rewritten if base < due < end), NOT_INSIDE)
        self.ahead = ahead or self.ahead
        self.ending = None  # found again when the batch in question is fetched again
        self.generation += 1

    # -- answers -------------------------------------------------------------------------------------------------------

    def heard(self, end: int, at_s: float, held_back: int | None = None) -> None:
        """The source ends at ``end`` as of the moment ``at_s``. ``held_back``: None if not known."""
        self.high_watermark, self._heard_at = end, at_s
        if held_back is not None:
            self.held_back = held_back

    def fetched(self, end: int, at_s: float, held_back: int | None = None) -> None:
        """As ``heard``, by a fetch from ``due`` on, or by a look at what stands before it."""
        self._fetched_at = at_s
        self.heard(end, at_s, held_back)

    @property
    def fetched_at(self) -> float:
        """When the source last answered a fetch from ``due`` on, by the monotonic clock, in s."""
        return self._fetched_at if self._hearing is None else max(self._fetched_at, self._hearing.at_s)

    @property
    def heard_at(self) -> float:
        """When ``high_watermark`` was heard, by the monotonic clock, in s."""
        return self._heard_at if self._hearing is None else max(self._heard_at, self._hearing.at_s)

    @property
    def is_quiet(self) -> bool:
        """True if nothing is fetched, queued or in flight, and nothing will be until an answer names the partition."""
        return self._hearing is not None

    def hear_by(self, hearing: Hearing | None) -> None:
        """From now on ``hearing`` says when ``high_watermark`` was heard; None: only ``heard`` does."""
        self._fetched_at, self._heard_at, self._hearing = self.fetched_at, self.heard_at, hearing

    def forget_hearing(self) -> None:
        """That nothing waits is true only as long as the source is heard."""
        self._heard_at = -math.inf

    def advance(
        self, due: int, identity: Identity, last_epoch: int, max_timestamp: int, inside: int = NOT_INSIDE
    ) -> None:
        """What an answer had up to ``due`` was put into the queue, or skipped.

        Args:
            due: the offset behind it.
            identity: of the next batch.
            last_epoch: leader epoch of the last batch.
            max_timestamp: of the last batch forwarded, in ms since 1970.
            inside: base offset of the batch that ``due`` lies inside of, if its beginning was put into the queue.
        """
        if due != self.due:
            self.aligned, self.inside = inside == NOT_INSIDE, inside
        self.due, self.identity = due, identity
        self.last_epoch, self.max_timestamp = last_epoch, max_timestamp

    def rewrote(self, base_offset: int, next_offset: int, acknowledged: int) -> None:
        """The batch with these offsets goes to the destination in pieces, so that ``due`` may come to lie inside of it
        again. ``acknowledged``: all below this offset is at the destination."""
        while self.rewritten and self.rewritten[0][1] <= acknowledged:
            self.rewritten.popleft()
        if not self.rewritten or self.rewritten[-1] != (base_offset, next_offset):
            self.rewritten.append((base_offset, next_offset))

    def is_rewritten(self, offset: int) -> bool:
        """Returns True if the batch at this offset, which has just been acknowledged, was made here."""
        return any(base <= offset < end for base, end in self.rewritten)

    def measured(self, batch_size: int, *, holes: bool) -> None:
        """The mean size of an answer's batches, in bytes; ``holes``: whether it had holes between them."""
        self.batch_size = batch_size
        if not holes:
            self.crowded = 0

    def gave(self, per_offset: float) -> None:
        """An answer had this many bytes per offset; 0: it had nothing to give."""
        self.record_size = per_offset

    @property
    def backlog_bytes(self) -> int:
        """About how much is left to fetch; 0 also if that is not known."""
        return int(self.record_size * (self.high_watermark - self.due))

    @property
    def behind(self) -> bool:
        """True if there is a backlog, which is fetched apart from what is up to date."""
        return self.backlog_bytes >= BEHIND_BYTES

    @property
    def caught_up(self) -> bool:
        """True if there is no backlog any more. An empty answer does not show that: the next batch may have been larger
        than what was requested of the partition, beside others that gave data."""
        known = self.record_size > 0 or self.empties > 0 or self.due >= self.high_watermark
        return known and self.backlog_bytes < CAUGHT_UP_BYTES

    def answered(self) -> None:
        """An answer had something at ``due``."""
        self.empties = 0

    def empty(self) -> int:
        """One more answer had nothing at ``due``, although the source ends behind it. Returns how many in a row."""
        self.empties += 1
        return self.empties

    def crowd(self, most_bytes: int) -> None:
        """The holes lie so close together that no more than this is worth requesting."""
        self.crowded = most_bytes

    def distrust_epoch(self) -> None:
        """The leader epoch of the batch before ``due`` cannot be right, and is not sent to the broker."""
        self.last_epoch = NO_LEADER_EPOCH

    # -- gaps ----------------------------------------------------------------------------------------------------------

    def expect(self, ahead: Ahead | None) -> None:
        """What is known of a gap at ``due``."""
        self.ahead = ahead

    def begin_look(self) -> bool:
        """The source is going to be looked at. Returns False if that is under way already."""
        begins, self.looking = not self.looking, True
        return begins

    def end_look(self) -> None:
        """The look has ended."""
        self.looking = False

    def end_with(self, halted: Halted) -> None:
        """See ``ending``."""
        self.ending = halted

    def go_on(self) -> None:
        """It does not end with anything any more: it is fetched on."""
        self.ending = None

    # -- what was read -------------------------------------------------------------------------------------------------

    def forget_read(self) -> None:
        """The source may have lost what was read, and other batches may stand there: another worker had the partition
        in the meantime."""
        self.marks.clear()

    def forget_source(self) -> None:
        """Another topic is the source from now on: nothing that is known of the former one applies."""
        self.forget_read()
        self.leader_epoch = NO_LEADER_EPOCH
