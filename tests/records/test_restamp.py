"""``mirror.records.restamp``: the carried checksum is the recomputed one on sound batches, and wrong on damaged ones.

Two references, neither of them ours: the library's CRC over real zeros, and kafka-python's pure Python table CRC.
"""

import struct

import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record._crc32c import crc as pure_python_crc
from kafka.record.default_records import DefaultRecordBatch

from mirror.records.header import CRC_AT, CRC_FROM, HEADER_SIZE, SEQUENCES, BatchHeader, Codec
from mirror.records.identity import MIRROR_BIT, Identity
from mirror.records.restamp import (
    BLOCK,
    CHECKED,
    FULL,
    NEAR,
    OWNER,
    OWNER_END,
    advance,
    blocks,
    carry,
    checksum,
    raw_crc,
    raw_crc_after_zero,
    restamp,
)
from tests.records.builders import RECORDS, Record, kafka_batch, raw_batch

MIB = 1 << 20
U32 = st.integers(0, FULL)
IDENTITIES = st.builds(
    Identity,
    st.integers(MIRROR_BIT, (1 << 63) - 1) | st.integers(-1, 1 << 40),
    st.integers(-1, (1 << 15) - 1),
    st.integers(-1, SEQUENCES - 1),
)
ATTRIBUTES = st.integers(-(1 << 15), (1 << 15) - 1)
BORDER = NEAR - (HEADER_SIZE - OWNER_END)
"""Payload size at which the bytes behind the change are exactly ``NEAR``."""
SIZES = st.one_of(
    st.integers(0, 300),
    st.integers(BORDER - 3, BORDER + 3),
    st.integers(0, 3 * NEAR),
    st.integers(MIB - 8, MIB + 200_000),
)
MINE = Identity(MIRROR_BIT | 0x1234_5678_9ABC << 8, 4, 77)


def payload_of(size: int, seed: int) -> bytes:
    """``size`` bytes that look like nothing in particular; cheap at 1 MB."""
    block = struct.pack(">IQ", seed, seed * 0x9E37_79B9_7F4A_7C15 & (1 << 64) - 1) + bytes(range(251))
    return (block * (size // len(block) + 1))[:size]


def stamped(batch: bytes, identity: Identity = MINE, attributes: int | None = None) -> bytes:
    """The batch as it goes to the destination."""
    header = BatchHeader.read(batch)
    return (
        restamp(header, identity, header.attributes if attributes is None else attributes).pack() + batch[HEADER_SIZE:]
    )


def is_sound(batch: bytes) -> bool:
    """The checksum in the header is that of the bytes."""
    return BatchHeader.read(batch).crc == checksum(batch)


# The arithmetic.


@given(state=U32, zeros=st.integers(0, 300) | st.integers(NEAR - 2, NEAR + 2) | st.integers(0, 2 * MIB))
@example(state=FULL, zeros=0)
@example(state=FULL, zeros=1)
@example(state=1, zeros=MIB)
def test_advance_is_the_librarys_crc_over_zeros(state: int, zeros: int) -> None:
    assert advance(state, zeros) == crc32c(bytes(zeros), state ^ FULL) ^ FULL


@given(state=U32, count=st.integers(0, NEAR // BLOCK))
def test_blocks_are_that_many_zeros(state: int, count: int) -> None:
    low, second, third, high = blocks(count)
    moved = low[state & 255] ^ second[state >> 8 & 255] ^ third[state >> 16 & 255] ^ high[state >> 24]
    assert moved == advance(state, count * BLOCK)


@given(state=U32, one=st.integers(0, (1 << 30) - 1), other=st.integers(0, (1 << 30) - 1))
@example(state=1, one=(1 << 30) - 1, other=1 << 30)
def test_advance_in_two_steps_is_advance_in_one(state: int, one: int, other: int) -> None:
    """Also far beyond what one can feed to the library."""
    assert advance(advance(state, one), other) == advance(state, one + other)


@pytest.mark.parametrize("power", range(31))
def test_each_table_doubles_the_one_before(power: int) -> None:
    for bit in range(32):
        state = 1 << bit
        if power:
            assert advance(state, 1 << power) == advance(advance(state, 1 << power - 1), 1 << power - 1)
        else:
            assert advance(state, 1) == raw_crc_after_zero(state)


def test_the_longest_batch_is_the_limit() -> None:
    assert advance(0, (1 << 31) - 1) == 0
    for zeros in (1 << 31, 1 << 40, -1):
        with pytest.raises(ValueError, match="shorter than"):
            advance(1, zeros)


@given(one=st.binary(max_size=200), other=st.binary(max_size=200))
def test_the_raw_crc_is_linear(one: bytes, other: bytes) -> None:
    size = min(len(one), len(other))
    mixed = bytes(a ^ b for a, b in zip(one, other, strict=False))
    assert raw_crc(mixed) == raw_crc(one[:size]) ^ raw_crc(other[:size])
    assert raw_crc(bytes(size)) == 0


@given(data=st.binary(max_size=300), at=st.integers(0, 300), change=st.binary(min_size=1, max_size=40))
def test_carry_follows_any_change_of_bytes(data: bytes, at: int, change: bytes) -> None:
    at = min(at, len(data))
    change = change[: len(data) - at]
    changed = data[:at] + bytes(a ^ b for a, b in zip(data[at:], change, strict=False)) + data[at + len(change) :]
    assert carry(crc32c(data), change, len(data) - at - len(change)) == crc32c(changed)


@pytest.mark.parametrize("behind", [0, 1, 4, NEAR - 1, NEAR, NEAR + 1, 2 * NEAR, MIB, MIB + 1])
def test_carry_is_the_same_on_both_sides_of_the_switch(behind: int) -> None:
    change = b"\x80\0\0\x01"
    assert carry(0x1234_5678, change, behind) == 0x1234_5678 ^ raw_crc(change + bytes(behind))


def test_the_owner_alone_gives_what_all_checked_fields_give() -> None:
    """The shorter change serves where the attributes stay: leading zeros count for nothing in a raw CRC."""
    for behind in (4, 500, NEAR + 1):
        whole = CHECKED.pack(0, 0, 0, 0, MINE.producer_id ^ -1, MINE.epoch ^ -1, MINE.sequence ^ -1)
        short = OWNER.pack(MINE.producer_id ^ -1, MINE.epoch ^ -1, MINE.sequence ^ -1)
        assert carry(99, whole, behind) == carry(99, short, behind)


# Sound batches.


@given(size=SIZES, seed=st.integers(0, FULL), before=IDENTITIES, identity=IDENTITIES, old=ATTRIBUTES, new=ATTRIBUTES)
@example(size=BORDER, seed=1, before=Identity(-1, -1, -1), identity=MINE, old=0, new=0)
@example(size=BORDER + 1, seed=1, before=Identity(-1, -1, -1), identity=MINE, old=0x40, new=0)
@example(size=0, seed=0, before=MINE, identity=MINE, old=3, new=3)
@example(size=MIB + 1, seed=5, before=Identity(-1, -1, -1), identity=MINE, old=0x44, new=4)
def test_the_carried_checksum_is_the_recomputed_one(
    size: int, seed: int, before: Identity, identity: Identity, old: int, new: int
) -> None:
    batch = raw_batch(
        payload_of(size, seed),
        attributes=old,
        producer_id=before.producer_id,
        producer_epoch=before.epoch,
        base_sequence=before.sequence,
    )
    sent = stamped(batch, identity, new)
    assert is_sound(sent)
    header = BatchHeader.read(sent)
    assert header == BatchHeader.read(batch)._replace(
        base_offset=0,
        leader_epoch=-1,
        crc=checksum(sent),
        attributes=new,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=identity.sequence,
    ), "nothing else changes"


@pytest.mark.parametrize("size", range(BORDER - 2, BORDER + 3))
@pytest.mark.parametrize("attributes", [0, 0x40])
def test_the_exact_border(size: int, attributes: int) -> None:
    assert is_sound(stamped(raw_batch(payload_of(size, 9), attributes=0x40), attributes=attributes))


@given(payload=st.binary(max_size=200), identity=IDENTITIES)
def test_an_independent_crc_agrees(payload: bytes, identity: Identity) -> None:
    sent = stamped(raw_batch(payload), identity)
    assert BatchHeader.read(sent).crc == pure_python_crc(sent[CRC_FROM:])


@given(one=IDENTITIES, other=IDENTITIES, size=st.sampled_from([0, 100, BORDER, BORDER + 1]))
def test_twice_is_once_and_back_is_where_it_began(one: Identity, other: Identity, size: int) -> None:
    batch = raw_batch(payload_of(size, 3), base_offset=0, leader_epoch=-1, attributes=0x41)
    assert stamped(stamped(batch, one, 1), other, 1) == stamped(batch, other, 1)
    assert stamped(stamped(batch, one, 1), Identity(-1, -1, -1), 0x41) == batch


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("count", [1, 3, 40, 9_000], ids=lambda count: f"{count} records")
def test_kafka_python_reads_what_was_restamped(codec: Codec, count: int) -> None:
    records = [
        Record(
            at, 1_700_000_000_000 + at, str(at).encode(), None if at % 5 == 4 else b"value " * 20, RECORDS[0].headers
        )
        for at in range(count)
    ]
    batch = kafka_batch(
        records, codec=codec, base_offset=500, leader_epoch=6, producer_id=3, producer_epoch=1, base_sequence=8
    )
    theirs = DefaultRecordBatch(stamped(batch))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.leader_epoch) == (0, -1)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (MINE.producer_id, 4, 77)
    assert theirs.compression_type == codec
    found = [(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in theirs]
    assert found == [
        (record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in records
    ]


def test_the_sequence_wraps_inside_a_batch() -> None:
    """A batch may begin below 2^31 and end above: the header holds the first, the next batch begins behind zero."""
    identity = Identity(MIRROR_BIT, 0, SEQUENCES - 2)
    sent = BatchHeader.read(stamped(raw_batch(b"records"), identity))
    assert sent.base_sequence == SEQUENCES - 2
    assert sent.last_sequence == 2
    following = identity.after(sent.last_offset_delta + 1)
    assert following.sequence == 3
    assert is_sound(stamped(raw_batch(b"records"), following))


def test_checksum_takes_any_buffer() -> None:
    batch = raw_batch(b"records")
    assert checksum(batch) == checksum(bytearray(batch)) == checksum(memoryview(batch)) == BatchHeader.read(batch).crc


# Damaged batches.

SMALL = raw_batch(payload_of(40, 7), attributes=0x40, producer_id=5, producer_epoch=1, base_sequence=6)


@pytest.mark.parametrize("bit", range(CRC_AT * 8, len(SMALL) * 8))
def test_any_flipped_bit_leaves_a_wrong_checksum(bit: int) -> None:
    """Payload, header fields that stay, header fields that are overwritten, the checksum itself."""
    damaged = bytearray(SMALL)
    damaged[bit // 8] ^= 0x80 >> bit % 8
    assert not is_sound(stamped(bytes(damaged)))
    assert not is_sound(stamped(bytes(damaged), attributes=0))


@given(size=SIZES, seed=st.integers(0, FULL), place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_damage_anywhere_stays_visible_and_is_not_changed(size: int, seed: int, place: float, mask: int) -> None:
    """The difference between carried and true checksum is the one that the source's bytes already had."""
    batch = raw_batch(payload_of(size, seed))
    at = CRC_FROM + int(place * (len(batch) - CRC_FROM))
    damaged = batch[:at] + bytes([batch[at] ^ mask]) + batch[at + 1 :]
    sent = stamped(damaged, attributes=0)
    assert not is_sound(sent)
    unchanged_header = 23 <= at < 43 or at >= OWNER_END
    if unchanged_header:
        assert BatchHeader.read(sent).crc ^ checksum(sent) == BatchHeader.read(damaged).crc ^ checksum(damaged)


@given(size=SIZES, seed=st.integers(0, FULL), cut=st.integers(1, 50))
def test_zeroed_ends_stay_visible(size: int, seed: int, cut: int) -> None:
    """A torn page: the end of the batch came back as zeros."""
    batch = raw_batch(payload_of(size, seed) + b"\x01")
    torn = batch[:-cut].ljust(len(batch), b"\0") if cut < len(batch) - HEADER_SIZE else batch[:-1] + b"\0"
    assert not is_sound(stamped(torn))
