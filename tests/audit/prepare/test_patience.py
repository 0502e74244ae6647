"""What a broker that restarts cannot answer is asked again, for a while."""

import asyncio

import pytest

from mirror.audit.prepare.patience import TRIES, patiently
from mirror.net.errors import ConnectionLost

UP_AT = 3


def test_asked_again_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a while; and only what the network has done."""
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", wait)
    asked: list[int] = []

    async def ask(up_at: int) -> int:
        asked.append(up_at)
        if len(asked) < up_at:
            raise ConnectionLost("gone")
        return len(asked)

    assert asyncio.run(patiently(lambda: ask(UP_AT))) == UP_AT
    assert (len(waits), waits == sorted(waits)) == (UP_AT - 1, True)
    asked.clear()
    with pytest.raises(ConnectionLost):
        asyncio.run(patiently(lambda: ask(TRIES + 1)))
    assert len(asked) == TRIES

    async def fail() -> None:
        asked.append(0)
        raise ValueError("no")

    asked.clear()
    with pytest.raises(ValueError, match="no"):
        asyncio.run(patiently(fail))
    assert len(asked) == 1
