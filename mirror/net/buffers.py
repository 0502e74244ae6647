"""Receive buffers, bounded by one number.

A Fetch response is received into a frame; its batches are forwarded as slices of that frame, and the frame goes back
when the last of them is acknowledged. ``buffer.memory`` bounds all frames of a worker: a fetch is sent only after
room for its answer was reserved, so memory cannot grow with the lag, the number of partitions or a slow destination.
"""

from collections import deque
from collections.abc import Callable

OVERHEAD = 64 * 1024
"""Room in each frame beyond ``fetch.max.bytes`` for what surrounds the records; 64 partitions take about 4 KiB."""


class Frame:
    """One response, whole. Its maker holds it once; ``body`` is valid until each holder has called ``release``."""

    __slots__ = ("_pool", "body", "buffer", "holders")

    def __init__(self, pool: "FramePool", buffer: bytearray, size: int) -> None:
        self._pool = pool
        self.buffer = buffer
        self.body = memoryview(buffer)[:size]
        self.holders = 1

    def hold(self) -> None:
        """One more that needs the bytes."""
        self.holders += 1

    def release(self) -> None:
        """One fewer; the last one gives the buffer back."""
        self.holders -= 1
        if not self.holders:
            self._pool.give_back(self)


class FramePool:
    """Frames of ``frame_size`` bytes within ``budget`` bytes. A larger answer (an oversize first batch, KIP-74: it must
    make progress) gets a buffer of its own, which counts until it is released."""

    def __init__(self, *, budget: int, frame_size: int) -> None:
        if budget < frame_size:
            raise ValueError(f"a budget of {budget} bytes holds no frame of {frame_size}")
        self.budget = budget
        self.frame_size = frame_size
        self._free: list[bytearray] = []
        self._used = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def used(self) -> int:
        """Bytes reserved or held."""
        return self._used

    @property
    def room(self) -> bool:
        """Whether ``reserve`` would grant some."""
        return not self._used or self._used + self.frame_size <= self.budget

    def reserve(self) -> bool:
        """Room for one answer, to be followed by ``take`` or ``cancel``. False: none, see ``when_room``.

        One frame is always granted when nothing else is in use, whatever its size was last time: progress.
        """
        if not self.room:
            return False
        self._used += self.frame_size
        return True

    def cancel(self) -> None:
        """The answer will not come."""
        self._used -= self.frame_size
        self._wake()

    def take(self, size: int) -> Frame:
        """The frame for an answer of ``size`` bytes, against the room reserved for it."""
        if size <= self.frame_size:
            # Last in, first out: the same few buffers stay warm in the cache, the others untouched by the kernel.
            buffer = self._free.pop() if self._free else bytearray(self.frame_size)
        else:
            buffer = bytearray(size)
            self._used += size - self.frame_size
        return Frame(self, buffer, size)

    def give_back(self, frame: Frame) -> None:
        """Called by the frame."""
        size = len(frame.buffer)
        self._used -= size
        if size == self.frame_size:
            self._free.append(frame.buffer)
        self._wake()

    def when_room(self, wake: Callable[[], None]) -> None:
        """Calls ``wake`` once when there is room again; in the order of asking."""
        if wake not in self._waiting:
            self._waiting.append(wake)

    def _wake(self) -> None:
        """Whoever is woken may have no use for the room any more, so the next is asked as long as there is any."""
        while self._waiting and self.room:
            self._waiting.popleft()()
