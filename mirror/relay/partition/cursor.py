"""The source's side of a partition: what to fetch next, and what is known of the source's log.

Mostly the fetcher and what it calls change it (``relay.fetch``, ``relay.hot.forward``, ``relay.holes``), by calling
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
"""Number of record sets that are remembered by their last batch. A partition has fewer frames in use, so at least one
of these record sets is acknowledged."""


NO_REPLICA = -1
BEHIND_BYTES = 512 * 1024
"""A partition is behind when it has at least this much left to fetch."""
CAUGHT_UP_BYTES = 64 * 1024
"""A partition that is behind has caught up when it has less than this left to fetch."""


class Hearing:
    """The time at which a broker last said that nothing has changed for all the partitions that share this object."""

    __slots__ = ("at_s",)

    def __init__(self) -> None:
        self.at_s = -math.inf
        """Monotonic clock, in s; negative infinity: never."""


class Ahead(NamedTuple):
    """A gap: the source has no batch from ``due`` to ``base_offset``, where the next batch begins."""

    due: int
    base_offset: int
    proven: bool
    """True if the gap was verified from all sides (``relay.holes.gaps``). Otherwise, the batch is only known to be the
    next one in the log file."""


class Mark(NamedTuple):
    """The last batch of a record set that was put into the queue."""

    next_offset: int
    leader_epoch: int
    header: bytes
    """Its 61 header bytes, as the source has them."""


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
        """The next source offset to fetch. All offsets below it are acknowledged, in flight or in the outbox."""
        self.identity = Identity(0, 0, 0)
        """The identity of the next batch to be fetched."""
        self.generation = 0
        """Counts the positions that were fetched from. The response to a fetch of an earlier generation is dropped."""
        self.leader = self.leader_epoch = NO_LEADER_EPOCH
        """Node id and leader epoch of the source's leader, as of the last position. -1: not known."""
        self.replica = NO_REPLICA
        """Node id of the follower that is fetched from instead of the leader (KIP-392); -1: none."""
        self.followed_until = -math.inf
        """Until when the follower is fetched from (monotonic clock, in s)."""
        self.last_epoch = NO_LEADER_EPOCH
        """Leader epoch of the batch before ``due``, which the next Fetch sends. -1: not known."""
        self.aligned = False
        """True if a source batch is known to end right before ``due``. Then no batch may begin before ``due`` and reach
        over it."""
        self.inside = NOT_INSIDE
        """Base offset of the source batch that is known to hold ``due``, if that is not its first offset."""
        self.rewritten: deque[tuple[int, int]] = deque()
        """First and next offset of the source batches that were rewritten, and may not all be acknowledged."""
        self.ahead: Ahead | None = None
        """What is known of a gap at ``due``."""
        self.looking = False
        """True while the source is being examined for a gap (``relay.holes.gaps``). Nothing is fetched meanwhile."""
        self.ending: Halted | None = None
        """The halt with which the partition ends once everything that was fetched is acknowledged. Nothing more is
        fetched. None: it goes on."""
        self.empties = 0
        """Consecutive responses that had nothing at ``due``, although the source says that its log ends behind it."""
        self.floor = self.source_start = 0
        """As of the last position: the source's first offset (``floor``), and the base offset of the batch that holds
        it."""
        self.high_watermark = -1
        """The source's end as last heard: up to where a consumer of the configured isolation level can read. -1: never
        heard."""
        self._fetched_at = self._heard_at = -math.inf
        self._hearing: Hearing | None = None
        self.held_back = 0
        """Number of offsets behind ``high_watermark`` that an open transaction keeps from consumers."""
        self.max_timestamp = -1
        """Max timestamp of the last batch forwarded, in ms since 1970."""
        self.batch_size = 0
        """Mean size of the batches in the last record set, in bytes."""
        self.record_size = 0.0
        """Mean size per offset in the last record set, in bytes. 0 before the first one, and after an empty
        response."""
        self.crowded = 0
        """Most bytes worth requesting, if holes are so close together that a part of the last response was dropped
        again; otherwise 0."""
        self.marks: deque[Mark] = deque(maxlen=MARKS)

    # -- positions -----------------------------------------------------------------------------------------------------

    def start(self, location: Location) -> None:
        """Takes over a new position. Fetching begins at ``location.offset``."""
        self.due = location.offset
        self._forget_marks(location.offset)
        self.floor, self.source_start = location.floor, location.source_start
        self.identity = location.identity
        self.leader, self.leader_epoch = location.source_leader
        self.replica = NO_REPLICA
        # No checksum covers leader epochs. An epoch above the leader's is impossible.
        impossible = 0 <= self.leader_epoch < location.last_epoch
        self.last_epoch = NO_LEADER_EPOCH if impossible else location.last_epoch
        self.aligned = location.last_epoch != NO_LEADER_EPOCH
        self.inside = location.inside
        self.rewritten.clear()
        self.ahead, self.looking, self.empties = None, False, 0
        self.fetched(max(self.high_watermark, location.source_end), time.monotonic())
        self.generation += 1

    def _forget_marks(self, due: int) -> None:
        """Forgets the marks behind ``due``. What was fetched from there and did not arrive is fetched again, perhaps as
        another batch, if the source has lost that one."""
        while self.marks and self.marks[-1].next_offset > due:
            self.marks.pop()

    @property
    def broker(self) -> int:
        """Node id of the broker that is fetched from."""
        return self.leader if self.replica == NO_REPLICA else self.replica

    def follow(self, replica: int, until_s: float) -> None:
        """Fetches from this follower from now on.

        Args:
            replica: node id of the follower.
            until_s: when to ask the leader again (monotonic clock).
        """
        self.replica, self.followed_until = replica, until_s
        self.generation += 1

    def leave(self) -> None:
        """Fetches from the leader from now on."""
        self.replica = NO_REPLICA
        self.generation += 1

    def drop(self) -> None:
        """Ends the position, because it is not certain any more. Responses that are still due are dropped."""
        self.ending = None
        self.held_back = 0
        self.generation += 1

    def disown(self) -> None:
        """Has the response to an outstanding fetch dropped; changes nothing else."""
        self.generation += 1

    def skip_to(self, due: int, identity: Identity) -> None:
        """Goes on at ``due`` without fetching the offsets before it. ``identity``: that of the next batch."""
        self.due, self.identity = due, identity
        self.last_epoch = NO_LEADER_EPOCH

    def rewind(self, due: int, identity: Identity, ahead: Ahead | None) -> None:
        """Goes back to ``due``. Everything that was fetched from there on was dropped, and is fetched again.

        Args:
            due: the first offset to fetch again.
            identity: the identity of the batch there.
            ahead: the gap there, if it is one; None: what was known of a gap still holds.
        """
        self._forget_marks(due)
        self.skip_to(due, identity)
        self.inside = next((base for base, end in self.rewritten if base < due < end), NOT_INSIDE)
        self.ahead = ahead or self.ahead
        self.ending = None  # it is found again when the batch that causes it is fetched again
        self.generation += 1

    # -- responses -----------------------------------------------------------------------------------------------------

    def heard(self, end: int, at_s: float, held_back: int | None = None) -> None:
        """Notes where the source ends.

        Args:
            end: up to where a consumer of the configured isolation level can read.
            at_s: as of this time (monotonic clock).
            held_back: offsets behind ``end`` that an open transaction keeps from consumers; None: not known.
        """
        self.high_watermark, self._heard_at = end, at_s
        if held_back is not None:
            self.held_back = held_back

    def fetched(self, end: int, at_s: float, held_back: int | None = None) -> None:
        """As ``heard``, if the end is known from a fetch at ``due``, or from a look at what stands before ``due``."""
        self._fetched_at = at_s
        self.heard(end, at_s, held_back)

    @property
    def fetched_at(self) -> float:
        """When the source last answered a fetch at ``due`` (monotonic clock, in s)."""
        return self._fetched_at if self._hearing is None else max(self._fetched_at, self._hearing.at_s)

    @property
    def heard_at(self) -> float:
        """As of when ``high_watermark`` is known (monotonic clock, in s)."""
        return self._heard_at if self._hearing is None else max(self._heard_at, self._hearing.at_s)

    @property
    def is_quiet(self) -> bool:
        """True if nothing is fetched, queued or in flight, and nothing will be until a response names the partition."""
        return self._hearing is not None

    def hear_by(self, hearing: Hearing | None) -> None:
        """Takes the times ``fetched_at`` and ``heard_at`` from this shared object from now on, too; None: only from
        ``heard`` and ``fetched``."""
        self._fetched_at, self._heard_at, self._hearing = self.fetched_at, self.heard_at, hearing

    def forget_hearing(self) -> None:
        """Makes ``high_watermark`` count as out of date. That there is nothing left to copy is true only as long as the
        source is asked."""
        self._heard_at = -math.inf

    def advance(
        self, due: int, identity: Identity, last_epoch: int, max_timestamp: int, inside: int = NOT_INSIDE
    ) -> None:
        """Moves on to ``due``: what a response had before it was put into the queue, or skipped.

        Args:
            due: the next offset to fetch.
            identity: the identity of the next batch.
            last_epoch: leader epoch of the last batch.
            max_timestamp: that of the last batch forwarded, in ms since 1970.
            inside: base offset of the batch that ``due`` lies inside, if the batch's beginning was put into the queue.
        """
        if due != self.due:
            self.aligned, self.inside = inside == NOT_INSIDE, inside
        self.due, self.identity = due, identity
        self.last_epoch, self.max_timestamp = last_epoch, max_timestamp

    def rewrote(self, base_offset: int, next_offset: int, acknowledged: int) -> None:
        """Notes that a source batch is sent in pieces, so that ``due`` may come to lie inside it again.

        Args:
            base_offset: the batch's first offset.
            next_offset: the offset behind it.
            acknowledged: everything below this offset is at the destination; batches that end there are forgotten.
        """
        while self.rewritten and self.rewritten[0][1] <= acknowledged:
            self.rewritten.popleft()
        if not self.rewritten or self.rewritten[-1] != (base_offset, next_offset):
            self.rewritten.append((base_offset, next_offset))

    def is_rewritten(self, offset: int) -> bool:
        """Returns True if the batch at this source offset, which was just acknowledged, was made here."""
        return any(base <= offset < end for base, end in self.rewritten)

    def measured(self, batch_size: int, *, holes: bool) -> None:
        """Notes what a response was like.

        Args:
            batch_size: mean size of its batches, in bytes.
            holes: True if there were holes between them.
        """
        self.batch_size = batch_size
        if not holes:
            self.crowded = 0

    def gave(self, per_offset: float) -> None:
        """Notes the bytes per offset in a response; 0: it was empty."""
        self.record_size = per_offset

    @property
    def backlog_bytes(self) -> int:
        """Estimated bytes left to fetch; 0 if there is no estimate."""
        return int(self.record_size * (self.high_watermark - self.due))

    @property
    def behind(self) -> bool:
        """True if there is a backlog. Partitions with a backlog are fetched apart from those that are up to date."""
        return self.backlog_bytes >= BEHIND_BYTES

    @property
    def caught_up(self) -> bool:
        """True if there is no backlog any more. An empty response alone does not show that: the next batch may have
        been larger than what was requested of the partition, beside others that gave data."""
        known = self.record_size > 0 or self.empties > 0 or self.due >= self.high_watermark
        return known and self.backlog_bytes < CAUGHT_UP_BYTES

    def answered(self) -> None:
        """Notes that a response had something at ``due``."""
        self.empties = 0

    def empty(self) -> int:
        """Counts a response that had nothing at ``due`` although the source ends behind it. Returns the number of them
        in a row."""
        self.empties += 1
        return self.empties

    def crowd(self, most_bytes: int) -> None:
        """Notes that holes are so close together that no more than ``most_bytes`` is worth requesting."""
        self.crowded = most_bytes

    def distrust_epoch(self) -> None:
        """Forgets the leader epoch of the batch before ``due``, which cannot be right, so that it is not sent to the
        broker."""
        self.last_epoch = NO_LEADER_EPOCH

    # -- gaps ----------------------------------------------------------------------------------------------------------

    def expect(self, ahead: Ahead | None) -> None:
        """Notes what is known of a gap at ``due``; None: nothing."""
        self.ahead = ahead

    def begin_look(self) -> bool:
        """Begins an examination of the source. Returns False if one is in progress already."""
        begins, self.looking = not self.looking, True
        return begins

    def end_look(self) -> None:
        """Ends the examination."""
        self.looking = False

    def end_with(self, halted: Halted) -> None:
        """Ends the partition with this halt once everything that was fetched is acknowledged; see ``ending``."""
        self.ending = halted

    def go_on(self) -> None:
        """Cancels ``end_with``: fetching goes on."""
        self.ending = None

    # -- what was read -------------------------------------------------------------------------------------------------

    def forget_read(self) -> None:
        """Forgets what was read. Another worker had the partition in the meantime: the source may have lost those
        batches since, and have others in their place."""
        self.marks.clear()

    def forget_source(self) -> None:
        """Forgets everything that is known of the source topic, because another topic is the source from now on."""
        self.forget_read()
        self.leader_epoch = NO_LEADER_EPOCH
