"""The proxy's record: each thing that it does to a frame or a connection is in it, and nothing that it only might have
done."""

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from kafka.protocol.producer import ProduceRequest

from chaos.waiting import until
from lab import evidence
from lab.evidence import Evidence
from lab.proxy import BOTH, Direction, Proxy, Refuse, Spoil, cut_answer, cut_request, hold_request, watch_request
from lab.proxy.answers import carries
from lab.proxy.frames import request_frame
from tests.lab.proxy.far_side import Client, FarBroker, client
from tests.lab.proxy.test_answers import TOPIC_ID, produce

KIND = "ListOffsets"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with FarBroker() as broker, Proxy() as running:
        running.attach_ports([broker.port])
        yield running


@pytest.fixture
def here(proxy: Proxy) -> Iterator[Client]:
    with client(proxy.ports[0]) as made:
        made.send(1)
        made.read()
        yield made


def seen(proxy: Proxy) -> dict[str, int]:
    """All but the first connection."""
    found = dict(proxy.record.since(0))
    found.pop(evidence.RECONNECTED.name)
    return found


ARMED: list[tuple[Callable[[Proxy], object], Evidence]] = [
    (lambda proxy: proxy.arm(KIND, cut_request(3)), evidence.FRAME_CUT),
    (lambda proxy: proxy.arm(KIND, cut_answer()), evidence.FRAME_CUT),
    (lambda proxy: proxy.arm(KIND, Refuse(code=6)), evidence.WRONG_ANSWER),
    (lambda proxy: proxy.arm(KIND, Spoil(code=6)), evidence.WRONG_ANSWER),
    (lambda proxy: proxy.arm(KIND, watch_request()), evidence.WATCHED),
    (lambda proxy: proxy.delay(0.05, [Direction.REQUESTS]), evidence.DELAYED),
    (lambda proxy: proxy.slow(30, [Direction.REQUESTS]), evidence.SLOWED),
]


@pytest.mark.parametrize(("order", "what"), ARMED)
def test_what_strikes_a_frame(proxy: Proxy, here: Client, order: Callable[[Proxy], object], what: Evidence) -> None:
    order(proxy)
    assert seen(proxy) == {}, "nothing has come yet"
    here.send(2)
    here.sock.recv(1)
    assert seen(proxy) == {what.name: 1}


def test_a_rate_that_slows_nothing(proxy: Proxy, here: Client) -> None:
    """As slow as it is, whoever sends little does not feel it."""
    proxy.slow(20_000, BOTH)
    for number in (2, 3, 4):  # what became of one is written down before the next
        here.send(number)
        assert here.read() == number
    assert seen(proxy) == {}


def test_a_fault_for_something_else(proxy: Proxy, here: Client) -> None:
    proxy.arm("Produce", cut_request(3))
    proxy.arm(KIND, cut_request(3), skip=5)
    here.send(2)
    assert here.read() == 2
    assert seen(proxy) == {}


def test_a_stall(proxy: Proxy, here: Client) -> None:
    proxy.stall([Direction.REQUESTS])
    here.send(2, 3)
    until(lambda: seen(proxy), "the frame to come")
    proxy.clear()
    assert [here.read(), here.read()] == [2, 3]
    assert seen(proxy) == {evidence.STALLED.name: 1}, "the one that was next"


def test_connections(proxy: Proxy, here: Client) -> None:
    proxy.half_close(Direction.ANSWERS)
    assert seen(proxy) == {evidence.HALF_CLOSED.name: 1}
    assert proxy.cut() == 1
    assert here.broken() == b""
    assert seen(proxy)[evidence.CONNECTIONS_CUT.name] == 1
    with Proxy() as idle:
        idle.cut()
        assert not idle.record.since(0)


def test_a_late_request_counts_when_it_is_answered(proxy: Proxy, here: Client) -> None:
    held = proxy.arm(KIND, hold_request())
    here.send(2)
    held.wait()
    assert seen(proxy) == {evidence.FRAME_HELD.name: 1}
    here.close()
    held.deliver()
    held.answer()
    assert seen(proxy) == {evidence.FRAME_HELD.name: 1, evidence.LATE.name: 1}


@pytest.mark.parametrize("version", range(3, ProduceRequest.max_version + 1))
def test_whether_a_request_is_about_a_topic(version: int) -> None:
    """By name, or by its id."""
    request = produce()
    request.API_VERSION = version
    request.with_header(correlation_id=9, client_id="test")
    frame = request_frame(bytes(request.encode(header=True, framed=True)), link=1, node_id=2)
    assert carries(frame, {"t", str(TOPIC_ID)})
    assert not carries(frame, {"other", str(UUID(int=1))})
