"""The fault proxy: what passes unharmed, and each thing that it does on order."""

import threading
import time
from collections.abc import Iterator

import pytest

from lab.proxy import (
    BOTH,
    Direction,
    Proxy,
    Refuse,
    Spoil,
    cut_answer,
    cut_request,
    hold_answer,
    hold_request,
    watch_request,
)
from lab.proxy.answers import entries
from lab.proxy.frames import answer_frame, request_frame
from tests.lab.proxy.far_side import Client, FarBroker, client, list_nothing, list_offsets, number_of, read_frame

KIND = "ListOffsets"


@pytest.fixture
def broker() -> Iterator[FarBroker]:
    with FarBroker() as running:
        yield running


@pytest.fixture
def proxy(broker: FarBroker) -> Iterator[Proxy]:
    with Proxy() as running:
        running.attach_ports([broker.port])
        yield running


@pytest.fixture
def here(proxy: Proxy) -> Iterator[Client]:
    with client(proxy.ports[0]) as made:
        yield made


def codes(frame: bytes, *partitions: int) -> list[int]:
    """The error codes of an answer."""
    asked = request_frame(list_offsets(number_of(frame), *partitions), link=0, node_id=0)
    return list(entries(answer_frame(frame, asked).decode()).values())


def test_bytes_pass_as_they_are(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    here.send(1, 2, 3)
    assert [here.read() for _ in range(3)] == [1, 2, 3]
    assert broker.got == [list_offsets(number) for number in (1, 2, 3)]
    assert proxy.seen[Direction.REQUESTS, KIND] == proxy.seen[Direction.ANSWERS, KIND] == 3
    here.close()
    assert broker.ended.acquire(timeout=10)


def test_the_end_of_the_broker_is_passed_on(broker: FarBroker, proxy: Proxy, here: Client) -> None:
    """An end of the broker's side (here: it does not understand) ends the client's."""
    here.send(1)
    here.read()
    proxy.half_close(Direction.REQUESTS)
    assert here.broken() == b""


def test_a_broker_that_is_down_looks_like_it(broker: FarBroker) -> None:
    with Proxy() as proxy:
        proxy.attach_ports([proxy.ports[0] and _free_port()])
        with client(proxy.ports[0]) as here:
            assert here.broken() == b""


def _free_port() -> int:
    with FarBroker() as gone:
        return gone.port


def test_cut_at_once(proxy: Proxy, here: Client) -> None:
    here.send(1)
    here.read()
    assert proxy.cut(node_id=2) == 0
    assert proxy.cut() == 1
    assert here.broken() == b""
    with client(proxy.ports[0]) as again:
        again.send(5)
        assert again.read() == 5


@pytest.mark.parametrize("reset", [False, True])
def test_a_request_that_breaks_off(proxy: Proxy, broker: FarBroker, here: Client, reset: bool) -> None:
    fault = proxy.arm(KIND, cut_request(7, reset=reset), skip=1)
    here.send(1)
    assert here.read() == 1
    here.send(2)
    assert here.broken() == b""
    assert fault.wait().correlation_id == 2
    assert broker.ended.acquire(timeout=10)
    assert broker.got == [list_offsets(1)]


def test_a_request_that_arrives_and_is_never_answered(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    """The connection breaks behind the request: the broker has it."""
    proxy.arm(KIND, cut_request(None))
    here.send(1)
    assert here.broken() == b""
    broker.await_got(1)


@pytest.mark.parametrize("size", [0, 6])
def test_an_answer_that_breaks_off(proxy: Proxy, broker: FarBroker, here: Client, size: int) -> None:
    proxy.arm(KIND, cut_answer(size))
    here.send(1)
    assert len(here.broken()) == size
    broker.await_got(1)


def test_a_frame_with_fewer_bytes_breaks_off_too(proxy: Proxy, here: Client) -> None:
    """Otherwise it would come whole, and the proxy would tell that it was cut."""
    here.send(1)
    whole = len(read_frame(here.sock))
    proxy.arm(KIND, cut_answer(3 * whole + 5))
    here.send(2)
    assert len(here.broken()) == 5


def test_cut_after_so_many_bytes(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    """Counted over frames, for each connection; new ones as well."""
    size = len(list_offsets(1))
    proxy.cut_after(size + 10, [Direction.REQUESTS])
    with client(proxy.ports[0]) as again:
        for each in (here, again):
            each.send(1)
            assert each.read() == 1
            each.send(2)
            assert each.broken() == b""
    assert broker.got == [list_offsets(1)] * 2


def test_a_stall_keeps_bytes(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    """What is sent meanwhile arrives afterwards, in order; the other direction goes on."""
    here.send(1)
    here.read()
    proxy.stall([Direction.REQUESTS])
    here.send(2, 3)
    here.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        here.read()
    assert len(broker.got) == 1
    here.sock.settimeout(60)
    proxy.clear()
    assert [here.read(), here.read()] == [2, 3]


def test_delay_is_latency(proxy: Proxy, here: Client) -> None:
    """A hundred requests at once take one round trip, not a hundred."""
    here.send(1)
    here.read()
    proxy.delay(0.15)
    began = time.monotonic()
    here.send(*range(2, 102))
    assert [here.read() for _ in range(100)] == list(range(2, 102))
    took = time.monotonic() - began
    assert took >= 0.3
    assert took < 15  # not a hundred times as long, on any machine


def test_slow(proxy: Proxy, here: Client) -> None:
    size = len(list_offsets(1))
    proxy.slow(size * 5, [Direction.REQUESTS])
    began = time.monotonic()
    here.send(1, 2)
    assert [here.read(), here.read()] == [1, 2]
    assert time.monotonic() - began >= 0.35


def test_half_close_towards_the_client(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    """The client reads the end, and what it sends all the same arrives."""
    here.send(1)
    here.read()
    proxy.half_close(Direction.ANSWERS)
    assert here.sock.recv(1) == b""
    here.send(2)
    broker.await_got(2)


def test_refuse_new_connections(proxy: Proxy, here: Client) -> None:
    here.send(1)
    here.read()
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        Client(proxy.ports[0])
    here.send(2)
    assert here.read() == 2
    proxy.accept()
    with client(proxy.ports[0]) as again:
        again.send(3)
        assert again.read() == 3


def test_a_request_is_held_beyond_the_death_of_its_sender(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    """
    1. A request is held; the one before has arrived. Its sender dies.
    2. Another client does its work.
    3. The request is delivered, and the broker's answer is known though nobody waits for it.
    """
    held = proxy.arm(KIND, hold_request(), where=lambda frame: frame.correlation_id == 2)
    here.send(1, 2, 3)
    assert held.wait().correlation_id == 2
    assert here.read() == 1
    here.close()
    with client(proxy.ports[0]) as other:
        other.send(9)
        assert other.read() == 9
    assert broker.got == [list_offsets(1), list_offsets(9)]
    held.deliver()
    assert held.answer().topics[0].partitions[0].error_code == 0
    broker.await_got(4)
    assert broker.got[2:] == [list_offsets(2), list_offsets(3)]


def test_what_is_held_can_be_dropped(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    held = proxy.arm(KIND, hold_request())
    here.send(1)
    held.wait()
    held.drop()
    assert here.broken() == b""
    assert broker.got == []


def test_an_answer_is_held(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    held = proxy.arm(KIND, hold_answer())
    here.send(1, 2)
    held.wait()
    broker.await_got(2)
    held.deliver()
    assert [here.read(), here.read()] == [1, 2]


def test_a_replay(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    """A request that passed is sent once more, on a connection of its own."""
    seen = proxy.arm(KIND, watch_request())
    here.send(7)
    assert here.read() == 7
    answer = proxy.replay(seen.wait())
    assert answer.topics[0].partitions[0].partition_index == 0
    assert broker.got == [list_offsets(7)] * 2
    assert seen.answer().topics[0].name == "t"


def test_an_answer_of_our_own_keeps_the_order(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    """The request does not come to the broker, and its answer comes after those to the requests before it."""
    held = proxy.arm(KIND, hold_answer())
    proxy.arm(KIND, Refuse(code=6), where=lambda frame: frame.correlation_id in (2, 3), times=2)
    here.send(1, 2, 3, 4)
    held.wait()
    held.deliver()
    frames = [read_frame(here.sock) for _ in range(4)]
    assert [number_of(frame) for frame in frames] == [1, 2, 3, 4]
    assert [codes(frame) for frame in frames] == [[0], [6], [6], [0]]
    assert broker.got == [list_offsets(1), list_offsets(4)]


def test_a_spoiled_answer(proxy: Proxy, broker: FarBroker, here: Client) -> None:
    """The broker did its work; one partition's answer says otherwise."""
    proxy.arm(KIND, Spoil(code=19, only=lambda path: path == ("t", 1)))
    here.sock.sendall(list_offsets(1, 0, 1, 2))
    assert codes(read_frame(here.sock), 0, 1, 2) == [0, 19, 0]
    here.sock.sendall(list_offsets(2, 0, 1, 2))
    assert codes(read_frame(here.sock), 0, 1, 2) == [0, 0, 0]
    assert len(broker.got) == 2


def test_an_answer_without_entries_is_not_spoiled(proxy: Proxy, here: Client) -> None:
    """Nothing would be wrong with it: the fault is for the next one."""
    fault = proxy.arm(KIND, Spoil(code=19))
    here.sock.sendall(list_nothing(1))
    assert codes(read_frame(here.sock)) == []
    assert not fault.came
    here.sock.sendall(list_offsets(2, 0))
    assert codes(read_frame(here.sock), 0) == [19]
    assert fault.came


def test_a_fault_is_for_its_kind_and_broker(proxy: Proxy, here: Client) -> None:
    other = proxy.arm("Produce", cut_request())
    elsewhere = proxy.arm(KIND, cut_request(), node_id=2)
    gone = proxy.arm(KIND, cut_request())
    gone.disarm()
    here.send(1)
    assert here.read() == 1
    assert [each.came for each in (other, elsewhere, gone)] == [False] * 3
    with pytest.raises(TimeoutError, match="no Produce came"):
        other.wait(0.01)


def test_one_broker_of_several() -> None:
    """Weather and refusal for one of them; the other is as it was."""
    with FarBroker() as first, FarBroker() as second, Proxy(2) as proxy:
        proxy.attach_ports([first.port, second.port])
        proxy.stall(BOTH, node_id=1)
        proxy.refuse(node_id=1)
        with client(proxy.ports[1]) as here:
            here.send(1)
            assert here.read() == 1
        with pytest.raises(ConnectionRefusedError):
            Client(proxy.ports[0])


def test_what_is_no_kafka_is_told(broker: FarBroker) -> None:
    def talk() -> None:
        with Proxy() as proxy:
            proxy.attach_ports([broker.port])
            with client(proxy.ports[0]) as here:
                here.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert here.broken() == b""

    with pytest.raises(ValueError, match="a frame of 1195725856 bytes"):
        talk()


def test_nothing_is_left(broker: FarBroker) -> None:
    """Leaving ends connections, thread and ports, whatever was held or stalled."""
    with Proxy() as proxy:
        proxy.attach_ports([broker.port])
        held = proxy.arm(KIND, hold_request())
        with client(proxy.ports[0]) as here, client(proxy.ports[0]) as other:
            here.send(1)
            held.wait()
            proxy.stall()
            other.send(2)
            proxy.close()
            assert here.broken() == other.broken() == b""
    proxy.close()
    assert broker.ended.acquire(timeout=10)
    assert "fault proxy" not in [thread.name for thread in threading.enumerate()]
