"""The state of one partition: its position, the batches that are queued and under way, and its phase."""

import math
import time
from collections import deque
from typing import NamedTuple, Protocol

from mirror.net.buffers import Frame
from mirror.net.cluster import Leader
from mirror.net.coordinator import Ownership
from mirror.offsetmap.records import Pin, Side
from mirror.reasons import UNPLACED
from mirror.records.admit import Cause, Terms
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.identity import Identity
from mirror.relay.halts import Halted, Suspicion
from mirror.relay.hot.freshness import Freshness
from mirror.relay.hot.native import new_outbox
from mirror.relay.leading.filler import Begun
from mirror.relay.mapped.copied import Copied, Jump
from mirror.relay.mapped.fence import Before
from mirror.relay.phases import MOVES, Phase
from mirror.relay.tally import Counts, Tally

NEVER = (1 << 63) - 1
"""Above any offset."""
IN_DOUBT = -(1 << 63) - 1
"""``acknowledged`` while in doubt: no base offset of an answer, a signed 64-bit number, can equal it."""


MARKS = 4
"""Record sets whose last batch is remembered: more than a partition has frames under way, so that at least one of the
batches is acknowledged."""


class Sent:
    """Stands for the records of a batch that was sent, and whose frame is needed elsewhere: only their size is kept."""

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
    """The records, borrowed from the frame in which they were fetched; ``Sent`` once they were sent and let go."""
    records: int
    """Number of offsets that it takes: lastOffsetDelta + 1."""
    frame: Frame | None
    """Set on the last batch of a record set; released when that batch is acknowledged."""


class Hole(NamedTuple):
    """Offsets without a record at the source, in order among the batches: markers take them at the destination.

    It has the shape of a ``Batch`` with an empty head, by which the lane recognises it."""

    head: bytes
    before: Identity
    """The identity of a data batch in this place: that of the markers follows from it."""
    records: int
    """Number of offsets that it takes."""
    frame: Frame | None
    cause: Cause


class Location(NamedTuple):
    """The position at which a partition goes on, by the destination's log."""

    offset: int
    """The destination's log end, which is the next source offset to copy."""
    identity: Identity
    last_epoch: int
    """Leader epoch of the source batch before ``offset``; -1: not known, so the broker cannot detect truncation."""
    destination_leader: Leader
    source_leader: Leader
    source_end: int
    log_start: int
    proven: bool
    """True if the batch before ``offset`` was compared on both sides."""
    coordinator_epoch: int
    """For markers: above all coordinator epochs of ours that the destination's leader remembers."""
    source_start: int
    """The base offset of the source's first batch; above ``offset`` only if the gap was accepted."""
    floor: int = 0
    """The source's first offset, which may lie inside its first batch: the least for which a Fetch may ask."""
    holes_from: int = NEVER
    """From here up to ``offset``, the destination has only markers."""
    fill_to: int = -1
    """Offsets from ``offset`` up to here are filled: the rest of the source's batch in which ``offset`` lies, or a gap
    that an operator has accepted. Not above ``offset``: nothing is filled."""
    accepted: tuple[int, int] | None = None
    """First and next offset of the range in which markers stand, or will stand, in the place of records, by an
    operator's decision that is new and written down."""
    settled_at: float = 0.0
    """Time in s, by this process' clock, after which nothing arrives that was sent before the position was found."""


class Ahead(NamedTuple):
    """A gap at ``due``: the source's next batch begins at ``base_offset``."""

    due: int
    base_offset: int
    proven: bool
    """True if the gap was looked at from all sides (``relay.holes.gaps``). False: it is only known that the batch is
    the next one in the file."""


class Mark(NamedTuple):
    """The last batch of a record set that was put into the outbox."""

    next_offset: int
    leader_epoch: int
    header: bytes
    """The 61 bytes of its header at the source."""


class Committed(NamedTuple):
    """The flow's committed offset at the source when the partition was assigned; see ``relay.assignment``."""

    offset: int
    topic_id: str = ""
    """Hexadecimal; empty: not known."""
    epoch: int = -1
    digest: str = ""
    digest_at: int = -1
    leader_epoch: int = -1


class Waiting(NamedTuple):
    """The reason why a partition is not copied for now, though it has not halted."""

    since_s: float
    """In s since 1970."""
    reason: str
    failed: bool
    """True if ``reason`` is the error of the last attempt to locate it. False: it is the step that is being done."""


class Outlet(Protocol):
    """The lane to which a partition is pinned, and which sends its batches."""

    stalled: bool
    """True if nothing is fetched for the lane, because it cannot send what it has (``relay.watch.stalls``)."""

    def offer(self, partition: "Partition") -> None:
        """Takes the partition among those to be sent: it has batches in its outbox."""

    def withhold(self, partition: "Partition") -> None:
        """Sends nothing more of the partition until it is offered again."""

    def detach(self, partition: "Partition") -> None:
        """Unpins the partition. Nothing of it may be under way."""


class Partition:
    """Only the state: sockets, timers and tasks belong to the fetcher, the lane and the relay."""

    __slots__ = (
        "accept_gap",
        "accept_settings",
        "accept_unproven",
        "acknowledged",
        "ahead",
        "aligned",
        "batch_size",
        "before",
        "begun",
        "checking",
        "committed",
        "confirmed_at",
        "coordinator_epoch",
        "copied",
        "crowded",
        "destination",
        "destination_id",
        "destination_leader",
        "doubts",
        "due",
        "empties",
        "ending",
        "filled",
        "filling",
        "floor",
        "forgotten",
        "frames",
        "freshness",
        "generation",
        "halted",
        "heard_at",
        "held_back",
        "high_watermark",
        "identity",
        "in_flight",
        "index",
        "inherited",
        "lane",
        "last_epoch",
        "looking",
        "marks",
        "max_timestamp",
        "missing",
        "old",
        "outbox",
        "overtaken",
        "ownership",
        "parked",
        "phase",
        "pin",
        "positions",
        "proven",
        "queued",
        "reached",
        "reconfirming",
        "record_size",
        "released",
        "settled_at",
        "source_id",
        "source_leader",
        "source_leader_epoch",
        "source_start",
        "suspected",
        "tally",
        "terms",
        "topic",
        "topic_head",
        "trusted",
        "unowned",
        "unplaced",
        "unsettled",
        "waiting",
        "waits_old",
        "window",
    )

    def __init__(self, topic: str, index: int, destination: str | None = None) -> None:
        self.topic = topic
        self.destination = destination or topic
        """The topic into which it is copied."""
        self.index = index
        self.phase = Phase.LOCATING
        self.halted: Halted | None = None
        self.waiting: Waiting | None = None
        """Set while it is located or in doubt, for the status only."""
        self.ending: Halted | None = None
        """The halt that follows once everything fetched before is acknowledged; nothing more is fetched meanwhile."""
        self.lane: Outlet | None = None
        self.due = 0
        """The next source offset to fetch. All below is acknowledged, under way or in the outbox."""
        self.acknowledged = IN_DOUBT
        """The base offset that the next answer must have: all below is at the destination."""
        self.reached = -1
        """The last known position, for the status only: no decision depends on it. -1: never known."""
        self.identity = Identity(0, 0, 0)
        """The identity of the next batch to be fetched."""
        self.outbox = new_outbox()
        """Each ``Batch`` and ``Hole`` that waits to be sent."""
        self.in_flight = new_outbox()
        """Each ``Batch`` that was sent and is not answered yet."""
        self.window = 1
        """Batches that may be under way: see ``widen``."""
        self.checking = False
        """True until the first batch since the last resync is acknowledged; it is then read back."""
        self.proven = False
        """True once that batch was read back as it was sent. The window stays at 1 until then."""
        self.freshness = Freshness()
        """Timestamps of the batch acknowledged last, and of those that wait."""
        self.old = True
        """True if the destination may have forgotten our producer id, or may forget it while the waiting batches are
        sent. The window is 1 then, because a broker that has forgotten takes batch k + 1 in the place of a failed k."""
        self.waits_old = False
        """True if it is ``old`` because of waiting batches: acknowledgements do not change that until more comes."""
        self.filling = False
        """True while markers are written for the hole at the head of the outbox. Nothing else is under way then."""
        self.unsettled = False
        """True if something that was sent may still arrive and do harm: the next position is settled first."""
        self.settled_at = 0.0
        """See ``Location``."""
        self.ownership: Ownership | None = None
        """The ownership that we got from the coordinator at takeover; compared before each hole. None: we got none."""
        self.coordinator_epoch = 0
        """That of our markers: above all in the destination's log, so that a predecessor's late markers are refused."""
        self.reconfirming = False
        """True while the destination's log end is looked at again, before more is sent."""
        self.confirmed_at = 0.0
        """When the log end was last known to be where the next batch belongs, by this process' clock. Only maintained
        while it is ``old``: then only the log end distinguishes a batch from a repeat."""
        self.forgotten = False
        """True if the broker has forgotten our producer id and takes only a new epoch (error 59, Kafka 1.0 to 2.4)."""
        self.released = False
        """True if another worker has taken it over: it is left alone for a while, then taken over like a new one."""
        self.aligned = False
        """True if a batch of the source is known to end at ``due``: no batch may begin before ``due`` and reach it."""
        self.ahead: Ahead | None = None
        """The known facts about a gap at ``due``."""
        self.looking = False
        """True while the source is looked at (``relay.holes.gaps``). Nothing is fetched meanwhile."""
        self.empties = 0
        """Consecutive answers with nothing at ``due``, although the source says that it ends behind that."""
        self.unowned = False
        """True if the coordinator has forgotten the transactional id: no other worker owns the partition, so it is not
        left alone before the next takeover."""
        self.queued = False
        """True if the lane has it among those with something to send."""
        self.parked = 0
        """Bytes that wait behind a hole in a frame of their own (``relay.holes.parking``). Nothing is fetched then."""
        self.crowded = 0
        """Bytes worth asking for if its holes lie so close together that some of the last fetch was dropped again;
        else 0."""
        self.frames = 0
        """Frames that its batches keep from being reused."""
        self.generation = 0
        """Counts the positions from which it is fetched. An answer of an earlier generation is dropped: its fetch was
        sent before a doubt or a release, or before ``due`` went back."""
        self.positions = 0
        """Counts positions: whatever was learned of an earlier one means nothing for this one."""
        self.doubts = 0
        """Consecutive doubts without an acknowledgement in between."""
        self.missing = 0
        """Consecutive looks at which a cluster did not know the topic."""
        self.floor = self.source_start = 0
        """The source's first offset, and the base offset of the batch that holds it, as of the last position."""
        self.unplaced = False
        """True if its position is that of topics that were replaced or are gone; for the status only."""
        self.source_leader = self.source_leader_epoch = -1
        self.destination_leader = -1
        self.source_id: bytes | None = None
        self.destination_id: bytes | None = None
        self.topic_head = b""
        """The destination topic's name or id as Produce requests carry it."""
        self.last_epoch = -1
        self.high_watermark = -1
        """The last known end of the source for a consumer of the configured isolation level: the high watermark, or the
        last stable offset. -1: never known."""
        self.heard_at = -math.inf
        """When that was learned, by this process' clock."""
        self.held_back = 0
        """Offsets behind that end which the source has, and which an open transaction keeps from consumers."""
        self.max_timestamp = -1
        """The max timestamp of the last batch forwarded, in ms since 1970."""
        self.batch_size = 0
        """Mean size in bytes of the batches in the last record set."""
        self.record_size = 0.0
        """Mean size in bytes of an offset in the last record set; 0 until there was one, and after an empty answer."""
        self.terms = Terms()
        self.suspected: Suspicion | None = None
        """It halts for this if the topics' current configs confirm it, which is checked when it is located."""
        self.marks: deque[Mark] = deque(maxlen=MARKS)
        self.tally = Tally()
        self.filled = 0
        """Offsets filled by this process since it was adopted."""
        self.begun = Begun()
        """The fill of the offsets before the source's first record, if this process has begun one."""
        self.committed: Committed | None = None
        """None: nothing was committed, or it is not known."""
        self.inherited = -1
        """Up to where the previous owner had copied it, by its committed offset; -1: not known."""
        self.copied: Copied | None = None
        """With ``offsets: mapped``: the batches acknowledged since the takeover, and their places."""
        self.before: Before | None = None
        """With ``offsets: mapped``: the destination before a fence that no checkpoint follows yet."""
        self.accept_gap = False
        """True if an operator decided that records which the source has deleted may be skipped, this once."""
        self.accept_unproven = False
        """True if an operator decided to take the destination for a copy though nothing shows it, this once."""
        self.accept_settings = False
        """True if an operator decided that the copy goes on under the current isolation level, this once."""
        self.trusted: tuple[int, int] | None = None
        """Source offsets, first and next, that were accepted as unproven: nothing shows that they were copied."""
        self.overtaken: list[tuple[int, int]] = []
        """Source offsets, first and next, that were due at a halt and that the source has deleted since. Shown once the
        partition goes on."""
        self.pin: Pin | None = None
        """Its pin in the internal topic, as of the takeover (``relay.durable.pins``)."""

    @property
    def counts(self) -> Counts:
        """Records, batches and bytes replicated since it was adopted."""
        return self.tally.counts(self.acknowledged, self.filled, (self.in_flight, self.outbox))

    @property
    def name(self) -> str:
        """topic-partition, as in Kafka's own logs."""
        return f"{self.topic}-{self.index}"

    @property
    def side(self) -> Side:
        """Its key in the internal topic."""
        return Side(self.topic, self.index, self.destination)

    @property
    def position(self) -> int:
        """The last known position: all source offsets below are at the destination. -1: never known."""
        return self.acknowledged if self.acknowledged >= 0 else self.reached

    @property
    def shown_position(self) -> int:
        """The position for the status; -1: not known for the current topics."""
        return -1 if self.unplaced else self.position

    @property
    def lag(self) -> int | None:
        """Source offsets that the destination is not known to have; None while either end is not known. A source that
        ends before the position was recreated or truncated: its end says nothing about this copy."""
        position, end = self.shown_position, self.high_watermark
        if position < 0 or end < 0 or (end < position and self.phase is not Phase.ACTIVE):
            return None
        return max(0, end - position)

    def heard(self, end: int, at_s: float) -> None:
        """Stores the source's end and the time when it was learned."""
        self.high_watermark, self.heard_at = end, at_s

    def wait(self, reason: str, *, failed: bool = False) -> None:
        """Stores why it is not copied for now. A step that is being done does not replace the error of the last
        attempt."""
        before = self.waiting
        if before is None or failed or not before.failed:
            self.waiting = Waiting(time.time() if before is None else before.since_s, reason, failed)

    def move(self, event: str) -> None:
        """Changes the phase by the table. A move that is not in the table is a bug."""
        phase = MOVES.get((self.phase, event))
        if phase is None:
            raise AssertionError(f"{self.name}: {event} while {self.phase.value}")
        self.phase = phase

    def start(self, location: Location, *, topic_head: bytes) -> None:
        """Begins at this position: from here on the partition is fetched and sent."""
        self.move("located")
        self.waiting = None
        self.unplaced = False
        self.due = self.acknowledged = location.offset
        # Batches that were sent and are not there are fetched again. If the source has lost them, it sends others.
        while self.marks and self.marks[-1].next_offset > location.offset:
            self.marks.pop()
        self.floor, self.source_start = location.floor, location.source_start
        self.identity = location.identity
        self.last_epoch = location.last_epoch
        self.source_leader, self.source_leader_epoch = location.source_leader
        if 0 <= self.source_leader_epoch < self.last_epoch:
            self.last_epoch = NO_LEADER_EPOCH  # impossible, hence damaged: no checksum covers it
        self.destination_leader = location.destination_leader.node_id
        self.heard(max(self.high_watermark, location.source_end), time.monotonic())
        self.topic_head = topic_head
        self.coordinator_epoch = location.coordinator_epoch
        self.window = 1
        self.checking = True
        self.aligned = location.last_epoch != NO_LEADER_EPOCH
        self.ahead, self.looking, self.empties = None, False, 0
        self.confirmed_at = time.monotonic()
        self.proven = self.unsettled = self.forgotten = False
        self.old, self.waits_old = True, False
        self.settled_at = location.settled_at
        self.freshness.clear()
        self.generation += 1
        self.positions += 1
        self.filled += self.tally.located(location.offset, self.filled, location.holes_from)
        if self.copied is not None:
            self.copied.jumps.clear()
        if location.source_start > location.offset:
            # Retention deleted the records in between, and an operator has decided to go on.
            count = location.source_start - location.offset
            if self.copied is not None:
                self.copied.skip(location.offset, count, Cause.ACCEPTED)
            else:
                self.outbox.append(Hole(b"", self.identity, count, None, Cause.COMPACTED))
                self.identity = self.identity.behind_markers()
            self.due = location.source_start
            self.last_epoch = NO_LEADER_EPOCH
        elif location.fill_to > location.offset:
            count = location.fill_to - location.offset
            self.outbox.append(Hole(b"", self.identity, count, None, Cause.COMPACTED))
            self.identity = self.identity.behind_markers()
            self.due = location.fill_to
            self.last_epoch = NO_LEADER_EPOCH
        self.accept_gap = self.accept_unproven = self.accept_settings = False
        self.trusted = None
        self.overtaken = []

    def begin_again(self) -> None:
        """Resets the counts: nothing was copied, and the copy begins elsewhere now. Offsets before it do not count."""
        self.tally = Tally()

    def widen(self, most: int, forgotten_ms: float) -> None:
        """Sets the window to ``most``, but to 1 until the partition is proven, and while the destination may have
        forgotten our producer id. ``forgotten_ms``: it may have forgotten producers whose last batch is older."""
        self.old = self.freshness.least_ms(self.acknowledged) < forgotten_ms
        self.waits_old = self.old and self.freshness.waits_older(forgotten_ms)
        self.window = most if self.proven and not self.old else 1

    @property
    def must_settle(self) -> bool:
        """True if the destination may forget our producer id when a waiting batch is appended, while a batch that was
        sent before the position was found may still arrive: it would be appended once more."""
        return self.waits_old and time.monotonic() < self.settled_at

    def pop_hole(self) -> Hole:
        """Takes the hole off the head of the outbox: it is filled."""
        hole = self.outbox.popleft()
        assert isinstance(hole, Hole), self.name
        self.acknowledged += hole.records
        self.filled += hole.records
        self.let_go(hole)
        if hole.before.behind_markers().producer_id != hole.before.producer_id:
            # The markers carried the previous id. Until its first batch, the destination has no entry of the next id.
            self.freshness.another_id(self.acknowledged)
            self.old, self.window = True, 1
        return hole

    def pass_jump(self) -> Jump | None:
        """Passes the next source offsets that are not copied, if everything before them is acknowledged, and returns
        them (``offsets: mapped``)."""
        jump = self.copied.jump() if self.copied is not None else None
        if jump is not None:
            self.acknowledged = jump.end
            self.filled += jump.end - jump.start
        return jump

    def doubt(self) -> None:
        """Drops the queue. Answers for batches under way are waited for, and not believed."""
        self.move("doubted")
        self._drop()
        self.doubts += 1

    def emptied(self) -> bool:
        """Returns True if it is in doubt with nothing under way any more: it can be located."""
        return self.phase is Phase.DOUBT and not self.in_flight and not self.filling

    def stop_with(self, halted: Halted) -> None:
        """Halts: nothing more is fetched or sent."""
        self.move("halted")
        self.halted, self.waiting = halted, None
        self.unplaced = self.unplaced or halted.reason in UNPLACED
        self._drop()

    def resume(self, *, accept_gap: bool = False, accept_unproven: bool = False, accept_settings: bool = False) -> None:
        """Leaves the halt, to be located again. The known topic ids are dropped: the current topics count.

        Args:
            accept_gap: records that the source has deleted meanwhile may be skipped, this once.
            accept_unproven: the destination is taken for a copy though nothing shows it, this once.
            accept_settings: a copy under another isolation level goes on under the current one.
        """
        self.move("resumed")
        self.halted = None
        self.accept_gap = accept_gap
        self.accept_unproven = accept_unproven
        self.accept_settings = accept_settings
        self.source_id = self.destination_id = None
        self.doubts = self.missing = 0

    def forget_read(self) -> None:
        """Forgets the batches read from the source. Another worker had the partition meanwhile, so the source may have
        lost them and may have other batches there."""
        self.marks.clear()

    def forget_source(self) -> None:
        """Forgets everything known of the source: another topic is the source from now on."""
        self.forget_read()
        self.source_leader_epoch = -1

    def stop(self) -> None:
        """Stops: the relay releases the partition, or closes."""
        self.move("stopped")
        self._drop()

    def pop_unbelieved(self) -> None:
        """Drops the oldest batch under way. Its answer came, or will never come, and does not count."""
        if self.in_flight:
            self.let_go(self.in_flight.popleft())

    def _drop(self) -> None:
        if self.acknowledged >= 0:
            self.reached = self.acknowledged
            self.tally.dropped(self.acknowledged, self.in_flight, self.outbox)
        self.acknowledged = IN_DOUBT
        if not self.lag:
            # A lag of 0 is true only as long as answers of the source come.
            self.heard_at = -math.inf
        self.ending = None
        self.parked = self.held_back = 0
        self.generation += 1
        self.positions += 1
        if self.in_flight and self.in_flight[-1][3] is None:
            # The record set continues in the outbox, and its last batch there has the frame. The bytes under way may
            # not be sent yet. They keep the frame until their answer: otherwise the next response would be received
            # into it while it is still sent from.
            self._hand_over()
        while self.outbox:
            self.let_go(self.outbox.popleft())

    def _hand_over(self) -> None:
        """Hands the frame of the record set that is partly under way to the last batch under way."""
        while self.outbox:
            frame = self.outbox.popleft()[3]
            if frame is not None:
                head, payload, records, _ = self.in_flight.pop()
                self.in_flight.append(Batch(head, payload, records, frame))
                return

    def let_go(self, batch: Batch | Hole) -> None:
        """Releases the frame of a batch or hole that has left its queue."""
        frame = batch[3]
        if frame is not None:
            self.frames -= 1
            frame.release()
