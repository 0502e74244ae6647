"""Compares a batch at the destination with the source's: byte for byte, or by the records that both still have
(``mirror.offsetmap.compare.survivors``), if a log cleaner has changed either, or the copy was rewritten."""

import asyncio
from enum import Enum
from typing import NamedTuple

from mirror.offsetmap.compare.survivors import cleaned, in_common, loses_times, timeless
from mirror.records.content.opening import MOST_OPENED, NotOpened, opened
from mirror.records.content.raw import RawRecord, placed_records
from mirror.records.content.varint import as_i64
from mirror.records.header import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    PREFIX_SIZE,
    STAND_IN,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
)
from mirror.records.stamped import is_stamped, unstamped
from mirror.relay.locate.tails import READ_BYTES, Batches, Data

_NO_TIME = -1
NEUTRAL = ~(DELETE_HORIZON | TRANSACTIONAL)
"""Attribute bits that a copy shares with its original. The others only say how the source got the batch."""


class Likeness(Enum):
    """How a copy compares to its original."""

    SAME = "same"
    """Equal as written, or in every record that both still have."""
    DIFFERENT = "different"
    NOTHING = "nothing"
    """There is nothing to compare: no record is left on both sides, or one cannot be read."""


class ComparedRecords(NamedTuple):
    """The result of a comparison. ``why``: why nothing could be compared; otherwise empty."""

    likeness: Likeness
    why: str = ""


SAME, DIFFERENT = ComparedRecords(Likeness.SAME), ComparedRecords(Likeness.DIFFERENT)


def same_batch(copy: Data, original: tuple[BatchHeader, bytes], *, strict: bool = False) -> bool:
    """Returns True if both have the same payload, and the same header except for who wrote the batch, in which
    transaction and leader epoch, and the checksum. ``strict``: the producer fields must be equal, too."""
    (mine, payload), (other, whole) = copy, original
    return (
        mine.base_offset == other.base_offset
        and is_like(mine, other)
        and (not strict or mine[9:12] == other[9:12])
        and payload == whole[HEADER_SIZE:]
    )


def is_like(mine: BatchHeader, other: BatchHeader) -> bool:
    """Returns True if both headers say the same about the records. Their offsets may differ."""
    return (
        mine.length == other.length
        and mine.attributes & NEUTRAL == other.attributes & NEUTRAL
        and mine[6:9] == other[6:9]
        and mine.record_count == other.record_count
    )


def as_sent(copy: Data, original: tuple[BatchHeader, bytes]) -> Data:
    """Returns the copy as it was sent, if the destination's broker has replaced its times with the time of the append:
    with the original's max timestamp, which the broker has replaced as well. Any other copy is returned as it is."""
    header, payload = copy
    return (unstamped(header, original[0].max_timestamp), payload) if is_stamped(header) else copy


async def compare(
    copy: Data,
    original: tuple[BatchHeader, bytes],
    *,
    opening: asyncio.Lock,
    strict: bool = False,
    gaps: bool = False,
    pieces: bool = False,
    several: bool = False,
    append_times: bool = False,
) -> ComparedRecords:
    """Compares one of our batches at the destination with the source's batch at its base offset, or the next one.

    Args:
        copy: header and records.
        original: header and whole batch.
        opening: held while batches are open, so that memory is bounded.
        strict: True if the copy carries the source's producer fields.
        gaps: True if the source is compacted, so that its batch may be gone altogether.
        pieces: True if the copy may be a piece of the source's batch, or was rewritten from it.
        several: True if the original stands for several batches of the source (``records_at``).
        append_times: True if the destination's broker may have replaced the copy's times with the time of the append.
    """
    timed = not (append_times and loses_times(copy[0]))
    copy = as_sent(copy, original) if append_times else copy
    (mine, payload), (other, whole) = copy, original
    if same_batch(copy, original, strict=strict):
        return SAME
    base = mine.base_offset
    if other.base_offset > mine.last_offset:
        return (
            ComparedRecords(Likeness.NOTHING, f"the source has compacted the batch at {base} away")
            if gaps
            else DIFFERENT
        )
    if pieces and (several or is_piece(mine, other)):
        return await _compare_piece(mine, payload, other, whole, opening=opening, gaps=gaps, timed=timed)
    if (other.base_offset, other.last_offset) != (base, mine.last_offset):
        return DIFFERENT
    if not (cleaned(mine) or cleaned(other)):
        if not (pieces and _holds_as_much(mine, other)):
            return DIFFERENT
        # The last part of a series of batches that became one may be as long as a batch, but consist of other bytes.
        compared = await _compare_piece(mine, payload, other, whole, opening=opening, gaps=gaps, timed=timed)
        return SAME if compared.likeness is Likeness.SAME else DIFFERENT
    async with opening:
        try:
            both = opened(mine, payload), opened(other, whole[HEADER_SIZE:])
            found = await in_common(*(both if timed else map(timeless, both)))
        except NotOpened as error:
            return ComparedRecords(Likeness.NOTHING, str(error))
    if found is not None and not found.both:
        return ComparedRecords(
            Likeness.NOTHING, f"the log cleaners have left no record of the batch at {base} on both sides"
        )
    return DIFFERENT if found is None else SAME


def is_piece(copy: BatchHeader, original: BatchHeader) -> bool:
    """Returns True if the copy can only have been made of the original by rewriting (``records.content.rewriting``): it
    has only a part of its offsets, or another codec, or its own times in the place of append times, or the original is
    of an old format."""
    inside = original.base_offset <= copy.base_offset and copy.last_offset <= original.last_offset
    alike = (copy.base_offset, copy.last_offset) == (original.base_offset, original.last_offset)
    recoded = copy.codec_bits != original.codec_bits
    anew = original.is_stand_in or recoded or bool(original.attributes & ~copy.attributes & LOG_APPEND_TIME)
    return inside and (anew or not alike)


def _holds_as_much(mine: BatchHeader, other: BatchHeader) -> bool:
    """Returns True if two batches with the same offsets may hold the same records, judging by their headers."""
    return (mine.attributes & NEUTRAL, mine.max_timestamp, mine.record_count) == (
        other.attributes & NEUTRAL, other.max_timestamp, other.record_count,
    )  # fmt: skip


async def _compare_piece(
    mine: BatchHeader, payload: bytes, other: BatchHeader, whole: bytes, *, opening: asyncio.Lock, gaps: bool,
    timed: bool,
) -> ComparedRecords:  # fmt: skip
    """Compares a piece with the records that the original has at the same offsets, one by one: keys, values and headers
    as stored, and, if ``timed``, the times that consumers see. The piece was made with all records that the original
    had there at that time."""
    async with opening:
        try:
            inside = (
                record
                for record in placed_records(other, whole[HEADER_SIZE:])
                if mine.base_offset <= record.offset <= mine.last_offset
            )
            both = placed_records(mine, payload), inside
            found = await in_common(*(both if timed else map(timeless, both)))
        except NotOpened as error:
            return ComparedRecords(Likeness.NOTHING, str(error))
    if found is None or (found.missing and not cleaned(mine)):
        return DIFFERENT
    if found.both < mine.record_count and not gaps:
        return DIFFERENT
    if not found.both:
        return ComparedRecords(
            Likeness.NOTHING, f"the log cleaners have left no record of the batch at {mine.base_offset} on both sides"
        )
    return SAME


async def records_at(here: Batches, base: int, last: int, *, old: bool) -> tuple[BatchHeader, bytes]:
    """Returns what the source has from ``base`` to ``last``, as one batch with these borders that stands for it. At the
    source, what became one copy still stands there one by one, and cleaners leave no borders among old messages. So
    only the copy's offsets say what belongs to it.

    Args:
        here: the source's log.
        base: first offset of the copy. The source has something at or behind it.
        last: last offset of the copy.
        old: True for messages of an old format, False for batches. If the other kind begins before ``last``, the result
            ends there: the two kinds never become one copy.

    Raises:
        NotOpened: there are more than ``MOST_OPENED`` bytes, or a batch cannot be opened.
        NetworkError: cannot be determined now.
    """
    plain, times, at = bytearray(), list[int](), base
    epoch = NO_LEADER_EPOCH
    while at <= last:
        segment = await here.read(at, max_bytes=READ_BYTES)
        if not segment.batches:
            break
        for header, batch in segment.batches:
            at = header.next_offset
            if header.is_stand_in != old:
                last = min(last, header.base_offset - 1)
            elif header.base_offset <= last:
                epoch = header.leader_epoch
            for record in placed_records(header, bytes(batch[HEADER_SIZE:])) if header.base_offset <= last else ():
                if base <= record.offset <= last:
                    times.append(record.timestamp)
                    raw = RawRecord(0, 0, record.attributes, record.content)
                    plain += raw.stored(record.offset - base, as_i64(record.timestamp - times[0]))
            if len(plain) > MOST_OPENED:
                raise NotOpened(f"the source has more than {MOST_OPENED} bytes at offsets {base} to {last}")
    header = BatchHeader(
        base_offset=base, length=HEADER_SIZE - PREFIX_SIZE + len(plain), leader_epoch=epoch, magic=MAGIC,
        crc=0, attributes=Codec.NONE, last_offset_delta=last - base, base_timestamp=times[0] if times else _NO_TIME,
        max_timestamp=max(times, default=_NO_TIME), producer_id=STAND_IN, producer_epoch=0, base_sequence=0,
        record_count=len(times),
    )  # fmt: skip
    return header, header.pack() + plain
