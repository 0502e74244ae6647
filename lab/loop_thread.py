"""An event loop in a thread of its own, for what has to go on while the test or measurement does something else."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """The loop, and how others have work done in it.

    Args:
        name: of the thread.
        timeout_s: longest wait for work, where ``run`` is not told otherwise.

    Attributes:
        loop: the event loop; for the work that runs in it.
    """

    def __init__(self, name: str, *, timeout_s: float) -> None:
        self.loop = asyncio.new_event_loop()
        self._timeout_s = timeout_s
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)

    def runs(self) -> bool:
        """Whether it was started, and has not stopped."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the loop and close it. What still runs in it has to be ended before."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(self._timeout_s)
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine there; returns its result.

        Raises:
            TimeoutError: it has not ended in time; it goes on.
        """
        done = asyncio.run_coroutine_threadsafe(work, self.loop)
        return done.result(self._timeout_s if timeout_s is None else timeout_s)

    def call(self, function: Callable[[], T]) -> T:
        """Run a function there; returns its result."""

        async def run() -> T:
            return function()

        return self.run(run())
