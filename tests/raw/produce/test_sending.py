"""Batches through connections that break: each is in the log once, or its sender is told that nobody knows."""

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lab.proxy import Direction, Proxy, Refuse, cut_answer, cut_request, hold_answer
from mirror.raw import RawProducer
from mirror.raw.errors import BufferFull, NotDelivered, NotSent, OutcomeUnknown, RefusedByBroker
from mirror.raw.produce.sending import OTHER_PRODUCER
from mirror.records.header import BatchHeader
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.audit.clusters import batches_of, create
from tests.patience import PATIENT
from tests.raw.proxied import FORGETTING, ProxiedCluster, behind_a_proxy
from tests.raw.real import PATIENCE_S
from tests.records.builders import RECORDS, Record, kafka_batch

pytestmark = pytest.mark.broker


class Site(ProxiedCluster):
    """With what is used of it."""

    def producer(self, **settings: object) -> RawProducer:
        """Through the proxy; names of settings with underscores."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        return RawProducer({"bootstrap.servers": self.proxy.bootstrap_servers, **config})

    def numbers(self, topic: str) -> list[int]:
        """Which of ``made`` are in the log, in order."""
        return [BatchHeader.read(stored).max_timestamp % 1_000 for stored in batches_of(self.cluster, topic)]


def made(number: int, *, age_ms: int = 0) -> bytes:
    """A batch of three records that can be told by its last timestamp."""
    at = (int(time.time() * 1000) - age_ms) // 1_000 * 1_000 + number
    return kafka_batch([Record(each, at, b"k", f"{number}".encode() * 50) for each in range(3)])


@pytest.fixture(scope="module")
def whole_site() -> Iterator[Site]:
    with behind_a_proxy() as (cluster, proxy):
        yield Site(cluster, proxy)


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """In good weather, at the end as well."""
    yield whole_site
    whole_site.proxy.clear()


@pytest.mark.parametrize("where", ["answer", "request"])
def test_no_duplicates_through_lost_connections(site: Site, topic_name: str, where: str) -> None:
    """
    1. Of ten batches, every other one loses its connection: before the broker has it all, or before its answer comes.
    2. All of them are in the log, once and in order; each future has the offset.
    """
    create(site.cluster, topic_name)
    fault = cut_answer() if where == "answer" else cut_request(after_bytes=100)
    with site.producer() as producer:
        for number in range(10):
            armed = site.proxy.arm("Produce", fault) if number % 2 else None
            landed = producer.send(topic_name, made(number), partition=0).result(PATIENCE_S)
            assert (landed.base_offset, landed.offset) == (3 * number, 3 * number + 2)
            if armed is not None:
                armed.wait()
    assert site.numbers(topic_name) == list(range(10))


def test_a_stream_through_a_network_that_keeps_breaking(site: Site, topic_name: str) -> None:
    """300 batches for three partitions, while all connections are broken again and again."""
    create(site.cluster, topic_name, 3)
    with site.producer() as producer:
        futures = []
        for number in range(300):
            futures.append(producer.send(topic_name, made(number), partition=number % 3))
            if number % 20 == 10:
                futures[-5].result(PATIENCE_S)
                site.proxy.cut(reset=bool(number % 40 == 10))
        producer.flush()
    for index in range(3):
        stored = [BatchHeader.read(each) for each in batches_of(site.cluster, topic_name, index)]
        assert [header.max_timestamp % 1_000 for header in stored] == list(range(index, 300, 3))
        assert [each.result(0).base_offset for each in futures[index::3]] == [header.base_offset for header in stored]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        4_711,
    ],
)
def test_an_error_that_passes(site: Site, topic_name: str, code: int) -> None:
    """Nothing was appended: the same batch is sent again, under another producer id if the leader has lost ours."""
    create(site.cluster, topic_name)
    with site.producer() as producer:
        producer.send(topic_name, made(0), partition=0).result(PATIENCE_S)
        site.proxy.arm("Produce", Refuse(code=code))
        assert producer.send(topic_name, made(1), partition=0).result(PATIENCE_S).base_offset == 3
        assert producer.send(topic_name, made(2), partition=0).result(PATIENCE_S).base_offset == 6
    assert site.numbers(topic_name) == [0, 1, 2]
    first, second, third = (BatchHeader.read(stored).producer_id for stored in batches_of(site.cluster, topic_name))
    assert (first == second) is (code not in OTHER_PRODUCER)
    assert second == third


def test_what_is_refused_for_good(site: Site, topic_name: str) -> None:
    """Those behind it are not sent; the next one has the sequence that was not used."""
    create(site.cluster, topic_name)
    with site.producer() as producer:
        producer.send(topic_name, made(0), partition=0).result(PATIENCE_S)
        busy = site.proxy.arm("Produce", Refuse(code=ErrorCode.NOT_ENOUGH_REPLICAS), times=None)
        first, second = (producer.send(topic_name, made(number), partition=0) for number in (1, 2))
        armed = site.proxy.arm("Produce", Refuse(code=ErrorCode.POLICY_VIOLATION))
        busy.disarm()  # not before the second waits behind the first
        with pytest.raises(RefusedByBroker, match=r"POLICY_VIOLATION \(44\); the cluster's policy does not allow it"):
            producer.flush()
        armed.wait()
        told = f"{topic_name}-0: not sent, since a batch before it failed .*; send.* again"
        assert isinstance(first.exception(), RefusedByBroker)
        with pytest.raises(NotSent, match=told):
            second.result(0)
        producer.flush()  # said once
        assert producer.send(topic_name, made(3), partition=0).result(PATIENCE_S).base_offset == 3
    assert site.numbers(topic_name) == [0, 3]


def test_nobody_knows(site: Site, topic_name: str) -> None:
    """
    1. A batch is appended, and no answer comes until delivery.timeout.ms is over: its sender is told so.
    2. The next batch goes on, under a producer id of its own.
    """
    create(site.cluster, topic_name)
    with site.producer(request_timeout_ms=2_000, delivery_timeout_ms=6_000) as producer:
        producer.send(topic_name, made(0), partition=0).result(PATIENCE_S)
        held = site.proxy.arm("Produce", hold_answer(), times=None)
        sent, behind = (producer.send(topic_name, made(number), partition=0) for number in (1, 2))
        with pytest.raises(
            OutcomeUnknown, match=r"-0: it was sent, and may be in the log: delivery.timeout.ms is over[;,]"
        ):
            sent.result(PATIENCE_S)
        with pytest.raises(NotSent):
            behind.result(PATIENCE_S)
        held.drop()
        site.proxy.clear()
        assert producer.send(topic_name, made(3), partition=0).result(PATIENCE_S).base_offset == 6
        with pytest.raises(OutcomeUnknown):
            producer.flush()
    assert site.numbers(topic_name) == [0, 1, 3]
    ids = [BatchHeader.read(stored).producer_id for stored in batches_of(site.cluster, topic_name)]
    assert ids[0] == ids[1] != ids[2]


def test_nothing_was_sent(site: Site, topic_name: str) -> None:
    """No connection until delivery.timeout.ms is over: the batch is not in the log, for sure."""
    create(site.cluster, topic_name)
    with site.producer(request_timeout_ms=2_000, delivery_timeout_ms=6_000) as producer:
        producer.send(topic_name, made(0), partition=0).result(PATIENCE_S)
        site.proxy.refuse()
        site.proxy.cut()
        while site.proxy.links:
            time.sleep(0.01)
        with pytest.raises(NotDelivered, match=r"-0: not sent: .*again") as caught:
            producer.send(topic_name, made(1), partition=0).result(PATIENCE_S)
        assert not isinstance(caught.value, OutcomeUnknown)
        site.proxy.accept()
        with pytest.raises(NotDelivered):
            producer.flush()
        assert producer.send(topic_name, made(2), partition=0).result(PATIENCE_S).base_offset == 3
    assert site.numbers(topic_name) == [0, 2]


def test_room_is_bounded(site: Site, topic_name: str) -> None:
    """send() waits for room, and says so in the end; with answers, there is room again. One larger batch goes alone."""
    create(site.cluster, topic_name)
    size = len(made(0))
    with site.producer(buffer_memory=2 * 1_024, max_block_ms=300) as producer:
        producer.send(topic_name, made(0), partition=0).result(PATIENCE_S)
        site.proxy.stall([Direction.ANSWERS])
        most = 2 * 1_024 // size
        for number in range(1, most + 1):
            producer.send(topic_name, made(number), partition=0)
        told = f"{most * size} bytes wait for acknowledgements, and buffer.memory has no room for {size} more"
        with pytest.raises(BufferFull, match=told):
            producer.send(topic_name, made(9), partition=0)
        with pytest.raises(NotDelivered, match=f"{most} batches have no answer after 50 ms"):
            producer.flush(50)
        site.proxy.clear()
        producer.flush()
        large = kafka_batch([RECORDS[0]._replace(value=b"x" * 10_000, timestamp=int(time.time() * 1000))])
        assert producer.send(topic_name, large, partition=0).result(PATIENCE_S).offset == 3 * (most + 1)
    assert site.numbers(topic_name)[:-1] == list(range(most + 1))


def test_closed_too_early(site: Site, topic_name: str) -> None:
    """What has no answer when an exception leaves the block has failed: nobody knows, or it was not sent."""
    create(site.cluster, topic_name)
    producer = site.producer()
    with suppress(ZeroDivisionError), producer:
        producer.send(topic_name, made(0), partition=0).result(PATIENCE_S)
        held = site.proxy.arm("Produce", hold_answer())
        sent, behind = (producer.send(topic_name, made(number), partition=0) for number in (1, 2))
        held.wait()
        raise ZeroDivisionError
    assert isinstance(behind.exception(0), NotSent)
    assert isinstance(sent.exception(0), OutcomeUnknown)
    held.drop()
    assert site.numbers(topic_name) == [0, 1]


def test_old_records_are_not_sent_twice(topic_name: str) -> None:
    """
    1. Records of two days ago: their leader forgets their producer at its next sweep.
    2. An answer is lost while the leader still knows it: the batch is sent again, and recognised.
    3. An answer is lost, and the producer forgotten: the batch is not sent again, and its sender is told.
    """
    age_ms = 2 * 24 * 3_600_000
    with (
        Proxy() as proxy,
        SandboxCluster(name="forgetful", properties=PATIENT, quick=True, proxied=proxy.ports) as cluster,
    ):
        proxy.attach(cluster)
        create(cluster, topic_name)
        with Site(cluster, proxy).producer() as producer:
            proxy.arm("Produce", cut_answer(), skip=1)
            for number in range(3):
                producer.send(topic_name, made(number, age_ms=age_ms), partition=0).result(PATIENCE_S)
        assert Site(cluster, proxy).numbers(topic_name) == [0, 1, 2]
    with Proxy() as proxy, SandboxCluster(
        name="forgetful", properties={**PATIENT, **FORGETTING}, quick=True, proxied=proxy.ports
    ) as cluster:  # fmt: skip
        proxy.attach(cluster)
        create(cluster, topic_name)
        with Site(cluster, proxy).producer() as producer:
            held = proxy.arm("Produce", hold_answer())
            sent = producer.send(topic_name, made(0, age_ms=age_ms), partition=0)
            held.wait()
            time.sleep(2.0)  # several sweeps
            held.drop()
            with pytest.raises(OutcomeUnknown, match="its leader has forgotten this producer, as its records are old"):
                sent.result(PATIENCE_S)
            with pytest.raises(OutcomeUnknown):
                producer.flush()
        assert Site(cluster, proxy).numbers(topic_name) == [0]
