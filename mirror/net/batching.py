"""Calls that are made while a request is under way share the next request.

A thousand partitions that look at their log ends at the same time make two or three requests instead of a thousand. A
single call does not wait: only calls made during one turn of the event loop, or during a request, go together.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from mirror.net.errors import ConnectionLost, NetworkError


class PlacedItem(Protocol):
    """An item of a shared request. A request has only one item per ``place``, as brokers demand."""

    @property
    def place(self) -> Hashable:
        """Topic and partition, or a transactional id."""


Item = TypeVar("Item", bound=PlacedItem)
Answer = TypeVar("Answer")
Send = Callable[[list[Item]], Awaitable[Sequence[Answer | NetworkError]]]
"""Sends one request for these items. Returns the answer or the error of each, in their order. Raises an error that
concerns all of them."""


class Batcher(Generic[Item, Answer]):
    """Combines calls of one kind to one broker into requests. One request is under way at a time.

    Args:
        send: sends a request and returns its answers.
        most: limit for the sum of the weights in a request; an item that weighs more goes alone.
        weigh: returns the weight of an item; by default 1.
    """

    def __init__(self, send: Send[Item, Answer], *, most: int, weigh: Callable[[Item], int] = lambda _: 1) -> None:
        self._send = send
        self._most = most
        self._weigh = weigh
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed: NetworkError | None = None

    async def ask(self, item: Item) -> Answer:
        """Returns the answer for one item. If the caller is cancelled while the item waits for its request, it is left
        out of that. Once ``send`` has it, only ``send`` can leave it out.

        Raises:
            NetworkError: the request failed, or the answer for this item is an error.
        """
        if self._closed is not None:
            raise self._closed
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain())
        return await future

    def close(self, error: NetworkError | None = None) -> None:
        """Fails all waiting and all later calls with ``error``."""
        self._closed = error or ConnectionLost("closed")
        if self._task is not None:
            self._task.cancel()
        while self._waiting:
            _fail(self._waiting.popleft()[1], self._closed)

    async def _drain(self) -> None:
        try:
            while taken := self._take():
                await self._exchange([item for item, _ in taken], [future for _, future in taken])
        finally:
            self._task = None

    def _take(self) -> list[tuple[Item, "asyncio.Future[Answer]"]]:
        """Takes the next request's items from the queue, the oldest first. A second item of a place waits for a later
        request."""
        taken: list[tuple[Item, asyncio.Future[Answer]]] = []
        places: set[Hashable] = set()
        later: list[tuple[Item, asyncio.Future[Answer]]] = []
        weight = 0
        while self._waiting:
            item, future = self._waiting[0]
            weight += self._weigh(item)
            if taken and weight > self._most:
                break
            self._waiting.popleft()
            if future.done():
                weight -= self._weigh(item)
            elif item.place in places:
                weight -= self._weigh(item)
                later.append((item, future))
            else:
                places.add(item.place)
                taken.append((item, future))
        self._waiting.extendleft(reversed(later))
        return taken

    async def _exchange(self, items: list[Item], futures: "list[asyncio.Future[Answer]]") -> None:
        try:
            answers = await self._send(items)
            assert len(answers) == len(items), "one answer for each item"
        except Exception as error:
            # Not only NetworkError: the caller gets whatever a direct call would have raised.
            for future in futures:
                _fail(future, error)
        except asyncio.CancelledError:
            for future in futures:
                _fail(future, self._closed or ConnectionLost("cancelled with the request under way"))
            raise
        else:
            for future, answer in zip(futures, answers, strict=True):
                if isinstance(answer, NetworkError):
                    _fail(future, answer)
                elif not future.done():
                    future.set_result(answer)


def _fail(future: "asyncio.Future[Answer]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
