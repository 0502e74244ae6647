"""An event loop whose clock is a number: time passes only when nothing is left to do, and then at once.

A run of minutes takes milliseconds, and the order of events depends on nothing but the seed that drew the delays.
"""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any


class Stuck(AssertionError):
    """Nothing is left to do and nothing is due: everybody waits for somebody else."""


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop, with timers that pass the time; it has no sockets, pipes, signals or threads.

    Timers of the same instant run in the order in which they were set.
    """

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        """Whatever is drawn in a run is drawn from this."""
        self.troubles: list[BaseException] = []
        """What was raised in callbacks: bugs, all of them."""
        self.set_exception_handler(self._note)
        self.skipped_s = 0.0
        """By so much wall clocks have gone on without anything happening: idle days."""
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._ready: Any

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.troubles.append(context.get("exception") or AssertionError(context["message"]))

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As asyncio's; tuples are compared faster than handles."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is skipped when its time comes."""

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        while not ready:
            if not timers:
                raise Stuck("nothing is left to do, and the run is not over")
            when, _, timer = heapq.heappop(timers)
            if not timer.cancelled():
                self._now = max(self._now, when)
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody else wakes it."""


def run_virtually(main: Coroutine[Any, Any, Any], chance: random.Random) -> None:
    """Runs a coroutine on a clock of its own, and fails with whatever failed in a callback."""
    loop = VirtualLoop(chance)
    try:
        loop.run_until_complete(main)
        if loop.troubles:
            raise loop.troubles[0]
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
