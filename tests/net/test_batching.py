"""Shared calls: what goes together, what goes alone, and who hears of a failure."""

import asyncio
from typing import NamedTuple

import pytest

from mirror.net.batching import Batcher
from mirror.net.errors import ConnectionLost, NetworkError, Refused
from tests.fakes.loop import some_turns, until


class Item(NamedTuple):
    """A call; its answer is its weight, doubled."""

    place: str
    weight: int = 1


class Broker:
    """Remembers the requests; answers when its gate is open."""

    def __init__(self) -> None:
        self.requests: list[list[Item]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.fail: Exception | None = None
        self.under_way = 0

    async def send(self, items: list[Item]) -> list[int | NetworkError]:
        assert not self.under_way, "one request at a time"
        self.under_way += 1
        self.requests.append(items)
        try:
            await self.open.wait()
        finally:
            self.under_way -= 1
        if self.fail is not None:
            raise self.fail
        return [Refused("no", 7) if item.weight == 13 else 2 * item.weight for item in items]

    def batcher(self, most: int = 10) -> Batcher[Item, int]:
        return Batcher(self.send, most=most, weigh=lambda item: item.weight)

    @property
    def sizes(self) -> list[int]:
        return [len(request) for request in self.requests]


async def test_alone_at_once() -> None:
    """Nothing to wait for: a request of its own, again and again."""
    broker = Broker()
    batcher = broker.batcher()
    assert await batcher.ask(Item("a")) == 2
    assert await batcher.ask(Item("a", 3)) == 6
    assert broker.sizes == [1, 1]


async def test_together() -> None:
    """
    1. Calls of one turn of the loop share a request.
    2. Calls that come while it is under way share the next, whatever their number up to the limit.
    """
    broker = Broker()
    broker.open.clear()
    batcher = broker.batcher()
    first = asyncio.gather(*(batcher.ask(Item(f"a{number}")) for number in range(3)))
    await until(lambda: broker.under_way)
    then = asyncio.gather(*(batcher.ask(Item(f"b{number}", number)) for number in range(1, 8)))
    await some_turns()
    assert broker.sizes == [3]
    broker.open.set()
    assert await first == [2, 2, 2]
    assert await then == [2 * number for number in range(1, 8)]
    assert [[item.weight for item in request] for request in broker.requests[1:]] == [[1, 2, 3, 4], [5], [6], [7]]


async def test_heavier_than_the_limit() -> None:
    """It goes alone, in its turn."""
    broker = Broker()
    batcher = broker.batcher()
    answers = await asyncio.gather(*(batcher.ask(Item(str(weight), weight)) for weight in (1, 50, 2)))
    assert answers == [2, 100, 4]
    assert broker.sizes == [1, 1, 1]


async def test_one_of_each_place_in_a_request() -> None:
    """A second call for a place goes with the next request; the order of a place's calls is kept."""
    broker = Broker()
    batcher = broker.batcher()
    answers = await asyncio.gather(
        *(batcher.ask(Item(place, weight)) for weight, place in enumerate(["a", "a", "b", "a", "c"], 1))
    )
    assert answers == [2, 4, 6, 8, 10]
    assert [[(item.place, item.weight) for item in request] for request in broker.requests] == [
        [("a", 1), ("b", 3), ("c", 5)],
        [("a", 2)],
        [("a", 4)],
    ]


async def test_an_error_of_one() -> None:
    broker = Broker()
    batcher = broker.batcher(100)
    answers = await asyncio.gather(
        *(batcher.ask(Item(str(weight), weight)) for weight in (1, 13, 2)), return_exceptions=True
    )
    assert answers[0] == 2
    assert isinstance(answers[1], Refused)
    assert answers[2] == 4


@pytest.mark.parametrize("error", [ConnectionLost("gone"), KeyError("a bug")])
async def test_an_error_of_all(error: Exception) -> None:
    """All of the request hear of it; the next request is a new try."""
    broker = Broker()
    broker.fail = error
    batcher = broker.batcher()
    answers = await asyncio.gather(*(batcher.ask(Item(place)) for place in "abc"), return_exceptions=True)
    assert answers == [error] * 3
    broker.fail = None
    assert await batcher.ask(Item("a")) == 2


async def test_cancelled() -> None:
    """
    1. A caller that is cancelled before its request was sent is not in it.
    2. One that is cancelled later changes nothing for the others.
    """
    broker = Broker()
    broker.open.clear()
    batcher = broker.batcher()
    loop = asyncio.get_running_loop()
    first = [loop.create_task(batcher.ask(Item(place))) for place in "ab"]
    await until(lambda: broker.under_way)
    then = [loop.create_task(batcher.ask(Item(place))) for place in "cd"]
    await some_turns()
    first[0].cancel()
    then[0].cancel()
    await some_turns()
    broker.open.set()
    assert await first[1] == 2
    assert await then[1] == 2
    assert [[item.place for item in request] for request in broker.requests] == [["a", "b"], ["d"]]
    assert first[0].cancelled()
    assert then[0].cancelled()


async def test_closed() -> None:
    """Under way, waiting and later calls all end with the error; nothing is sent any more."""
    broker = Broker()
    broker.open.clear()
    batcher = broker.batcher()
    loop = asyncio.get_running_loop()
    calls = [loop.create_task(batcher.ask(Item("a")))]
    await until(lambda: broker.under_way)
    calls.append(loop.create_task(batcher.ask(Item("b"))))
    await some_turns()
    batcher.close(ConnectionLost("closed by us"))
    for call in (*calls, loop.create_task(batcher.ask(Item("c")))):
        with pytest.raises(ConnectionLost, match="closed by us"):
            await call
    assert broker.sizes == [1]
    await until(lambda: not broker.under_way)
