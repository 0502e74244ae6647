"""A steady stream of records from real producers: idempotent, transactional (one transaction in five is aborted), and
Kafka's own in Java.

The producers survive everything that happens to the source: they retry, and are replaced after a fatal error. In the
end, the records at the source and the acknowledgements count.
"""

import threading
import time
from abc import ABC
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.errors import ChaosError
from chaos.judging.acknowledged import Acknowledged, content
from chaos.play.sides import Name
from chaos.producers.java import ConsoleProducer, MessageCopier, VerifiableProducer
from chaos.producers.topics import TopicPlan
from chaos.producers.writers import END_TIMEOUT_S, TICK_S, Records, Writer
from mirror.demo.data.payload import DemoRecord

__all__ = ["ABORT_EVERY", "Stream"]

ABORT_EVERY = 5
"""One transaction in this many is aborted."""

_STEP_TIMEOUT_S = 10.0
_TRANSACTION_MS = 30_000
_MOST_IN_TRANSACTION = 6

_KEYS = 10

Told = Callable[[Name, int, bytes], None]
"""Called with partition, offset and content of a record that was stored."""


class Stream:
    """A producer for each topic, each in a separate thread. A context manager that kills the producers on exit;
    ``stop`` ends them cleanly.

    Args:
        bootstrap_servers: ``bootstrap.servers`` of the source.
        plans: the topics, each with its kind of producer.
        folder: folder for the JVMs' logs.
        rate: records per second and topic; for transactional topics, transactions per second.
        seed: seed of the records. Two streams into the same topic need different seeds.
    """

    def __init__(
        self, bootstrap_servers: str, plans: Sequence[TopicPlan], *, folder: Path, rate: float = 10.0, seed: int = 0
    ) -> None:
        self._stop = threading.Event()
        self._kill = threading.Event()
        made: dict[str, Callable[..., Writer]] = {
            "idempotent": _Idempotent,
            "keyed": _Keyed,
            "transactional": _Transactional,
            "java": ConsoleProducer,
            "verifiable": VerifiableProducer,
            "copier": MessageCopier,
        }
        self._writers = [
            made[plan.writing](
                bootstrap_servers, plan, folder, rate, Records(plan.name, seed=seed), self._stop, self._kill
            )
            for plan in plans
            if plan.writing != "nobody"
        ]

    @property
    def written(self) -> int:
        """Number of records that were passed to the producers so far, including those of aborted transactions."""
        return sum(writer.records.count for writer in self._writers)

    @property
    def transactions(self) -> int:
        """Number of transactions that were committed or aborted so far."""
        return sum(writer.transactions for writer in self._writers)

    @property
    def acknowledged(self) -> Acknowledged:
        """The acknowledgements to the producers. They are complete after ``stop``."""
        told = Acknowledged()
        for writer in self._writers:
            told.add(writer.acknowledged)
        return told

    def replan(self, plan: TopicPlan) -> None:
        """Replaces the plan of the topic with the same name, for example by one with more partitions."""
        for writer in self._writers:
            if writer.plan.name == plan.name:
                writer.plan = plan

    def start(self) -> Self:
        """Starts all producers. Returns the stream itself."""
        for writer in self._writers:
            writer.start()
        return self

    def check(self) -> None:
        """Raises ``ChaosError`` if a producer's thread has ended with an exception."""
        for writer in self._writers:
            if writer.failure is not None:
                raise ChaosError(f"the producer of {writer.plan.name} failed: {writer.failure!r}")

    def stop(self) -> None:
        """Ends the writing, and waits until every producer has the source's answer to its last record.

        Raises:
            ChaosError: a producer did not end, or its thread has ended with an exception.
        """
        self._stop.set()
        deadline_at = time.monotonic() + END_TIMEOUT_S
        for writer in self._writers:
            writer.join(max(0.0, deadline_at - time.monotonic()))
            if writer.is_alive():
                raise ChaosError(f"the producer of {writer.plan.name} did not end")
        self.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._kill.set()
        for writer in self._writers:
            if writer.ident is not None:
                writer.join(_STEP_TIMEOUT_S)


class _Librdkafka(Writer, ABC):
    """The base of all writers that use librdkafka."""

    def _producer(self, **more: object) -> Producer:
        return Producer({
            "bootstrap.servers": self._bootstrap_servers,
            "compression.type": self.plan.codec,
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.timeout.ms": int(END_TIMEOUT_S * 1000),
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5_000,
            "log_level": 0,
            **more,
        })  # fmt: skip

    def _produce(self, producer: Producer, told: Told) -> None:
        """Produces the next record. ``told`` is called once the record is stored."""
        self._send(producer, self.records.next(), told)

    def _send(self, producer: Producer, record: DemoRecord, told: Told) -> None:
        one = content(record.key, record.value, record.headers)

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                told((self.plan.name, message.partition() or 0), offset, one)

        producer.produce(
            self.plan.name, value=record.value, key=record.key, headers=list(record.headers),
            partition=self._chance.randrange(self.plan.partitions),
            timestamp=round((time.time() - self.plan.age_s) * 1000), on_delivery=delivered,
        )  # fmt: skip


class _Idempotent(_Librdkafka):
    """An idempotent producer of librdkafka."""

    def write(self) -> None:
        fatal = threading.Event()

        def on_error(error: KafkaError) -> None:
            if error.fatal():
                fatal.set()

        producer = self._producer(error_cb=on_error)
        count = max(1, round(self._rate * TICK_S * 3))
        while not self._stopping.wait(TICK_S):
            if fatal.is_set():  # the source has lost acknowledged data, so the producer's sequences do not fit any more
                fatal.clear()
                producer = self._producer(error_cb=on_error)
            try:
                for _ in range(count):
                    self._produce(producer, self.acknowledged.note)
                producer.poll(0)
            except (KafkaException, BufferError) as error:
                if isinstance(error, KafkaException) and error.args[0].fatal():
                    fatal.set()
                self._stopping.wait(TICK_S)
        deadline_at = time.monotonic() + END_TIMEOUT_S
        while self._left(producer, fatal) and not self._killed.is_set():
            if time.monotonic() > deadline_at:
                raise TimeoutError(f"{len(producer)} records were not taken by the source")

    def _left(self, producer: Producer, fatal: threading.Event) -> int:
        """Returns the number of records that may still be stored."""
        try:
            return 0 if fatal.is_set() else producer.flush(0.2)
        except KafkaException as error:
            if error.args[0].fatal():
                return 0
            raise


class _Keyed(_Librdkafka):
    """A producer with few keys and a batch for each record, so that a log cleaner removes whole batches. It is not
    idempotent: of an idempotent producer, a cleaner keeps the last batch as an empty one."""

    def write(self) -> None:
        producer = self._producer(**{"enable.idempotence": False, "batch.num.messages": 1, "linger.ms": 0})
        while not self._stopping.wait(1 / self._rate):
            record = self.records.next()
            key = f"key-{self.records.count % _KEYS}".encode()
            self._send(producer, record._replace(key=key, value=record.value or b"none"), self.acknowledged.note)
            producer.poll(0)
        deadline_at = time.monotonic() + END_TIMEOUT_S
        while producer.flush(0.2) and not self._killed.is_set():
            if time.monotonic() > deadline_at:
                raise TimeoutError(f"{len(producer)} records were not taken by the source")


class _Transactional(_Librdkafka):
    """A transactional producer of librdkafka. Each transaction has some records; one in ``ABORT_EVERY`` is aborted."""

    def write(self) -> None:
        producer = self._ready()
        while not self._stopping.is_set() and producer is not None:
            began_at = time.monotonic()
            try:
                self._transaction(producer, abort=self.transactions % ABORT_EVERY == ABORT_EVERY - 1)
                self.transactions += 1
            except KafkaException as error:
                if not self._recovers(producer, error.args[0]):
                    producer = self._ready()
            self._stopping.wait(max(0.0, 1 / self._rate - (time.monotonic() - began_at)))

    def _ready(self) -> Producer | None:
        """Returns a new producer with the same transactional id, which also aborts a transaction that the previous one
        has left open. None: the stream was killed meanwhile."""
        producer = self._producer(
            **{
                "transactional.id": f"chaos-{self.plan.name}-{self.records.seed}",
                "transaction.timeout.ms": _TRANSACTION_MS,
                "message.timeout.ms": _TRANSACTION_MS,
            }
        )
        deadline_at = time.monotonic() + END_TIMEOUT_S
        while not self._killed.is_set():
            try:
                producer.init_transactions(_STEP_TIMEOUT_S)
                return producer
            except KafkaException as error:
                if time.monotonic() > deadline_at:
                    raise
                if not error.args[0].retriable():
                    return self._ready()
        return None

    def _transaction(self, producer: Producer, *, abort: bool) -> None:
        stored: list[tuple[Name, int, bytes]] = []
        producer.begin_transaction()
        for _ in range(self._chance.randint(1, _MOST_IN_TRANSACTION)):
            self._produce(producer, lambda *one: stored.append(one))
        if not abort:
            self._patiently(producer.commit_transaction)
            for one in stored:
                self.acknowledged.note(*one)
            return
        # Flush first: an abort drops queued records, and the aborted transaction has to have data in the log.
        producer.flush(_STEP_TIMEOUT_S)
        self._patiently(producer.abort_transaction)

    def _patiently(self, end: object) -> None:
        """Repeats a call until it succeeds: after a retriable error, librdkafka requires the same call again."""
        assert callable(end)
        deadline_at = time.monotonic() + END_TIMEOUT_S
        while True:
            try:
                end(_STEP_TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._killed.is_set() or time.monotonic() > deadline_at:
                    raise

    def _recovers(self, producer: Producer, error: KafkaError) -> bool:
        """Aborts the transaction after an error. Returns False if the producer cannot be used any more."""
        if error.fatal():
            return False
        try:
            self._patiently(producer.abort_transaction)
            return True
        except KafkaException:
            return False
