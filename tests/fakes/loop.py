"""Runs coroutine tests: each in its own event loop, with a time limit. Errors in callbacks fail the test, too.

The ``conftest.py`` of a folder imports ``pytest_pyfunc_call`` from this module.
"""

import asyncio
import inspect
import io
from collections.abc import Callable
from typing import Any

import pytest

TIME_LIMIT_S = 120.0
"""A test that takes longer than this hangs. Nothing else depends on time."""
LOOK_EVERY_S = 0.002


async def until(condition: Callable[[], Any], *, what: str = "") -> None:
    """Waits until the condition holds. The test's time limit ends a wait that is in vain."""
    try:
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(LOOK_EVERY_S)
    except asyncio.CancelledError:
        raise AssertionError(f"waited in vain{': ' if what else ''}{what}") from None


async def some_turns(count: int = 20) -> None:
    """Gives callbacks and sockets time to run, before a test checks that something did *not* happen."""
    for _ in range(count):
        await asyncio.sleep(0)
    await asyncio.sleep(LOOK_EVERY_S)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a coroutine function to its end. Returns None for other functions."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(_bounded(pyfuncitem.obj, arguments))
    return True


def _where_tasks_are() -> str:
    """Returns the stacks of all tasks: they show what a test that hangs waits for."""
    out = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=out)
    return out.getvalue()


async def _bounded(test: Callable[..., Any], arguments: dict[str, Any]) -> None:
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: troubles.append(context))
    running = asyncio.get_running_loop().create_task(test(**arguments))
    done, _ = await asyncio.wait([running], timeout=TIME_LIMIT_S)
    hanging = "" if done else _where_tasks_are()
    if hanging:
        running.cancel()
        if not (await asyncio.wait([running], timeout=TIME_LIMIT_S))[0]:
            raise AssertionError(f"hangs, and does not end when it is cancelled:\n{hanging}")
    try:
        await running
    except BaseException as error:
        if hanging:
            error.add_note(hanging)
        raise
    for context in troubles:
        raise AssertionError(f"in a callback: {context['message']}") from context.get("exception")
