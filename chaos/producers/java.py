"""Kafka's own producers for a stream, each in a JVM.

The console producer reports nothing about single records. VerifiableProducer reports each record once it is stored. The
message copier copies VerifiableProducer's records in transactions, and aborts a third of them. The committed offset of
its group tells which records were acknowledged, since it is committed together with them.
"""

import json
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

from chaos.errors import ChaosError
from chaos.judging.acknowledged import content, content_of
from chaos.judging.reading import read
from chaos.producers.writers import END_TIMEOUT_S, TICK_S, Writer
from chaos.waiting import until
from mirror.demo.data.topics import TopicPlan as DemoPlan
from mirror.demo.data.writers import KAFKA_TOOLS, JavaWriter
from mirror.demo.errors import DemoError
from mirror.demo.watch import children
from mirror.sandbox import logs
from mirror.sandbox.jvm import Jvm
from mirror.sandbox.kafka import jars

__all__ = ["ConsoleProducer", "MessageCopier", "VerifiableProducer"]

_VERIFIABLE = "org.apache.kafka.tools.VerifiableProducer"
_COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
_TRANSACTION_RECORDS = 5
_TRANSACTION_MS = 30_000
_ASKED_FOR_S = 10.0
_PAUSE_S = 2.0
"""Pause in seconds between two runs of the copier. Each run ends where its input ended when the run began."""


class ConsoleProducer(Writer):
    """Kafka's console producer, idempotent by default."""

    def write(self) -> None:
        self.acknowledged.deaf.add(self.plan.name)
        plan = DemoPlan(
            client="java", codec=self.plan.codec, partitions=self.plan.partitions, batch_bytes=16_384, share=0,
            prefix=self.plan.name.removesuffix(f"java-{self.plan.codec}"),
        )  # fmt: skip
        assert plan.name == self.plan.name, f"{self.plan.name}: a topic of the Java producer ends in java-CODEC"
        writer = JavaWriter(self._bootstrap_servers, plan, self._folder)
        try:
            count = max(1, round(self._rate * TICK_S))
            while not self._stopping.wait(TICK_S):
                writer.send([self.records.next() for _ in range(count)])
            if not self._killed.is_set():
                writer.close()
        except DemoError:
            # There was no leader for longer than the console producer waits. The source never had the lost records.
            if not self._stopping.is_set():
                raise
        finally:
            writer.abort()


class _Tool(Writer):
    """A writer that runs a class of Kafka's tools as a process."""

    def _start(self, main: str, arguments: Sequence[str], *, name: str) -> "subprocess.Popen[bytes]":
        folder = self._folder
        command = Jvm().command(jars.classpath_of([KAFKA_TOOLS]), main, list(arguments), folder=folder, small=True)
        self._log = folder / f"{name}.log"
        return children.start(command, log=self._log)

    def _await(self, process: "subprocess.Popen[bytes]") -> int | None:
        """Waits for the end of the process. Returns the exit code; None if the stream was killed meanwhile, or if the
        process does not end in time."""
        deadline_at = time.monotonic() + END_TIMEOUT_S
        while process.poll() is None and not self._killed.is_set() and time.monotonic() < deadline_at:
            time.sleep(TICK_S)
        return process.poll()

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        process.kill()  # no effect if the process has ended
        process.wait()


class VerifiableProducer(_Tool):
    """Kafka's VerifiableProducer, idempotent; the values of its records are numbers."""

    def write(self) -> None:
        settings = self._folder / f"{self.plan.name}.properties"
        # By default, VerifiableProducer does not retry.
        settings.write_text(
            f"compression.type={self.plan.codec}\nretries=2147483647\nenable.idempotence=true\nlinger.ms=20\n"
            f"delivery.timeout.ms={round(END_TIMEOUT_S * 1000)}\n"
        )
        arguments = ["--bootstrap-server", self._bootstrap_servers, "--topic", self.plan.name]
        arguments += ["--throughput", f"{max(1, round(self._rate))}", "--command-config", str(settings)]
        process = self._start(_VERIFIABLE, arguments, name=self.plan.name)
        try:
            while not self._stopping.wait(TICK_S):
                if process.poll() is not None:
                    raise ChaosError(f"VerifiableProducer of {self.plan.name} ended; {logs.excerpt(self._log)}")
            process.terminate()  # it sends the records that it has, and reports them
            if self._await(process) is None and not self._killed.is_set():
                raise ChaosError(f"VerifiableProducer of {self.plan.name} did not end; {logs.excerpt(self._log)}")
        finally:
            self._end(process)
        self._take()

    def _take(self) -> None:
        """Reads the acknowledged records from the process's output."""
        for line in self._log.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                said = json.loads(line)
                if isinstance(said, dict) and said.get("name") == "producer_send_success":
                    key = None if said["key"] is None else said["key"].encode()
                    one = content(key, said["value"].encode(), None)
                    self.acknowledged.note((said["topic"], said["partition"]), said["offset"], one)


class MessageCopier(_Tool):
    """Kafka's TransactionalMessageCopier. It copies in transactions from partition 0 of ``plan.copies`` to partition 0
    of its own topic."""

    def write(self) -> None:
        assert self.plan.copies, f"{self.plan.name}: the plan of a copier names the topic that it copies"
        group = f"copier-{self.plan.name}"
        arguments = ["--broker-list", self._bootstrap_servers, "--input-topic", self.plan.copies]
        arguments += ["--input-partition", "0", "--output-topic", self.plan.name, "--consumer-group", group]
        arguments += ["--transactional-id", group, "--transaction-size", f"{_TRANSACTION_RECORDS}"]
        arguments += ["--transaction-timeout", f"{_TRANSACTION_MS}", "--enable-random-aborts", "--use-group-metadata"]
        count = 0
        while not self._stopping.wait(_PAUSE_S):
            process = self._start(_COPIER, arguments, name=f"{self.plan.name}-{count}")
            try:
                # If the process fails, it is started again, like any application.
                self._await(process)
            finally:
                self._end(process)
            count += 1
        if not self._killed.is_set():
            self._take(group)

    def _take(self, group: str) -> None:
        """Notes the acknowledged records: the input up to the offset that was committed with the last transaction."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap_servers, "group.id": group, "log_level": 0})

        def committed() -> list[TopicPartition]:
            # A coordinator that has just moved refuses requests once or twice.
            with suppress(KafkaException):
                found: list[TopicPartition] = consumer.committed([TopicPartition(self.plan.copies, 0)], _ASKED_FOR_S)
                return found
            return []

        try:
            (found,) = until(committed, f"what {group} has committed", timeout_s=END_TIMEOUT_S)
        finally:
            consumer.close()
        name = (self.plan.copies, 0)
        given = read(self._bootstrap_servers, [name], "read_committed", by=content_of)[name]
        self.acknowledged.ordered[self.plan.name, 0] = [one for offset, one in given.items() if offset < found.offset]
