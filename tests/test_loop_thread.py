"""An event loop in a thread: what is given to it runs there, and it ends."""

import asyncio
import threading

import pytest

from mirror.loop_thread import LoopThread


def test_work_runs_in_the_thread() -> None:
    thread = LoopThread("of a test", timeout_s=30.0)
    assert not thread.runs()
    thread.start()
    try:
        assert thread.runs()
        assert thread.call(lambda: threading.current_thread().name) == "of a test"

        async def twice(number: int) -> int:
            await asyncio.sleep(0)
            return 2 * number

        assert thread.run(twice(21)) == 42
        with pytest.raises(ZeroDivisionError):
            thread.call(lambda: 1 // 0)
    finally:
        thread.stop()
    assert not thread.runs()
    assert thread.loop.is_closed()


def test_work_that_takes_too_long() -> None:
    """Whoever waits hears of it; the work goes on."""
    thread = LoopThread("of a test", timeout_s=30.0)
    thread.start()
    try:
        goes_on = asyncio.Event()
        ended = threading.Event()

        async def wait() -> None:
            await goes_on.wait()
            ended.set()

        with pytest.raises(TimeoutError):
            thread.run(wait(), 0.01)
        assert not ended.is_set()
        thread.call(goes_on.set)
        assert ended.wait(30.0)
    finally:
        thread.stop()
