"""Up-conversion: what stands in magic 0 and 1 becomes batches of magic 2, which every destination from 0.11 on takes.

A wrapper becomes a batch with the same codec. Messages on their own are gathered, because a batch each would cost 61
bytes and a request each. Where offsets have gaps, a batch ends: brokers take only dense ones, and a hole is filled
between them.

``stand_ins`` makes batches that nobody sends as they are. They let everything that knows batches work with old
messages: one for each wrapper, holes and all. Their producer fields say what they stand for
(``records.header.StoredMessages``).
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
"""Messages that are made into stand-ins at a time, about: a tenth of a second."""
MOST_WRAPPED = 64 << 20
"""Limit for what a wrapper holds, in bytes: a megabyte of zeros that were compressed can be a gigabyte."""


class Converted(NamedTuple):
    """A dense batch that was made of messages. ``batch``: its bytes; ``header``: as they begin."""

    batch: bytes
    header: BatchHeader


class StandIns(NamedTuple):
    """The batches that stand for a run of old messages.

    Attributes:
        batches: their bytes, in order.
        stop: the byte behind the last message that they stand for, or that was left out.
        more: True if there may be others behind that. They are too many for now.
        wrong: why there is none for the message at ``stop``; None: nothing is wrong there, as far as was seen.
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
    """Returns batches that stand for the old messages from byte ``at`` on, up to the first batch of magic 2, a message
    that is cut off, or one that is wrong.

    Every wrapper has one of its own, with its codec and its last offset; offsets may be missing inside. The same
    wrapper gives the same bytes as long as the libraries that compress are the same. Messages on their own are
    gathered, as ``up_convert`` does. Their checksums were verified, and their offsets rise.

    Args:
        record_set: it may hold other things as well.
        at: where the first message begins.
        end: where the record set ends; None: at its end.
        due: messages and wrappers that lie before this offset are left out.
        most: limit for the decompressed messages of a wrapper in bytes.
        gathered_records: limit for the number of messages on their own that one batch stands for.
        at_a_time: behind so many messages it ends; the wrapper that reaches it is taken whole. None: no limit.
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
    """Messages on their own, of one magic and without gaps, that become one batch."""

    def __init__(self, most_bytes: int, most_records: int) -> None:
        self._most_bytes = most_bytes
        self._most_records = most_records
        self._builder = self._empty()
        self._magic = NOT_SEEN
        self._producer = NO_PRODUCER

    def take(self, record: Record, magic: int, producer: tuple[int, int, int] = NO_PRODUCER) -> Iterator[Converted]:
        """Takes a record. Yields the batch that it does not belong to any more, if there is one. ``producer``: what the
        batch says of its own, if this is its last record."""
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
