"""One partition on its way: where it is, what is queued, what is under way, and in which phase it stands."""

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
"""``acknowledged`` while in doubt: no base offset of an answer, 64 bits with a sign, can match it."""


MARKS = 4
"""Record sets remembered by their last batch: more than a partition has frames under way, so that one of them is
acknowledged."""


class Sent:
    """The records of a batch that was sent, and whose frame is needed elsewhere: how many bytes they were."""

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
    """The records, borrowed from the frame they were fetched in; ``Sent`` where they were sent and are not needed."""
    records: int
    """Offsets that it takes: lastOffsetDelta + 1."""
    frame: Frame | None
    """Set on the last batch of a record set: released when it is acknowledged."""


class Hole(NamedTuple):
    """Offsets without a record at the source, in their place among the batches: markers take them at the destination.

    It has the shape of a ``Batch`` without a head, by which the lane tells it."""

    head: bytes
    before: Identity
    """What a data batch in this place would carry: the markers' identity follows from it."""
    records: int
    """Offsets that it takes."""
    frame: Frame | None
    cause: Cause


class Location(NamedTuple):
    """Where a partition goes on, as the destination says."""

    offset: int
    """The destination's log end, which is the next source offset to copy."""
    identity: Identity
    last_epoch: int
    """Leader epoch of the source batch before ``offset``, -1 if not known: the broker then cannot tell truncation."""
    destination_leader: Leader
    source_leader: Leader
    source_end: int
    log_start: int
    proven: bool
    """Whether the batch before ``offset`` was compared on both sides."""
    coordinator_epoch: int
    """For markers: one more than any that the destination's leader remembers of ours."""
    source_start: int
    """The base offset of the source's first batch; above ``offset`` only if the gap was accepted."""
    floor: int = 0
    """The source's first offset, which may lie inside its first batch: the least that a Fetch may ask for."""
    holes_from: int = NEVER
    """From here up to ``offset``, the destination has nothing but markers."""
    fill_to: int = -1
    """What is left of the source's batch that ``offset`` lies inside of is filled up to here; else not above it."""
    accepted: tuple[int, int] | None = None
    """From where up to where markers stand, or are to stand, in the place of records, by a decision of now, which is
    written down."""
    settled_at: float = 0.0
    """By this process' clock, in s: nothing that was sent before the position was found arrives after this."""


class Ahead(NamedTuple):
    """The source has no batch from ``due`` to ``base_offset``: what was seen of that beside the batch itself."""

    due: int
    base_offset: int
    proven: bool
    """Whether the batch was looked at from all sides (``relay.holes.gaps``); else only that it is the file's next."""


class Mark(NamedTuple):
    """The last batch of a record set that was put on its way."""

    next_offset: int
    leader_epoch: int
    header: bytes
    """Its 61 bytes, as the source has them."""


class Committed(NamedTuple):
    """What the flow's group had committed at the source when the partition was assigned; see ``relay.assignment``."""

    offset: int
    topic_id: str = ""
    """Hexadecimal; empty: not known."""
    epoch: int = -1
    digest: str = ""
    digest_at: int = -1
    leader_epoch: int = -1


class Waiting(NamedTuple):
    """Why a partition is not copied for now, though it has not halted."""

    since_s: float
    """Since 1970."""
    reason: str
    failed: bool
    """Whether that is how the last look for its position failed; else it is what is being done."""


class Outlet(Protocol):
    """Where a partition's batches go: the lane that it is pinned to."""

    stalled: bool
    """Whether nothing is fetched for it: it does not get rid of what it has (``relay.watch.stalls``)."""

    def offer(self, partition: "Partition") -> None:
        """The partition has batches in its outbox."""

    def withhold(self, partition: "Partition") -> None:
        """It sends no more until it is offered again."""

    def detach(self, partition: "Partition") -> None:
        """The partition goes elsewhere; nothing of it is under way."""


class Partition:
    """State only: sockets, timers and tasks belong to the fetcher, the lane and the relay."""

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
        """The topic that it is copied into."""
        self.index = index
        self.phase = Phase.LOCATING
        self.halted: Halted | None = None
        self.waiting: Waiting | None = None
        """While it is sought, or in doubt, for those who watch."""
        self.ending: Halted | None = None
        """It halts with this once what was fetched before is acknowledged; nothing more is fetched."""
        self.lane: Outlet | None = None
        self.due = 0
        """The next source offset to fetch; all below is acknowledged, under way or in the outbox."""
        self.acknowledged = IN_DOUBT
        """The base offset that the next answer must have: all below is at the destination."""
        self.reached = -1
        """The position as it was last known, for those who watch; nothing is decided by it. -1: never known."""
        self.identity = Identity(0, 0, 0)
        """Of the next batch to be fetched."""
        self.outbox = new_outbox()
        """Of ``Batch`` and ``Hole``."""
        self.in_flight = new_outbox()
        """Of ``Batch``: sent, and not answered yet."""
        self.window = 1
        """Batches that may be under way: see ``widen``."""
        self.checking = False
        """Whether the first batch since the last resync is yet to be acknowledged, and then read back."""
        self.proven = False
        """Whether it was read back as sent; the window stays at 1 so long."""
        self.freshness = Freshness()
        """Of what was acknowledged last, and of what waits."""
        self.old = True
        """Whether the destination may have forgotten our producer id, or may do so while what waits is sent: the window
        is 1, because a broker that has forgotten takes batch k + 1 in the place of a failed k."""
        self.waits_old = False
        """Whether that is so because of what waits, whatever is acknowledged until there is more."""
        self.filling = False
        """Whether markers are being written for the hole at the head of the outbox; nothing is under way then."""
        self.unsettled = False
        """Something was sent that may still arrive and do harm: the next position is settled first."""
        self.settled_at = 0.0
        """See ``Location``."""
        self.ownership: Ownership | None = None
        """What the coordinator gave us at takeover; compared before each hole. None: it could not be had."""
        self.coordinator_epoch = 0
        """Of our markers: above all that the destination's log has, so that a predecessor's late ones are refused."""
        self.reconfirming = False
        """Whether that end is being looked at."""
        self.confirmed_at = 0.0
        """When the log end was last known to be where the next batch belongs, by this process' clock; kept while it is
        ``old`` only: then nothing but the end tells a batch from a repeat."""
        self.forgotten = False
        """The broker has forgotten our producer id, and takes nothing but a new epoch (error 59, Kafka 1.0 to 2.4)."""
        self.released = False
        """Another worker has taken it over: it is left alone for a while, and then taken over like a new one."""
        self.aligned = False
        """Whether ``due`` is known to be where a batch of the source ended: none may begin before it and reach it."""
        self.ahead: Ahead | None = None
        """What is known of a gap at ``due``."""
        self.looking = False
        """Whether the source is being looked at (``relay.holes.gaps``); nothing is fetched meanwhile."""
        self.empties = 0
        """Answers in a row that had nothing at ``due``, although the source says that it ends behind."""
        self.unowned = False
        """Nobody owns it any more: the coordinator has forgotten the id, so that it need not be left to anybody."""
        self.queued = False
        """Whether the lane has it among those with something to send."""
        self.parked = 0
        """Bytes that wait behind a hole in a frame of their own (``relay.holes.parking``); nothing is fetched."""
        self.crowded = 0
        """Bytes worth asking for, where its holes lie so close together that some of what was fetched last was let go
        again; else 0."""
        self.frames = 0
        """Frames that its batches keep from being reused."""
        self.generation = 0
        """Counts positions to fetch from: an answer to a fetch from before the last resync is dropped, and one to what
        is fetched again from elsewhere."""
        self.positions = 0
        """Counts positions: what was learned of an earlier one means nothing for this one."""
        self.doubts = 0
        """Doubts in a row without an acknowledgement in between."""
        self.missing = 0
        """Looks in a row at which a cluster did not know the topic."""
        self.floor = self.source_start = 0
        """Where the source begins, as of the last position, and where the batch that holds that offset does."""
        self.unplaced = False
        """Whether its position is of topics that are others by now, or are gone; for those who watch alone."""
        self.source_leader = self.source_leader_epoch = -1
        self.destination_leader = -1
        self.source_id: bytes | None = None
        self.destination_id: bytes | None = None
        self.topic_head = b""
        """The destination topic as Produce requests carry it."""
        self.last_epoch = -1
        self.high_watermark = -1
        """The source's end, as last heard: what a consumer of the configured isolation level may read. -1: never."""
        self.heard_at = -math.inf
        """When that was, by this process' clock."""
        self.held_back = 0
        """Offsets that the source has behind it, and that a transaction that is still open keeps from consumers."""
        self.max_timestamp = -1
        """Of the last batch forwarded, ms since 1970."""
        self.batch_size = 0
        """Mean size in bytes of the batches in the last record set."""
        self.record_size = 0.0
        """Mean size in bytes of an offset in the last record set: 0 until there was one."""
        self.terms = Terms()
        self.suspected: Suspicion | None = None
        """It halts for this when the topics' configs of now confirm it; looked at when its position is sought."""
        self.marks: deque[Mark] = deque(maxlen=MARKS)
        self.tally = Tally()
        self.filled = 0
        """Offsets filled from here, since it was adopted."""
        self.begun = Begun()
        """To fill the offsets before the source's first record."""
        self.committed: Committed | None = None
        """None: nothing, or not known."""
        self.inherited = -1
        """Up to where the owner before had copied it, by what that one committed; -1: not known."""
        self.copied: Copied | None = None
        """With ``offsets: mapped``: what was acknowledged since the takeover, and where it is."""
        self.before: Before | None = None
        """With ``offsets: mapped``: the destination before a fence that is not followed by a checkpoint yet."""
        self.accept_gap = False
        """An operator has said that what the source has deleted may be skipped, this once."""
        self.accept_unproven = False
        """An operator has said that what stands at the destination is a copy, though nothing shows it; this once."""
        self.accept_settings = False
        """An operator has said that the copy goes on under the isolation level of now, this once."""
        self.trusted: tuple[int, int] | None = None
        """The source's offsets, first and next, that were accepted so, because nothing shows that they were copied."""
        self.overtaken: list[tuple[int, int]] = []
        """The same of those that the source has deleted since a halt that they were due at; told once it goes on."""
        self.pin: Pin | None = None
        """What was written down of it, as of the takeover (``relay.durable.pins``)."""

    @property
    def counts(self) -> Counts:
        """Records, batches and bytes replicated since it was adopted."""
        return self.tally.counts(self.acknowledged, self.filled, (self.in_flight, self.outbox))

    @property
    def name(self) -> str:
        """topic-partition, as Kafka's own logs write it."""
        return f"{self.topic}-{self.index}"

    @property
    def side(self) -> Side:
        """As the internal topic names it."""
        return Side(self.topic, self.index, self.destination)

    @property
    def position(self) -> int:
        """All source offsets below are at the destination, as far as was ever known; -1: nothing was."""
        return self.acknowledged if self.acknowledged >= 0 else self.reached

    @property
    def shown_position(self) -> int:
        """The position for those who watch; -1: nothing is known of the topics of now."""
        return -1 if self.unplaced else self.position

    @property
    def lag(self) -> int | None:
        """Source offsets that the destination is not known to have; None while either end is not known. A source that
        ends before the position was made anew or truncated: its end says nothing about this copy."""
        position, end = self.shown_position, self.high_watermark
        if position < 0 or end < 0 or (end < position and self.phase is not Phase.ACTIVE):
            return None
        return max(0, end - position)

    def heard(self, end: int, at_s: float) -> None:
        """The source's end, as of this moment."""
        self.high_watermark, self.heard_at = end, at_s

    def wait(self, reason: str, *, failed: bool = False) -> None:
        """It is not copied for now, and why. What is being done does not hide how the last look failed."""
        before = self.waiting
        if before is None or failed or not before.failed:
            self.waiting = Waiting(time.time() if before is None else before.since_s, reason, failed)

    def move(self, event: str) -> None:
        """Changes the phase by the table; anything that is not in it is a bug."""
        phase = MOVES.get((self.phase, event))
        if phase is None:
            raise AssertionError(f"{self.name}: {event} while {self.phase.value}")
        self.phase = phase

    def start(self, location: Location, *, topic_head: bytes) -> None:
        """Takes its place; from here on it is fetched and sent."""
        self.move("located")
        self.waiting = None
        self.unplaced = False
        self.due = self.acknowledged = location.offset
        # What was put on its way and is not there is fetched again: from a source that has lost it, as another batch.
        while self.marks and self.marks[-1].next_offset > location.offset:
            self.marks.pop()
        self.floor, self.source_start = location.floor, location.source_start
        self.identity = location.identity
        self.last_epoch = location.last_epoch
        self.source_leader, self.source_leader_epoch = location.source_leader
        if 0 <= self.source_leader_epoch < self.last_epoch:
            self.last_epoch = NO_LEADER_EPOCH  # no checksum covers it, and it cannot be
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
            # Retention took the records in between, and an operator has decided to go on.
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
        """Nothing of it was copied, and the copy begins elsewhere now: what lies before does not count as copied."""
        self.tally = Tally()

    def widen(self, most: int, forgotten_ms: float) -> None:
        """The window as wide as it may be: ``most``, but 1 before anything is proven, and while the destination may
        have forgotten who we are. ``forgotten_ms``: it may have forgotten whose last batch is older than this."""
        self.old = self.freshness.least_ms(self.acknowledged) < forgotten_ms
        self.waits_old = self.old and self.freshness.waits_older(forgotten_ms)
        self.window = most if self.proven and not self.old else 1

    @property
    def must_settle(self) -> bool:
        """Whether something waits with which the destination may forget who we are, while a repeat of what was sent
        before the position was found may still arrive: it would be appended once more."""
        return self.waits_old and time.monotonic() < self.settled_at

    def pop_hole(self) -> Hole:
        """The hole at the head of the outbox is filled."""
        hole = self.outbox.popleft()
        assert isinstance(hole, Hole), self.name
        self.acknowledged += hole.records
        self.filled += hole.records
        self.let_go(hole)
        if hole.before.behind_markers().producer_id != hole.before.producer_id:
            # The markers were of the id before: of the next one the destination has no entry until its first batch.
            self.freshness.another_id(self.acknowledged)
            self.old, self.window = True, 1
        return hole

    def pass_jump(self) -> Jump | None:
        """All before it is acknowledged: the next of the source's offsets that are not copied is behind it, if there is
        one (``offsets: mapped``)."""
        jump = self.copied.jump() if self.copied is not None else None
        if jump is not None:
            self.acknowledged = jump.end
            self.filled += jump.end - jump.start
        return jump

    def doubt(self) -> None:
        """Drops the queue; what is under way is waited for and not believed."""
        self.move("doubted")
        self._drop()
        self.doubts += 1

    def emptied(self) -> bool:
        """In doubt, and nothing under way any more: the position can be sought."""
        return self.phase is Phase.DOUBT and not self.in_flight and not self.filling

    def stop_with(self, halted: Halted) -> None:
        """Halts: nothing more is fetched or sent."""
        self.move("halted")
        self.halted, self.waiting = halted, None
        self.unplaced = self.unplaced or halted.reason in UNPLACED
        self._drop()

    def resume(self, *, accept_gap: bool = False, accept_unproven: bool = False, accept_settings: bool = False) -> None:
        """Looked for anew, by an operator's word: also the topics' ids are those of now.

        Args:
            accept_gap: what the source has deleted meanwhile may be skipped, this once.
            accept_unproven: what stands at the destination is taken for a copy though nothing shows it, this once.
            accept_settings: what was copied under another isolation level is gone on with under that of now.
        """
        self.move("resumed")
        self.halted = None
        self.accept_gap = accept_gap
        self.accept_unproven = accept_unproven
        self.accept_settings = accept_settings
        self.source_id = self.destination_id = None
        self.doubts = self.missing = 0

    def forget_read(self) -> None:
        """The source may have lost what was read of it, and other batches may stand there: another worker had the
        partition meanwhile."""
        self.marks.clear()

    def forget_source(self) -> None:
        """Another topic is the source from now on: what is known of the one before says nothing of it."""
        self.forget_read()
        self.source_leader_epoch = -1

    def stop(self) -> None:
        """The relay lets it go."""
        self.move("stopped")
        self._drop()

    def pop_unbelieved(self) -> None:
        """The answer for the oldest batch under way came, or will never come, and it does not count."""
        if self.in_flight:
            self.let_go(self.in_flight.popleft())

    def _drop(self) -> None:
        if self.acknowledged >= 0:
            self.reached = self.acknowledged
            self.tally.dropped(self.acknowledged, self.in_flight, self.outbox)
        self.acknowledged = IN_DOUBT
        if not self.lag:
            # That nothing waits is true only as long as the source is heard of.
            self.heard_at = -math.inf
        self.ending = None
        self.parked = self.held_back = 0
        self.generation += 1
        self.positions += 1
        if self.in_flight and self.in_flight[-1][3] is None:
            # Its record set goes on in the outbox, whose last batch has the frame. The bytes under way may not be sent
            # yet: they keep the frame until their answer, or it would be received into while it is sent from.
            self._hand_over()
        while self.outbox:
            self.let_go(self.outbox.popleft())

    def _hand_over(self) -> None:
        """The frame of the record set that is partly under way goes to the last batch under way."""
        while self.outbox:
            frame = self.outbox.popleft()[3]
            if frame is not None:
                head, payload, records, _ = self.in_flight.pop()
                self.in_flight.append(Batch(head, payload, records, frame))
                return

    def let_go(self, batch: Batch | Hole) -> None:
        """It left its queue, and needs its frame no more."""
        frame = batch[3]
        if frame is not None:
            self.frames -= 1
            frame.release()
