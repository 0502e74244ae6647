"""What is in a batch: decompressed, cut, read, and written anew (``mirror/records/content``)."""

from itertools import pairwise

from mirror.records.content.building import compressed
from mirror.records.content.decompressing import CHUNK, NotOpened, decompressed, plain_chunks
from mirror.records.content.opening import Record, opened
from mirror.records.content.raw import MOST_RECORD, PlacedRecord, parts, placed_records
from mirror.records.content.rewriting import Oversize, Piece, rewrite
from mirror.records.header import HEADER_SIZE, PREFIX_SIZE, BatchHeader, Codec
from mirror.records.intact import is_intact
from tests.fuzz.source import Source
from tests.records.builders import sealed

MOST = 1 << 20
_CODECS = 8
"""With those that do not exist."""
MOST_DECOMPRESSED = 192 << 20
"""The largest window of zstd is 128 MiB, which a frame that says so may fill."""
MOST_REWRITTEN = 6 * MOST_RECORD
"""A few copies of a record at its limit."""
_PLENTY = 40 << 20
_PACKING, _APPENDED = 1, 8


def decompress(data: bytes) -> None:
    """At once and in chunks: the same bytes, never more than allowed; and what was compressed comes back."""
    source = Source(data)
    codec, whole = source.number(1) % _CODECS, bool(source.number(1) & 1)
    packed = source.rest()
    if codec < len(Codec):
        again = compressed(Codec(codec), packed)
        assert decompressed(codec, again, most=len(packed), where="it", whole=True) == packed
        assert b"".join(plain_chunks(codec, again, where="it", most_block=MOST)) == packed
    plain: bytes | None
    try:
        plain = decompressed(codec, packed, most=MOST, where="it", whole=whole)
        assert len(plain) <= MOST
    except NotOpened:
        plain = None
    pieces, size = [], 0
    try:
        for piece in plain_chunks(codec, packed, where="it", most_block=MOST):
            assert 0 < len(piece) <= max(CHUNK, MOST)
            size += len(piece)
            if size <= MOST:
                pieces.append(piece)
            if size > _PLENTY:
                return
    except NotOpened:
        return
    if plain is not None and codec == Codec.ZSTD:
        # Of a frame that is cut off, zstandard's reader may give less in chunks: the library's own end is lost.
        assert plain.startswith(b"".join(pieces))
    elif plain is not None:
        assert b"".join(pieces) == plain
    else:
        # zstandard's reader keeps damage behind its last full chunk to itself, too.
        assert whole or size > MOST or codec in (Codec.SNAPPY, Codec.ZSTD)


def rewrite_records(data: bytes) -> None:
    """Cut, read and written anew: three readers of the same records, and batches that any broker takes."""
    header, packed, due, most_size = _batch(data)
    pieces: list[Piece] = []
    stopped: NotOpened | None = None
    try:
        for piece in rewrite(header, packed, due=due, most_size=most_size):
            pieces.append(piece)
    except NotOpened as error:
        stopped = error
    for header_of_piece, records in pieces:
        assert header_of_piece.is_dense
        assert is_intact(header_of_piece.pack() + records)
        assert header_of_piece.size == HEADER_SIZE + len(records) <= (most_size or 1 << 31)
    assert all(one.header.next_offset <= other.header.base_offset for one, other in pairwise(pieces))
    found = [record for piece in pieces for record in placed_records(*piece)]
    expected: list[PlacedRecord] = []
    try:
        expected.extend(record for record in placed_records(header, packed) if record.offset >= due)
    except NotOpened:
        assert stopped is not None
    else:
        assert stopped is None or isinstance(stopped, Oversize)
    if stopped is None:
        assert found == expected
        _check_read(header, packed, due, expected)
    else:
        assert found == expected[: len(found)]


def _check_read(header: BatchHeader, packed: bytes, due: int, expected: list[PlacedRecord]) -> None:
    """The reader of whole records, and that of the audit: what they read is the same."""
    read: list[Record] = []
    try:
        read += opened(header, packed)
    except NotOpened:
        return
    read = [record for record in read if record.offset >= due]
    assert [(one.offset, one.timestamp) for one in read] == [(one.offset, one.timestamp) for one in expected]
    for record, placed in zip(read, expected, strict=True):
        try:
            seen = parts(placed.content, "it")
        except NotOpened:
            continue
        assert (seen.key, seen.tombstone) == (record.key, record.value is None)


def _batch(data: bytes) -> tuple[BatchHeader, bytes, int, int | None]:
    source = Source(data)
    flags, codec = source.number(1), source.number(1) % len(Codec)
    due, most_size = source.number(2), source.number(2)
    base_offset, last_delta, count = source.number(8, signed=True), source.number(4, signed=True), source.number(2)
    base_timestamp, max_timestamp = source.number(8, signed=True), source.number(8, signed=True)
    records = source.rest()
    if flags & _PACKING:
        records = compressed(Codec(codec), records)
    header = BatchHeader(
        base_offset=max(0, base_offset),
        length=HEADER_SIZE - PREFIX_SIZE + len(records),
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=codec | flags & _APPENDED,
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return BatchHeader.read(sealed(header.pack() + records)), records, max(0, base_offset) + due, most_size or None
