"""The destination's side of a partition: what waits to be sent, what is in flight, and what was acknowledged.

It belongs to the lane. The compiled code (``hot/c/_gather.c``, ``_acks.c``) reads these attributes by name, and assigns
``acknowledged``, ``frames`` and ``queued``; so do its Python forms, ``relay.hot.gather`` and ``relay.hot.acks``. Nobody
else assigns any attribute (``tests/relay/partition/test_parts.py``). That test does not cover the contents of the
outbox and of ``in_flight``:

* ``relay.hot.plain`` and ``relay.hot.putting`` append to the outbox, and so does ``Partition`` (holes).
* ``relay.hot.gather`` moves batches to ``in_flight``, and ``relay.hot.acks`` removes them from there.
* ``relay.holes.parking`` replaces what waits, and (``set_aside``) what is in flight.
"""

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mirror.net.buffers import Frame
from mirror.records.admit import Cause
from mirror.records.identity import Identity
from mirror.relay.hot.freshness import Freshness
from mirror.relay.hot.native import new_outbox
from mirror.relay.mapped.copied import CopiedRuns, Jump
from mirror.relay.partition.clock import since_boot
from mirror.relay.partition.location import Location
from mirror.relay.partition.tally import Counts, Tally

if TYPE_CHECKING:
    from mirror.relay.partition.partition import Partition

IN_DOUBT = -(1 << 63) - 1
"""The value of ``acknowledged`` while in doubt. Base offsets in responses have 64 bits with a sign, so none can match
it."""


class SentPayload:
    """Takes the place of a sent batch's records when their frame is needed elsewhere. It keeps only their size."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class Batch(NamedTuple):
    """One batch, ready to be sent. The hot path builds and reads it as a plain tuple of this shape."""

    head: bytes
    """Partition index, record set size and the restamped header, as the Produce request carries them."""
    payload: memoryview
    """The records, borrowed from the frame that they were fetched in. ``SentPayload``: they were sent, and only their
    size is kept."""
    records: int
    """Number of offsets that it takes: lastOffsetDelta + 1."""
    frame: Frame | None
    """Set on the last batch of a record set. The frame is released when that batch is acknowledged."""


class Hole(NamedTuple):
    """Offsets without a record at the source, in their place among the batches. Markers take these offsets at the
    destination.

    It has the shape of a ``Batch`` with an empty head, by which the lane recognises it.
    """

    head: bytes
    before: Identity
    """The identity that a data batch in this place would carry. The identity of the markers follows from it."""
    records: int
    """Number of offsets that it takes."""
    frame: Frame | None
    cause: Cause


class Outlet(Protocol):
    """The lane that a partition is pinned to, as its queue sees it."""

    stalled: bool
    """True if nothing is fetched for its partitions, because its broker does not take what it is sent
    (``relay.watch.stalls``)."""

    def offer(self, queue: "Queue") -> None:
        """Lines up a queue that has something in its outbox."""

    def withhold(self, queue: "Queue") -> None:
        """Sends nothing of the queue until it is offered again."""

    def detach(self, queue: "Queue") -> None:
        """Unpins the queue. It must have nothing in flight."""


class Queue:
    """One partition's batches on their way to the destination. The hot path appends to the outbox; the lane takes from
    it."""

    __slots__ = (
        "acknowledged",
        "checking",
        "confirmed_at",
        "copied",
        "filled",
        "filling",
        "frames",
        "freshness",
        "in_flight",
        "index",
        "lane",
        "old",
        "outbox",
        "parked",
        "partition",
        "proven",
        "queued",
        "reached",
        "reconfirming",
        "settled_at",
        "tally",
        "topic_head",
        "unsure",
        "waits_old",
        "window",
    )

    def __init__(self, partition: "Partition", index: int) -> None:
        self.partition = partition
        self.index = index
        self.topic_head = b""
        """The destination topic as Produce requests carry it."""
        self.lane: Outlet | None = None
        self.outbox = new_outbox()
        """``Batch`` and ``Hole`` items that wait to be sent."""
        self.in_flight = new_outbox()
        """``Batch`` items that were sent, and not answered yet."""
        self.acknowledged = IN_DOUBT
        """The next source offset to be acknowledged: everything below it is at the destination. With exact offsets, the
        next response must have it as its base offset; with ``offsets: mapped``, one from ``copied.destination`` on."""
        self.reached = -1
        """The position as last known, also while in doubt; -1: never known. The data path does not use it. Watching
        does, and so do the notes of what was copied (``relay.durable``)."""
        self.queued = False
        """True if the lane has lined it up to send."""
        self.frames = 0
        """Number of frames that its batches keep from being reused."""
        self.parked = 0
        """Size in bytes of what waits behind a hole in a frame of its own (``relay.holes.parking``); 1 if it is parked
        for another reason. Nothing is fetched until it is 0, which needs everything to be acknowledged and the lane not
        to be stalled."""
        self.window = 1
        """Number of batches that may be in flight; see ``widen``. 0: nothing is sent."""
        self.checking = False
        """True until the first batch after the last resync is acknowledged. That batch is read back then."""
        self.proven = False
        """True once that batch was read back as it was sent. With exact offsets, nothing is sent behind it until
        then."""
        self.freshness = Freshness()
        """Timestamps of what was acknowledged last, and of what waits."""
        self.old = True
        """True if the destination may have forgotten our producer id, or may forget it while the waiting batches are
        sent. The window is then 1: a broker that has forgotten the id accepts batch k + 1 in the place of a failed
        batch k."""
        self.waits_old = False
        """True if ``old`` follows from the batches that wait, so that no acknowledgement changes it until more is
        fetched."""
        self.confirmed_at = 0.0
        """As of when the destination's log is known to end where the next batch belongs (``since_boot``): when the look
        or the request that showed it was sent. It matters only while ``old``: only the log's end tells a batch from a
        repeat then."""
        self.unsure = False
        """True if its lane's connection was lost while nothing of it was in flight. The broker may have lost the log's
        end since."""
        self.settled_at = 0.0
        """See ``Location``."""
        self.filling = False
        """True while markers are being written for the hole at the head of the outbox. Nothing is in flight then."""
        self.reconfirming = False
        """True while the destination's log end is being looked at."""
        self.filled = 0
        """Number of offsets that this process has filled since the partition was adopted; with ``offsets: mapped``,
        passed over."""
        self.tally = Tally()
        self.copied: CopiedRuns | None = None
        """With ``offsets: mapped``: the map of what was acknowledged since the takeover."""

    # -- positions -----------------------------------------------------------------------------------------------------

    @property
    def is_drained(self) -> bool:
        """True if nothing waits to be sent, and nothing is in flight."""
        return not self.outbox and not self.in_flight

    def start(self, location: Location, topic_head: bytes) -> None:
        """Takes over a new position: the next batch belongs at ``location.offset``.

        Args:
            location: the position.
            topic_head: the destination topic as Produce requests carry it.
        """
        self.acknowledged = location.offset
        self.topic_head = topic_head
        self.window = 1
        self.checking = True
        self.proven = False
        self.old, self.waits_old = True, False
        self.confirmed_at = min(since_boot(), location.ended_at)
        self.unsure = False
        self.reconfirming = False  # a look that was cancelled before its first step does not reset it
        self.settled_at = location.settled_at
        self.freshness.clear()
        self.filled += self.tally.located(location.offset, self.filled, location.holes_from)
        if self.copied is not None:
            self.copied.jumps.clear()

    def drop(self) -> None:
        """Drops what waits. Batches in flight stay until they are answered; the responses are not believed then."""
        if self.acknowledged >= 0:
            self.reached = self.acknowledged
            self.tally.dropped(self.acknowledged, self.in_flight, self.outbox)
        self.acknowledged = IN_DOUBT
        self.parked = 0
        self.reconfirming = False  # a look in progress belongs to a former position, and will not reset it
        if self.in_flight and self.in_flight[-1][3] is None:
            # The rest of its record set is in the outbox, and the last batch there has the frame. The bytes in flight
            # may not have been sent yet. They keep the frame until their response, because another response would be
            # received into it otherwise.
            self._hand_over()
        while self.outbox:
            self.let_go(self.outbox.popleft())

    def begin_again(self) -> None:
        """Restarts the counts: nothing was copied, and the copy begins elsewhere now."""
        self.tally = Tally()

    def inherit(self, offset: int) -> None:
        """Notes up to which offset the last owner had copied, according to its commit; -1: not known."""
        self.reached = offset

    def keep_account(self, copied: CopiedRuns | None) -> None:
        """With ``offsets: mapped``: notes acknowledged batches in this map from now on; None: in none."""
        self.copied = copied

    @property
    def position(self) -> int:
        """All source offsets below it were at the destination when the position was last known; -1: never known."""
        return self.acknowledged if self.acknowledged >= 0 else self.reached

    @property
    def counts(self) -> Counts:
        """Records, batches and bytes replicated since the partition was adopted."""
        return self.tally.counts(self.acknowledged, self.filled, (self.in_flight, self.outbox))

    # -- the lane ------------------------------------------------------------------------------------------------------

    def pin_to(self, lane: Outlet | None) -> None:
        """Sends all its batches through this lane from now on; None: through none."""
        self.lane = lane

    def offer(self) -> bool:
        """Offers what waits to the lane. Returns False if nothing waits, or if it is pinned to no lane."""
        if not self.outbox or self.lane is None:
            return False
        self.lane.offer(self)
        return True

    def withhold(self) -> None:
        """Has the lane send nothing of it until it is offered again."""
        if self.lane is not None:
            self.lane.withhold(self)

    def leave(self) -> None:
        """Leaves its lane. Nothing of it may be in flight."""
        if self.lane is not None:
            self.lane.detach(self)

    def line_up(self) -> bool:
        """Marks it as lined up to send. Returns False if it is lined up already, if its window is full, or while the
        log's end is being looked at: that look would find the end moved."""
        if self.queued or self.reconfirming or len(self.in_flight) >= self.window:
            return False
        self.queued = True
        return True

    def stand_back(self) -> None:
        """Marks it as not lined up."""
        self.queued = False

    def landed(self, copied: CopiedRuns, base_offset: int) -> Batch:
        """With ``offsets: mapped``: books the oldest batch in flight as appended at ``base_offset``. Returns the
        batch."""
        batch: Batch = self.in_flight.popleft()
        copied.landed(base_offset, batch[2])
        self.acknowledged = copied.source
        self.let_go(batch)
        return batch

    def pop_unbelieved(self) -> None:
        """Drops the oldest batch in flight. Its response came, or will never come, and does not count."""
        if self.in_flight:
            self.let_go(self.in_flight.popleft())

    def let_go(self, batch: Batch | Hole) -> None:
        """Releases the frame of a batch that has left the queue."""
        frame = batch[3]
        if frame is not None:
            self.frames -= 1
            frame.release()

    def hold(self, frame: Frame) -> None:
        """Counts a frame that the last batch in the outbox got, and that it may share with other partitions'
        batches."""
        frame.hold()
        self.frames += 1

    def keep(self) -> None:
        """Counts a frame that the last item in the outbox got, and that it shares with no other partition."""
        self.frames += 1

    def _hand_over(self) -> None:
        """Gives the frame of a record set that is partly in flight to the last batch in flight."""
        while self.outbox:
            frame = self.outbox.popleft()[3]
            if frame is not None:
                head, payload, records, _ = self.in_flight.pop()
                self.in_flight.append(Batch(head, payload, records, frame))
                return

    # -- the window ----------------------------------------------------------------------------------------------------

    def widen(self, most: int, forgotten_ms: float) -> None:
        """Sets the window as wide as is safe: ``most``, but 1 while the destination may have forgotten our producer id.

        After a resync, nothing is sent behind the first batch until it was read back: the next look compares the log's
        last batch, so that must be the one.

        Args:
            most: largest number of batches in flight.
            forgotten_ms: the destination may have forgotten a producer whose last batch is older than this.
        """
        self.old = self.freshness.least_ms(self.acknowledged) < forgotten_ms
        self.waits_old = self.old and self.freshness.waits_older(forgotten_ms)
        if self.proven:
            self.window = 1 if self.old else most
        else:
            self.window = 0 if self._is_read_back else 1

    def prove(self) -> None:
        """Notes that the first batch after the last resync was read back as it was sent."""
        self.proven = True

    def first_answered(self) -> bool:
        """Returns True if the response that just came is the first one after the last resync. With exact offsets,
        nothing more is sent then until its batch is proven."""
        first, self.checking = self.checking, False
        if first and self._is_read_back:
            self.window = 0
        return first

    @property
    def _is_read_back(self) -> bool:
        """True while nothing may be sent behind the first batch. With ``offsets: mapped``, that is never so: the next
        look compares everything that stands behind the checkpoint."""
        return self.copied is None and not (self.checking or self.proven)

    def confirm(self, at_s: float) -> None:
        """Notes that the destination's log ends where the next batch belongs.

        Args:
            at_s: when the request that showed it was sent (``since_boot``). It must not be when its response was read:
                this process may have been stopped in between.
        """
        self.confirmed_at = at_s
        self.unsure = False

    def lose_connection(self) -> None:
        """Notes that its lane's connection was lost. If something is in flight, that batch's outcome decides what comes
        next."""
        self.unsure = self.unsure or not self.in_flight

    def must_confirm(self, fresh_s: float) -> bool:
        """Returns True if the log's end must be looked at before the next batch is sent.

        That is so if the connection was lost while idle; or if only the log's end can tell the batch from a repeat, and
        the last look is older than ``fresh_s`` seconds. Since that look, this process may have been stopped while
        another worker copied the batch, and a broker that has forgotten the producer would append it twice. The first
        batch after a resync is exempt if it is not old itself: a repeat of it is recognised, and it is read back.
        """
        if self.in_flight:
            return False
        may_repeat = self.waits_old or (self.old and not self.checking)
        return self.unsure or (may_repeat and since_boot() - self.confirmed_at > fresh_s)

    def begin_reconfirm(self) -> bool:
        """Begins a look at the destination's log end. Returns False if one is in progress already."""
        begins, self.reconfirming = not self.reconfirming, True
        return begins

    def end_reconfirm(self) -> None:
        """Ends that look."""
        self.reconfirming = False

    @property
    def must_settle(self) -> bool:
        """True if an old batch waits while a repeat of what was sent before the position was found may still arrive.
        The destination may forget the producer with an old batch, and would then append the repeat once more."""
        return self.waits_old and time.monotonic() < self.settled_at

    # -- holes ---------------------------------------------------------------------------------------------------------

    def begin_fill(self) -> bool:
        """Begins to fill the hole at the head of the outbox. Returns False if that is in progress already."""
        begins, self.filling = not self.filling, True
        return begins

    def end_fill(self) -> None:
        """Ends the filling, whether the hole is filled or not."""
        self.filling = False

    def pop_hole(self) -> Hole:
        """Removes the hole at the head of the outbox, which is filled, and moves the position behind it. Returns the
        hole."""
        hole = self.outbox.popleft()
        assert isinstance(hole, Hole), self.partition.name
        self.acknowledged += hole.records
        self.filled += hole.records
        self.let_go(hole)
        if hole.before.behind_markers().producer_id != hole.before.producer_id:
            # The markers had the previous id. The destination has no entry of the next id until its first batch.
            self.freshness.another_id(self.acknowledged)
            self.old, self.window = True, min(self.window, 1)
        return hole

    def pass_jump(self) -> Jump | None:
        """With ``offsets: mapped``: moves the position over the next source offsets that are not copied, if everything
        before them is acknowledged. Returns them, or None."""
        jump = self.copied.jump() if self.copied is not None else None
        if jump is not None:
            self.acknowledged = jump.end
            self.filled += jump.end - jump.start
        return jump

    def park(self, size: int = 0) -> None:
        """Stops fetching for now (see ``parked``). ``size``: bytes that wait in a frame of their own; 0: none do."""
        self.frames += size > 0
        self.parked = max(size, 1)

    def unpark(self) -> None:
        """Allows fetching again. Nothing may wait or be in flight."""
        self.parked = 0
