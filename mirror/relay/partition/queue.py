"""The destination's side of a partition: what waits to be sent, what is under way, and what was acknowledged.

The lane's. The compiled code (``hot/c/_gather.c``, ``_acks.c``) reads these attributes by name, and assigns
``acknowledged``, ``frames`` and ``queued``; so do its twins in Python, ``relay.hot.gather`` and ``relay.hot.acks``.
Nobody else assigns any (``tests/relay/partition/test_parts.py``). What is in the outbox, and in ``in_flight``, is not
held by that test: ``relay.hot.plain`` and ``relay.hot.putting`` append to the outbox, and ``Partition`` puts holes
there; ``relay.hot.gather`` moves batches to ``in_flight``, and ``relay.hot.acks`` takes them from there;
``relay.holes.parking`` replaces what waits, and (``set_aside``) what is in flight.
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
"""``acknowledged`` while in doubt: no base offset of an answer, 64 bits with a sign, can match it."""


class SentPayload:
    """Takes the place of a sent batch's records when their frame is needed elsewhere. Only their size is kept."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class Batch(NamedTuple):
    """One batch ready to be sent. The hot path builds and reads it as a plain tuple of this shape."""

    head: bytes
    """Partition index, record set size and the restamped header, as the Produce request carries them."""
    payload: memoryview
    """The records, borrowed from the frame they were fetched in. ``SentPayload``: they were sent and are not needed."""
    records: int
    """Offsets that it takes: lastOffsetDelta + 1."""
    frame: Frame | None
    """Set on the last batch of a record set. The frame is released when that batch is acknowledged."""


class Hole(NamedTuple):
    """Offsets without a record at the source, in their place among the batches. Markers take them at the destination.

    It has the shape of a ``Batch`` without a head; by that the lane recognises it."""

    head: bytes
    before: Identity
    """The identity that a data batch in this place would carry. The markers' identity follows from it."""
    records: int
    """Offsets that it takes."""
    frame: Frame | None
    cause: Cause


class Outlet(Protocol):
    """Where a partition's batches go: the lane that it is pinned to."""

    stalled: bool
    """True if nothing is fetched for its partitions, because it does not get rid of what it has
    (``relay.watch.stalls``)."""

    def offer(self, queue: "Queue") -> None:
        """The queue has batches in its outbox."""

    def withhold(self, queue: "Queue") -> None:
        """The queue sends nothing until it is offered again."""

    def detach(self, queue: "Queue") -> None:
        """The queue goes elsewhere. Nothing of it is under way."""


class Queue:
    """One partition's batches on their way to its lane: the hot path appends to the outbox, the lane takes from it."""

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
        """Of ``Batch`` and ``Hole``."""
        self.in_flight = new_outbox()
        """Of ``Batch``: sent, and not answered yet."""
        self.acknowledged = IN_DOUBT
        """The next source offset to be acknowledged: all below are at the destination. With exact offsets, the next
        answer must have it as its base offset; with ``offsets: mapped``, one from ``copied.destination`` on."""
        self.reached = -1
        """The position as last known, for those who watch; nothing is decided by it. -1: never known."""
        self.queued = False
        """True if the lane has it among those with something to send."""
        self.frames = 0
        """Frames that its batches keep from being reused."""
        self.parked = 0
        """Bytes that wait behind a hole in a frame of their own (``relay.holes.parking``); 1 if it waits for another
        reason. Nothing is fetched until it is 0: all is acknowledged, and the lane is not stalled."""
        self.window = 1
        """Batches that may be under way: see ``widen``. 0: nothing is sent."""
        self.checking = False
        """True until the first batch after the last resync is acknowledged. It is read back then."""
        self.proven = False
        """True once that batch was read back as it was sent. Until then nothing is sent behind it."""
        self.freshness = Freshness()
        """Of what was acknowledged last, and of what waits."""
        self.old = True
        """True if the destination may have forgotten our producer id, or may forget it while what waits is sent. The
        window is then 1: a broker that has forgotten the id takes batch k + 1 in the place of a failed k."""
        self.waits_old = False
        """True if that is so because of what waits, whatever is acknowledged until more is fetched."""
        self.confirmed_at = 0.0
        """As of when the log end is known to be where the next batch belongs (``since_boot``): when the look or the
        request was sent that has shown it. Kept only while ``old``: then only the log end tells a batch from a repeat.
        """
        self.unsure = False
        """True if its lane's connection was lost while nothing of it was under way: the broker, and the log's end with
        it, may be another one by now."""
        self.settled_at = 0.0
        """See ``Location``."""
        self.filling = False
        """True while markers are written for the hole at the head of the outbox. Nothing is under way then."""
        self.reconfirming = False
        """True while the destination's log end is being looked at."""
        self.filled = 0
        """Offsets filled by this process since the partition was adopted; with ``offsets: mapped``, offsets passed."""
        self.tally = Tally()
        self.copied: CopiedRuns | None = None
        """With ``offsets: mapped``: what was acknowledged since the takeover, and where it is."""

    # -- positions -----------------------------------------------------------------------------------------------------

    @property
    def is_drained(self) -> bool:
        """True if nothing waits to be sent, and nothing is under way."""
        return not self.outbox and not self.in_flight

    def start(self, location: Location, topic_head: bytes) -> None:
        """Takes its place: the next batch belongs at ``location.offset``."""
        self.acknowledged = location.offset
        self.topic_head = topic_head
        self.window = 1
        self.checking = True
        self.proven = False
        self.old, self.waits_old = True, False
        self.confirmed_at = min(since_boot(), location.ended_at)
        self.unsure = False
        self.reconfirming = False  # a look that was cancelled before its first step does not say that it has ended
        self.settled_at = location.settled_at
        self.freshness.clear()
        self.filled += self.tally.located(location.offset, self.filled, location.holes_from)
        if self.copied is not None:
            self.copied.jumps.clear()

    def drop(self) -> None:
        """Drops what waits. What is under way stays until it is answered, and is not believed then."""
        if self.acknowledged >= 0:
            self.reached = self.acknowledged
            self.tally.dropped(self.acknowledged, self.in_flight, self.outbox)
        self.acknowledged = IN_DOUBT
        self.parked = 0
        self.reconfirming = False  # a look that goes on is of a former position, and will not say that it has ended
        if self.in_flight and self.in_flight[-1][3] is None:
            # The rest of its record set is in the outbox, and the last batch there has the frame. The bytes under way
            # may not be sent yet: they keep the frame until their answer, or it would be received into meanwhile.
            self._hand_over()
        while self.outbox:
            self.let_go(self.outbox.popleft())

    def begin_again(self) -> None:
        """Nothing was copied, and the copy begins elsewhere now: offsets below do not count as copied."""
        self.tally = Tally()

    def inherit(self, offset: int) -> None:
        """The former owner copied up to here, by its commit; -1: not known."""
        self.reached = offset

    def keep_account(self, copied: CopiedRuns | None) -> None:
        """With ``offsets: mapped``: where acknowledged batches are noted from now on; None: nowhere."""
        self.copied = copied

    @property
    def position(self) -> int:
        """All source offsets below are at the destination, as far as was ever known; -1: never known."""
        return self.acknowledged if self.acknowledged >= 0 else self.reached

    @property
    def counts(self) -> Counts:
        """Records, batches and bytes replicated since the partition was adopted."""
        return self.tally.counts(self.acknowledged, self.filled, (self.in_flight, self.outbox))

    # -- the lane ------------------------------------------------------------------------------------------------------

    def pin_to(self, lane: Outlet | None) -> None:
        """All its batches go to this lane from now on; None: to none."""
        self.lane = lane

    def offer(self) -> bool:
        """Offers what waits to the lane. Returns False if nothing does, or it is pinned to none."""
        if not self.outbox or self.lane is None:
            return False
        self.lane.offer(self)
        return True

    def withhold(self) -> None:
        """Sends nothing until it is offered again."""
        if self.lane is not None:
            self.lane.withhold(self)

    def leave(self) -> None:
        """Leaves its lane; nothing of it is under way."""
        if self.lane is not None:
            self.lane.detach(self)

    def line_up(self) -> bool:
        """Returns True if it joins those that have something to send: not while the log's end is being looked at, which
        would be found to have moved."""
        if self.queued or self.reconfirming or len(self.in_flight) >= self.window:
            return False
        self.queued = True
        return True

    def stand_back(self) -> None:
        """It is not among those that have something to send any more."""
        self.queued = False

    def landed(self, copied: CopiedRuns, base_offset: int) -> Batch:
        """With ``offsets: mapped``: the oldest batch under way was appended at ``base_offset``. Returns the batch."""
        batch: Batch = self.in_flight.popleft()
        copied.landed(base_offset, batch[2])
        self.acknowledged = copied.source
        self.let_go(batch)
        return batch

    def pop_unbelieved(self) -> None:
        """The answer for the oldest batch under way came, or will never come, and does not count."""
        if self.in_flight:
            self.let_go(self.in_flight.popleft())

    def let_go(self, batch: Batch | Hole) -> None:
        """The batch has left its queue, and needs its frame no more."""
        frame = batch[3]
        if frame is not None:
            self.frames -= 1
            frame.release()

    def hold(self, frame: Frame) -> None:
        """The last batch in the outbox has this frame, in which others may have batches, too."""
        frame.hold()
        self.frames += 1

    def keep(self) -> None:
        """The last item in the outbox has a frame of its own, in which nobody else has batches."""
        self.frames += 1

    def _hand_over(self) -> None:
        """The frame of the record set that is partly under way goes to the last batch under way."""
        while self.outbox:
            frame = self.outbox.popleft()[3]
            if frame is not None:
                head, payload, records, _ = self.in_flight.pop()
                self.in_flight.append(Batch(head, payload, records, frame))
                return

    # -- the window ----------------------------------------------------------------------------------------------------

    def widen(self, most: int, forgotten_ms: float) -> None:
        """Makes the window as wide as it may be: ``most``, but 1 while the destination may have forgotten who we are.
        Nothing goes behind the first batch after a resync before it was read back: the next look compares the log's
        last batch, so it must be the last. ``forgotten_ms``: the destination may have forgotten whose last batch is
        older than this."""
        self.old = self.freshness.least_ms(self.acknowledged) < forgotten_ms
        self.waits_old = self.old and self.freshness.waits_older(forgotten_ms)
        if self.proven:
            self.window = 1 if self.old else most
        else:
            self.window = 0 if self._is_read_back else 1

    def prove(self) -> None:
        """The first batch after the last resync was read back as it was sent."""
        self.proven = True

    def first_answered(self) -> bool:
        """Returns True if the answer that just came is the first one after the last resync: with exact offsets, nothing
        is sent any more until its batch is proven."""
        first, self.checking = self.checking, False
        if first and self._is_read_back:
            self.window = 0
        return first

    @property
    def _is_read_back(self) -> bool:
        """True while nothing may be sent behind the first batch. With ``offsets: mapped``, the next look compares all
        that stands behind the checkpoint, and so what was sent behind it as well."""
        return self.copied is None and not (self.checking or self.proven)

    def confirm(self, at_s: float) -> None:
        """The log ends where the next batch belongs, as of then (``since_boot``): when the request was sent that has
        shown it, since this process may have been stopped before it read the answer."""
        self.confirmed_at = at_s
        self.unsure = False

    def lose_connection(self) -> None:
        """Its lane's connection was lost. If something is under way, its outcome says what comes next."""
        self.unsure = self.unsure or not self.in_flight

    def must_confirm(self, fresh_s: float) -> bool:
        """Returns True if the log's end must be looked at before the next batch is sent: the connection was lost while
        idle, or only that end can tell the batch from a repeat and the last look is older than ``fresh_s`` seconds. In
        between, this process may have been stopped while another worker copied the batch, and a broker that has
        forgotten the producer would append it twice. The first batch after a resync is exempt if it is not old itself:
        a repeat of it is recognised, and it is read back."""
        if self.in_flight:
            return False
        may_repeat = self.waits_old or (self.old and not self.checking)
        return self.unsure or (may_repeat and since_boot() - self.confirmed_at > fresh_s)

    def begin_reconfirm(self) -> bool:
        """The destination's log end is going to be looked at. Returns False if that is under way already."""
        begins, self.reconfirming = not self.reconfirming, True
        return begins

    def end_reconfirm(self) -> None:
        """The look has ended."""
        self.reconfirming = False

    @property
    def must_settle(self) -> bool:
        """True if something waits with which the destination may forget who we are, while a repeat of what was sent
        before the position was found may still arrive: the repeat would be appended once more."""
        return self.waits_old and time.monotonic() < self.settled_at

    # -- holes ---------------------------------------------------------------------------------------------------------

    def begin_fill(self) -> bool:
        """Markers are going to be written for the hole at the head. Returns False if that is under way already."""
        begins, self.filling = not self.filling, True
        return begins

    def end_fill(self) -> None:
        """No more markers are written for it."""
        self.filling = False

    def pop_hole(self) -> Hole:
        """The hole at the head of the outbox is filled."""
        hole = self.outbox.popleft()
        assert isinstance(hole, Hole), self.partition.name
        self.acknowledged += hole.records
        self.filled += hole.records
        self.let_go(hole)
        if hole.before.behind_markers().producer_id != hole.before.producer_id:
            # The markers had the former id: the destination has no entry of the next one until its first batch.
            self.freshness.another_id(self.acknowledged)
            self.old, self.window = True, min(self.window, 1)
        return hole

    def pass_jump(self) -> Jump | None:
        """With ``offsets: mapped``: passes the next source offsets that are not copied, if all before them is
        acknowledged. Returns them, or None."""
        jump = self.copied.jump() if self.copied is not None else None
        if jump is not None:
            self.acknowledged = jump.end
            self.filled += jump.end - jump.start
        return jump

    def park(self, size: int = 0) -> None:
        """Stops fetching for now (see ``parked``). ``size``: bytes that wait in a frame of their own."""
        self.frames += size > 0
        self.parked = max(size, 1)

    def unpark(self) -> None:
        """Nothing waits and nothing is under way: it may be fetched again."""
        self.parked = 0
