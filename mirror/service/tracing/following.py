"""The supervisor's side of `mirror trace`: has the workers follow a partition, and passes on what they tell.

A worker follows it only for ``LEASE_S``. That is renewed for as long as somebody takes the steps, and told to every
worker of the flow: so a trace goes with its partition to another worker here, and to a process that is started anew,
and ends by itself whoever dies.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mirror.service import channel as say
from mirror.service.channel import Message
from mirror.service.resume.resumption import Child, Resumption, flow_of

if TYPE_CHECKING:
    from mirror.relay.assignment import Key
    from mirror.service.telemetry.rows import PartitionRow

DEFAULT_S = 60
MOST_S = 3_600
LEASE_S = 5.0
RENEW_S = 1.0
MOST_TRACES = 8
"""Traces of a flow at a time."""
MOST_WAITING = 20_000
"""Steps that wait for whoever takes them. Older ones are dropped and counted."""

ENDED = "ended"
"""The last step, if nothing has cut the trace short."""

Step = dict[str, Any]


class NotTraced(Exception):
    """There is nothing to follow; the message says why, and what to do. ``halted``: that is because it has halted."""

    def __init__(self, why: str, *, halted: bool = False) -> None:
        super().__init__(why)
        self.halted = halted


class _Listener:
    """Somebody who follows a partition."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=MOST_WAITING)
        self._missed = 0
        self._some = asyncio.Event()

    def hear(self, steps: list[Step], missed: int) -> None:
        """Takes steps that a worker tells."""
        self._missed += missed + max(0, len(self._steps) + len(steps) - MOST_WAITING)
        self._steps.extend(steps)
        self._some.set()

    async def take(self, timeout_s: float) -> list[Step]:
        """Returns what came since the last call; waits for something for so long."""
        try:
            await asyncio.wait_for(self._some.wait(), timeout_s)
        except TimeoutError:
            return []
        self._some.clear()
        steps, missed = list(self._steps), self._missed
        self._steps.clear()
        self._missed = 0
        if missed:
            at_ms = steps[0]["at_ms"] if steps else 0
            steps.insert(0, {"at_ms": at_ms, "step": "missed", "steps": missed})
        return steps


class Traces:
    """Those who follow partitions of one flow."""

    def __init__(self, lines: Mapping[int, Child]) -> None:
        """``lines``: to the flow's workers, by number."""
        self._lines = lines
        self._listeners: dict[Key, list[_Listener]] = {}

    @property
    def full(self) -> bool:
        """True if no more can be followed at the same time."""
        return sum(map(len, self._listeners.values())) >= MOST_TRACES

    def heard(self, number: int, message: Message) -> None:
        """Takes the steps that a worker tells."""
        steps = [{**step, "worker": number} for step in message["steps"]]
        for each in self._listeners.get((message["topic"], message["partition"]), ()):
            each.hear(steps, message["missed"])

    async def follow(self, key: Key, seconds: float) -> AsyncGenerator[list[Step], None]:
        """Follows a partition for so many seconds. Yields its steps, in order, the last one ``ended``; an empty list at
        least every ``RENEW_S``. Close it if nobody takes them any more."""
        loop = asyncio.get_running_loop()
        until, listener = loop.time() + seconds, _Listener()
        self._listeners.setdefault(key, []).append(listener)
        renew_at = -math.inf
        try:
            while (now := loop.time()) < until:
                if now >= renew_at:
                    self._lease(key, LEASE_S)
                    renew_at = now + RENEW_S
                yield await listener.take(max(0.0, min(until, renew_at) - now))
            yield [{"at_ms": int(time.time() * 1000), "step": ENDED}]
        finally:
            self._listeners[key].remove(listener)
            if not self._listeners[key]:
                del self._listeners[key]
                self._lease(key, 0.0)

    def _lease(self, key: Key, for_s: float) -> None:
        for line in list(self._lines.values()):
            line.send(say.TRACE, topic=key[0], partition=key[1], for_s=for_s)


class Flow(Protocol):
    """One flow at the supervisor, as far as this needs it (``flows.flow.RunningFlow``)."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def resumption(self) -> Resumption:
        """Knows where its partitions are."""

    @property
    def traces(self) -> Traces:
        """Who follows them."""


async def begin(
    flows: Mapping[str, Flow], topic: str, partition: int, seconds: float, *, wait: bool
) -> AsyncGenerator[list[Step], None]:
    """Returns the steps of a partition: see ``Traces.follow``. The first one says where it stands.

    Args:
        flows: by name, those that may be meant.
        topic: of the source.
        partition: its index.
        seconds: how long.
        wait: follow it although nothing happens with it now, for what follows.

    Raises:
        NotAsked: no flow has it, several have it, or nobody can tell.
        NotTraced: nothing happens with it here.
    """
    name = await flow_of({each: flow.resumption for each, flow in flows.items()}, topic)
    flow = flows[name]
    row, nobody = await flow.resumption.find(topic, partition)
    if not wait and (why := _why_not(name, f"{topic}-{partition}", row, nobody=nobody)) is not None:
        raise why
    if flow.traces.full:
        raise NotTraced(f"flow {name} has {MOST_TRACES} traces already: wait until one of them ends, or end it")
    return flow.traces.follow((topic, partition), seconds)


def _why_not(flow: str, what: str, row: PartitionRow | None, *, nobody: bool) -> NotTraced | None:
    """Returns why nothing happens with the partition here; None: something may. ``nobody``: some of the flow's
    partitions are held by no worker anywhere."""
    after = "; --wait follows it nevertheless, for what comes then"
    if row is None:
        where = (
            "perhaps nobody holds it now: `mirror status` shows it once somebody does"
            if nobody
            else "another instance of this mirror copies it: ask there"
        )
        return NotTraced(f"no worker here has {what} of flow {flow}: {where}{after}")
    if row.state == "paused":
        return NotTraced(f"{what} of flow {flow} is paused by an operator: `mirror resume TOPIC PARTITION`{after}")
    if row.state == "halted":
        return NotTraced(
            f"{what} of flow {flow} has halted, {row.reason}: {row.detail}; `mirror describe` shows the remedy{after}",
            halted=True,
        )
    return None
