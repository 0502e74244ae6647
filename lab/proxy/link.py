"""One connection through the proxy: a pipe of whole frames for each direction, with its own weather.

Frames are read whole, queued with their arrival times, and delivered in order: after the delay, at the pipe's rate, and
not while the pipe is stalled. Armed faults hit frames when they are delivered, so "the next Produce" is the next one
that would reach the broker.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from lab.evidence import DELAYED, SLOWED, STALLED, Evidence, Record
from lab.proxy import answers
from lab.proxy.faults import Cut, Fault, Hold, Refuse, Spoil
from lab.proxy.frames import LARGEST, SIZE, Direction, Frame, answer_frame, request_frame

KEPT_BYTES = 32 << 20
"""Bytes that a pipe keeps while it is stalled or slow. Beyond that, the sender's writes wait, as on a real network."""
SLICES_PER_S = 50
SLOWED_S = 1.0
"""A frame counts as slowed if a rate makes it take this long, in seconds."""
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Weather:
    """How a pipe behaves.

    Attributes:
        delay_s: how much later each frame arrives.
        stalled: True while nothing is delivered.
        bytes_per_s: rate at which frames are delivered; None: no limit.
        cut_after: number of bytes until the connection breaks; None: it does not break.
    """

    delay_s: float = 0.0
    stalled: bool = False
    bytes_per_s: float | None = None
    cut_after: int | None = None

    def copy(self) -> "Weather":
        """Returns a copy, for another pipe."""
        return replace(self)


class Owner(Protocol):
    """The part of the proxy that a link needs.

    Attributes:
        record: evidence of the network's failures.
    """

    record: Record

    def strikes(self, frame: Frame) -> Fault | None:
        """Returns the fault that hits this frame, and counts it; None if there is none."""

    def saw(self, frame: Frame) -> None:
        """Counts a frame that is being delivered."""

    def broken(self, error: BaseException) -> None:
        """Notes an error of the proxy itself: bytes that are not Kafka's protocol, or a bug."""

    def gone(self, link: "Link") -> None:
        """Forgets a connection that has ended."""


class _Over(Exception):
    """The link was cut while something was being delivered."""


@dataclass(slots=True)
class _Due:
    """A request that is not answered yet.

    Attributes:
        request: the request.
        made: bytes of an answer that the proxy gives itself; None: the broker answers.
        faults: faults that have hit the request.
    """

    request: Frame
    made: bytes | None = None
    faults: list[Fault] = field(default_factory=list)


class _Pipe:
    """One direction of a link."""

    def __init__(
        self, link: "Link", direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        weather: Weather, record: Record,
    ) -> None:  # fmt: skip
        self.direction = direction
        self._record = record
        self._noted: set[Evidence] = set()
        """Evidence that was noted already for the next frame."""
        self.weather = weather
        self._link = link
        self._reader = reader
        self._writer = writer
        self._queue: deque[tuple[float, bytes]] = deque()
        self._kept = 0
        self._ended = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self.mute = False
        """True once this direction was half-closed. Bytes that come after that are dropped."""

    def poke(self) -> None:
        """Wakes the pipe after a change of the weather or of the queue."""
        self._changed.set()

    def _struck(self, what: Evidence) -> None:
        """Notes, once for each frame, that this fault keeps the next frame waiting."""
        if what not in self._noted:
            self._noted.add(what)
            self._record.note(what)

    def _keep(self, size: int) -> None:
        self._kept += size
        (self._room.set if self._kept <= KEPT_BYTES else self._room.clear)()

    async def _wait(self, timeout_s: float | None = None) -> None:
        """Waits until ``poke``, or until the time is over."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        self._changed.clear()

    async def receive(self) -> None:
        """Reads frames until the sender has ended, in whatever way. Frames that it has sent before are still
        delivered."""
        loop = asyncio.get_running_loop()
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await self._reader.readexactly(SIZE.size)
                (size,) = SIZE.unpack(head)
                if not 0 <= size <= LARGEST:
                    raise ValueError(f"a frame of {size} bytes {self.direction.value}")
                data = head + await self._reader.readexactly(size)
                await self._room.wait()
                self._queue.append((loop.time(), data))
                self._keep(len(data))
                self.poke()
        self._ended = True
        self.poke()

    async def deliver(self) -> None:
        """Delivers frames until the sender has ended and everything is delivered. Then passes its end-of-file on."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._queue:
                if self._ended:
                    break
                await self._wait()
                continue
            came_at, data = self._queue[0]
            left_s = came_at + self.weather.delay_s - loop.time()
            if self.weather.stalled:
                self._struck(STALLED)
                await self._wait()
            elif left_s > 0:
                self._struck(DELAYED)
                await self._wait(left_s)
            else:
                self._queue.popleft()
                self._keep(-len(data))
                self._noted.clear()
                await self._link.pass_on(self, data)
        await self._fair()
        self.end()

    async def _fair(self) -> None:
        while self.weather.stalled:
            await self._wait()

    async def hold(self, fault: Fault) -> None:
        """Waits until the fault releases what it holds (``Fault.release``)."""
        released = asyncio.Event()
        fault.held.append((self._link, released.set))
        fault.happened()
        await released.wait()

    async def send(self, data: bytes) -> None:
        """Writes bytes in the present weather. If the receiver is gone, they are lost."""
        at, began_at = 0, asyncio.get_running_loop().time()
        slowed = False
        while at < len(data):
            await self._fair()
            rate, cut_after = self.weather.bytes_per_s, self.weather.cut_after
            piece = data[at : at + max(1, round(rate / SLICES_PER_S))] if rate else data[at:]
            if cut_after is not None:
                piece = piece[:cut_after]
                self.weather.cut_after = cut_after - len(piece)
            at += len(piece)
            if not self.mute and not self._writer.is_closing():
                self._writer.write(piece)
                with suppress(OSError):
                    await self._writer.drain()
            if self.weather.cut_after == 0:
                self._link.cut()
                raise _Over
            if rate:
                await asyncio.sleep(len(piece) / rate)
                if not slowed and asyncio.get_running_loop().time() - began_at >= SLOWED_S:
                    slowed = True
                    self._record.note(SLOWED)

    def end(self) -> None:
        """Sends end-of-file to the receiver."""
        with suppress(OSError, RuntimeError):
            if self._writer.can_write_eof() and not self._writer.is_closing():
                self._writer.write_eof()


class Link:
    """A client's connection to the proxy, with the proxy's connection to the broker."""

    def __init__(
        self, owner: Owner, number: int, node_id: int,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        weather: dict[Direction, Weather],
    ) -> None:  # fmt: skip
        self.number = number
        self.node_id = node_id
        self._owner = owner
        self._writers = (client[1], broker[1])
        self._due: deque[_Due] = deque()
        self.requests = _Pipe(
            self, Direction.REQUESTS, client[0], broker[1], weather[Direction.REQUESTS].copy(), owner.record
        )  # fmt: skip
        self.answers = _Pipe(
            self, Direction.ANSWERS, broker[0], client[1], weather[Direction.ANSWERS].copy(), owner.record
        )  # fmt: skip
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to pass frames on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def pipes(self, directions: Iterable[Direction]) -> list[_Pipe]:
        """Returns the pipes of these directions."""
        return [self.requests if direction is Direction.REQUESTS else self.answers for direction in directions]

    async def _run(self) -> None:
        """Runs until the broker has ended and its last answer is delivered, or until the link is cut. The end of a
        client is passed on behind its requests, and the broker ends then: a dead client does not take back what it has
        sent."""
        others = [
            asyncio.ensure_future(work())
            for work in (self.requests.receive, self.requests.deliver, self.answers.receive)
        ]  # fmt: skip
        for task in others:
            task.add_done_callback(self._look)
        try:
            await self.answers.deliver()
        except (_Over, asyncio.CancelledError):
            pass
        except BaseException as error:
            self._owner.broken(error)
        finally:
            for task in others:
                task.cancel()
            self._close()

    def _look(self, task: "asyncio.Future[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, _Over):
            self._owner.broken(error)
            self.cut()

    async def pass_on(self, pipe: _Pipe, data: bytes) -> None:
        """Passes on one frame, after the faults that are armed for it."""
        if pipe.direction is Direction.REQUESTS:
            await self._pass_request(pipe, request_frame(data, link=self.number, node_id=self.node_id))
        elif not self._due:
            raise ValueError(f"an answer of broker {self.node_id} that nobody asked for")
        else:
            # It stays due until it is delivered: the proxy's own answer to a later request must not overtake it.
            due = self._due[0]
            await self._pass_answer(pipe, answer_frame(data, due.request), due)
            self._due.popleft()
            await self._pass_made()

    async def _pass_request(self, pipe: _Pipe, frame: Frame) -> None:
        fault = self._owner.strikes(frame)
        due = _Due(frame)
        if fault is not None:
            due.faults.append(fault)
            if isinstance(fault.action, Refuse):
                due.made = answers.refusal(frame, fault.action.code)
                self._due.append(due)
                fault.happened()
                if len(self._due) == 1:
                    await self._pass_made()
                return
            if isinstance(fault.action, Hold):
                await pipe.hold(fault)
        self._owner.saw(frame)
        self._due.append(due)
        await self._strike(pipe, frame.data, fault)

    async def _pass_answer(self, pipe: _Pipe, frame: Frame, due: _Due) -> None:
        for each in due.faults:
            if each.frames[0] is due.request:
                each.answered(frame)
        fault = self._owner.strikes(frame)
        data = frame.data
        if fault is not None and isinstance(fault.action, Spoil):
            data = answers.spoiled(frame, fault.action.code, fault.action.only)
            fault.happened()
            fault = None
        elif fault is not None and isinstance(fault.action, Hold):
            await pipe.hold(fault)
        self._owner.saw(frame)
        await self._strike(pipe, data, fault)

    async def _strike(self, pipe: _Pipe, data: bytes, fault: Fault | None) -> None:
        action = fault.action if fault is not None else None
        if isinstance(action, Cut):
            assert fault is not None
            await pipe.send(data if action.after_bytes is None else data[: action.after_bytes % len(data)])
            self.cut(reset=action.reset)
            fault.happened()
            raise _Over
        await pipe.send(data)
        if fault is not None and not isinstance(action, Hold):  # hold() has noted it already
            fault.happened()

    async def _pass_made(self) -> None:
        """Sends the proxy's own answers, once all answers before them are sent."""
        while self._due and (made := self._due[0].made) is not None:
            await self.answers.send(made)
            self._due.popleft()

    # -- called from outside -----------------------------------------------------------------------------------------

    def change(self, directions: Iterable[Direction], change: Callable[[Weather], None]) -> None:
        """Changes the weather of the pipes of these directions."""
        for pipe in self.pipes(directions):
            change(pipe.weather)
            pipe.poke()

    def half_close(self, direction: Direction) -> None:
        """Lets the receiver of this direction read end-of-file. The other direction goes on."""
        (pipe,) = self.pipes([direction])
        pipe.end()
        pipe.mute = True

    def cut(self, *, reset: bool = False) -> None:
        """Closes both connections at once, and drops the frames that are kept. ``reset``: True to close them by RST."""
        for writer in self._writers:
            with suppress(OSError):
                sock = writer.get_extra_info("socket")
                if reset and sock is not None:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            if reset:
                writer.transport.abort()
            else:
                writer.close()  # what was written is still sent
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def ended(self) -> None:
        """Waits until the link has ended."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _close(self) -> None:
        for writer in self._writers:
            writer.close()
        self._owner.gone(self)
