"""An event loop in a thread: what is given to it runs there, and it ends."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import Future

import pytest

from mirror.loop_thread import LoopThread, driven


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


def test_what_still_runs_is_cancelled() -> None:
    """By stop(), and by the end of the last reference."""
    for stopped in (True, False):
        thread = LoopThread("of a test", timeout_s=30.0)
        thread.start()
        loop, began, ended = thread.loop, threading.Event(), threading.Event()
        asyncio.run_coroutine_threadsafe(_until_cancelled(began, ended), loop)
        assert began.wait(30.0)
        if stopped:
            thread.stop()
        else:
            del thread
            gc.collect()
        assert ended.wait(30.0)
        assert loop.is_closed()


async def _until_cancelled(began: threading.Event, ended: threading.Event) -> None:
    began.set()
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()


def test_a_program_that_ends_without_stopping_it() -> None:
    program = (
        "import asyncio\nfrom mirror.loop_thread import LoopThread\n"
        "thread = LoopThread('x', timeout_s=30.0)\nthread.start()\n"
        "asyncio.run_coroutine_threadsafe(asyncio.sleep(3_600), thread.loop)\n"
        "thread.run(asyncio.sleep(0))\nprint('done')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_an_interrupt_cancels_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = LoopThread("of a test", timeout_s=30.0)
    thread.start()
    began, ended = threading.Event(), threading.Event()

    def interrupted(*_: object) -> None:
        assert began.wait(30.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.run(_until_cancelled(began, ended))
        assert ended.wait(30.0)
    finally:
        monkeypatch.undo()
        thread.stop()


def test_an_asynchronous_generator_from_synchronous_code() -> None:
    """It ends, and is closed, when nobody takes any more; what it raises comes through."""
    ended = []

    async def numbers(most: int) -> AsyncGenerator[int | None, None]:
        try:
            yield None
            for number in range(most):
                await asyncio.sleep(0)
                yield number
            raise ZeroDivisionError
        finally:
            await asyncio.sleep(0)
            ended.append(most)

    given_up = driven(numbers(5))
    assert [next(given_up), next(given_up)] == [None, 0]
    given_up.close()  # type: ignore[attr-defined]
    assert ended == [5]
    taken: list[int | None] = []
    with pytest.raises(ZeroDivisionError):
        taken += driven(numbers(2))
    assert ended == [5, 2]
