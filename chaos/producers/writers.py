"""Shared by all producers of a stream: their records, the pace, and their acknowledgements."""

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
"""A producer has the source's answer to its last record within this."""


class Records:
    """Makes records, no two of them the same: a header has the topic and a number. The same seed gives the same bytes.

    No part holds a sign that Kafka's console producer splits at (tab, line feed, comma, colon).
    """

    def __init__(self, topic: str, *, seed: int = 0) -> None:
        self._topic = topic
        self.seed = seed
        self._chance = random.Random(f"{topic}/{seed}")
        self.count = 0

    def next(self) -> DemoRecord:
        """Returns one more: with or without key, now and then without a value, 30 bytes to 3 KB."""
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
    """The part that all kinds share: the pace."""

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
        """Write until ``_stopping``."""
