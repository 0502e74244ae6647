"""An event loop in a thread of its own, for what has to go on while its caller does something else: the raw clients
(``mirror.raw``), and the tests' and benchmarks' networks. And one that runs while its caller waits (``driven``)."""

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def driven(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Iterates an asynchronous generator from synchronous code, in an event loop of its own, which runs only while the
    next item is waited for. The generator is closed when the iteration ends, or is given up."""

    async def following() -> tuple[T] | None:
        async for item in items:
            return (item,)
        return None

    async def end() -> None:
        await items.aclose()

    with asyncio.Runner() as runner:
        try:
            while (found := runner.run(following())) is not None:
                yield found[0]
        finally:
            runner.run(end())


class LoopThread:
    """The loop, and how others have work done in it. It ends with ``stop``, and also when nobody has it any more, or
    the program ends.

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
        self._end: weakref.finalize[..., LoopThread] = weakref.finalize(self, self.loop.close)

    def runs(self) -> bool:
        """Returns True if it was started, and has not stopped."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()
        self._end.detach()
        self._end = weakref.finalize(self, _end, self.loop, self._thread, self._timeout_s)

    def stop(self) -> None:
        """Cancels what still runs in the loop, stops it and closes it."""
        self._end()

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


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, timeout_s: float) -> None:
    """Ends a loop, whoever still runs in it. (Without its ``LoopThread``, which may be gone.)"""
    if threading.current_thread() is thread:  # collected as garbage there: nobody can wait for it
        loop.call_soon(loop.stop)
        return
    asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(timeout_s)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout_s)
    loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
