"""The supervisor's side of `mirror trace`: asks the workers to trace a partition, and passes on the steps they report.

A worker traces a partition only for ``LEASE_S``. The lease is renewed as long as a client reads the steps, and is sent
to every worker of the flow. So a trace follows its partition to another worker of this supervisor, and to a worker that
was restarted, and it ends by itself if a process dies.
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
"""Most traces of a flow at a time."""
MOST_WAITING = 20_000
"""Most steps that wait for a client to read them. Beyond that, the oldest are dropped and counted."""

ENDED = "ended"
"""The last step of a trace that has run for its full time."""

Step = dict[str, Any]


class NotTraced(Exception):
    """The partition is not copied here now, or there are too many traces; the message says why, and what to do.
    ``halted``: True if it is because the partition has halted."""

    def __init__(self, why: str, *, halted: bool = False) -> None:
        super().__init__(why)
        self.halted = halted


class _Listener:
    """One trace of a partition: the steps that wait for its client."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=MOST_WAITING)
        self._missed = 0
        self._some = asyncio.Event()

    def hear(self, steps: list[Step], missed: int) -> None:
        """Adds steps that a worker has reported. ``missed``: number of steps that the worker has dropped."""
        self._missed += missed + max(0, len(self._steps) + len(steps) - MOST_WAITING)
        self._steps.extend(steps)
        self._some.set()

    async def take(self, timeout_s: float) -> list[Step]:
        """Returns the steps since the last call. If there are none, waits up to ``timeout_s`` for some."""
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
    """The traces of one flow's partitions."""

    def __init__(self, lines: Mapping[int, Child]) -> None:
        """``lines``: worker number -> the connection to the worker, for the flow's workers."""
        self._lines = lines
        self._listeners: dict[Key, list[_Listener]] = {}

    @property
    def full(self) -> bool:
        """True if there are ``MOST_TRACES`` traces already."""
        return sum(map(len, self._listeners.values())) >= MOST_TRACES

    def heard(self, number: int, message: Message) -> None:
        """Takes a worker's message with steps. ``number``: of the worker."""
        steps = [{**step, "worker": number} for step in message["steps"]]
        for each in self._listeners.get((message["topic"], message["partition"]), ()):
            each.hear(steps, message["missed"])

    async def follow(self, key: Key, seconds: float) -> AsyncGenerator[list[Step], None]:
        """Traces a partition for some seconds. Yields lists of its steps, in order; the last step is ``ENDED``. A list,
        which may be empty, comes at least every ``RENEW_S``. Close the generator when its client is gone."""
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
    """The parts of a flow that are needed here (``flows.flow.RunningFlow``)."""

    @property
    def name(self) -> str:
        """The flow's name."""

    @property
    def resumption(self) -> Resumption:
        """Finds the flow's partitions at its workers."""

    @property
    def traces(self) -> Traces:
        """The traces of the flow's partitions."""


async def begin(
    flows: Mapping[str, Flow], topic: str, partition: int, seconds: float, *, wait: bool
) -> AsyncGenerator[list[Step], None]:
    """Begins a trace of a partition, and returns its steps (``Traces.follow``). The first step tells the partition's
    state.

    Args:
        flows: name -> flow; the flows that may have the partition.
        topic: source topic.
        partition: number of the partition.
        seconds: how long.
        wait: True to begin even if the partition is halted, paused or not assigned to a worker here.

    Raises:
        NotAsked: no flow has the partition, several flows have it, or it is not known which.
        NotTraced: the partition is halted, paused or not here (unless ``wait``), or there are too many traces.
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
    """Returns the error if the partition is halted, paused or not here; otherwise None. ``row``: its row, if a worker
    here has it. ``nobody``: True if some of the flow's partitions have no owner on any machine."""
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
