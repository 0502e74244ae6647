"""What a broker that restarts cannot answer for some seconds is asked again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mirror.net.backoff import Backoff
from mirror.net.errors import NetworkError

TRIES = 6
"""Some seven seconds in all."""

Result = TypeVar("Result")


async def patiently(action: Callable[[], Awaitable[Result]]) -> Result:
    """The outcome of ``action``, which is begun again from its beginning when a cluster does not answer.

    Raises:
        NetworkError: that of the last try.
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
