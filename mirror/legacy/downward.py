"""Down-conversion (KIP-283): batches of magic 2 become messages of magic 1 or 0, for brokers that take nothing newer.

Chunks are made lazily, so that memory does not grow with the size of the fetch: at any time, one opened batch and one
chunk are held.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mirror.legacy.entries import NO_TIMESTAMP, BatchSpan, LegacySpan, Span, named
from mirror.legacy.reading import CODECS, in_order
from mirror.legacy.writing import WrapperBuilder, message
from mirror.records.admit import KNOWN_ATTRIBUTES
from mirror.records.content.opening import NotOpened, Record, opened
from mirror.records.header import HEADER_SIZE, Codec, CorruptBatch
from mirror.records.scan import NOT_SEEN

CHUNK_BYTES = 128 << 10
"""The default of KIP-283: the size with the highest throughput in its measurements."""
OldMagic = Literal[0, 1]


class UnsupportedCodec(NotOpened):
    """The older format has no such codec (zstd). A broker answers a Fetch that would need this conversion with
    UNSUPPORTED_COMPRESSION_TYPE (76)."""


@dataclass(slots=True, kw_only=True)
class LeftOut:
    """Counts what a conversion leaves out because the older format cannot hold it.

    Attributes:
        control_batches: transaction markers.
        headers: headers of records.
        headed_records: the records that had these headers.
        timestamps: records that had a timestamp (conversion to magic 0).
    """

    control_batches: int = 0
    headers: int = 0
    headed_records: int = 0
    timestamps: int = 0

    def count(self, record: Record, magic: int) -> None:
        """Counts what is lost when the record becomes a message of this magic."""
        if record.headers:
            self.headers += len(record.headers)
            self.headed_records += 1
        if magic == 0 and record.timestamp != NO_TIMESTAMP:
            self.timestamps += 1


class RecordRun(NamedTuple):
    """Records of consecutive offsets. ``first_offset``: at the source; ``records``: how many."""

    first_offset: int
    records: int


class ConvertedChunk(NamedTuple):
    """A piece of what was converted.

    Attributes:
        messages: a message set: whole messages and wrappers. Empty if nothing was left to convert. A producer sends
            each wrapper in a request of its own
            (``docs/BROKERS.md#kafka-010-stamps-the-first-wrapper-of-a-request``).
        runs: the offsets of its records, in order. Runs that adjoin are merged.
        next_offset: the source offset at which conversion goes on. Everything before it is in this chunk or an earlier
            one, or was left out.
    """

    messages: bytes
    runs: tuple[RecordRun, ...]
    next_offset: int


def down_convert(
    record_set: memoryview,
    spans: Iterable[Span],
    *,
    magic: OldMagic,
    most: int,
    due: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
    lost: LeftOut | None = None,
) -> Iterator[ConvertedChunk]:
    """Yields a record set's contents as message sets, chunk by chunk, in order.

    A compressed batch becomes a wrapper with the same codec (several, if the messages inside would exceed ``most``),
    any other one a message for each record. Keys, values, create times and absolute offsets are kept. Append times
    become create times, because brokers refuse batches from producers that are marked with append times. An entry whose
    format is old enough already is passed on unchanged, once it has been read and verified. Data of aborted
    transactions is converted like any other: the caller leaves such spans out.

    Args:
        record_set: one or more whole entries.
        spans: those of ``entries.cut``, or some of them, in order.
        magic: of the messages to make, 1 (Kafka 0.10) or 0 (before).
        most: limit in bytes for the decompressed records of a batch, and for the messages in a wrapper that is made.
        due: records before this offset are left out.
        chunk_bytes: a chunk is no larger, unless a single message or wrapper is.
        lost: counts what is left out.

    Every error names the offset, and is raised after everything before that offset was yielded.

    Raises:
        UnsupportedCodec: a batch with zstd.
        NotOpened: an entry cannot be read.
        CorruptBatch: as ``entries.cut``; or the offsets of records do not ascend, or lie outside their batch.
    """
    chunk = _Gathered()
    try:
        for piece in _pieces(record_set, spans, _Target(magic, due, most), lost if lost is not None else LeftOut()):
            if piece.data and chunk.size and chunk.size + len(piece.data) > chunk_bytes:
                yield chunk.take()
            chunk.add(piece)
    except (NotOpened, CorruptBatch):
        if chunk.news:
            yield chunk.take()
        raise
    if chunk.news:
        yield chunk.take()


class _Piece(NamedTuple):
    """A message or a wrapper. An empty one says only that the source's offsets go on at ``next_offset``."""

    data: bytes
    runs: list[RecordRun]
    next_offset: int


class _Gathered:
    """The pieces of the next chunk."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._runs: list[RecordRun] = []
        self._next_offset = 0
        self.size = 0
        """Bytes of the gathered pieces."""
        self.news = False
        """True if a piece was added since the last chunk, with data or without."""

    def add(self, piece: _Piece) -> None:
        if piece.data:
            self._data.append(piece.data)
            self.size += len(piece.data)
        for run in piece.runs:
            _extend(self._runs, run)
        self._next_offset = piece.next_offset
        self.news = True

    def take(self) -> ConvertedChunk:
        """Returns the chunk, and begins another."""
        chunk = ConvertedChunk(b"".join(self._data), tuple(self._runs), self._next_offset)
        self._data, self._runs, self.size, self.news = [], [], 0, False
        return chunk


def _extend(runs: list[RecordRun], run: RecordRun) -> None:
    if runs and _end(runs[-1]) == run.first_offset:
        runs[-1] = RecordRun(runs[-1].first_offset, runs[-1].records + run.records)
    else:
        runs.append(run)


def _end(run: RecordRun) -> int:
    return run.first_offset + run.records


class _Target(NamedTuple):
    """The arguments of ``down_convert`` that concern the messages to make."""

    magic: OldMagic
    due: int
    most: int


def _pieces(record_set: memoryview, spans: Iterable[Span], target: _Target, lost: LeftOut) -> Iterator[_Piece]:
    before = NOT_SEEN
    for span in spans:
        if span.last_offset >= target.due:
            if isinstance(span, BatchSpan):
                yield from _of_batch(record_set, span, target, lost)
            else:
                yield from _of_entry(record_set, span, target, before, lost)
            yield _Piece(b"", [], span.last_offset + 1)
        before = span.last_offset


def _of_batch(record_set: memoryview, span: BatchSpan, target: _Target, lost: LeftOut) -> Iterator[_Piece]:
    header = span.header
    if header.attributes & ~KNOWN_ATTRIBUTES:
        raise NotOpened(f"{named(span)} has unknown attributes: {header.attributes:#06x}")
    if header.is_control:
        lost.control_batches += 1
        return
    if not header.record_count:
        return
    if header.codec_bits not in CODECS:
        codec = "zstd" if header.codec_bits == Codec.ZSTD else header.codec_bits
        raise UnsupportedCodec(f"{named(span)} has codec {codec}, which magic {target.magic} does not have")
    payload = bytes(record_set[span.at + HEADER_SIZE : span.at + span.size])
    records = _going_up(opened(header, payload, target.most), span)
    yield from _written(records, Codec(header.codec_bits), target, lost)


def _going_up(records: Iterator[Record], span: BatchSpan) -> Iterator[Record]:
    """Yields the records, and verifies what a producer can get wrong under a right checksum: offsets ascend, and lie
    within the batch."""
    before = span.header.base_offset - 1
    for record in records:
        if not before < record.offset <= span.last_offset:
            raise CorruptBatch(f"{named(span)} has a record of offset {record.offset} behind {before}")
        before = record.offset
        yield record


def _of_entry(
    record_set: memoryview, span: LegacySpan, target: _Target, before: int, lost: LeftOut
) -> Iterator[_Piece]:
    records = in_order(record_set, span, most=target.most, before=before)
    if span.magic <= target.magic and not span.has_append_time:
        runs: list[RecordRun] = []
        for record in records:
            _extend(runs, RecordRun(record.offset, 1))
        if runs[0].first_offset >= target.due:
            yield _Piece(bytes(record_set[span.at : span.at + span.size]), runs, span.last_offset + 1)
            return
        records = in_order(record_set, span, most=target.most, before=before)
    yield from _written(records, Codec(span.codec_bits), target, lost)


def _written(records: Iterator[Record], codec: Codec, target: _Target, lost: LeftOut) -> Iterator[_Piece]:
    """Yields records as messages, or in wrappers."""
    magic = target.magic
    builder: WrapperBuilder | None = None
    runs: list[RecordRun] = []
    for record in records:
        if record.offset < target.due:
            continue
        lost.count(record, magic)
        run = RecordRun(record.offset, 1)
        if codec is Codec.NONE:
            yield _Piece(message(magic, record), [run], record.offset + 1)
            continue
        if builder is not None and not builder.add(record):
            yield _Piece(builder.build(), runs, _end(runs[-1]))
            builder = None
        if builder is None:
            builder, runs = WrapperBuilder(magic, codec, most_bytes=target.most), []
            builder.add(record)
        _extend(runs, run)
    if builder is not None:
        yield _Piece(builder.build(), runs, _end(runs[-1]))
