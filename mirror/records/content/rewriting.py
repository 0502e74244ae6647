"""Writes a batch's records into other batches that a destination takes (the deep path).

Brokers refuse a batch in which offsets are missing, that is over their limit, or that is marked with append times. The
records of such a batch go into dense batches: one for each run of offsets without a gap, or several, if one would be
too large (KIP-126). Each record keeps its offset, its timestamp, and the bytes of its key, value and headers. The codec
stays, unless another one is wanted.

Several batches in a row may also become one (``rebatch``), because each costs a broker a request of its own.

Pure: the same limits give the same bytes each time, and they contain no time of day.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload

from crc32c import crc32c

from mirror.records.content.building import compressed
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.ratio import RatioEstimator
from mirror.records.content.raw import RawRecord, raw_records
from mirror.records.content.varint import as_i64
from mirror.records.header import (
    CRC_FROM,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    PREFIX_SIZE,
    BatchHeader,
    Codec,
)

MOST_PLAIN = 8 << 20
"""Limit for a batch before compression, in bytes; a single larger record is taken. It bounds the memory of the deep
path, whatever a batch expands to."""
MOST_GROWN = 64 << 20
GROWTH = 4
"""All pieces of a batch together have at most ``MOST_GROWN`` bytes plus ``GROWTH`` times the batch's. Rewriting
compresses with other settings than the producer did: if only a large window made a batch small, the pieces may be as
large as its plain bytes, and the caller keeps them until they are sent."""
_NONE = -1
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Oversize(NotOpened):
    """A single record does not fit into any batch that the destination accepts. ``offset``: of the record; ``size``: of
    a batch with only this record, in bytes."""

    def __init__(self, offset: int, size: int, most: int) -> None:
        super().__init__(f"the record at offset {offset} makes a batch of {size} bytes by itself; {most} is the limit")
        self.offset = offset
        self.size = size


class RecordTooLarge(NamedTuple):
    """A record that does not fit into any batch that the destination accepts, and is left out. ``size``: bytes of a
    batch with only this record."""

    offset: int
    size: int


class Piece(NamedTuple):
    """A dense batch of magic 2 without a producer and with create times. ``header``: with the base offset at the source
    and a valid checksum. ``records``: the bytes behind it."""

    header: BatchHeader
    records: bytes


class Splits:
    """Counts batches that were built, their bytes before compression, and those that were too large and were split
    (KIP-126)."""

    __slots__ = ("built", "plain", "split")

    def __init__(self) -> None:
        self.built = self.plain = self.split = 0


@overload
def rewrite(
    header: BatchHeader,
    records: bytes,
    *,
    due: int = ...,
    most_size: int | None = ...,
    ratios: RatioEstimator | None = ...,
    splits: Splits | None = ...,
    codec: int | None = ...,
) -> Iterator[Piece]: ...


@overload
def rewrite(
    header: BatchHeader,
    records: bytes,
    *,
    due: int = ...,
    most_size: int | None = ...,
    ratios: RatioEstimator | None = ...,
    splits: Splits | None = ...,
    passes_over: int | None,
    codec: int | None = ...,
) -> Iterator[Piece | RecordTooLarge]: ...


def rewrite(
    header: BatchHeader,
    records: bytes,
    *,
    due: int = 0,
    most_size: int | None = None,
    ratios: RatioEstimator | None = None,
    splits: Splits | None = None,
    passes_over: int | None = None,
    codec: int | None = None,
) -> Iterator[Piece | RecordTooLarge]:
    """Yields the batch's records as dense batches, in order.

    Args:
        header: the batch's header; its checksum was verified.
        records: the bytes behind it.
        due: records before this offset are left out.
        most_size: limit for a batch in bytes (the destination's ``max.message.bytes``); None: no limit.
        ratios: the topic's estimator, by which batches are closed; it learns from each batch that is built. None: one
            without experience.
        splits: counts the batches that are built and split.
        passes_over: limit in bytes. A record for which a batch of its own would be over this and ``most_size`` is
            yielded as ``RecordTooLarge`` in its place, and the others follow. None: such a record raises ``Oversize``.
        codec: codec of the new batches; None: that of the batch.

    Raises:
        NotOpened: the batch cannot be read, or its pieces become too large together (``MOST_GROWN``); also while
            iterating.
        Oversize: a single record is over the limit. Everything before it was yielded.
    """
    writer = _Writer(
        header, most_size, ratios or RatioEstimator(), splits or Splits(), passes_over=passes_over, codec=codec
    )
    yield from _bounded([(header, records)], due, writer)


def rebatch(
    parts: Sequence[tuple[BatchHeader, bytes]],
    *,
    most_size: int | None = None,
    ratios: RatioEstimator | None = None,
    splits: Splits | None = None,
    codec: int | None = None,
) -> Iterator[Piece]:
    """Yields the records of several batches as one dense batch, or a few, if one would be too large.

    Args:
        parts: headers, and the bytes behind them; each begins where the one before it ends. Checksums were verified.
        most_size: see ``rewrite``.
        ratios: see ``rewrite``.
        splits: see ``rewrite``.
        codec: codec of the new batches; None: that of the first one.

    Raises:
        NotOpened, Oversize: as ``rewrite``.
    """
    writer = _Writer(parts[0][0], most_size, ratios or RatioEstimator(), splits or Splits(), codec=codec)
    for piece in _bounded(parts, 0, writer):
        assert isinstance(piece, Piece)
        yield piece


def _bounded(
    parts: Sequence[tuple[BatchHeader, bytes]], due: int, writer: "_Writer"
) -> Iterator[Piece | RecordTooLarge]:
    """Yields the pieces. Raises ``NotOpened`` if they become too large together (``MOST_GROWN``)."""
    most = MOST_GROWN + GROWTH * sum(len(records) for _, records in parts)
    left = most
    for piece in _pieces(parts, due, writer):
        left -= len(piece.records) if isinstance(piece, Piece) else 0
        if left < 0:
            header, size = parts[0][0], sum(header.size for header, _ in parts)
            raise NotOpened(
                f"the batch at offset {header.base_offset} of {size} bytes grows to more than {most} bytes when it is "
                "rewritten"
            )
        yield piece


def _pieces(
    parts: Iterable[tuple[BatchHeader, bytes]], due: int, writer: "_Writer"
) -> Iterator[Piece | RecordTooLarge]:
    for header, records in parts:
        appended_at, base = header.attributes & LOG_APPEND_TIME, header.base_offset
        later = _first_timestamp(header) - writer.base_timestamp
        for record in raw_records(header, records):
            offset = base + record.offset_delta
            if offset < due:
                continue
            if offset != writer.next_offset or len(record.content) > writer.room:
                yield from writer.end()
            # A consumer sees the time of the append. The producer's own stands in the record, where nobody sees it.
            delta = 0 if appended_at else record.timestamp_delta
            writer.add(offset, record, as_i64(later + delta) if later else delta)
    yield from writer.end()


def _first_timestamp(header: BatchHeader) -> int:
    """Returns the timestamp to which the deltas of the batch's records are added."""
    return header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp


def alone(header: BatchHeader, record: RawRecord, *, codec: int | None = None) -> Piece:
    """Returns a batch with only this record, as ``rewrite`` builds it, however large it is. ``header``: that of the
    record's batch."""
    writer = _Writer(header, None, RatioEstimator(), Splits(), codec=codec)
    appended_at = header.attributes & LOG_APPEND_TIME
    writer.add(header.base_offset + record.offset_delta, record, 0 if appended_at else record.timestamp_delta)
    (piece,) = writer.end()
    assert isinstance(piece, Piece)
    return piece


class _Writer:
    """Builds one batch after the other. Records are kept as the bytes that will be stored: as objects, the many small
    records of a large batch would take a multiple of them."""

    def __init__(
        self,
        header: BatchHeader,
        most_size: int | None,
        ratios: RatioEstimator,
        splits: Splits,
        *,
        passes_over: int | None = None,
        codec: int | None = None,
    ) -> None:
        self._codec = Codec(header.codec_bits if codec is None else codec)
        self.base_timestamp = _first_timestamp(header)
        """The base timestamp of every batch that is written, in ms since 1970."""
        self._most_size = most_size
        self._ratios = ratios
        self._splits = splits
        self._passes_over = passes_over
        self._plain = bytearray()
        self._base = 0
        self._newest = 0
        self.next_offset = -1
        """The offset that the next record of the batch has to have; -1: there is no batch yet."""
        self.room = 0
        """Bytes of content that the batch can still take, as far as can be estimated."""

    def add(self, offset: int, record: RawRecord, timestamp_delta: int) -> None:
        """Adds the record, as the first one of a batch or with the next offset."""
        timestamp = self.base_timestamp + timestamp_delta
        if not _LEAST <= timestamp <= _MOST:
            timestamp = as_i64(timestamp)
        if self.next_offset < 0:
            self._base, self._newest = offset, timestamp
            self.room = self._most_plain()
        stored = record.stored(offset - self._base, timestamp_delta)
        self._plain += stored
        self.room -= len(stored)
        self.next_offset = offset + 1
        if timestamp > self._newest:
            self._newest = timestamp

    def _most_plain(self) -> int:
        """Returns the estimated limit for the plain records of a batch in bytes, less the bytes in front of the last
        record's key."""
        if self._most_size is None:
            return MOST_PLAIN
        most = (self._most_size - HEADER_SIZE) / self._ratios.estimated(self._codec)
        return min(MOST_PLAIN, int(most)) - _FRONT

    def end(self) -> Iterator[Piece | RecordTooLarge]:
        """Yields the batch, or the batches into which it has to be split, and begins another one."""
        if self.next_offset >= 0:
            plain, base, count, newest = bytes(self._plain), self._base, self.next_offset - self._base, self._newest
            self._plain.clear()
            self.next_offset = -1
            yield from self._built(plain, base, count, newest)

    def _built(self, plain: bytes, base: int, count: int, newest: int) -> Iterator[Piece | RecordTooLarge]:
        packed = compressed(self._codec, plain)
        size, ratio = HEADER_SIZE + len(packed), len(packed) / len(plain)
        self._splits.built += 1
        self._splits.plain += len(plain)
        if self._most_size is None or size <= self._most_size:
            self._ratios.observe(self._codec, ratio)
            yield self._piece(packed, base, count, newest)
            return
        if count == 1 and self._passes_over is not None and size > self._passes_over:
            yield RecordTooLarge(base, size)
            return
        if count == 1:
            raise Oversize(base, size, self._most_size)
        self._splits.split += 1
        self._ratios.reset(self._codec, ratio)
        del packed
        yield from self._halves(plain, base, count)

    def _halves(self, plain: bytes, base: int, count: int) -> Iterator[Piece | RecordTooLarge]:
        """Splits a batch of two or more records that is too large, by bytes: each half is checked again."""
        whole = self._header(len(plain), base, count, 0, attributes=Codec.NONE)
        half = bytearray()
        first, newest, taken = base, _LEAST, 0
        for record in raw_records(whole, plain, most=len(plain)):
            offset = base + record.offset_delta
            stored = record.stored(offset - first, record.timestamp_delta)
            if taken and first == base and len(half) + len(stored) > len(plain) // 2:
                yield from self._built(bytes(half), first, taken, newest)
                half.clear()
                first, newest, taken, stored = offset, _LEAST, 0, record.stored(0, record.timestamp_delta)
            newest = max(newest, as_i64(self.base_timestamp + record.timestamp_delta))
            half += stored
            taken += 1
        yield from self._built(bytes(half), first, taken, newest)

    def _piece(self, packed: bytes, base: int, count: int, newest: int) -> Piece:
        header = self._header(len(packed), base, count, newest, attributes=self._codec)
        crc = crc32c(packed, crc32c(header.pack()[CRC_FROM:]))
        return Piece(header._replace(crc=crc), packed)

    def _header(self, size: int, base: int, count: int, newest: int, *, attributes: int) -> BatchHeader:
        return BatchHeader(
            base_offset=base,
            length=HEADER_SIZE - PREFIX_SIZE + size,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=newest,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=_NONE,
            base_sequence=_NONE,
            record_count=count,
        )


_FRONT = 21
"""Most bytes in front of a record's key: its size, attributes and two deltas."""
