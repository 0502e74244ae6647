"""Real-world producers behind one interface: librdkafka in this process, and Kafka's own console producer."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mirror.demo.data.payload import NULL_MARKER, DemoRecord, console_line
from mirror.demo.data.topics import TopicPlan
from mirror.demo.errors import DemoError
from mirror.demo.watch import children
from mirror.sandbox import logs
from mirror.sandbox.jvm import Jvm
from mirror.sandbox.kafka import jars

__all__ = ["KAFKA_TOOLS", "JavaWriter", "LibrdkafkaWriter", "TransactionalWriter", "Writer"]

KAFKA_TOOLS = ("org.apache.kafka", "kafka-tools", "4.3.0")
"""The artifact that holds the console producer."""

LINGER_MS = 50
"""How long a producer waits for a batch to fill."""

_CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
_QUEUED_RECORDS = 40_000
_QUEUED_KB = 32_768
_DELIVERY_TIMEOUT_MS = 180_000  # a batch can wait long for a broker where two clusters share two busy cores
_CLOSE_TIMEOUT_S = 90.0
_TRANSACTION_TIMEOUT_S = 60.0
_ABORTED_ONE_IN = 5
_POLL_S = 0.01


class Writer(Protocol):
    """A producer of one topic. Used by one thread at a time, except for ``abort``."""

    def send(self, records: Sequence[DemoRecord]) -> None:
        """Hand over records; waits while the producer's buffer is full.

        Raises:
            DemoError: the producer failed, now or with earlier records.
        """

    def close(self) -> None:
        """Send what is buffered, wait for the broker's answers to all of it, and end.

        Raises:
            DemoError: not everything was stored.
        """

    def abort(self) -> None:
        """End at once and drop what is buffered. May be called from any thread; does nothing after ``close``."""


class LibrdkafkaWriter:
    """confluent-kafka's Producer."""

    def __init__(self, bootstrap_servers: str, plan: TopicPlan) -> None:
        self._topic = plan.name
        self._failure: KafkaError | None = None
        self._aborted = False
        self._producer = Producer({
            "bootstrap.servers": bootstrap_servers,
            "compression.type": plan.codec,
            "batch.size": plan.batch_bytes,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": _QUEUED_RECORDS,
            "queue.buffering.max.kbytes": _QUEUED_KB,
            "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
            "log_level": 2,
        } | self._further(plan))  # fmt: skip

    def _further(self, plan: TopicPlan) -> dict[str, str | int]:
        """Returns further settings of this kind of producer."""
        return {}

    def send(self, records: Sequence[DemoRecord]) -> None:
        """See ``Writer``."""
        for record in records:
            while not self._offer(record):
                self._producer.poll(_POLL_S)
                self._check()
        self._producer.poll(0)
        self._check()

    def close(self) -> None:
        """See ``Writer``."""
        deadline_at = time.monotonic() + _CLOSE_TIMEOUT_S
        while self._producer.flush(0.2) and time.monotonic() < deadline_at:
            self._check()
        self._check()
        if left := len(self._producer):
            raise DemoError(
                f"librdkafka still had {left} records for {self._topic} after {_CLOSE_TIMEOUT_S:.0f} s",
                "see whether this machine is overloaded, and run it again",
            )

    def abort(self) -> None:
        """See ``Writer``."""
        self._aborted = True
        self._producer.purge()

    def _offer(self, record: DemoRecord) -> bool:
        if self._aborted:
            raise DemoError(f"the producer of {self._topic} was ended", "nothing to do")
        try:
            self._producer.produce(
                self._topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers) or None,
                on_delivery=self._delivered,
            )
        except BufferError:
            return False
        except KafkaException as error:
            raise self._error(error.args[0]) from error
        return True

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._error(self._failure)

    def _error(self, error: KafkaError) -> DemoError:
        return DemoError(
            f"librdkafka could not write to {self._topic}: {error.str()}",
            "see whether the source cluster is up; if this machine was busy, run it again",
        )


class TransactionalWriter(LibrdkafkaWriter):
    """A ``LibrdkafkaWriter`` with transactions: each call of ``send`` is one, and one in five is aborted."""

    def __init__(self, bootstrap_servers: str, plan: TopicPlan) -> None:
        super().__init__(bootstrap_servers, plan)
        self._transactions = 0
        self._initialised = False

    def _further(self, plan: TopicPlan) -> dict[str, str | int]:
        return {"transactional.id": f"demo-{plan.name}", "transaction.timeout.ms": _DELIVERY_TIMEOUT_MS}

    def send(self, records: Sequence[DemoRecord]) -> None:
        """See ``Writer``; when it returns, the transaction is committed or aborted."""
        try:
            if not self._initialised:
                self._producer.init_transactions(_TRANSACTION_TIMEOUT_S)
                self._initialised = True
            self._producer.begin_transaction()
            super().send(records)
            self._transactions += 1
            if self._transactions % _ABORTED_ONE_IN:
                self._producer.commit_transaction(_TRANSACTION_TIMEOUT_S)
            else:
                self._producer.flush(_TRANSACTION_TIMEOUT_S)
                self._producer.abort_transaction(_TRANSACTION_TIMEOUT_S)
        except KafkaException as error:
            raise self._error(error.args[0]) from error


class JavaWriter:
    """Kafka's console producer: a JVM that reads one record a line from its standard input.

    It ends with the thread that made it, so that thread must live as long as the producer is needed.

    Args:
        bootstrap_servers: addresses of the cluster.
        plan: the topic.
        folder: folder for the JVM's log.
    """

    def __init__(self, bootstrap_servers: str, plan: TopicPlan, folder: Path) -> None:
        self._topic = plan.name
        self._log = folder / f"{plan.name}.log"
        self._process = children.start(_console_producer(bootstrap_servers, plan, folder), log=self._log, feed=True)

    def send(self, records: Sequence[DemoRecord]) -> None:
        """See ``Writer``."""
        assert self._process.stdin is not None
        lines = memoryview(b"".join(map(console_line, records)))
        try:
            while lines:
                lines = lines[self._process.stdin.write(lines) :]  # a pipe takes only what it has room for
        except OSError as error:
            self._process.stdin.close()
            raise self._error("ended early") from error

    def close(self) -> None:
        """See ``Writer``; the console producer reports failed records only in its log."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            code = self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise self._error(f"was not done after {_CLOSE_TIMEOUT_S:.0f} s") from error
        except OSError as error:
            raise self._error("ended early") from error
        if code or logs.mentions(self._log, (" ERROR ",)):
            raise self._error(f"ended with code {code}")

    def abort(self) -> None:
        """See ``Writer``."""
        self._process.kill()  # no effect on a process that has ended
        self._process.wait()

    def _error(self, what: str) -> DemoError:
        return DemoError(
            f"the Java producer of {self._topic} {what}; its log:\n{logs.excerpt(self._log)}",
            "see whether the source cluster is up and this machine has memory left",
        )


def _console_producer(bootstrap_servers: str, plan: TopicPlan, folder: Path) -> list[str]:
    client = {
        "linger.ms": LINGER_MS,
        "batch.size": plan.batch_bytes,
        "buffer.memory": 33_554_432,
        "max.block.ms": _DELIVERY_TIMEOUT_MS,
        "request.timeout.ms": 30_000,  # the console producer's default is 1.5 s, 3 attempts: too few on a busy machine
        "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
        "retries": 1_000_000,
    }
    reader = {"parse.key": "true", "parse.headers": "true", "null.marker": NULL_MARKER}
    arguments = ["--bootstrap-server", bootstrap_servers, "--topic", plan.name, "--compression-codec", plan.codec]
    arguments += [part for key, value in client.items() for part in ("--command-property", f"{key}={value}")]
    arguments += [part for key, value in reader.items() for part in ("--reader-property", f"{key}={value}")]
    return Jvm().command(jars.classpath_of([KAFKA_TOOLS]), _CONSOLE_PRODUCER, arguments, folder=folder, small=True)
