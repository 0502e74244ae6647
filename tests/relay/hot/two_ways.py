"""Two ways to forward a record set: ``forward`` itself, and scan, admit and restamp one after the other.

The second one packs the Produce head by hand. What differs is a bug in one of the two, whatever the bytes are:
well-formed, odd, cut or spoilt.
"""

import struct
from typing import NamedTuple

from mirror.net.buffers import FramePool
from mirror.reasons import HaltReason
from mirror.records.admit import Fill, Forward, Halt, Skip, Terms, admit
from mirror.records.header import HEADER_SIZE, BatchHeader, CorruptBatch
from mirror.records.identity import Identity
from mirror.records.intact import is_intact
from mirror.records.restamp import restamp
from mirror.records.scan import Remainder, measure
from mirror.records.transactions import Aborted, marker_kind
from mirror.relay.hot.forward import Unproven, forward
from mirror.relay.hot.freshness import UNKNOWN_MS
from mirror.relay.hot.native import is_compiled
from mirror.relay.hot.plain import NEVER_MS, InnerLoop
from mirror.relay.hot.putting import NO_END
from mirror.relay.partition.cursor import Ahead
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Hole
from mirror.wire.versions import PRODUCE_FLEXIBLE, PRODUCE_VERSIONS

FORMS = (False, True) if is_compiled() else (False,)
"""Of the inner loop: in Python, and compiled."""
VERSIONS = range(PRODUCE_VERSIONS[0], PRODUCE_VERSIONS[1] + 1)
INDEX = 3
PRODUCER = 1 << 62 | 12_345 << 8
UNPROVEN = "a gap that this answer does not prove"


class Outcome(NamedTuple):
    """What a way of forwarding makes of a record set."""

    sent: list[bytes | Identity]
    """Batches as they are sent; of holes, the identity of where they begin."""
    records: list[int]
    due: int
    identity: Identity
    halt: HaltReason | str | None
    last_epoch: int
    max_timestamp: int
    oldest_ms: int
    """UNKNOWN_MS: no batch is sent."""


class Case(NamedTuple):
    """A record set and where the partition stands."""

    record_set: bytes
    due: int = 1_000
    sequence: int = 0
    max_batch_size: int | None = None
    compacted: bool = False
    aborted: tuple[tuple[int, int], ...] = ()

    @property
    def terms(self) -> Terms:
        return Terms(max_batch_size=self.max_batch_size, compacted=self.compacted)

    @property
    def identity(self) -> Identity:
        return Identity(PRODUCER, 4, self.sequence)


# The two ways.


def slowly(case: Case, version: int) -> Outcome:
    """Scan, admit and restamp."""
    view = memoryview(case.record_set)
    sent: list[bytes | Identity] = []
    records: list[int] = []
    due, identity, at = case.due, case.identity, 0
    halt: HaltReason | str | None = None
    last_epoch = max_timestamp = -1
    times: list[int] = []
    dropped = Aborted(case.aborted)
    while halt is None:
        try:
            size = measure(view, at, len(view))
        except CorruptBatch:
            halt = HaltReason.CORRUPT
            break
        if isinstance(size, Remainder):
            behind = _base_at(view, at)
            halt = HaltReason.CORRUPT if due != case.due and 0 <= behind < due else None
            break
        batch = view[at : at + size]
        if size < HEADER_SIZE:
            halt = HaltReason.OLD_FORMAT if is_intact(batch) else HaltReason.CORRUPT
            break
        header = BatchHeader.read(batch)
        aborted = _is_aborted(header, batch, dropped)
        verdict = admit(header, due, case.terms, aborted=aborted)
        if not isinstance(verdict, Forward):
            behind = _base_at(view, at + size)
            halt = HaltReason.CORRUPT if not is_intact(batch) else _misplaced(header, due, case.due, behind)
        if halt is not None:
            pass
        elif isinstance(verdict, Halt):
            halt = verdict.reason
        elif isinstance(verdict, Fill):
            if sent and isinstance(sent[-1], Identity):
                records[-1] += verdict.until - due
            else:
                sent.append(identity)
                records.append(verdict.until - due)
                identity = identity.behind_markers()
            due = verdict.until
            if verdict.until == header.base_offset:
                last_epoch = -1
                continue
            last_epoch = header.leader_epoch
        elif isinstance(verdict, Forward):
            new = restamp(header, identity, verdict.attributes)
            sent.append(_head(version, size) + new.pack() + view[at + HEADER_SIZE : at + size])
            records.append(header.last_offset_delta + 1)
            due, identity = header.next_offset, identity.after(header.last_offset_delta + 1)
            last_epoch, max_timestamp = header.leader_epoch, header.max_timestamp
            times.append(max_timestamp)
        else:
            assert isinstance(verdict, Skip)
        at += size
    return Outcome(sent, records, due, identity, halt, last_epoch, max_timestamp, min(times, default=UNKNOWN_MS))


def _base_at(view: memoryview, at: int) -> int:
    return int.from_bytes(view[at : at + 8], signed=True) if at + 8 <= len(view) else -1


def _misplaced(header: BatchHeader, due: int, first_due: int, behind: int) -> HaltReason | str | None:
    """Whether a batch stands where it says. ``behind``: where the next begins, below 0 if that is not seen."""
    if header.magic != 2 or header.base_offset == due:
        return None
    if header.base_offset < due:
        return None if due == first_due else HaltReason.CORRUPT
    if 0 <= behind < header.next_offset:
        return HaltReason.CORRUPT
    return UNPROVEN if behind < 0 or due == first_due else None


def _is_aborted(header: BatchHeader, batch: memoryview, dropped: Aborted) -> bool:
    if header.magic != 2 or not header.is_transactional:
        return False
    if header.is_control:  # written out: what is tested has this from ``Aborted.follow``
        dropped.ends(header, marker_kind(batch))
        return False
    return dropped.drops(header)


def _head(version: int, size: int) -> bytes:
    """Partition index and the record set's size, by the protocol's guide."""
    if version < PRODUCE_FLEXIBLE:
        return struct.pack(">ii", INDEX, size)
    left, varint = size + 1, bytearray()
    while left > 0x7F:
        varint.append(left & 0x7F | 0x80)
        left >>= 7
    varint.append(left)
    return struct.pack(">i", INDEX) + varint


def quickly(case: Case, version: int, *, before: bytes = b"", after: bytes = b"") -> Outcome:
    """``forward`` itself, with other bytes around the record set, by every form of the inner loop."""
    outcome, *others = (forwarded(case, InnerLoop(version, compiled=form), before, after) for form in FORMS)
    assert all(other == outcome for other in others)
    return outcome


def forwarded(
    case: Case,
    inner_loop: InnerLoop,
    before: bytes,
    after: bytes,
    *,
    readable: int = NO_END,
    ahead: Ahead | None = None,
) -> Outcome:
    """``forward`` by one form; checks the bookkeeping on the way."""
    size = len(before) + len(case.record_set) + len(after)
    pool = FramePool(budget=max(size, 1), frame_size=max(size, 1))
    frame = pool.take(size)
    frame.body[:] = before + case.record_set + after
    partition = Partition("t", INDEX)
    partition.cursor.due, partition.cursor.identity = case.due, case.identity
    partition.terms = case.terms
    end = len(before) + len(case.record_set)
    partition.cursor.ahead = ahead
    halt = forward(frame, len(before), end, partition, inner_loop, case.aborted, readable)
    outbox = list(partition.queue.outbox)
    if outbox:
        assert [batch[3] for batch in outbox] == [None] * (len(outbox) - 1) + [frame]
        assert partition.cursor.batch_size > 0
    assert frame.holders == 1 + bool(outbox)
    assert partition.queue.frames == bool(outbox)
    return Outcome(
        [item.before if isinstance(item, Hole) else bytes(item[0]) + bytes(item[1]) for item in outbox],
        [batch[2] for batch in outbox],
        partition.cursor.due,
        partition.cursor.identity,
        UNPROVEN if isinstance(halt, Unproven) else halt.reason if halt else None,
        partition.cursor.last_epoch,
        partition.cursor.max_timestamp,
        _oldest_ms(partition),
    )


def _oldest_ms(partition: Partition) -> int:
    """Of the batches that were put, by what decides on the window."""
    sent = any(not isinstance(item, Hole) for item in partition.queue.outbox)
    partition.queue.freshness.appended(-1, NEVER_MS)
    return partition.queue.freshness.least_ms(-1) if sent else UNKNOWN_MS


def agree(case: Case, version: int, *, before: bytes = b"", after: bytes = b"") -> Outcome:
    outcome = quickly(case, version, before=before, after=after)
    assert outcome == slowly(case, version)
    return outcome


def only(outcome: Outcome) -> bytes:
    """The one batch that was sent."""
    (sent,) = outcome.sent
    assert isinstance(sent, bytes)
    return sent
