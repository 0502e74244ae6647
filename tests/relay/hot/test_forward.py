"""The fast loop against the slow way: ``forward`` must agree with scan, admit and restamp on every record set."""

import struct
from unittest.mock import patch

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from mirror.net.buffers import FramePool
from mirror.reasons import HaltReason
from mirror.records.header import CRC_FROM, HEADER_SIZE, MAGIC_AT, SEQUENCES, BatchHeader
from mirror.records.identity import Identity
from mirror.records.intact import is_intact
from mirror.records.restamp import BARE, BLOCK, NEAR, checksum
from mirror.relay.hot import forward as forward_module
from mirror.relay.hot.forward import forward
from mirror.relay.hot.plain import InnerLoop
from mirror.relay.partition.cursor import Ahead
from mirror.relay.partition.partition import Partition
from tests.records.builders import kafka_batch, legacy_message, raw_batch, sealed
from tests.relay.hot.two_ways import INDEX, PRODUCER, UNPROVEN, VERSIONS, Case, agree, forwarded, only

# Record sets.

# Behind the owner there are four bytes more than the payload: the count of records.
BORDERS = [
    border - 4 + beside for border in (BARE, BARE + BLOCK, 7 * BLOCK, NEAR - BLOCK, NEAR) for beside in (-1, 0, 1, 2)
]
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
PAYLOADS = st.binary(max_size=60) | st.sampled_from(
    [bytes(50), bytes(66), bytes(67), bytes(16_000), *map(bytes, BORDERS)]
)
WRITERS = (-1, 5, 6)
PLAIN_MOSTLY = st.just(0) | st.just(0) | st.just(0)


@st.composite
def record_sets(draw: st.DrawFn) -> bytes:
    """Batches that follow each other, most of them plain, some odd in one way or another, and any tail."""
    offset = 1_000
    out = b""
    for _ in range(draw(st.integers(0, 5))):
        delta = draw(st.integers(0, 6))
        count = delta + 1 + draw(PLAIN_MOSTLY | st.integers(-2, 2))
        batch = raw_batch(
            draw(PAYLOADS),
            base_offset=offset + draw(PLAIN_MOSTLY | st.sampled_from([-1_000, -3, -1, 1, 5])),
            leader_epoch=draw(st.integers(-1, 9)),
            attributes=draw(st.integers(0, 4) | st.integers(0, 255) | st.sampled_from([0x10, 0x10, 0x30, 0x40, -1])),
            last_offset_delta=draw(st.just(delta) | st.just(delta) | st.sampled_from([-1, -(1 << 31), (1 << 31) - 1])),
            base_timestamp=draw(I64),
            max_timestamp=draw(I64),
            producer_id=draw(st.sampled_from(WRITERS) | I64),
            producer_epoch=draw(st.integers(-(1 << 15), (1 << 15) - 1)),
            base_sequence=draw(st.integers(-(1 << 31), (1 << 31) - 1)),
            record_count=count,
        )
        length = draw(PLAIN_MOSTLY | st.sampled_from([-200, -12, -1, 1, 48, 49, 10_000, (1 << 31) - 1]))
        if length:
            batch = batch[:8] + struct.pack(">i", length) + batch[12:]
        out += batch
        offset += delta + 1
    old = st.sampled_from([legacy_message(0), legacy_message(1), legacy_message(1, codec=1, count=3)])
    filler = struct.pack(">qi", -1, 61)
    out += draw(st.just(b"") | old | st.just(filler) | st.binary(max_size=70) | st.just(kafka_batch()[:40]))
    return out[: draw(st.just(len(out)) | st.integers(0, len(out)))]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    sets = record_sets()
    record_set = draw(sets)
    for at, removed, put in draw(
        st.just([]) | st.lists(st.tuples(st.integers(0, 200), st.integers(0, 6), st.binary(max_size=6)), max_size=3)
    ):
        record_set = record_set[:at] + put + record_set[at + removed :]
    return Case(
        record_set,
        due=draw(st.just(1_000) | st.just(1_000) | st.integers(990, 1_020) | st.just(0)),
        sequence=draw(st.sampled_from([0, 7, SEQUENCES - 1, SEQUENCES - 3])),
        max_batch_size=draw(st.none() | st.integers(50, 130) | st.just(1 << 20)),
        compacted=draw(st.booleans()),
        aborted=tuple(draw(st.lists(st.tuples(st.sampled_from(WRITERS), st.integers(995, 1_020)), max_size=3))),
    )


@given(cases(), st.sampled_from(VERSIONS), st.binary(max_size=20), st.binary(max_size=80))
def test_the_two_ways_agree(case: Case, version: int, before: bytes, after: bytes) -> None:
    agree(case, version, before=before, after=after)


@given(st.binary(max_size=300), st.sampled_from(VERSIONS))
def test_the_two_ways_agree_on_noise(noise: bytes, version: int) -> None:
    agree(Case(noise), version)


@given(st.lists(st.tuples(PAYLOADS, st.integers(1, 9)), min_size=1, max_size=6), st.sampled_from(VERSIONS), st.data())
def test_every_cut_of_good_batches(batches: list[tuple[bytes, int]], version: int, data: st.DataObject) -> None:
    """Whole batches go, the rest waits for the next fetch, and nothing halts."""
    offset, record_set, ends = 1_000, b"", [0]
    for payload, count in batches:
        record_set += raw_batch(payload, base_offset=offset, last_offset_delta=count - 1, record_count=count)
        offset += count
        ends.append(len(record_set))
    cut = data.draw(st.sampled_from(ends) | st.integers(0, len(record_set)))
    outcome = agree(Case(record_set[:cut]), version)
    assert outcome.halt is None
    assert len(outcome.sent) == sum(end <= cut for end in ends) - 1


# What goes out.


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_checksum_is_carried(version: int, codec: int) -> None:
    """A good batch arrives with a good checksum, a damaged one with a bad one; the payload is the same either way."""
    good = kafka_batch(codec=codec, base_offset=1_000, leader_epoch=7)
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    for batch, intact in ((good, True), (damaged, False)):
        sent = only(agree(Case(batch), version))
        stored = sent[-len(batch) :]
        assert (checksum(stored) == BatchHeader.read(stored).crc) is intact
        assert stored[HEADER_SIZE:] == batch[HEADER_SIZE:]


@pytest.mark.parametrize("version", [3, 13])
@pytest.mark.parametrize("payload_size", [*BORDERS, 16_000, 1 << 20])
def test_large_batches(version: int, payload_size: int) -> None:
    """On both sides of the sizes from which the checksum is carried by tables, and of those where tables change."""
    sent = only(agree(Case(raw_batch(bytes(payload_size))), version))
    stored = sent[-(HEADER_SIZE + payload_size) :]
    assert crc32c(stored[CRC_FROM:]) == BatchHeader.read(stored).crc


def test_the_identity_goes_on_over_several_record_sets() -> None:
    """Sequences advance by the offsets that a batch takes, and wrap; each record set has its own frame."""
    partition = Partition("t", INDEX)
    partition.cursor.due, partition.cursor.identity = 0, Identity(PRODUCER, 0, SEQUENCES - 4)
    inner_loop = InnerLoop(9)
    sequences = []
    for turn in range(4):
        batch = kafka_batch(base_offset=3 * turn)
        pool = FramePool(budget=len(batch), frame_size=len(batch))
        frame = pool.take(len(batch))
        frame.body[:] = batch
        assert forward(frame, 0, len(batch), partition, inner_loop) is None
        head = partition.queue.outbox[-1][0]
        sequences.append(BatchHeader.read(head[-HEADER_SIZE:]).base_sequence)
    assert sequences == [SEQUENCES - 4, SEQUENCES - 1, 2, 5]
    assert partition.cursor.due == 12
    assert partition.cursor.identity == Identity(PRODUCER, 0, 8)
    assert partition.queue.frames == 4


def test_the_delete_horizon_bit_is_cleared() -> None:
    """The one attribute that changes: the checksum takes that into account too."""
    batch = sealed(raw_batch(b"x" * 20, attributes=0x40 | 2))
    sent = only(agree(Case(batch), 9))
    stored = sent[-len(batch) :]
    assert BatchHeader.read(stored).attributes == 2
    assert checksum(stored) == BatchHeader.read(stored).crc


def test_what_was_copied_before_is_skipped() -> None:
    """A broker may answer with batches before the one that is due."""
    batches = b"".join(raw_batch(b"p", base_offset=1_000 + 5 * number) for number in range(3))
    outcome = agree(Case(batches, due=1_010), 9)
    assert outcome.records == [5]
    assert outcome.due == 1_015
    assert agree(Case(batches, due=1_015), 9).sent == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"base_offset": 1_006}, HaltReason.UNEXPLAINED_GAP),
        ({"base_offset": 1_003}, HaltReason.CORRUPT),
        ({"base_offset": 1_008}, HaltReason.CORRUPT),
        ({"record_count": 3}, HaltReason.SPARSE_BATCH),
        ({"record_count": 6}, HaltReason.CORRUPT),
        ({"attributes": 0x08}, HaltReason.LOG_APPEND_TIME),
        ({"attributes": 0x05}, HaltReason.UNKNOWN_ATTRIBUTES),
        ({"attributes": -1}, HaltReason.UNKNOWN_ATTRIBUTES),
    ],
)
def test_what_halts(changes: dict[str, int], reason: HaltReason) -> None:
    """What was before it goes; what comes behind it does not."""
    odd = raw_batch(b"p", **{"base_offset": 1_005, **changes})
    record_set = raw_batch(b"p") + odd + raw_batch(b"p", base_offset=1_011)
    outcome = agree(Case(record_set), 9)
    assert outcome.halt is reason
    assert outcome.records == [5]


def test_a_destination_that_ends_inside_a_batch() -> None:
    """Only the first batch of an answer may begin before the offset that was asked for."""
    case = Case(raw_batch(b"p") + raw_batch(b"p", base_offset=1_005), due=1_003)
    assert agree(case, 9).halt is HaltReason.MID_BATCH


# Offsets that cannot be.


@pytest.mark.parametrize("cut", [0, 7, 8, 30, 61])
def test_a_gap_is_believed_when_the_next_batch_fits(cut: int) -> None:
    """Its base offset is in the first eight bytes. Without them, and at the head of an answer, somebody has to look."""
    before, gap, behind = raw_batch(b"p"), raw_batch(b"p", base_offset=1_020), raw_batch(b"p", base_offset=1_025)
    case = Case(before + gap + behind[:cut], compacted=True)
    outcome = agree(case, 9)
    assert (outcome.due, outcome.halt) == ((1_025, None) if cut >= 8 else (1_005, UNPROVEN))
    outcome = agree(Case(gap + behind, compacted=True, due=1_005), 9)
    assert (outcome.due, outcome.halt) == (1_005, UNPROVEN)


@pytest.mark.parametrize("base_offset", [1_000, 1_004, 1_022, 1_024])
@pytest.mark.parametrize("cut", [8, 60, 62])
def test_offsets_only_rise(base_offset: int, cut: int) -> None:
    """Behind a batch, and behind a batch that is behind a gap; also where only the beginning is to be seen."""
    before, gap, odd = (raw_batch(b"p", base_offset=base) for base in (1_000, 1_020, base_offset))
    for record_set, due in ((before + gap + odd[:cut], 1_000), (before + odd[:cut], 1_000)):
        if record_set.startswith(before + odd[:cut]) and base_offset > 1_005:
            continue
        outcome = agree(Case(record_set, compacted=True, due=due), 9)
        assert (outcome.due, outcome.halt) == (1_005, HaltReason.CORRUPT)


def test_no_gap_reaches_the_end_of_the_log() -> None:
    """A hole behind what the answer says is readable is not believed: its batch may be anywhere."""
    case = Case(
        raw_batch(b"p") + raw_batch(b"p", base_offset=1_020) + raw_batch(b"p", base_offset=1_025), compacted=True
    )
    for readable, due, halt in ((1_030, 1_030, None), (1_025, 1_030, None), (1_024, 1_005, UNPROVEN)):
        outcome = forwarded(case, InnerLoop(9), b"", b"", readable=readable)
        assert (outcome.due, outcome.halt) == (due, halt)


@pytest.mark.parametrize(
    ("ahead", "due"),
    [
        (None, 1_005),
        (Ahead(1_005, 1_020, proven=False), 1_025),
        (Ahead(1_005, 1_020, proven=True), 1_025),
        (Ahead(1_005, 1_010, proven=True), 1_005),
        (Ahead(1_000, 1_020, proven=True), 1_005),
    ],
)
def test_what_was_seen_before(ahead: Ahead | None, due: int) -> None:
    """The answer before ended with the beginning of this batch, or it was looked at: then the gap may come first."""
    case = Case(raw_batch(b"p", base_offset=1_020) + raw_batch(b"", base_offset=1_025)[:20], compacted=True, due=1_005)
    assert forwarded(case, InnerLoop(9), b"", b"", ahead=ahead).due == due
    alone = case._replace(record_set=case.record_set[:-20])
    proven = ahead == (1_005, 1_020, True)
    assert forwarded(alone, InnerLoop(9), b"", b"", ahead=ahead).due == (1_025 if proven else 1_005)


def test_too_large_for_the_destination() -> None:
    batch = raw_batch(bytes(100))
    assert agree(Case(batch, max_batch_size=len(batch)), 9).halt is None
    assert agree(Case(batch, max_batch_size=len(batch) - 1), 9).halt is HaltReason.TOO_LARGE


# What was damaged is not believed.

ABORTED_WRITER, COMMITTED_WRITER = 5, 6
VICTIMS = {
    "plain": {},
    "transactional": {"attributes": 0x10, "producer_id": COMMITTED_WRITER},
    "aborted": {"attributes": 0x10, "producer_id": ABORTED_WRITER},
    "empty": {"record_count": 0},
    "marker": {"attributes": 0x30, "producer_id": ABORTED_WRITER, "last_offset_delta": 0, "record_count": 1},
}


@pytest.mark.parametrize("kind", VICTIMS)
def test_no_flipped_bit_becomes_a_hole(kind: str) -> None:
    """Each bit of what the checksum covers, and of the checksum, turned over: either a halt says so, or the batch goes
    on with a checksum that the destination refuses. It is neither a hole nor skipped, nor halts for another reason."""
    before = raw_batch(b"p" * 5, producer_id=ABORTED_WRITER, attributes=0x10, base_offset=1_000)
    victim = raw_batch(b"\x20\0\0\0\x08\0\0\0\0", **{"base_offset": 1_005, **VICTIMS[kind]})
    behind = raw_batch(b"n", base_offset=BatchHeader.read(victim).next_offset)
    case = Case(before + victim + behind, compacted=True, aborted=((ABORTED_WRITER, 1_000),))
    assert agree(case, 9).halt is None
    for bit in range(8 * MAGIC_AT, 8 * len(victim)):
        spoilt = bytearray(victim)
        spoilt[bit >> 3] ^= 1 << (bit & 7)
        outcome = agree(case._replace(record_set=before + spoilt + behind), 9)
        assert isinstance(outcome.sent[0], Identity)
        if outcome.halt is not None:
            assert (outcome.halt, len(outcome.sent), outcome.records) == (HaltReason.CORRUPT, 1, [5]), bit
        else:
            sent = outcome.sent[1]
            assert isinstance(sent, bytes), bit
            assert not is_intact(sent[-len(victim) :]), bit


@pytest.mark.parametrize("kind", VICTIMS)
def test_no_flipped_bit_is_skipped(kind: str) -> None:
    """The same of a batch that is passed over, because it is copied already: what it says of its offsets is believed
    only where its checksum holds."""
    victim = raw_batch(b"\x20\0\0\0\x08\0\0\0\0", **{"base_offset": 1_000, **VICTIMS[kind]})
    due = BatchHeader.read(victim).next_offset
    case = Case(victim + raw_batch(b"n", base_offset=due), due=due, compacted=True)
    whole = agree(case, 9)
    assert (whole.halt, whole.records) == (None, [5])
    for bit in range(8 * MAGIC_AT, 8 * len(victim)):
        spoilt = bytearray(victim)
        spoilt[bit >> 3] ^= 1 << (bit & 7)
        outcome = agree(case._replace(record_set=bytes(spoilt) + case.record_set[len(victim) :]), 9)
        assert (outcome.halt, outcome.sent) == (HaltReason.CORRUPT, []), bit


def test_without_a_look_at_the_checksum_records_become_holes() -> None:
    """Mutation: the rule above, taken away."""
    with patch.object(forward_module, "is_intact", lambda batch: True):
        control = bytearray(raw_batch(b"p"))
        control[22] ^= 0x20
        assert isinstance(forwarded(Case(bytes(control)), InnerLoop(9), b"", b"").sent[0], Identity)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_damaged_magic_is_not_the_old_format(magic: int) -> None:
    for batch in (raw_batch(b"p" * 40), legacy_message(magic)):
        spoilt = bytearray(batch)
        spoilt[16] = magic ^ (batch[16] != 2)
        assert agree(Case(bytes(spoilt)), 9).halt is HaltReason.CORRUPT


@pytest.mark.parametrize("message", [legacy_message(0), legacy_message(1), legacy_message(1, codec=1, count=9)])
def test_old_formats(message: bytes) -> None:
    """Long and short ones, alone and behind a batch."""
    for record_set in (message, raw_batch(b"p") + message, message * 5):
        assert agree(Case(record_set), 9).halt is HaltReason.OLD_FORMAT
