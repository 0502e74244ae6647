"""An event loop in a thread of its own, for what has to go on while its caller does something else: the raw clients
(``mirror.raw``), and the tests' and benchmarks' networks."""

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
        """Returns True if it was started, and has not stopped."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the loop and closes it. What still runs in it has to be ended before."""
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(self._timeout_s)
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs a coroutine there; returns its result. If the caller is interrupted meanwhile (KeyboardInterrupt), the
        work is cancelled: nobody waits for its result any more.

        Raises:
            TimeoutError: it has not ended in time; it goes on.
        """
        done = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return done.result(self._timeout_s if timeout_s is None else timeout_s)
        except Exception:
            raise
        except BaseException:
            done.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function there; returns its result."""

        async def run() -> T:
            return function()

        return self.run(run())
