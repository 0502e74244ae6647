"""One Spark task of the sink: connects, and writes its rows partition by partition."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.raw.errors import NotSendable, RawError, of_network
from mirror.raw.leaders import Leaders
from mirror.raw.model import TopicPartition
from mirror.raw.produce.topics import TopicPolicy, describe
from mirror.records.filler import filler_id
from mirror.records.identity import producer_id
from mirror.relay.leading.filler import Lead
from mirror.service.config.resolve import cluster_options
from mirror.spark.write.errors import Reason, SinkError
from mirror.spark.write.exact import ExactAppender
from mirror.spark.write.identity import Runs
from mirror.spark.write.log import Appender, Destination
from mirror.spark.write.mapped import MappedAppender
from mirror.spark.write.options import SinkOptions
from mirror.spark.write.rows import Order, Row, not_sendable, pieces_of, rows_of


@dataclass(slots=True)
class Counts:
    """Counts of what a task has done with the rows of a source partition.

    Attributes:
        first, end: the source offset of the first row, and the one behind the last row.
        appended, appended_bytes: batches that this attempt wrote, and their bytes.
        there: batches that another attempt had written.
        left_out: rows without records.
    """

    first: int
    end: int
    appended: int = 0
    appended_bytes: int = 0
    there: int = 0
    left_out: int = 0


@dataclass(slots=True)
class Written:
    """The report of a task. ``partitions``: source partition -> counts."""

    partitions: dict[TopicPartition, Counts] = field(default_factory=dict)

    @property
    def appended(self) -> int:
        """Batches that this attempt wrote."""
        return sum(each.appended for each in self.partitions.values())

    @property
    def there(self) -> int:
        """Batches that another attempt had written."""
        return sum(each.there for each in self.partitions.values())


def write_rows(options: SinkOptions, batches: Iterable[Any]) -> Written:
    """Writes a task's rows. It holds one Arrow batch of rows in memory at a time, and what it reads of the destination.

    Args:
        options: the options of the sink.
        batches: ``pyarrow.RecordBatch``es with the rows.

    Raises:
        SinkError: a row could not be written. The rows before it are written.
    """
    work = _Work(options)
    rest: Iterator[Any] = iter(batches)
    first = next((batch for batch in rest if batch.num_rows), None)
    if first is None:
        return work.written  # without rows, nothing is connected
    with asyncio.Runner() as runner:
        try:
            runner.run(work.open())
            while first is not None:
                # The event loop does not run while Spark makes the next batch.
                runner.run(work.write(rows_of(first, options.topic)))
                first = next(rest, None)
        finally:
            runner.run(work.close())
    return work.written


class _Work:
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._order = Order()
        self._policies: dict[str, TopicPolicy] = {}
        self._at: TopicPartition | None = None
        self._appender: Appender | None = None
        self._counts = Counts(0, 0)
        self._destination: Destination | None = None
        self.written = Written()

    async def open(self) -> None:
        """Connects to the cluster. Raises SinkError."""
        settings = self._options.settings()
        options = cluster_options(settings)
        try:
            cluster = await Cluster.open(options.bootstrap_servers, options)
        except NetworkError as error:
            raise SinkError(Reason.UNREACHABLE, str(of_network(error))) from error
        self._destination = Destination(
            cluster=cluster, leaders=Leaders(cluster), patience_s=settings.delivery_timeout_ms / 1000
        )

    async def close(self) -> None:
        """Closes the connections."""
        if self._destination is not None:
            await self._destination.cluster.close()

    async def write(self, rows: Iterable[Row]) -> None:
        """Writes the rows of an Arrow batch; none of them if they are not in order. Raises SinkError."""
        assert self._destination is not None
        together = list(rows)
        for row in together:
            self._order.check(row)
        for row in together:
            policy = await self._policy(row)
            if row.at != self._at:
                self._at = row.at
                self._counts = self.written.partitions[row.at] = Counts(row.base_offset, row.base_offset)
                self._appender = self._appender_for(row, policy)
            pieces, end = pieces_of(row, policy.max_bytes)
            counts = self._counts
            if row.base_offset < counts.end:
                raise SinkError(
                    Reason.NOT_IN_ORDER, f"{row.name} begins before the row before it ends, at {counts.end}"
                )
            counts.end = end
            counts.left_out += not pieces
            for piece in pieces:
                try:
                    policy.check(piece.header)
                except NotSendable as error:
                    raise not_sendable(row, error) from None
                assert self._appender is not None
                if await self._appender.put(piece):
                    counts.appended += 1
                    counts.appended_bytes += len(piece.value)
                else:
                    counts.there += 1

    def _appender_for(self, row: Row, policy: TopicPolicy) -> Appender:
        assert self._destination is not None
        options = self._options
        to = TopicPartition(options.topic or row.at.topic, row.at.partition)
        flow, cluster_id, (topic, partition) = options.flow, options.cluster_id, row.at
        if not options.exact:
            runs = Runs(flow=flow, cluster_id=cluster_id, topic=topic, partition=partition)
            return MappedAppender(self._destination, to, runs)
        rules = Lead(
            name=f"{to.topic}-{to.partition}",
            owner=producer_id(flow=flow, cluster_id=cluster_id, topic=topic, partition=partition),
            filler=filler_id(flow=flow, cluster_id=cluster_id, topic=topic, partition=partition),
            most=options.max_leading,
            most_bytes=policy.max_bytes,
        )
        return ExactAppender(self._destination, to, rules)

    async def _policy(self, row: Row) -> TopicPolicy:
        assert self._destination is not None
        topic = self._options.topic or row.at.topic
        known = self._policies.get(topic)
        if known is None:
            destination = self._destination
            try:
                known = await describe(
                    destination.cluster, destination.leaders, topic, timeout_s=destination.patience_s
                )
            except RawError as error:
                raise SinkError(Reason.UNREACHABLE, str(error)) from error
            self._policies[topic] = known
        if not 0 <= row.at.partition < known.partitions:
            told = f"{row.name}: the destination's topic {topic} has {known.partitions} partitions"
            raise SinkError(Reason.REFUSED, told, "add partitions to it")
        return known
