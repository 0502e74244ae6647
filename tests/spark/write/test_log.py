"""What stands in a log already, and what becomes of it, through connections that break and brokers that forget."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lab.proxy import Proxy, Refuse, cut_answer, cut_request, hold_request
from lab.proxy.frames import Frame
from mirror.net.logs.log import PartitionLog
from mirror.records.header import BatchHeader
from mirror.sandbox import SandboxCluster
from mirror.spark.write.errors import SinkError
from mirror.spark.write.mapped import MappedAppender
from mirror.spark.write.options import SinkOptions
from mirror.spark.write.rows import Row
from mirror.spark.write.task import write_rows
from mirror.wire.errors import ErrorCode
from tests.audit.clusters import batches_of, create, delete_before
from tests.fakes.broker import FakeCluster
from tests.patience import PATIENT
from tests.raw.proxied import FORGETTING, ProxiedCluster, behind_a_proxy
from tests.raw.real import PATIENCE_S
from tests.records.builders import Record, kafka_batch
from tests.spark.rows import arrow, committed, contents, one_by_one, row

pytestmark = pytest.mark.broker
OFFSETS = ["mapped", "exact"]


class Site(ProxiedCluster):
    """With what is used of it."""

    def options(self, **named: str) -> SinkOptions:
        """The sink's, through the proxy; names with underscores."""
        given = {name.replace("_", "."): value for name, value in named.items()}
        return SinkOptions.read({"kafka.bootstrap.servers": self.proxy.bootstrap_servers, "flow": "copy", **given})


@pytest.fixture(scope="module")
def whole_site() -> Iterator[Site]:
    with behind_a_proxy() as (cluster, proxy):
        yield Site(cluster, proxy)


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """In good weather, at the end as well."""
    yield whole_site
    whole_site.proxy.clear()


def made(topic: str, count: int, *, age_ms: int = 0, every: int = 3) -> list[Row]:
    """Batches of three records; ``every`` above 3 leaves gaps between them."""
    at = int(time.time() * 1000) - age_ms
    return [
        row(
            topic,
            0,
            kafka_batch(
                [Record(each, at + number, b"k", f"{number}".encode() * 50) for each in range(3)],
                base_offset=every * number,
            ),
        )
        for number in range(count)
    ]


def is_there_once(cluster: SandboxCluster, topic: str, rows: list[Row]) -> bool:
    """Whether the log has the rows, in order, and nothing else."""
    return contents(batches_of(cluster, topic)) == contents(bytes(each.batch) for each in rows)


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("where", ["answer", "request"])
@pytest.mark.parametrize("age_ms", [0, 10 * 86_400_000])
def test_connections_are_lost(site: Site, topic_name: str, offsets: str, where: str, age_ms: int) -> None:
    """Of thirty batches, every third one loses its connection: before the broker has it, or before its answer comes."""
    create(site.cluster, topic_name, retention_ms="-1")
    rows = made(topic_name, 30, age_ms=age_ms)
    fault = cut_answer() if where == "answer" else cut_request(after_bytes=100)

    def breaking() -> Iterator[Any]:
        for number, each in enumerate(one_by_one(rows)):
            armed = site.proxy.arm("Produce", fault) if number % 3 == 0 else None
            yield each
            if armed is not None:
                armed.wait()

    done = write_rows(site.options(offsets=offsets), breaking())
    assert done.appended + done.there == 30
    assert done.there == (10 if where == "answer" else 0)
    assert is_there_once(site.cluster, topic_name, rows)


@pytest.mark.parametrize("offsets", OFFSETS)
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
def test_an_error_that_passes(site: Site, topic_name: str, offsets: str, code: int) -> None:
    create(site.cluster, topic_name)
    rows = made(topic_name, 6)

    def refused() -> Iterator[Any]:
        for number, each in enumerate(one_by_one(rows)):
            if number in (0, 3):
                site.proxy.arm("Produce", Refuse(code=code))
            yield each

    assert write_rows(site.options(offsets=offsets), refused()).appended == 6
    assert is_there_once(site.cluster, topic_name, rows)
    assert write_rows(site.options(offsets=offsets), [arrow(rows)]).there == 6


@pytest.mark.parametrize("offsets", OFFSETS)
def test_what_is_refused_for_good(site: Site, topic_name: str, offsets: str) -> None:
    create(site.cluster, topic_name)
    rows = made(topic_name, 3)
    site.proxy.arm("Produce", Refuse(code=ErrorCode.POLICY_VIOLATION))
    with pytest.raises(SinkError, match=r"^refused: .*POLICY_VIOLATION \(44\); the cluster's policy does not allow it"):
        write_rows(site.options(offsets=offsets), [arrow(rows)])
    site.proxy.arm("Produce", Refuse(code=ErrorCode.INVALID_PRODUCER_EPOCH), times=None)
    with pytest.raises(SinkError, match=r"^fenced: .*INVALID_PRODUCER_EPOCH \(47\); another attempt"):
        write_rows(site.options(offsets=offsets), [arrow(rows)])
    assert batches_of(site.cluster, topic_name) == []
    site.proxy.clear()
    impatient = site.options(offsets=offsets, kafka_delivery_timeout_ms="2000", kafka_request_timeout_ms="2000")
    site.proxy.arm("Produce", Refuse(code=ErrorCode.NOT_ENOUGH_REPLICAS), times=None)
    with pytest.raises(SinkError, match=r"^unreachable: .* delivery.timeout.ms is over; .*NOT_ENOUGH_REPLICAS"):
        write_rows(impatient, [arrow(rows)])


@pytest.fixture(scope="module", params=["4.3.0", "2.0.1", "0.11.0.3"])
def forgetting(request: pytest.FixtureRequest) -> Iterator[SandboxCluster]:
    """Brokers that forget producers of old records at once, if they are told (since 3.5)."""
    properties = {**PATIENT, **(FORGETTING if request.param == "4.3.0" else {})}
    with SandboxCluster(name=f"k-{request.param}", version=request.param, properties=properties, quick=True) as cluster:
        yield cluster


@pytest.mark.parametrize(("offsets", "every"), [("mapped", 3), ("mapped", 5), ("exact", 3)])
def test_brokers_that_have_forgotten_the_producer(
    forgetting: SandboxCluster, topic_name: str, offsets: str, every: int
) -> None:
    """Attempts at old records, one after the other, with time in between for the broker to forget. Rows have gaps
    between them where that is allowed."""
    create(forgetting, topic_name, retention_ms="-1")
    rows = made(topic_name, 20, age_ms=10 * 86_400_000, every=every)
    sink = SinkOptions.read(
        {"kafka.bootstrap.servers": forgetting.bootstrap_servers, "flow": "copy", "offsets": offsets}
    )
    for upto in (4, 9, 20):
        with pytest.raises(ConnectionError):
            write_rows(sink, one_by_one(rows, fails_before=upto - 1))
        time.sleep(0.5)
        write_rows(sink, one_by_one(rows[:upto]))
        time.sleep(0.5)
    assert write_rows(sink, one_by_one(rows)).there == 20
    assert is_there_once(forgetting, topic_name, rows)


def test_records_that_retention_has_taken(site: Site, topic_name: str) -> None:
    """A batch of a run that is there shows that those before it were written, too."""
    create(site.cluster, topic_name)
    rows = made(topic_name, 10)
    for offsets in OFFSETS:
        topic = f"{topic_name}-{offsets}"
        create(site.cluster, topic)
        sink = site.options(offsets=offsets, topic=topic)
        write_rows(sink, [arrow(rows)])
        delete_before(site.cluster, topic, 12)
        assert write_rows(sink, [arrow(rows)]).there == 10
        there = contents(bytes(each.batch) for each in committed(site.cluster, topic))
        assert there == contents(bytes(each.batch) for each in rows[4:])


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("ahead", [1, 5, 12])
@pytest.mark.parametrize("age_ms", [0, 10 * 86_400_000])
def test_a_request_that_comes_late(site: Site, topic_name: str, offsets: str, ahead: int, age_ms: int) -> None:
    """The third batch of an attempt is on its way while another attempt writes this one and more. The broker knows the
    last five; what is older is refused, and found."""
    create(site.cluster, topic_name, retention_ms="-1")
    rows = made(topic_name, 20, age_ms=age_ms)
    sink = site.options(offsets=offsets)
    held = site.proxy.arm("Produce", hold_request(), times=1)
    held.skip = 2
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(write_rows, sink, one_by_one(rows))
        held.wait()
        other = write_rows(sink, [arrow(rows[: 2 + ahead])])
        assert (other.appended, other.there) == (ahead, 2)
        held.deliver()
        done = slow.result(PATIENCE_S)
    assert done.appended + done.there == 20
    assert is_there_once(site.cluster, topic_name, rows)


@pytest.mark.parametrize("offsets", OFFSETS)
def test_a_late_request_to_a_broker_that_has_forgotten(topic_name: str, offsets: str) -> None:
    """The limit: of two attempts at old records, one's request comes when the broker has forgotten that the other's
    was there. It is appended twice, and that does not go unseen."""
    with (
        Proxy() as proxy,
        SandboxCluster(
            name="forgets", properties={**PATIENT, **FORGETTING}, quick=True, proxied=proxy.ports
        ) as cluster,
    ):
        proxy.attach(cluster)
        create(cluster, topic_name, retention_ms="-1")
        rows = made(topic_name, 6, age_ms=10 * 86_400_000)
        sink = Site(cluster, proxy).options(offsets=offsets)
        held = proxy.arm("Produce", hold_request(), times=1)
        held.skip = 2
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(write_rows, sink, one_by_one(rows))
            held.wait()
            assert write_rows(sink, [arrow(rows[:4])]).appended == 2
            time.sleep(1)
            held.deliver()
            with pytest.raises(SinkError, match=r"^misplaced: .*-0.* source offset 6 .* 12, "):
                slow.result(PATIENCE_S)
        assert len(batches_of(cluster, topic_name)) == 5
        seen = "misplaced: .* source offset 6 at 12, behind" if offsets == "mapped" else "not_a_copy: .* at offset 12"
        with pytest.raises(SinkError, match=rf"^{seen}"):
            write_rows(sink, [arrow(rows)])


@pytest.mark.parametrize("offsets", OFFSETS)
def test_a_producer_has_to_begin_anew(site: Site, topic_name: str, offsets: str) -> None:
    """As before Kafka 2.5: a leader that has forgotten the producer takes it at sequence 0 only."""
    create(site.cluster, topic_name)
    rows = made(topic_name, 6)
    sink = site.options(offsets=offsets)

    def goes_on(frame: Frame) -> bool:
        (topic,) = frame.decode().topic_data
        return BatchHeader.read(topic.partition_data[0].records).base_sequence > 0

    def forgotten() -> Iterator[Any]:
        yield arrow(rows[:3])
        site.proxy.arm("Produce", Refuse(code=ErrorCode.UNKNOWN_PRODUCER_ID), times=None, where=goes_on)
        yield arrow(rows[3:4])
        site.proxy.clear()
        yield arrow(rows[4:])

    assert write_rows(sink, forgotten()).appended == 6
    headers = [BatchHeader.read(each) for each in batches_of(site.cluster, topic_name)]
    assert [each.base_sequence for each in headers] == [0, 3, 6, 0, 3, 6]
    assert write_rows(sink, [arrow(rows)]).there == 6


async def test_records_are_deleted_while_they_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def begin(*_: object) -> int:
        return 0

    async with FakeCluster("destination") as destination:
        destination.add_topic("t")
        host, port = destination.options().bootstrap[0]
        sink = SinkOptions.read({"kafka.bootstrap.servers": f"{host}:{port}", "flow": "copy"})
        rows = made("t", 9)
        await asyncio.to_thread(write_rows, sink, [arrow(rows[:5])])
        destination.log("t").delete_before(6)
        monkeypatch.setattr(MappedAppender, "_begin", begin)
        done = await asyncio.to_thread(write_rows, sink, [arrow(rows)])
        assert (done.appended, done.there) == (4, 5)


async def test_repeats_that_were_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker says where they are, and there they are: or another batch, or nothing any more."""

    async def begin(_: object, log: PartitionLog, __: object) -> int:
        return await log.true_end()

    async with FakeCluster("destination") as destination:
        destination.add_topic("t")
        host, port = destination.options().bootstrap[0]
        sink = SinkOptions.read({"kafka.bootstrap.servers": f"{host}:{port}", "flow": "copy"})
        rows = made("t", 9)
        await asyncio.to_thread(write_rows, sink, [arrow(rows[:5])])
        monkeypatch.setattr(MappedAppender, "_begin", begin)
        done = await asyncio.to_thread(write_rows, sink, [arrow(rows[:5])])
        assert (done.appended, done.there) == (0, 5)
        log = destination.log("t")
        right, log.batches[0] = log.batches[0], kafka_batch()
        with pytest.raises(SinkError, match=r"^not_a_copy: t-0: the row at 0 was acknowledged at 0, and is not"):
            await asyncio.to_thread(write_rows, sink, [arrow(rows)])
        log.batches[0] = right
        log.delete_before(6)
        done = await asyncio.to_thread(write_rows, sink, [arrow(rows)])
        assert (done.appended, done.there) == (4, 5)
