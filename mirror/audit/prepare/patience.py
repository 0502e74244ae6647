"""Retries for brokers that cannot answer for a few seconds while they restart."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mirror.net.backoff import Backoff
from mirror.net.errors import NetworkError

TRIES = 6
"""Attempts; the waits between them add up to about six seconds."""

Result = TypeVar("Result")


async def patiently(action: Callable[[], Awaitable[Result]]) -> Result:
    """Returns the result of ``action``, which is started again from its beginning when a cluster does not answer.

    Raises:
        NetworkError: the error of the last attempt.
    """
    backoff = Backoff(least_ms=200, most_ms=5_000)
    while True:
        try:
            return await action()
        except NetworkError:
            wait_s = backoff.next_s()
            if backoff.tries >= TRIES:
                raise
            await asyncio.sleep(wait_s)
