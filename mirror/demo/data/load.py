"""Data from real clients: a bulk of records in every topic, then a steady stream, until it is stopped.

    with Load(cluster.bootstrap_servers, TOPICS, folder=folder) as load:
        load.create_topics()
        load.start({plan.name: 1_000 for plan in TOPICS})
        load.wait_bulk()
        ...                      # the producers go on writing
        written = load.finish()  # topic -> records, every one acknowledged

Without the stream: ``load_records`` writes a number of records into each topic and returns.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.demo.data import payload
from mirror.demo.data.payload import DemoRecord
from mirror.demo.data.topics import TopicPlan
from mirror.demo.data.writers import JavaWriter, LibrdkafkaWriter, TransactionalWriter, Writer
from mirror.demo.errors import DemoError
from mirror.demo.watch.ends import EndsOf

__all__ = ["Load", "SentRecords", "create_topics", "load_records"]

BULK_TIMEOUT_S = 600.0
_ADMIN_TIMEOUT_S = 30.0
_CHUNK = 250
"""Records per call of the writer in the bulk."""

_STREAM_TICK_S = 0.1
_TRANSACTION_TICK_S = 1.0
"""The stream has one transaction per second and topic. Each leaves a hole in every partition that it touches, and a
hole costs the mirror four round trips: on an overloaded machine, it could not keep up with ten per second."""

_JOIN_S = 0.2


@dataclass(slots=True)
class SentRecords:
    """The records given to one topic's producer so far; other threads read it while it grows.

    Attributes:
        records: how many.
        bytes: size of their keys, values and headers.
    """

    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Lane:
    """One topic, its writer and the thread that feeds it."""

    plan: TopicPlan
    writer: Writer
    bulk: int
    sent: SentRecords = field(default_factory=SentRecords)
    filled: threading.Event = field(default_factory=threading.Event)
    done: Future[None] = field(default_factory=Future)


class Load:
    """Producers of both clients, each topic in a thread of its own.

    If the context is left without ``finish``, everything is ended at once.

    Args:
        bootstrap_servers: addresses of the cluster to write to.
        topics: the topics, each with the client that writes it.
        folder: for the logs of the JVMs.
        stream_per_s: records per second and topic, after the bulk.
    """

    def __init__(
        self, bootstrap_servers: str, topics: Sequence[TopicPlan], *, folder: Path, stream_per_s: int = 200
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topics = topics
        self._folder = folder
        self._stream_per_s = stream_per_s
        self._records = payload.pool()
        self._lanes: list[_Lane] = []
        self._stop = threading.Event()

    @property
    def record_bytes(self) -> float:
        """Average size of a record's key, value and headers, in bytes."""
        return sum(record.size for record in self._records) / len(self._records)

    @property
    def sent(self) -> SentRecords:
        """The records given to all producers so far."""
        lanes = self._lanes
        return SentRecords(sum(lane.sent.records for lane in lanes), sum(lane.sent.bytes for lane in lanes))

    @property
    def producing(self) -> int:
        """The number of producers that have not ended."""
        return sum(not lane.done.done() for lane in self._lanes)

    @property
    def wanted_records(self) -> int:
        """The number of records in the bulk of all topics."""
        return sum(lane.bulk for lane in self._lanes)

    def create_topics(self) -> None:
        """Create the topics of this load; see the function ``create_topics``."""
        create_topics(self._bootstrap_servers, self._topics)

    def start(self, records: Mapping[str, int]) -> None:
        """Start the producers; call it from a thread that lives until ``finish``.

        Args:
            records: topic name -> records of its bulk.

        Raises:
            DemoError: a producer could not be started.
        """
        for at, plan in enumerate(self._topics):
            lane = _Lane(plan, self._writer(plan), bulk=records[plan.name])
            self._lanes.append(lane)
            threading.Thread(target=self._feed, args=(lane, at), name=f"load {plan.name}", daemon=True).start()

    def bulk_done(self) -> bool:
        """Returns True if every producer has written its bulk and streams now.

        Raises:
            DemoError: the error of the first producer that failed.
        """
        self.check()
        return all(lane.filled.is_set() for lane in self._lanes)

    def wait_bulk(self, tick: Callable[[], None] = lambda: None, *, timeout_s: float = BULK_TIMEOUT_S) -> None:
        """Wait for ``bulk_done``; ``tick`` is called several times a second.

        Raises:
            DemoError: a producer failed, or ``timeout_s`` is over.
        """
        deadline_at = time.monotonic() + timeout_s
        while not self.bulk_done():
            tick()
            if time.monotonic() > deadline_at:
                waiting = [lane.plan.name for lane in self._lanes if not lane.filled.is_set()]
                raise DemoError(
                    f"loading {', '.join(waiting)} was not done after {timeout_s:.0f} s",
                    "ask for less (--size), or see whether this machine is overloaded",
                )
            time.sleep(_JOIN_S)

    def trim(self) -> dict[tuple[str, int], int]:
        """Delete the first half of each topic that is to be trimmed; returns (topic, partition) -> log start offset.

        Raises:
            DemoError: the cluster refused or did not answer.
        """
        topics = [plan for plan in self._topics if plan.trimmed]
        ends = EndsOf("source", self._bootstrap_servers, topics).read()
        admin = AdminClient({"bootstrap.servers": self._bootstrap_servers, "log_level": 2})
        wanted = [TopicPartition(topic, partition, end // 2) for (topic, partition), end in ends.items()]
        starts: dict[tuple[str, int], int] = {}
        for partition, future in admin.delete_records(wanted, request_timeout=_ADMIN_TIMEOUT_S).items():
            try:
                starts[partition.topic, partition.partition] = future.result(_ADMIN_TIMEOUT_S).low_watermark
            except KafkaException as error:
                raise DemoError(
                    f"records of {partition.topic} could not be deleted: {error.args[0].str()}",
                    "see whether the source cluster is up",
                ) from error
        return starts

    def check(self) -> None:
        """Raise a producer's error, if one failed."""
        for lane in self._lanes:
            if lane.done.done():
                lane.done.result()

    def finish(self, tick: Callable[[], None] = lambda: None) -> dict[str, int]:
        """Stop streaming, end the producers, and return the number of their records in each topic.

        Raises:
            DemoError: not everything was stored.
        """
        self._stop.set()
        while not all(lane.done.done() for lane in self._lanes):
            tick()
            time.sleep(_JOIN_S)
        self.check()
        return {lane.plan.name: lane.sent.records for lane in self._lanes}

    def close(self) -> None:
        """End all producers that still run, at once. May be called twice."""
        self._stop.set()
        for lane in self._lanes:
            lane.writer.abort()
        for lane in self._lanes:
            with suppress(DemoError):
                lane.done.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _writer(self, plan: TopicPlan) -> Writer:
        if plan.client == "java":
            return JavaWriter(self._bootstrap_servers, plan, self._folder)
        if plan.transactional:
            return TransactionalWriter(self._bootstrap_servers, plan)
        return LibrdkafkaWriter(self._bootstrap_servers, plan)

    def _feed(self, lane: _Lane, at: int) -> None:
        """The body of a lane's thread: bulk, stream, close."""
        try:
            records = payload.cycle(self._records, start=at * len(self._records) // len(self._topics))
            while lane.sent.records < lane.bulk and not self._stop.is_set():
                self._send(lane, [next(records) for _ in range(min(_CHUNK, lane.bulk - lane.sent.records))])
            lane.filled.set()
            tick_s = _TRANSACTION_TICK_S if lane.plan.transactional else _STREAM_TICK_S
            per_tick = max(1, round(self._stream_per_s * tick_s))
            while self._stream_per_s and not self._stop.wait(tick_s):
                self._send(lane, [next(records) for _ in range(per_tick)])
            lane.writer.close()
        except BaseException as error:
            lane.done.set_exception(error)  # raised by check and finish
        else:
            lane.done.set_result(None)

    @staticmethod
    def _send(lane: _Lane, records: list[DemoRecord]) -> None:
        lane.writer.send(records)
        lane.sent.bytes += sum(record.size for record in records)
        lane.sent.records += len(records)


def create_topics(bootstrap_servers: str, topics: Sequence[TopicPlan]) -> None:
    """Create the topics, and wait until they can be written to.

    Each keeps its records for ever, and stores batches as their producers made them.

    Raises:
        DemoError: the cluster refused or did not answer.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    wanted = [
        NewTopic(
            plan.name, num_partitions=plan.partitions, replication_factor=1,
            config={"retention.ms": "-1", "compression.type": "producer"},
        )
        for plan in topics
    ]  # fmt: skip
    futures = admin.create_topics(wanted, operation_timeout=_ADMIN_TIMEOUT_S, request_timeout=_ADMIN_TIMEOUT_S)
    for name, future in futures.items():
        try:
            future.result(_ADMIN_TIMEOUT_S)
        except KafkaException as error:
            raise DemoError(
                f"topic {name} could not be created at {bootstrap_servers}: {error.args[0].str()}",
                "see whether the cluster is up and has no such topic yet",
            ) from error
    _await_leaders(bootstrap_servers, topics)


def _await_leaders(bootstrap_servers: str, topics: Sequence[TopicPlan]) -> None:
    """Wait until each partition's leader serves it.

    A topic is created before its leaders know of it. If a producer has several batches in flight then, the first can
    be refused and the second accepted. An idempotent producer never gets the first one in after that
    (OUT_OF_ORDER_SEQUENCE_NUMBER until it gives up: seen with Kafka 4.3.0's own producer).
    """
    ends = EndsOf("source", bootstrap_servers, topics)
    deadline_at = time.monotonic() + _ADMIN_TIMEOUT_S
    while True:
        try:
            ends.read()
            return
        except DemoError:
            if time.monotonic() > deadline_at:
                raise
        time.sleep(_JOIN_S)


def load_records(bootstrap_servers: str, topics: Sequence[TopicPlan], *, records: int, folder: Path) -> dict[str, int]:
    """Create the topics and write ``records`` into each, with its own client; returns topic -> records.

    Raises:
        DemoError: not everything was stored.
    """
    with Load(bootstrap_servers, topics, folder=folder, stream_per_s=0) as load:
        load.create_topics()
        load.start({plan.name: records for plan in topics})
        load.wait_bulk()
        return load.finish()
