"""One partition on its way: its phase, and the crossings that concern its cursor, its queue and its claim at once."""

import time
from typing import TYPE_CHECKING, NamedTuple

from mirror.offsetmap.entries.keys import Subject
from mirror.reasons import UNPLACED
from mirror.records.admit import Cause, Terms
from mirror.relay.halts import Halted
from mirror.relay.partition.claim import Claim, Committed
from mirror.relay.partition.cursor import Cursor
from mirror.relay.partition.location import Location
from mirror.relay.partition.phases import MOVES, Phase
from mirror.relay.partition.queue import Hole, Queue
from mirror.relay.partition.tally import Counts

if TYPE_CHECKING:
    from mirror.relay.watch.tracing import Trace


class Waiting(NamedTuple):
    """Why a partition is not copied for now, though it has not halted."""

    since_s: float
    """Since 1970."""
    reason: str
    failed: bool
    """True if this is how the last look for its position failed; otherwise it is what is being done."""


class Partition:
    """State only: sockets, timers and tasks belong to the fetcher, the lane and the relay.

    The relay moves it from phase to phase. ``cursor`` is what fetching owns, ``queue`` what the lane owns, ``claim``
    what makes the partition ours; each changes in its own module only.
    """

    __slots__ = (
        "claim",
        "cursor",
        "destination",
        "halted",
        "index",
        "phase",
        "positions",
        "queue",
        "terms",
        "topic",
        "trace",
        "unplaced",
        "waiting",
    )

    def __init__(self, topic: str, index: int, destination: str | None = None) -> None:
        self.topic = topic
        self.index = index
        self.destination = destination or topic
        """The topic that it is copied into."""
        self.terms = Terms()
        self.phase = Phase.LOCATING
        self.halted: Halted | None = None
        self.waiting: Waiting | None = None
        """While it is located, or in doubt; for those who watch."""
        self.unplaced = False
        """True if its position is of topics that have been replaced or are gone; only for those who watch."""
        self.trace: Trace | None = None
        """While somebody follows it (``relay.watch.tracing``)."""
        self.positions = 0
        """Counts positions: what was learned of an earlier one means nothing for this one."""
        self.cursor = Cursor()
        self.queue = Queue(self, index)
        self.claim = Claim()

    # -- for those who watch -------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """topic-partition, as Kafka's own logs write it."""
        return f"{self.topic}-{self.index}"

    @property
    def subject(self) -> Subject:
        """As the internal topic names it."""
        return Subject(self.topic, self.index, self.destination)

    @property
    def counts(self) -> Counts:
        """See ``Queue.counts``."""
        return self.queue.counts

    @property
    def position(self) -> int:
        """See ``Queue.position``."""
        return self.queue.position

    @property
    def shown_position(self) -> int:
        """The position for those who watch; -1: nothing is known of the topics of now."""
        return -1 if self.unplaced else self.position

    @property
    def lag(self) -> int | None:
        """Source offsets that the destination is not known to have; None while either end is not known. A source that
        ends before the position was recreated or truncated: its end says nothing about this copy."""
        position, end = self.shown_position, self.cursor.high_watermark
        if position < 0 or end < 0 or (end < position and self.phase is not Phase.ACTIVE):
            return None
        return max(0, end - position)

    def wait(self, reason: str, *, failed: bool = False) -> None:
        """Notes why it is not copied for now. What is being done does not hide how the last look failed."""
        if self.trace is not None:
            self.trace.waits(reason)
        before = self.waiting
        if before is None or failed or not before.failed:
            self.waiting = Waiting(time.time() if before is None else before.since_s, reason, failed)

    def follow(self, trace: "Trace | None") -> None:
        """Notes each step in this trace from now on; None: nowhere."""
        self.trace = trace

    # -- from phase to phase -------------------------------------------------------------------------------------------

    def move(self, event: str) -> None:
        """Changes the phase by the table; anything that is not in it is a bug."""
        phase = MOVES.get((self.phase, event))
        if phase is None:
            raise AssertionError(f"{self.name}: {event} while {self.phase.value}")
        before, self.phase = self.phase, phase
        if self.trace is not None:
            self.trace.note("phase", before=before.value, phase=phase.value, because=event)

    def judge_by(self, terms: Terms) -> None:
        """Batches are judged by the topics' configs as they are now."""
        self.terms = terms

    def inherit(self, committed: Committed | None, offset: int) -> None:
        """It was assigned. ``offset``: up to where the former owner had copied it, by its commit; -1: not known."""
        self.claim.inherit(committed, offset)
        self.queue.inherit(offset)

    def start(self, location: Location, *, topic_head: bytes) -> None:
        """Takes its place; from here on it is fetched and sent."""
        self.move("located")
        self.waiting = None
        self.unplaced = False
        self.positions += 1
        self.cursor.start(location)
        self.queue.start(location, topic_head)
        if location.source_start > location.offset:
            # Retention took the records in between, and an operator has decided to continue.
            self._leave_out(location.source_start, Cause.ACCEPTED)
        elif location.fill_to > location.offset:
            self._leave_out(location.fill_to, None)
        self.claim.start(location)

    def _leave_out(self, end: int, cause: Cause | None) -> None:
        """The offsets up to ``end`` are not copied, but filled; with ``offsets: mapped`` those with a cause are passed
        over."""
        cursor, queue = self.cursor, self.queue
        start, count = queue.acknowledged, end - queue.acknowledged
        if queue.copied is not None and cause is not None:
            queue.copied.skip(start, count, cause)
            cursor.skip_to(end, cursor.identity)
        else:
            queue.outbox.append(Hole(b"", cursor.identity, count, None, Cause.COMPACTED))
            cursor.skip_to(end, cursor.identity.behind_markers())

    def begin_again(self) -> None:
        """Nothing of it was copied, and the copy begins elsewhere now: what lies before does not count as copied."""
        self.queue.begin_again()

    def doubt(self) -> None:
        """Drops the queue; what is under way is waited for and not believed."""
        self.move("doubted")
        self._drop()
        self.claim.doubt()

    def emptied(self) -> bool:
        """Returns True if it is in doubt and nothing is under way any more: the position can be located."""
        return self.phase is Phase.DOUBT and not self.queue.in_flight and not self.queue.filling

    def stop_with(self, halted: Halted) -> None:
        """Halts: nothing more is fetched or sent."""
        self.move("halted")
        self.halted, self.waiting = halted, None
        self.unplaced = self.unplaced or halted.reason in UNPLACED
        self._drop()

    def still_halted(self, halted: Halted) -> None:
        """It cannot be resumed, and this is why by now."""
        self.halted = halted

    def resume(self, *, accept_gap: bool = False, accept_unproven: bool = False, accept_settings: bool = False) -> None:
        """An operator says that it may continue. It is located again, in the topics of now.

        Args:
            accept_gap: what the source has deleted in the meantime may be skipped, this once.
            accept_unproven: what stands at the destination is taken for a copy though nothing shows it, this once.
            accept_settings: what was copied under another isolation level is continued under that of now.
        """
        self.move("resumed")
        self.halted = None
        self.claim.resume(accept_gap=accept_gap, accept_unproven=accept_unproven, accept_settings=accept_settings)

    def stop(self) -> None:
        """The relay lets it go."""
        self.move("stopped")
        self._drop()

    def _drop(self) -> None:
        self.queue.drop()
        self.cursor.drop()
        if not self.lag:
            self.cursor.forget_hearing()
        self.positions += 1
