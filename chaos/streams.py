"""A steady stream from real producers: idempotent, transactional (one transaction in five aborted), and Java's.

The producers live through everything that happens to the source: they try again, and are made anew after an error that
ends them. What they believe to have written does not matter; what the source holds does.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Producer

from chaos.errors import ChaosError
from chaos.topics import TopicPlan
from mirror.demo.errors import DemoError
from mirror.demo.payload import Record
from mirror.demo.topics import TopicPlan as DemoPlan
from mirror.demo.writers import JavaWriter

__all__ = ["ABORT_EVERY", "Records", "Stream"]

ABORT_EVERY = 5
"""One transaction in so many is aborted."""

_TICK_S = 0.1
_END_TIMEOUT_S = 150.0
_STEP_TIMEOUT_S = 10.0
_TRANSACTION_MS = 30_000
_MOST_IN_TRANSACTION = 6


class Records:
    """Records of which no two are the same: a header has the topic and a number. The same seed, the same bytes.

    No part holds what Kafka's console producer cuts at (tab, line feed, comma, colon).
    """

    def __init__(self, topic: str, *, seed: int = 0) -> None:
        self._topic = topic
        self.seed = seed
        self._chance = random.Random(f"{topic}/{seed}")
        self.count = 0

    def next(self) -> Record:
        """One more: with and without key, now and then without a value, 30 bytes to 3 KB."""
        draw, number = self._chance, self.count
        self.count += 1
        size = draw.choice((10, 40, 100, 100, 400, 1_500))
        key = None if number % 9 == 8 else f"key-{draw.randrange(200)}".encode()
        value = None if number % 17 == 16 and key else f"{number} {draw.randbytes(size).hex()}".encode()
        headers: tuple[tuple[str, bytes | None], ...] = (("n", f"{self._topic}/{self.seed}/{number}".encode()),)
        if number % 5 == 0:
            headers += (("empty", None),)
        return Record(key, value, headers)


class Stream:
    """A producer for each topic, each in a thread of its own. A context manager; ``stop`` ends it in good order.

    Args:
        bootstrap_servers: of the source.
        plans: topics and who writes them.
        folder: for the JVMs' logs.
        rate: records a second and topic; of transactional topics, transactions a second.
        seed: makes the records of two streams into one topic differ.
    """

    def __init__(
        self, bootstrap_servers: str, plans: Sequence[TopicPlan], *, folder: Path, rate: float = 10.0, seed: int = 0
    ) -> None:
        self._stop = threading.Event()
        self._kill = threading.Event()
        made: dict[str, Callable[..., _Writer]] = {
            "idempotent": _Idempotent,
            "transactional": _Transactional,
            "java": _Java,
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
        """Records handed to the producers so far, those of aborted transactions included."""
        return sum(writer.records.count for writer in self._writers)

    @property
    def transactions(self) -> int:
        """Transactions that were committed or aborted so far."""
        return sum(writer.transactions for writer in self._writers)

    def start(self) -> Self:
        """Start all producers."""
        for writer in self._writers:
            writer.start()
        return self

    def check(self) -> None:
        """Raises ChaosError if a producer failed with a bug."""
        for writer in self._writers:
            if writer.failure is not None:
                raise ChaosError(f"the producer of {writer.plan.name} failed: {writer.failure!r}")

    def stop(self) -> None:
        """No more records; waits until every producer has the source's word on the last one.

        Raises:
            ChaosError: one did not end, or failed with a bug.
        """
        self._stop.set()
        deadline_at = time.monotonic() + _END_TIMEOUT_S
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


class _Writer(threading.Thread, ABC):
    """What all kinds share: the pace."""

    def __init__(
        self, bootstrap_servers: str, plan: TopicPlan, folder: Path, rate: float, records: Records,
        stop: threading.Event, kill: threading.Event,
    ) -> None:  # fmt: skip
        super().__init__(name=f"stream {plan.name}", daemon=True)
        self.plan = plan
        self.records = records
        self.transactions = 0
        self.failure: BaseException | None = None
        self._bootstrap_servers = bootstrap_servers
        self._folder = folder
        self._rate = rate
        self._stopping = stop
        self._killed = kill
        self._chance = random.Random(plan.name)

    def run(self) -> None:
        try:
            self.write()
        except BaseException as error:  # raised by whoever ends the stream
            self.failure = error

    @abstractmethod
    def write(self) -> None:
        """Until ``_stopping``."""

    def _producer(self, **more: object) -> Producer:
        return Producer({
            "bootstrap.servers": self._bootstrap_servers,
            "compression.type": self.plan.codec,
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.timeout.ms": int(_END_TIMEOUT_S * 1000),
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5_000,
            "log_level": 0,
            **more,
        })  # fmt: skip

    def _produce(self, producer: Producer) -> None:
        record = self.records.next()
        producer.produce(
            self.plan.name, value=record.value, key=record.key, headers=list(record.headers),
            partition=self._chance.randrange(self.plan.partitions),
            timestamp=round((time.time() - self.plan.age_s) * 1000),
        )  # fmt: skip


class _Idempotent(_Writer):
    """librdkafka with enable.idempotence."""

    def write(self) -> None:
        fatal = threading.Event()

        def on_error(error: KafkaError) -> None:
            if error.fatal():
                fatal.set()

        producer = self._producer(error_cb=on_error)
        count = max(1, round(self._rate * _TICK_S * 3))
        while not self._stopping.wait(_TICK_S):
            if fatal.is_set():  # the source lost acknowledged data: no sequence fits any more
                fatal.clear()
                producer = self._producer(error_cb=on_error)
            try:
                for _ in range(count):
                    self._produce(producer)
                producer.poll(0)
            except (KafkaException, BufferError) as error:
                if isinstance(error, KafkaException) and error.args[0].fatal():
                    fatal.set()
                self._stopping.wait(_TICK_S)
        deadline_at = time.monotonic() + _END_TIMEOUT_S
        while self._left(producer, fatal) and not self._killed.is_set():
            if time.monotonic() > deadline_at:
                raise TimeoutError(f"{len(producer)} records were not taken by the source")

    def _left(self, producer: Producer, fatal: threading.Event) -> int:
        """Records that still may be taken."""
        try:
            return 0 if fatal.is_set() else producer.flush(0.2)
        except KafkaException as error:
            if error.args[0].fatal():
                return 0
            raise


class _Transactional(_Writer):
    """librdkafka with a transactional id: some records, then a commit or, one time in five, an abort."""

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
        """A new producer under the same id, which also ends what the one before left open."""
        producer = self._producer(
            **{
                "transactional.id": f"chaos-{self.plan.name}-{self.records.seed}",
                "transaction.timeout.ms": _TRANSACTION_MS,
                "message.timeout.ms": _TRANSACTION_MS,
            }
        )
        deadline_at = time.monotonic() + _END_TIMEOUT_S
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
        producer.begin_transaction()
        for _ in range(self._chance.randint(1, _MOST_IN_TRANSACTION)):
            self._produce(producer)
        if not abort:
            self._patiently(producer.commit_transaction)
            return
        # What is still queued would be dropped: an aborted transaction with data in the log is what is wanted.
        producer.flush(_STEP_TIMEOUT_S)
        self._patiently(producer.abort_transaction)

    def _patiently(self, end: object) -> None:
        """librdkafka wants the same call again after an error that may pass."""
        assert callable(end)
        deadline_at = time.monotonic() + _END_TIMEOUT_S
        while True:
            try:
                end(_STEP_TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._killed.is_set() or time.monotonic() > deadline_at:
                    raise

    def _recovers(self, producer: Producer, error: KafkaError) -> bool:
        """Abort after an error that asks for it; False if the producer is of no use any more."""
        if error.fatal():
            return False
        try:
            self._patiently(producer.abort_transaction)
            return True
        except KafkaException:
            return False


class _Java(_Writer):
    """Kafka's own console producer, idempotent as it is by default."""

    def write(self) -> None:
        plan = DemoPlan(
            client="java", codec=self.plan.codec, partitions=self.plan.partitions, batch_bytes=16_384, share=0,
            prefix=self.plan.name.removesuffix(f"java-{self.plan.codec}"),
        )  # fmt: skip
        assert plan.name == self.plan.name, f"{self.plan.name}: a topic of the Java producer ends in java-CODEC"
        writer = JavaWriter(self._bootstrap_servers, plan, self._folder)
        try:
            count = max(1, round(self._rate * _TICK_S))
            while not self._stopping.wait(_TICK_S):
                writer.send([self.records.next() for _ in range(count)])
            if not self._killed.is_set():
                writer.close()
        except DemoError:
            # A leader that is away for longer than the console producer waits: what it lost, the source never had.
            if not self._stopping.is_set():
                raise
        finally:
            writer.abort()
