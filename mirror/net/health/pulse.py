"""Tells if a cluster is up: something was received on any connection within the last ``UP_FOR_S`` seconds. A quiet
cluster is sent requests."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kafka.protocol.metadata import MetadataRequest

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import AuthenticationFailed, NetworkError
from mirror.net.options import UP_FOR_S

ASK_AFTER_S = 2.0
"""A cluster from which nothing was received for this long is sent requests."""
LOOK_EVERY_S = 0.5
REFUSED_LEAST_MS, REFUSED_MOST_MS = 1_000, 30_000
"""The pause after a cluster has refused to authenticate us: it grows from the first value to the second."""
STOOD_STILL_S = 2.0
"""If this process has not looked for this long, it was stopped itself (SIGSTOP, a suspended machine) and could not
receive anything. That time does not count."""
MOST_ASKED = 3
"""Number of brokers that are asked at the same time: one of them may hang while the cluster is up."""


class Pulse:
    """Watches one cluster. It sends no requests while data flows, so that watching costs the data path nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._received = cluster.bytes_received
        self._looked_at = self._heard_at = time.monotonic()
        self._asking: asyncio.Task[None] | None = None
        self._backoff = Backoff(least_ms=REFUSED_LEAST_MS, most_ms=REFUSED_MOST_MS)
        self._refused = False
        self._ask_at = 0.0

    @property
    def up(self) -> bool:
        """True if something was received from the cluster within the last ``UP_FOR_S`` seconds."""
        self._look()
        return time.monotonic() - self._heard_at <= UP_FOR_S

    async def keep(self) -> None:
        """Watches the cluster until cancelled."""
        try:
            while True:
                self._look()
                quiet_s = time.monotonic() - self._heard_at
                due = quiet_s >= ASK_AFTER_S and self._looked_at >= self._ask_at
                if due and (self._asking is None or self._asking.done()):
                    self._asking = asyncio.get_running_loop().create_task(self._ask())
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            if self._asking is not None:
                self._asking.cancel()

    def _look(self) -> None:
        now = time.monotonic()
        missed_s, self._looked_at = now - self._looked_at, now
        if missed_s > STOOD_STILL_S:
            self._heard_at += missed_s
        received = self._cluster.bytes_received
        if received != self._received:
            self._received, self._heard_at = received, time.monotonic()

    async def _ask(self) -> None:
        """Sends a request to a few brokers. It only matters whether anything is received. A request that hangs is
        dropped, and the next look sends another."""
        nodes = list(self._cluster.nodes)
        asked = [self._ask_one(node_id) for node_id in random.sample(nodes, min(len(nodes), MOST_ASKED))]
        tasks = [asyncio.ensure_future(each) for each in (*asked, self._ask_any())]
        self._refused = False
        try:
            await asyncio.wait(tasks, timeout=UP_FOR_S)
        finally:
            for task in tasks:
                task.cancel()
        if self._refused:
            self._ask_at = time.monotonic() + self._backoff.next_s()
        else:
            self._backoff.reset()

    async def _ask_one(self, node_id: int) -> None:
        with self._unanswered():
            await self._cluster.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), node_id=node_id)

    async def _ask_any(self) -> None:
        """Connects to a bootstrap address as well, in case none of the known brokers answers."""
        with self._unanswered():
            await self._cluster.control_of_any()

    @contextmanager
    def _unanswered(self) -> Iterator[None]:
        """Notes whether authentication was refused; other network errors are ignored. After refusals, requests become
        rarer and rarer: brokers log each try, and identity providers lock accounts."""
        try:
            yield
        except AuthenticationFailed:
            self._refused = True
        except NetworkError:
            pass
