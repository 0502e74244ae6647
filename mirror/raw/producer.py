"""``RawProducer``: KIP-712's ``send.raw.bytes`` for any program. docs/RAW.md is its manual.

Batches are checked, and wait for room, in the program's threads. A thread of the producer's own runs the event loop
that sends them (``raw.produce.sending``).
"""

import concurrent.futures
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from mirror.loop_thread import LoopThread
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.raw.batches import Bytes, check
from mirror.raw.errors import BufferFull, Closed, NotDelivered, NotSendable, UnknownTopic, of_network
from mirror.raw.leaders import Leaders, no_partition
from mirror.raw.model import RecordMetadata, TopicPartition
from mirror.raw.produce.requests import Item
from mirror.raw.produce.sending import Sending
from mirror.raw.produce.topics import TopicPolicy, describe
from mirror.raw.settings import ProducerSettings, read_settings
from mirror.records.header import BatchHeader
from mirror.service.config.resolve import cluster_options

POLICY_FOR_S = 60.0
"""After this time, a topic's description is read again; also before a batch is refused because of it."""
CLOSE_S = 60.0


class RawProducer:
    """A producer of whole batches, which it sends as they are: only base offset, leader epoch and the producer fields
    in the header change. It is idempotent: a batch is in the log once, however often its connection breaks.

    It may be used by several threads. Batches of a partition are appended in the order of ``send``. It is a context
    manager: leaving it closes the producer.

    Args:
        config: Kafka's names -> values, such as ``{"bootstrap.servers": "kafka-1:9092"}``. The keys are in docs/RAW.md.

    Raises:
        InvalidConfig: something in ``config`` is wrong; the message lists all problems.
        BrokerError: the cluster cannot be reached.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._settings = settings = read_settings(ProducerSettings, config)
        self._policies: dict[str, TopicPolicy] = {}
        self._changed = threading.Condition()
        """Guards the attributes below."""
        self._outstanding: dict[Future[RecordMetadata], int] = {}
        """Future of a batch without an answer yet -> bytes of the batch."""
        self._bytes = 0
        self._failed: BaseException | None = None
        """The error of the first batch that has failed since the last flush()."""
        self._closed = False
        options = cluster_options(settings)

        async def begin() -> tuple[Cluster, Leaders, Sending]:
            cluster = await Cluster.open(options.bootstrap_servers, options)
            leaders = Leaders(cluster)
            return cluster, leaders, Sending(cluster, leaders, max_request_size=settings.max_request_size)

        self._thread = LoopThread("raw producer", timeout_s=CLOSE_S)
        self._thread.start()
        try:
            self._cluster, self._leaders, self._sending = self._thread.run(begin())
        except NetworkError as error:
            self._thread.stop()
            raise of_network(error) from error
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._end()

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(self, topic: str, value: Bytes, *, partition: int) -> "Future[RecordMetadata]":
        """Sends one batch to a partition.

        Args:
            topic: the topic's name; it has to exist.
            value: the bytes of one RecordBatch, such as ``ConsumerRecord.value``.
            partition: the partition's number. (A batch has no key by which one could be chosen.)

        Returns:
            A future of the batch's offsets. It fails with a SendFailed: RefusedByBroker, NotDelivered, OutcomeUnknown
            or NotSent. If a batch fails, those that wait behind it in its partition are not sent (NotSent), so that
            there is no gap; those that are given to ``send`` afterwards are sent.

        Raises:
            NotSendable: brokers would refuse the batch, or change it; ``reason`` says why, and the message what to do.
            BufferFull: there was no room for ``max.block.ms``.
            UnknownTopic: the topic or partition does not exist.
            BrokerError: the topic cannot be described.
            Closed: the producer was closed.
        """
        header = self._checked(topic, value, partition)
        future: Future[RecordMetadata] = Future()
        future.set_running_or_notify_cancel()
        batch = bytes(value)
        with self._changed:
            self._wait_for_room(topic, partition, len(batch))
            self._outstanding[future] = len(batch)
            self._bytes += len(batch)
            future.add_done_callback(self._done)
            loop = self._thread.loop
            item = Item(header, batch, future, loop.time() + self._settings.delivery_timeout_ms / 1000)
            try:
                # Under the lock, so that batches are put in the order in which they got room.
                loop.call_soon_threadsafe(self._sending.put, TopicPartition(topic, partition), item)
            except BaseException as error:  # an interrupt: otherwise the future would never be done
                item.fail(error)
                raise
        return future

    def _checked(self, topic: str, value: Bytes, partition: int) -> BatchHeader:
        try:
            header = check(value)
            policy = self._policy(topic)
            if not 0 <= partition < policy.partitions:
                policy = self._policy(topic, anew=True)
            if not 0 <= partition < policy.partitions:
                raise UnknownTopic(no_partition(topic, partition, policy.partitions))
            try:
                policy.check(header)
            except NotSendable:
                self._policy(topic, anew=True).check(header)
        except NotSendable as error:
            raise NotSendable(error.unfit, error.detail, topic=topic, partition=partition) from None
        return header

    def _policy(self, topic: str, *, anew: bool = False) -> TopicPolicy:
        if self._closed:
            raise _closed()
        known = self._policies.get(topic)
        if known is None or anew or time.monotonic() - known.at > POLICY_FOR_S:
            block_s = self._settings.max_block_ms / 1000
            describing = describe(self._cluster, self._leaders, topic, timeout_s=block_s)
            try:
                known = self._policies[topic] = self._thread.run(describing, block_s + CLOSE_S)
            except Exception as error:
                if self._closed:  # meanwhile, by another thread
                    raise _closed() from error
                raise
        return known

    def _wait_for_room(self, topic: str, partition: int, size: int) -> None:
        """Waits until there is room for a batch of ``size`` bytes. One larger than ``buffer.memory`` waits until it is
        alone. Raises BufferFull, Closed."""
        most, block_ms = self._settings.buffer_memory, self._settings.max_block_ms

        def has_room() -> bool:
            return self._closed or not self._bytes or self._bytes + size <= most

        if not self._changed.wait_for(has_room, block_ms / 1000):
            told = (
                f"{topic}-{partition}: {self._bytes} bytes wait for acknowledgements, and buffer.memory has no room "
                f"for {size} more after max.block.ms ({block_ms} ms); send() again later, or raise one of the two"
            )
            raise BufferFull(told, topic=topic, partition=partition)
        if self._closed:
            raise _closed()

    def _done(self, future: "Future[RecordMetadata]") -> None:
        error = future.exception()
        with self._changed:
            self._bytes -= self._outstanding.pop(future)
            self._failed = self._failed or error
            self._changed.notify_all()

    def partitions_for(self, topic: str) -> int:
        """Returns the number of a topic's partitions. Raises BrokerError, UnknownTopic, Closed."""
        return self._policy(topic, anew=True).partitions

    # -- the end -----------------------------------------------------------------------------------------------------

    def flush(self, timeout_ms: int | None = None) -> None:
        """Waits until every batch that was given to ``send`` is acknowledged or has failed.

        Args:
            timeout_ms: how long to wait; None: until each batch's ``delivery.timeout.ms`` is over.

        Raises:
            SendFailed: the first failure since the last ``flush``, whether or not its future was looked at.
            NotDelivered: some batches are still being sent; that goes on.
        """
        with self._changed:
            waiting = list(self._outstanding)
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        late = concurrent.futures.wait(waiting, timeout_s).not_done
        with self._changed:
            self._changed.wait_for(lambda: not any(each in self._outstanding for each in waiting if each not in late))
            failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        if late:
            raise NotDelivered(f"{len(late)} batches have no answer after {timeout_ms} ms; flush() again")

    def close(self, timeout_ms: int | None = None) -> None:
        """Waits as ``flush`` does, and closes all connections. Batches without an answer by then fail. May be called
        twice.

        Raises:
            SendFailed: as ``flush``; everything is closed all the same.
        """
        if self._closed:
            return
        try:
            self.flush(timeout_ms)
        finally:
            self._end()

    def _end(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()

        async def end() -> None:
            await self._sending.close()
            await self._cluster.close()

        self._thread.run(end())
        self._thread.stop()


def _closed() -> Closed:
    return Closed("the producer was closed; make another one")
