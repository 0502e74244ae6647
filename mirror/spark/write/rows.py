"""Turns rows from Spark into batches that brokers accept, and checks the order of the rows. Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from mirror.raw.batches import sendable
from mirror.raw.errors import NotSendable
from mirror.raw.model import TopicPartition
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.spark.write.errors import Reason, SinkError

TOPIC, PARTITION, BASE_OFFSET, BATCH = "topic", "partition", "base_offset", "batch"
TYPES = {TOPIC: "string", PARTITION: "int", BASE_OFFSET: "bigint", BATCH: "binary"}
"""The columns that the sink reads -> Spark's names of their types. Other columns are ignored."""


class Row(NamedTuple):
    """A row: a batch, with its source partition and base offset."""

    at: TopicPartition
    base_offset: int
    batch: memoryview

    @property
    def name(self) -> str:
        """The row's name in messages."""
        return f"{self.at.topic}-{self.at.partition} at {self.base_offset}"


class Piece(NamedTuple):
    """A batch to send; only its identity is missing. The header has the source's base offset."""

    header: BatchHeader
    value: bytes

    @property
    def base(self) -> int:
        """Its first offset at the source."""
        return self.header.base_offset

    @property
    def end(self) -> int:
        """The source offset behind it."""
        return self.header.next_offset

    @property
    def records(self) -> memoryview:
        """The bytes behind the header."""
        return memoryview(self.value)[HEADER_SIZE:]


def check_columns(types: dict[str, str], topic: str) -> None:
    """Checks the columns of a DataFrame: name -> Spark's name of the type.

    Args:
        types: the columns.
        topic: the option ``topic``; if it is given, the column is not needed.

    Raises:
        SinkError: a column is missing, or has another type.
    """
    for name, wanted in TYPES.items():
        found = types.get(name)
        if found is None and not (name == TOPIC and topic):
            raise SinkError(Reason.COLUMNS, f"there is no column {name} ({wanted})")
        if found not in (None, wanted):
            raise SinkError(Reason.COLUMNS, f"the column {name} is {found}, not {wanted}")


def rows_of(batch: Any, topic: str) -> Iterator[Row]:
    """Yields the rows of an Arrow batch. Their bytes are not copied.

    Args:
        batch: a ``pyarrow.RecordBatch``.
        topic: the topic of all rows, if there is no column ``topic``.

    Raises:
        SinkError: a value is null.
    """
    names = batch.schema.names
    topics = batch.column(names.index(TOPIC)) if TOPIC in names else None
    partitions, offsets, values = (batch.column(names.index(name)) for name in (PARTITION, BASE_OFFSET, BATCH))
    for at in range(batch.num_rows):
        found = [topic if topics is None else topics[at].as_py(), partitions[at].as_py(), offsets[at].as_py()]
        value = values[at].as_buffer()
        if value is None or any(each is None for each in found):
            raise SinkError(Reason.COLUMNS, f"a row has null in one of {', '.join(TYPES)}: {found}")
        yield Row(TopicPartition(found[0], found[1]), found[2], memoryview(value))


class Order:
    """Checks that the rows of one task come partition by partition, in the order of their offsets."""

    def __init__(self) -> None:
        self._at: TopicPartition | None = None
        self._last = -1
        self._done: set[TopicPartition] = set()

    def check(self, row: Row) -> None:
        """Takes note of the next row. Raises SinkError if it is not in order after the previous ones."""
        if row.at != self._at:
            if row.at in self._done:
                raise SinkError(Reason.NOT_IN_ORDER, f"{row.name} comes behind rows of another partition")
            if self._at is not None:
                self._done.add(self._at)
            self._at, self._last = row.at, -1
        if row.base_offset <= self._last:
            raise SinkError(Reason.NOT_IN_ORDER, f"{row.name} comes behind {self._last} of its partition, or twice")
        self._last = row.base_offset


def not_sendable(row: Row, error: NotSendable) -> SinkError:
    """Returns the sink's error for a row that the raw producer would refuse."""
    return SinkError(Reason.NOT_SENDABLE, f"{row.name}: {error.unfit.slug}: {error.detail}", error.unfit.remedy)


def pieces_of(row: Row, max_bytes: int | None) -> tuple[list[Piece], int]:
    """Returns the batches to send for a row, and the source offset behind the row's batch.

    Usually it is the batch itself, unopened, without attribute bits that brokers do not accept from producers. There
    may be several if the batch has to be opened, and none if it has no records (``mirror.raw.sendable``).

    Args:
        row: the row.
        max_bytes: the destination topic's ``max.message.bytes``; None: not known.

    Raises:
        SinkError: the bytes are not the batch that the row's columns describe, or brokers would not accept it.
    """
    try:
        values = sendable(row.batch, max_bytes=max_bytes)
    except NotSendable as error:
        raise not_sendable(row, error) from None
    header = BatchHeader.read(row.batch)
    if header.base_offset != row.base_offset:
        told = f"{row.name}: the batch itself says base offset {header.base_offset}"
        raise SinkError(Reason.NOT_SENDABLE, told, "write the column base_offset that belongs to the batch")
    return [Piece(BatchHeader.read(value), value) for value in values], header.next_offset
