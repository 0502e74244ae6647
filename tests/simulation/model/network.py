"""What lies between a worker and a broker: processes that stop and die, connections that delay, lose and deliver late.

A connection is what TCP makes of it: requests arrive in order or not at all, and a broker works on one at a time. When
it is cut, what was under way is lost, or arrives later than anything that the client does next: a client's death does
not call back its bytes.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

Reply = Callable[[Any], None]
Execute = Callable[[Reply], None]
"""What a broker does with a request; it calls the reply once, then or later."""


class Trace:
    """What happened, in order; only put into words when somebody reads it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.events: list[tuple[float, str, str, tuple[Any, ...]]] = []

    def __call__(self, who: str, text: str, *values: Any) -> None:
        """``text`` is a format for ``values``."""
        self.events.append((self._loop.time(), who, text, values))

    def __str__(self) -> str:
        return "\n".join(f"{at:10.3f}  {who:<8} {text.format(*values)}" for at, who, text, values in self.events)


class Weather(NamedTuple):
    """How the network is in one run. Times in seconds."""

    least_delay: float = 0.001
    most_delay: float = 0.005
    slow: float = 0.02
    """Share of the messages that take up to ``slowest``."""
    slowest: float = 0.2
    late: float = 0.25
    """Bytes of a cut connection arrive at most so much after the cut."""
    silent: float = 0.3
    """Share of the cuts that the client learns of by its own timeout only."""


class Process:
    """A worker's process: it can be stopped (SIGSTOP) and killed, and then nothing goes in or out of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self._held: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def through(self, act: Callable[..., None], *arguments: Any) -> None:
        """Does something that crosses the border of the process; once it runs again, if it is stopped. What was held is
        not overtaken: a connection keeps the order of its bytes."""
        if self.paused or self._held:
            self._held.append((act, arguments))
        elif not self.dead:
            act(*arguments)

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        while self._held and not self.paused and not self.dead:
            act, arguments = self._held.popleft()
            act(*arguments)

    def kill(self) -> None:
        """kill -9. Bytes that it has given to the kernel are another matter."""
        self.dead = True
        self._held.clear()


class Broker:
    """A broker's process, as far as connections see it."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.up = True
        self.paused = False
        self.late_by = 0.0
        """How long ago the client of the request that is executed now let go of its connection."""
        self.links: list[Link] = []

    def pause(self) -> None:
        """SIGSTOP: what arrives waits."""
        self.paused = True

    def resume(self, chance: random.Random) -> None:
        """SIGCONT: what has waited is worked on, the connections in any order."""
        self.paused = False
        links = [link for link in self.links if link.waiting]
        chance.shuffle(links)
        for link in links:
            link.serve()

    def crash(self) -> None:
        """kill -9: what it had not worked on is gone."""
        self.up = self.paused = False
        links, self.links = self.links, []
        for link in links:
            link.refuse()


class _Request(NamedTuple):
    what: str
    execute: Execute
    on_answer: Reply


class Link:
    """One connection. ``on_lost`` is called at most once, in the client, when it learns that the connection is gone."""

    def __init__(
        self,
        process: Process,
        broker: Broker,
        loop: asyncio.AbstractEventLoop,
        chance: random.Random,
        weather: Weather,
        *,
        on_lost: Callable[[], None],
    ) -> None:
        self.process = process
        self.broker = broker
        broker.links.append(self)
        self.abandoned_at: float | None = None
        """When the client let go of it, or the network did: what is executed later is late."""
        self._loop = loop
        self._chance = chance
        self._weather = weather
        self._on_lost = on_lost
        self._travelling: deque[tuple[_Request, asyncio.TimerHandle]] = deque()
        self._inbox: deque[_Request] = deque()
        self._busy = False
        self._last_arrival = 0.0
        self._last_answer = 0.0
        self._answers: deque[tuple[Reply, Any]] = deque()

    def delay(self) -> float:
        """Of one message, one way."""
        weather = self._weather
        most = weather.slowest if self._chance.random() < weather.slow else weather.most_delay
        return self._chance.uniform(weather.least_delay, most)

    # -- the way there -----------------------------------------------------------------------------------------------

    def send(self, what: str, execute: Execute, on_answer: Reply) -> None:
        """From the client. ``execute`` runs at the broker, ``on_answer`` in the client, if all goes well."""
        self.process.through(self._depart, _Request(what, execute, on_answer))

    def _depart(self, request: _Request) -> None:
        if self.abandoned_at is not None:
            return
        self._last_arrival = max(self._last_arrival, self._loop.time() + self.delay())
        self._travelling.append((request, self._loop.call_at(self._last_arrival, self._arrive)))

    def _arrive(self) -> None:
        # Whichever timer it was: bytes arrive in the order in which they were sent.
        self._inbox.append(self._travelling.popleft()[0])
        self.serve()

    @property
    def waiting(self) -> int:
        """Requests that have arrived and not been worked on."""
        return len(self._inbox)

    def serve(self) -> None:
        """The broker works on one request of a connection at a time, its answer included."""
        while self._inbox and not self._busy and not self.broker.paused:
            self._busy = True
            self._execute(self._inbox.popleft())

    def _execute(self, request: _Request) -> None:
        def reply(result: Any) -> None:
            self._busy = False
            self._answer(request, result)
            self.serve()

        self.broker.late_by = 0.0 if self.abandoned_at is None else self._loop.time() - self.abandoned_at
        request.execute(reply)

    # -- the way back ------------------------------------------------------------------------------------------------

    def _answer(self, request: _Request, result: Any) -> None:
        if self.abandoned_at is not None:
            return
        self._last_answer = max(self._last_answer, self._loop.time() + self.delay())
        self._answers.append((request.on_answer, result))
        self._loop.call_at(self._last_answer, self._deliver)

    def _deliver(self) -> None:
        if self.abandoned_at is None:
            on_answer, result = self._answers.popleft()
            self.process.through(on_answer, result)

    # -- the end -----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """The network or the broker ends it; the client learns of it, or not before its own timeout."""
        if self.abandoned_at is not None:
            return
        self._abandon()
        if self._chance.random() >= self._weather.silent:
            self._loop.call_later(self.delay(), self.process.through, self._on_lost)

    def close(self) -> None:
        """The client ends it, by intent or by dying."""
        if self.abandoned_at is None:
            self._abandon()

    @property
    def late(self) -> bool:
        """Whether something of it is still under way although nobody waits for it any more."""
        return self.abandoned_at is not None and bool(self._travelling)

    def hasten(self) -> None:
        """What is late arrives now, of all moments."""
        for _, timer in self._travelling:
            timer.cancel()
        while self._travelling:
            self._arrive()

    def refuse(self) -> None:
        """The broker died: what was under way to it finds nobody, and the client is told."""
        for _, timer in self._travelling:
            timer.cancel()
        self._travelling.clear()
        self._inbox.clear()
        if self.abandoned_at is None:
            self.abandoned_at = self._loop.time()
            self._loop.call_later(self.delay(), self.process.through, self._on_lost)

    def _abandon(self) -> None:
        """What is under way: a part of it arrives in time, a part late, the rest never."""
        now = self.abandoned_at = self._loop.time()
        fate = self._chance.random()
        if fate < 0.2:
            return
        arriving = self._chance.randint(0, len(self._travelling)) if fate < 0.6 else len(self._travelling)
        requests = [request for request, _ in self._travelling]
        for _, timer in self._travelling:
            timer.cancel()
        self._travelling.clear()
        waits = sorted(self._chance.uniform(0, self._weather.late) for _ in range(arriving))
        for request, wait in zip(requests, waits, strict=False):
            self._travelling.append((request, self._loop.call_at(now + wait, self._arrive)))
