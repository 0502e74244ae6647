"""Up-conversion: what stands in magic 0 and 1 becomes batches of magic 2, which every destination from 0.11 on takes.

A wrapper becomes a batch with the same codec. Messages on their own are gathered, because a batch each would cost 61
bytes and a request each. Where offsets have gaps, a batch ends: brokers take only dense ones, and a hole is filled
between them.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mirror.legacy.entries import NOT_SEEN, BatchSpan, Span
from mirror.legacy.reading import in_order
from mirror.records.content.building import BatchBuilder, dense_batches
from mirror.records.content.opening import NotOpened, Record
from mirror.records.header import BatchHeader, Codec, CorruptBatch

GATHERED_BYTES = 128 << 10
"""How much is gathered by default: eight times a producer's default batch."""
GATHERED_RECORDS = 10_000


class Converted(NamedTuple):
    """A dense batch that was made of messages. ``batch``: its bytes; ``header``: as they begin."""

    batch: bytes
    header: BatchHeader


def up_convert(
    record_set: memoryview,
    spans: Iterable[Span],
    *,
    most: int,
    due: int = 0,
    gathered_bytes: int = GATHERED_BYTES,
    gathered_records: int = GATHERED_RECORDS,
) -> Iterator[BatchSpan | Converted]:
    """Yields a record set's contents as batches of magic 2, in order: those that are there as they are, and dense ones
    made of what is in an older format.

    Keys, values, timestamps and absolute offsets are kept. A message of magic 0 has no timestamp, so its record has -1.
    Append times stay the records' timestamps, but the batches are marked as having create times: a broker refuses the
    other mark, or ignores it and shows the producers' times. A batch has no producer id (-1, -1, -1).

    Args:
        record_set: one or more whole entries.
        spans: those of ``entries.cut``, or some of them, in order.
        most: limit for the decompressed messages of a wrapper in bytes.
        due: records before this offset are left out. Batches of magic 2 are not cut.
        gathered_bytes: limit for a batch that is made of messages on their own, in bytes; the first is always taken.
        gathered_records: limit for the number of records of such a batch.

    Raises:
        NotOpened: an entry cannot be read, with its offset. What stands before it was yielded.
        CorruptBatch: as ``entries.cut``; a wrapper whose first offset is not behind the entry before it. Likewise.
    """
    gathering = _Gathering(gathered_bytes, gathered_records)
    before = NOT_SEEN
    try:
        for span in spans:
            if span.last_offset < due:
                before = span.last_offset
                continue
            if isinstance(span, BatchSpan):
                yield from gathering.end()
                yield span
            else:
                records = _due(in_order(record_set, span, most=most, before=before), due)
                if span.is_wrapper:
                    yield from gathering.end()
                    yield from map(_converted, dense_batches(records, Codec(span.codec_bits)))
                else:
                    for record in records:
                        yield from gathering.take(record, span.magic)
            before = span.last_offset
    except (NotOpened, CorruptBatch):
        yield from gathering.end()
        raise
    yield from gathering.end()


def _due(records: Iterator[Record], due: int) -> Iterator[Record]:
    return (record for record in records if record.offset >= due)


def _converted(batch: bytes) -> Converted:
    return Converted(batch, BatchHeader.read(batch))


class _Gathering:
    """Messages on their own, of one magic and without gaps, that become one batch."""

    def __init__(self, most_bytes: int, most_records: int) -> None:
        self._most_bytes = most_bytes
        self._most_records = most_records
        self._builder = self._empty()
        self._magic = NOT_SEEN

    def take(self, record: Record, magic: int) -> Iterator[Converted]:
        """Takes a record. Yields the batch that it does not belong to any more, if there is one."""
        if magic != self._magic or not self._builder.add(record):
            yield from self.end()
            self._builder.add(record)
        self._magic = magic

    def end(self) -> Iterator[Converted]:
        """Yields the batch of what was gathered, if anything was."""
        if self._builder.count:
            builder, self._builder = self._builder, self._empty()
            yield _converted(builder.build())

    def _empty(self) -> BatchBuilder:
        return BatchBuilder(Codec.NONE, most_bytes=self._most_bytes, most_records=self._most_records)
