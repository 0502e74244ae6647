"""The frames of one connection: whatever the network does to the frames, each waiter hears exactly once."""

import asyncio
import struct

import pytest

from mirror.net.buffers import Frame, FramePool
from mirror.net.connection import Connection
from mirror.net.errors import ConnectionLost, NetworkError, RequestTimedOut
from mirror.net.stream import LOW_WATER, MAX_RESPONSE, SIZE_ONLY, WORTH_GATHERING
from tests.fakes.loop import some_turns, until
from tests.memory import Peak
from tests.net.stage.sockets import Waiter, connected, response

FOUR = [b"", b"first", b"b" * 90, b"end"]
"""Bodies: empty, small, larger than a read-ahead of 64, small."""


def expect(connection: Connection, count: int, log: list[object] | None = None) -> Waiter:
    """So many requests with one waiter; their correlation ids are 1, 2, ..."""
    waiter = Waiter(log)
    for _ in range(count):
        connection.expect(connection.next_correlation_id(), waiter)
    return waiter


def frames(bodies: list[bytes]) -> bytes:
    return b"".join(response(number, body) for number, body in enumerate(bodies, start=1))


# Receiving.


@pytest.mark.parametrize("read_ahead", [SIZE_ONLY, 16, 64, 4096])
@pytest.mark.parametrize("pooled", [False, True])
async def test_any_cut(read_ahead: int, pooled: bool) -> None:
    """Two packets, cut anywhere: the same responses; every pooled frame comes back."""
    data = frames(FOUR)
    for cut in range(1, len(data)):
        pool = FramePool(budget=1 << 20, frame_size=128)

        def allocate(size: int, pool: FramePool = pool) -> Frame:
            return pool.take(size)

        async with connected(read_ahead=read_ahead, allocate=allocate if pooled else None) as (connection, peer):
            waiter = expect(connection, len(FOUR))
            await peer.send(data[:cut])
            await until(lambda: connection.bytes_received == cut)  # noqa: B023 - awaited within the turn
            await peer.send(data[cut:])
            await until(lambda: len(waiter.log) == len(FOUR))  # noqa: B023
            assert waiter.log == FOUR
            assert connection.bytes_received == len(data)
            for frame in waiter.frames:
                frame.release()
            assert not pool.used


async def test_byte_by_byte() -> None:
    async with connected(read_ahead=16) as (connection, peer):
        waiter = expect(connection, len(FOUR))
        for at, byte in enumerate(frames(FOUR)):
            await peer.send(bytes([byte]))
            await until(lambda: connection.bytes_received > at)  # noqa: B023
        assert waiter.log == FOUR


@pytest.mark.parametrize("size", range(50, 70))
async def test_sizes_around_the_read_ahead(size: int) -> None:
    async with connected(read_ahead=64) as (connection, peer):
        waiter = expect(connection, 3)
        bodies = [b"x" * size, b"y" * size, b"z"]
        await peer.send(frames(bodies))
        await until(lambda: len(waiter.log) == 3)
        assert waiter.log == bodies


async def test_one_wake_up_for_several_responses() -> None:
    """Responses that came together are followed by one call of ``after_receive``, also in front of a long one."""
    async with connected(read_ahead=64) as (connection, peer):
        log: list[object] = []
        connection.after_receive = lambda: log.append("after")
        expect(connection, 4, log)
        await peer.send(frames([b"1", b"2", b"3" * 80])[:-1])
        await until(lambda: len(log) == 3)
        assert log == [b"1", b"2", "after"]
        await peer.send(b"3" + frames([b"", b"", b"", b"4"])[-9:])
        await until(lambda: len(log) == 7)
        assert log[3:] == [b"3" * 80, "after", b"4", "after"]


@pytest.mark.parametrize("small", [True, False])
async def test_a_small_answer_is_received_at_once(small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is read first, to find room for it; no other event is waited for before the rest is read. For a large
    one the kernel is asked to gather it."""
    wakes: list[int] = []
    wake = Connection._on_readable

    def woken(self: Connection) -> None:
        wakes.append(1)
        wake(self)

    monkeypatch.setattr(Connection, "_on_readable", woken)
    body = b"x" * (WORTH_GATHERING // 2 if small else 2 * WORTH_GATHERING)
    async with connected(read_ahead=SIZE_ONLY) as (connection, peer):
        waiter = expect(connection, 1)
        await peer.send(response(1, body))
        await until(lambda: waiter.log == [body])
    assert (len(wakes) == 1) is small


@pytest.mark.parametrize("receive_buffer", [0, 4096])
async def test_long_responses_are_received_in_place(receive_buffer: int) -> None:
    """
    1. Responses of some MiB, longer than the kernel is asked to gather at once.
    2. Each lies in the frame that was allocated for its size; short ones in between too (read-ahead of the size only).
    3. Small receive buffers only mean more wake-ups.
    """
    pool = FramePool(budget=1 << 26, frame_size=1 << 22)
    sizes: list[int] = []

    def allocate(size: int) -> Frame:
        sizes.append(size)
        return pool.take(size)

    bodies = [bytes([number]) * size for number, size in enumerate((3 * LOW_WATER + 17, 5, 40_000, 5 << 20))]
    async with connected(read_ahead=SIZE_ONLY, allocate=allocate, receive_buffer=receive_buffer) as (connection, peer):
        waiter = expect(connection, len(bodies))
        sending = asyncio.create_task(peer.send(frames(bodies)))
        await until(lambda: len(waiter.log) == len(bodies))
        await sending
        assert waiter.log == bodies
        assert sizes == [4 + len(body) for body in bodies]
        for frame in waiter.frames:
            frame.release()
    assert not pool.used


async def test_a_size_that_is_only_said_takes_no_memory() -> None:
    """A broker says that a gigabyte follows, and sends 8 bytes."""
    async with connected(read_ahead=64) as (connection, peer):
        waiter = expect(connection, 1)
        peak = Peak()
        await peer.send(struct.pack(">ii", MAX_RESPONSE, 1) + bytes(100))
        await until(lambda: connection.bytes_received >= 64)
        assert peak.grown() < 64 << 20
        assert waiter.log == []


async def test_answer_in_mid_frame_for_nobody() -> None:
    """An unknown correlation id ends the connection, and its frame goes back to the pool."""
    pool = FramePool(budget=1 << 20, frame_size=1 << 10)

    def allocate(size: int) -> Frame:
        return pool.take(size)

    async with connected(read_ahead=SIZE_ONLY, allocate=allocate) as (connection, peer):
        waiter = expect(connection, 1)
        await peer.send(response(99, b"x" * 500))
        await until(lambda: waiter.log)
        assert isinstance(waiter.log[0], ConnectionLost)
        assert "correlation id 99" in str(waiter.log[0])
        assert not pool.used


@pytest.mark.parametrize("read_ahead", [SIZE_ONLY, 64])
@pytest.mark.parametrize("size", [-1, 0, 3, -(1 << 31), MAX_RESPONSE + 1, (1 << 31) - 1])
async def test_sizes_that_cannot_be(read_ahead: int, size: int) -> None:
    """Nothing is allocated by a false size; the waiters fail with a message that has it."""

    def allocate(_: int) -> Frame:
        raise AssertionError("allocated")

    async with connected(read_ahead=read_ahead, allocate=allocate) as (connection, peer):
        waiter = expect(connection, 2)
        await peer.send(struct.pack(">i", size) + b"more bytes")
        await until(lambda: len(waiter.log) == 2)
        assert all(isinstance(error, ConnectionLost) for error in waiter.log)
        assert f"response size {size}" in str(connection.closed)


@pytest.mark.parametrize("sent", [0, 2, 4, 20, 60, 130])
@pytest.mark.parametrize("reset", [False, True])
async def test_the_broker_goes_in_mid_frame(sent: int, reset: bool) -> None:
    """However much of the answers came: those that are whole are delivered, the others fail, frames go back."""
    pool = FramePool(budget=1 << 20, frame_size=256)

    def allocate(size: int) -> Frame:
        return pool.take(size)

    async with connected(read_ahead=16, allocate=allocate) as (connection, peer):
        log: list[object] = []
        connection.on_close = lambda error: log.append(("closed", error))
        waiter = expect(connection, 3, log)
        data = frames([b"whole", b"b" * 100, b"never"])[:sent]
        await peer.send(data)
        await until(lambda: connection.bytes_received == len(data))
        if reset:
            peer.reset()
        else:
            peer.close()
        await until(lambda: connection.closed)
        whole = [body for body in log if isinstance(body, bytes)]
        assert whole == [b"whole", b"b" * 100][: (sent >= 13) + (sent >= 121)]
        failures = log[len(whole) : -1]
        assert failures == [connection.closed] * (3 - len(whole))
        assert log[-1] == ("closed", connection.closed)
        for frame in waiter.frames:
            frame.release()
        assert not pool.used


# Sending.


async def test_partial_sends() -> None:
    """
    1. The peer does not read: far more than the kernel takes, in thousands of pieces of all kinds and sizes, at once.
    2. ``write`` returns; so does a second one behind it.
    3. The peer reads: every byte, in order.
    """
    async with connected() as (connection, peer):
        pieces: list[bytes | bytearray | memoryview] = []
        for number in range(4000):
            piece = bytes([number % 251]) * (number * 7 % 5000)
            pieces.append(memoryview(piece) if number % 3 == 1 else bytearray(piece) if number % 3 == 2 else piece)
        connection.write(pieces)
        connection.write([b"tail", b"", b"end"])
        expected = b"".join(bytes(piece) for piece in pieces) + b"tailend"
        assert await peer.read(len(expected)) == expected
        connection.write([b"", b"more"])
        assert await peer.read(4) == b"more"


async def test_write_to_a_closed_peer() -> None:
    """A broken pipe while sending ends the connection; what waited fails."""
    async with connected() as (connection, peer):
        waiter = expect(connection, 1)
        peer.reset()

        def send() -> bool:
            connection.write([b"x" * 4096])
            return connection.closed is not None

        await until(send)
        assert waiter.log == [connection.closed]


async def test_close_while_sending() -> None:
    """Buffers that were not sent are let go: the pieces' owners can use them again."""
    async with connected() as (connection, peer):
        buffer = bytearray(64 << 20)
        connection.write([memoryview(buffer)])
        connection.close()
        buffer.extend(b"resizable again, so no view is left")
        assert peer


# Waiters.


async def test_close_fails_every_waiter_in_order() -> None:
    """
    1. Three wait; the connection is closed with an error: each hears it once, in order, and then ``on_close``.
    2. Closing again changes nothing. Whoever comes later hears the same error at once, and nothing is sent.
    """
    async with connected() as (connection, peer):
        log: list[object] = []
        waiters = [expect(connection, 1, log) for _ in range(3)]
        connection.on_close = lambda error: log.append("closed")
        error = ConnectionLost("the test ends it")
        connection.close(error)
        connection.close(ConnectionLost("again"))
        assert log == [error, error, error, "closed"]
        expect(connection, 1, log)
        connection.write([b"nothing"])
        assert log[-1] is error
        assert connection.in_flight == 0
        assert await peer.read(7) == b""
        assert len(waiters) == 3


async def test_a_waiter_may_close_the_connection() -> None:
    """The responses behind it in the same packet are not delivered: their waiters have failed already."""
    async with connected() as (connection, peer):
        log: list[object] = []
        first = expect(connection, 1, log)
        first.then = connection.close
        expect(connection, 2, log)
        await peer.send(frames([b"1", b"2", b"3"]))
        await until(lambda: len(log) == 3)
        await some_turns()
        assert log == [b"1", connection.closed, connection.closed]


async def test_a_failed_waiter_may_ask_again() -> None:
    """It hears the same error at once instead of waiting for ever."""
    async with connected() as (connection, _):
        waiter = expect(connection, 1)
        again = Waiter()
        waiter.then = lambda: connection.expect(2, again)
        connection.close()
        assert again.log == [connection.closed]


async def test_a_waiter_may_write() -> None:
    async with connected() as (connection, peer):
        waiter = expect(connection, 1)
        waiter.then = lambda: connection.write([b"next request"])
        await peer.send(frames([b"1"]))
        assert await peer.read(12) == b"next request"


@pytest.mark.parametrize("correlation_id", [0, 2, -1])
async def test_the_wrong_correlation_id(correlation_id: int) -> None:
    """An answer out of turn ends the connection: whose it is cannot be known."""
    async with connected() as (connection, peer):
        waiter = expect(connection, 2)
        await peer.send(response(correlation_id, b"x"))
        await until(lambda: len(waiter.log) == 2)
        assert f"correlation id {correlation_id}" in str(connection.closed)


async def test_an_answer_without_a_question() -> None:
    async with connected() as (connection, peer):
        await peer.send(response(1, b"x"))
        await until(lambda: connection.closed)


# Deadlines.


async def test_no_answer_in_time() -> None:
    """The oldest request's deadline ends the connection; all that wait hear of it."""
    async with connected(request_timeout_s=0.01) as (connection, _):
        waiter = expect(connection, 2)
        await until(lambda: len(waiter.log) == 2)
        assert all(isinstance(error, RequestTimedOut) for error in waiter.log)
        assert str(connection.closed) == (
            f"{connection.name}: no answer within 0.01 s to the oldest of 2 requests; check the broker's load, or "
            "raise request.timeout.ms"
        )
    async with connected(request_timeout_s=0.01) as (connection, _):
        expect(connection, 1)
        await until(lambda: connection.closed)
        assert " s to a request; check" in str(connection.closed)


async def test_the_deadline_moves_on_with_the_answers() -> None:
    """
    1. A request with a short deadline is answered in time; its deadline passes and nothing happens.
    2. The next one is not: only then the connection ends.
    """
    async with connected() as (connection, peer):
        waiter = Waiter()
        connection.expect(connection.next_correlation_id(), waiter, 0.05)
        connection.expect(connection.next_correlation_id(), waiter, 0.1)
        await peer.send(frames([b"in time"]))
        await until(lambda: connection.closed)
        assert waiter.log[0] == b"in time"
        assert isinstance(waiter.log[1], RequestTimedOut)


async def test_a_deadline_with_nothing_in_flight() -> None:
    """The timer of an answered request finds nothing, and the next request gets a deadline of its own."""
    async with connected(request_timeout_s=0.01) as (connection, peer):
        waiter = expect(connection, 1)
        await peer.send(frames([b"1"]))
        await until(lambda: waiter.log)
        await until(lambda: connection._timer is None)
        assert connection.closed is None
        expect(connection, 1, waiter.log)
        await until(lambda: connection.closed)


async def test_messages_name_the_broker() -> None:
    async with connected() as (connection, peer):
        peer.close()
        await until(lambda: connection.closed)
        assert isinstance(connection.closed, NetworkError)
        assert str(connection.closed) == "broker 1: the broker closed the connection"
