"""The base of all producers of a stream, and the records that they write."""

import random
import threading
from abc import ABC, abstractmethod
from pathlib import Path

from chaos.judging.acknowledged import Acknowledged
from chaos.producers.topics import TopicPlan
from mirror.demo.data.payload import DemoRecord

__all__ = ["END_TIMEOUT_S", "TICK_S", "Records", "Writer"]

TICK_S = 0.1
END_TIMEOUT_S = 150.0
"""Longest time in seconds until a producer has the source's answer to its last record."""


class Records:
    """Makes records. No two are equal, since a header has the topic, the seed and a number. The same seed gives the
    same bytes.

    No part contains a character at which Kafka's console producer splits its input (tab, line feed, comma, colon).
    """

    def __init__(self, topic: str, *, seed: int = 0) -> None:
        self._topic = topic
        self.seed = seed
        self._chance = random.Random(f"{topic}/{seed}")
        self.count = 0

    def next(self) -> DemoRecord:
        """Returns the next record. It has 30 bytes to 3 KB, perhaps no key, and now and then no value."""
        draw, number = self._chance, self.count
        self.count += 1
        size = draw.choice((10, 40, 100, 100, 400, 1_500))
        key = None if number % 9 == 8 else f"key-{draw.randrange(200)}".encode()
        value = None if number % 17 == 16 and key else f"{number} {draw.randbytes(size).hex()}".encode()
        headers: tuple[tuple[str, bytes | None], ...] = (("n", f"{self._topic}/{self.seed}/{number}".encode()),)
        if number % 5 == 0:
            headers += (("empty", None),)
        return DemoRecord(key, value, headers)


class Writer(threading.Thread, ABC):
    """The base of all producers of a stream: a thread that writes into one topic.

    Args:
        bootstrap_servers: ``bootstrap.servers`` of the source.
        plan: the topic.
        folder: folder for logs.
        rate: records per second; for transactional topics, transactions per second.
        records: makes the records.
        stop: set to end the writing cleanly.
        kill: set to give up at once.

    Attributes:
        transactions: number of transactions that were committed or aborted.
        acknowledged: the acknowledgements.
        failure: the exception with which the thread has ended; None: it has not.
    """

    def __init__(
        self, bootstrap_servers: str, plan: TopicPlan, folder: Path, rate: float, records: Records,
        stop: threading.Event, kill: threading.Event,
    ) -> None:  # fmt: skip
        super().__init__(name=f"stream {plan.name}", daemon=True)
        self.plan = plan
        self.records = records
        self.transactions = 0
        self.acknowledged = Acknowledged()
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
        except BaseException as error:  # raised by ``Stream.check``
            self.failure = error

    @abstractmethod
    def write(self) -> None:
        """Writes until ``_stopping`` is set, then waits for the acknowledgements of the last records."""
