"""Up-conversion: messages of magic 0 and 1 become batches of magic 2, which every broker from Kafka 0.11 on accepts.

A wrapper becomes a batch with the same codec. Messages on their own are gathered into batches: a batch for each would
cost 61 bytes and a request. A batch ends where offsets have a gap: brokers accept only dense ones, and the hole between
them is filled.

``stand_ins`` makes batches that are never sent as they are. They represent old messages in code that only knows
batches. There is one for each wrapper, and it has the wrapper's holes. The producer fields of a stand-in describe the
stored messages (``records.header.StoredMessages``).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mirror.legacy.entries import BatchSpan, LegacySpan, Span, cut
from mirror.legacy.reading import in_order
from mirror.records.content.building import NO_PRODUCER, BatchBuilder, dense_batches
from mirror.records.content.opening import NotOpened, Record
from mirror.records.header import BatchHeader, Codec, CorruptBatch
from mirror.records.scan import NOT_SEEN

GATHERED_BYTES = 128 << 10
"""How much is gathered by default: eight times a producer's default batch."""
GATHERED_RECORDS = 10_000
AT_A_TIME = 20_000
"""About how many messages are made into stand-ins at a time. It takes a tenth of a second."""
MOST_WRAPPED = 64 << 20
"""Limit for the decompressed messages of a wrapper in bytes: a megabyte of compressed zeros can be a gigabyte."""


class Converted(NamedTuple):
    """A dense batch that was made of messages. ``batch``: all of its bytes; ``header``: its first 61 bytes, parsed."""

    batch: bytes
    header: BatchHeader


class StandIns(NamedTuple):
    """The batches that stand for a run of old messages.

    Attributes:
        batches: their bytes, in order.
        stop: the byte behind the last message that they stand for, or that was left out.
        more: True if old messages may follow at ``stop``: the limit ``at_a_time`` was reached.
        wrong: the error for which the message at ``stop`` has no stand-in; None: no error was found.
    """

    batches: list[bytes]
    stop: int
    wrong: NotOpened | CorruptBatch | None = None
    more: bool = False


def up_convert(
    record_set: memoryview,
    spans: Iterable[Span],
    *,
    most: int,
    due: int = 0,
    gathered_bytes: int = GATHERED_BYTES,
    gathered_records: int = GATHERED_RECORDS,
) -> Iterator[BatchSpan | Converted]:
    """Yields a record set's contents as batches of magic 2, in order. Batches of magic 2 in it are yielded unchanged;
    messages of older formats become dense batches.

    Keys, values, timestamps and absolute offsets are kept. A message of magic 0 has no timestamp, so its record has -1.
    Append times stay the records' timestamps, but the batches are marked as having create times: a broker refuses a
    batch that is marked with append times, or ignores the mark and shows the producers' times. A batch has no producer
    id (-1, -1, -1).

    Args:
        record_set: one or more whole entries.
        spans: those of ``entries.cut``, or some of them, in order.
        most: limit for the decompressed messages of a wrapper in bytes.
        due: records before this offset are left out. Batches of magic 2 are not cut.
        gathered_bytes: limit for a batch that is made of messages on their own, in bytes; the first is always taken.
        gathered_records: limit for the number of records of such a batch.

    Raises:
        NotOpened: an entry cannot be read. The error names its offset; everything before it was yielded.
        CorruptBatch: as ``entries.cut``; or the first offset in a wrapper is not above the entry before it. Everything
            before it was yielded.
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


def stand_ins(
    record_set: memoryview,
    at: int = 0,
    end: int | None = None,
    *,
    due: int = 0,
    most: int = MOST_WRAPPED,
    gathered_records: int = GATHERED_RECORDS,
    at_a_time: int | None = None,
) -> StandIns:
    """Returns batches that stand for the old messages from byte ``at`` on. They end before the first batch of magic 2,
    message that is cut off, or message that is wrong.

    Every wrapper has a stand-in of its own, with the wrapper's codec and last offset; offsets may be missing inside.
    The same wrapper gives the same bytes as long as the compression libraries are the same. Messages on their own are
    gathered, as ``up_convert`` does. All checksums were verified, and offsets ascend.

    Args:
        record_set: the record set; it may hold batches of magic 2 as well.
        at: the byte at which the first message begins.
        end: the byte at which the record set ends; None: the end of ``record_set``.
        due: messages and wrappers that lie before this offset are left out.
        most: limit for the decompressed messages of a wrapper in bytes.
        gathered_records: limit for the number of messages on their own that one batch stands for.
        at_a_time: stop after this many messages; the wrapper that reaches the limit is taken whole. None: no limit.
    """
    made, messages = list[bytes](), 0
    gathering = _Gathering(GATHERED_BYTES, gathered_records)
    before, stop = NOT_SEEN, at
    wrong: NotOpened | CorruptBatch | None = None
    try:
        for span in cut(record_set, at, end):
            if isinstance(span, BatchSpan):
                break
            if at_a_time is not None and messages >= at_a_time:
                return StandIns([*made, *(batch for batch, _ in gathering.end())], stop, more=True)
            records = in_order(record_set, span, most=most, before=before)
            if span.last_offset >= due and span.is_wrapper:
                made += (batch for batch, _ in gathering.end())
                made.append(_wrapper(records, span))
                messages += BatchHeader.read(made[-1]).record_count
            elif span.last_offset >= due:
                messages += 1
                for record in records:
                    made += (batch for batch, _ in gathering.take(record, span.magic, span.stored.producer))
            before, stop = span.last_offset, span.at + span.size
    except (NotOpened, CorruptBatch) as error:
        wrong = error
    made += (batch for batch, _ in gathering.end())
    return StandIns(made, stop, wrong)


def _wrapper(records: Iterator[Record], span: LegacySpan) -> bytes:
    """Returns the batch that stands for a wrapper.

    Raises:
        NotOpened: its timestamps lie too far apart for one batch.
    """
    builder = BatchBuilder(Codec(span.codec_bits), sparse=True)
    for record in records:
        if not builder.add(record):
            raise NotOpened(
                f"the wrapper of magic {span.magic} at offset {span.last_offset} holds timestamps that no batch can: "
                f"{record.timestamp} at offset {record.offset}"
            )
    return builder.build(span.stored.producer)


def _due(records: Iterator[Record], due: int) -> Iterator[Record]:
    return (record for record in records if record.offset >= due)


def _converted(batch: bytes) -> Converted:
    return Converted(batch, BatchHeader.read(batch))


class _Gathering:
    """Gathers messages on their own, of one magic and without gaps, into a batch."""

    def __init__(self, most_bytes: int, most_records: int) -> None:
        self._most_bytes = most_bytes
        self._most_records = most_records
        self._builder = self._empty()
        self._magic = NOT_SEEN
        self._producer = NO_PRODUCER

    def take(self, record: Record, magic: int, producer: tuple[int, int, int] = NO_PRODUCER) -> Iterator[Converted]:
        """Takes a record. If it does not fit into the batch so far, that batch is yielded first. ``producer``: the
        producer fields of the batch, if this becomes its last record."""
        if magic != self._magic or not self._builder.add(record):
            yield from self.end()
            self._builder.add(record)
        self._magic = magic
        self._producer = producer

    def end(self) -> Iterator[Converted]:
        """Yields the batch of what was gathered, if anything was."""
        if self._builder.count:
            builder, self._builder = self._builder, self._empty()
            yield _converted(builder.build(self._producer))

    def _empty(self) -> BatchBuilder:
        return BatchBuilder(Codec.NONE, most_bytes=self._most_bytes, most_records=self._most_records)
