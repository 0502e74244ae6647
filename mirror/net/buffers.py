"""Receive buffers, bounded by one number.

A Fetch response is received into a frame. Its batches are forwarded as slices of that frame, and the frame goes back to
the pool when the last of them is acknowledged. ``buffer.memory`` bounds all frames of a flow in a worker: a fetch is
sent only after room for its answer was reserved, so memory cannot grow with the lag, the number of partitions or a slow
destination.
"""

import mmap
from collections import deque
from collections.abc import Callable, Sequence

OVERHEAD = 64 * 1024
"""Room in each frame for the bytes around the records, in addition to the bytes asked for. 64 partitions take about 4
KiB of it."""
COPIES_SHARE = 4
"""Copies take at most a quarter of the budget: the rest is for fetched frames."""
COPY_SHARE = 16
"""A copy takes at most a sixteenth of what is left of that quarter, so that some is left for the next one."""


class Buffer:
    """Memory of a fixed size. Only the ``touched`` bytes, those that were written at least once, are backed by the
    kernel."""

    __slots__ = ("memory", "touched")

    def __init__(self, size: int) -> None:
        # The allocator may keep freed memory. A map goes back to the kernel when its last slice is released.
        self.memory = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.touched = 0


class Frame:
    """A buffer with a whole response, or a copy of parts of responses. It is counted how many holders it has; at first
    one, the caller that made it. ``body`` is valid until each holder has called ``release``."""

    __slots__ = ("_pool", "body", "buffer", "holders", "is_copy")

    def __init__(self, pool: "FramePool", buffer: Buffer, size: int, *, is_copy: bool = False) -> None:
        self._pool = pool
        self.buffer = buffer
        self.is_copy = is_copy
        self.body = memoryview(buffer.memory)[:size]
        self.holders = 1

    def hold(self) -> None:
        """Adds a holder: the bytes stay until it has called ``release``."""
        self.holders += 1

    def beside(self, pieces: Sequence[bytes]) -> "Frame":
        """Returns a new frame of the same pool with a copy of these bytes, concatenated."""
        return self._pool.copy(pieces)

    def release(self) -> None:
        """Removes a holder. The last one gives the buffer back."""
        self.holders -= 1
        if not self.holders:
            self._pool.give_back(self)


class FramePool:
    """A pool of frames of at most ``frame_size`` bytes each and ``budget`` bytes together. A larger response (with an
    oversize first batch, KIP-74: there must be progress) gets a buffer of its own, which counts until it is released.

    A reservation has the size of the response that was asked for, a frame that of the response that came. Free buffers
    keep the memory that they touched. It goes back to the kernel as soon as all buffers together, free or not, have
    touched more than the budget.
    """

    def __init__(self, *, budget: int, frame_size: int, most_budget: int = 0) -> None:
        """``most_budget``: limit up to which the budget may grow (``lend``), in bytes."""
        self.budget = self._own = budget
        self._most = most_budget
        self._loans: dict[object, int] = {}
        self.frame_size = frame_size
        self._free: list[Buffer] = []
        self._used = 0
        self._copied = 0
        self._touched = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._waking = False
        self.grants = 0
        """Number of reservations so far."""

    @property
    def used(self) -> int:
        """Bytes reserved or held."""
        return self._used

    @property
    def room(self) -> int:
        """Bytes that are neither reserved nor held."""
        return max(0, self.budget - self._used)

    @property
    def copied(self) -> int:
        """Bytes held by copies; part of ``used``."""
        return self._copied

    @property
    def copy_room(self) -> int:
        """Bytes that the next caller should copy at most. 0 if copies use their whole share: callers then drop data and
        fetch it again."""
        return max(0, self.budget // COPIES_SHARE - self._copied) // COPY_SHARE

    @property
    def touched(self) -> int:
        """Bytes that the kernel has given to buffers, in use or free."""
        return self._touched

    def lend(self, borrower: object, size: int) -> None:
        """Raises the budget by ``size`` bytes until this borrower's next call, which replaces its loan; 0 ends the
        loan. All loans together raise the budget to at most ``most_budget``."""
        self._loans[borrower] = size
        self.budget = max(self._own, min(self._own + sum(self._loans.values()), self._most))
        self._trim()
        self._wake()

    def reserve(self, size: int, *, spare: int = 0, urgent: bool = False) -> bool:
        """Reserves room for a response; ``take`` or ``cancel`` must follow. If there is none, ``when_room`` waits for
        it.

        When nothing else is in use, a reservation of any size has room, so that there is progress.

        Args:
            size: bytes to reserve.
            spare: bytes that must be left for others.
            urgent: the reservation does not queue behind other callers that wait for room.

        Returns:
            False if there is no room, or other callers wait for room.
        """
        if not self._has_room(size + spare) or (self._waiting and not self._waking and not urgent):
            return False
        self._used += size
        self.grants += 1
        return True

    def cancel(self, size: int) -> None:
        """Gives up a reservation of ``size`` bytes: the response will not come."""
        self._used -= size
        self._wake()

    def take(self, size: int, *, reserved: int = 0) -> Frame:
        """Returns the frame for a response of ``size`` bytes, and ends the reservation of ``reserved`` bytes that was
        made for it."""
        if size <= self.frame_size:
            buffer = self._take_free(size)
        else:
            buffer = Buffer(size)
        self._touched += max(0, size - buffer.touched)
        buffer.touched = max(size, buffer.touched)
        self._trim()
        frame = Frame(self, buffer, size)
        self._used += size - reserved
        if size < reserved:
            self._wake()
        return frame

    def copy(self, pieces: Sequence[memoryview | bytes | bytearray]) -> Frame:
        """Copies these bytes to a frame of exactly their size, so that the frames they lie in can be released. It is
        never refused, because it makes room. ``copy_room`` says how many bytes a caller should copy at most."""
        size = sum(map(len, pieces))
        frame = Frame(self, Buffer(size), size, is_copy=True)
        at = 0
        for piece in pieces:
            frame.body[at : at + len(piece)] = piece
            at += len(piece)
        frame.buffer.touched = size
        self._touched += size
        self._copied += size
        self._used += size
        self._trim()
        return frame

    def give_back(self, frame: Frame) -> None:
        """Takes a frame back. Only for ``Frame``, which calls it when its last holder releases it."""
        self._used -= len(frame.body)
        if frame.is_copy:
            self._copied -= len(frame.body)
        if frame.is_copy or len(frame.body) > self.frame_size:
            self._touched -= frame.buffer.touched
        else:
            self._free.append(frame.buffer)
            self._trim()
        self._wake()

    def when_room(self, size: int, wake: Callable[[], None], *, urgent: bool = False) -> None:
        """Calls ``wake`` once when there is room for ``size`` bytes. Callers are woken in the order of their calls;
        an ``urgent`` one is woken before all others, even if they came first."""
        (self._waiting.appendleft if urgent else self._waiting.append)((size, wake))

    @property
    def waited_for(self) -> bool:
        """True if a caller waits for room."""
        return bool(self._waiting)

    def ask_again(self) -> None:
        """Wakes all callers that wait, whatever size they asked for, so that they may ask again for less."""
        waiting, self._waiting = self._waiting, deque()
        self._waking = True
        try:
            for _, wake in waiting:
                wake()
        finally:
            self._waking = False

    def _has_room(self, size: int) -> bool:
        return not self._used or self._used + size <= self.budget

    def _take_free(self, size: int) -> Buffer:
        """Returns a free buffer, or a new one if none is free. Of the free buffers with at least ``size`` touched
        bytes, it is the one with the fewest; without such, the one with the most. Of equal ones, it is the last that
        came back, which is still in the CPU's cache."""
        if not self._free:
            return Buffer(self.frame_size)
        enough = [buffer for buffer in self._free if buffer.touched >= size]
        least = min(buffer.touched for buffer in enough) if enough else max(buffer.touched for buffer in self._free)
        at = max(index for index, buffer in enumerate(self._free) if buffer.touched == least)
        return self._free.pop(at)

    def _trim(self) -> None:
        while self._touched > self.budget and self._free:
            self._touched -= self._free.pop(0).touched

    def _wake(self) -> None:
        """Wakes callers while there is room. A woken caller may not need the room any more; then the next one is
        woken."""
        if self._waking:
            return
        self._waking = True
        try:
            while self._waiting and self._has_room(self._waiting[0][0]):
                self._waiting.popleft()[1]()
        finally:
            self._waking = False
