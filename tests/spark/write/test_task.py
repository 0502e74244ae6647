"""Tasks at real brokers: each batch is in the log once, whatever happens to the attempts."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from mirror.records.header import BatchHeader
from mirror.sandbox import SandboxCluster
from mirror.spark.write.errors import SinkError
from mirror.spark.write.log import LOOK_FOR_S
from mirror.spark.write.options import SinkOptions
from mirror.spark.write.task import write_rows
from tests import secured
from tests.audit.clusters import batches_of, create, fill
from tests.raw.real import PATIENCE_S, batch, consumed
from tests.raw.test_producer import writes
from tests.records.builders import Record, kafka_batch
from tests.spark.rows import arrow, committed, contents, one_by_one, options, row, stored

pytestmark = pytest.mark.broker
OFFSETS = ["mapped", "exact"]


@pytest.fixture
def source_topic(source_cluster: SandboxCluster, topic_name: str) -> str:
    """Forty batches of five codecs."""
    create(source_cluster, topic_name)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        fill(source_cluster, topic_name, codec=codec)
    return topic_name


@pytest.mark.parametrize("offsets", OFFSETS)
def test_a_topic_is_written_once(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, source_topic: str, offsets: str
) -> None:
    """Written, and written again by a task that has all of the rows, and one that has some."""
    create(destination_cluster, source_topic)
    rows = stored(source_cluster, source_topic)
    sink = options(destination_cluster, offsets=offsets)
    done = write_rows(sink, [arrow(rows[:7]), arrow([]), arrow(rows[7:])])
    assert (done.appended, done.there) == (40, 0)
    (counts,) = done.partitions.values()
    assert (counts.first, counts.end, counts.left_out) == (0, 155, 0)
    for part in (rows, rows[3:], rows[:9], rows[10:20]):
        again = write_rows(sink, [arrow(part)])
        assert (again.appended, again.there) == (0, len(part))
    assert contents(batches_of(destination_cluster, source_topic)) == contents(batches_of(source_cluster, source_topic))
    assert consumed(destination_cluster, source_topic) == consumed(source_cluster, source_topic)


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("fails_before", [1, 6, 20, 39])
def test_a_task_that_is_lost_half_way(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    source_topic: str,
    offsets: str,
    fails_before: int,
) -> None:
    create(destination_cluster, source_topic)
    rows = stored(source_cluster, source_topic)
    sink = options(destination_cluster, offsets=offsets)
    with pytest.raises(ConnectionError):
        write_rows(sink, one_by_one(rows, fails_before=fails_before))
    again = write_rows(sink, one_by_one(rows))
    assert (again.appended, again.there) == (40 - fails_before, fails_before)
    assert contents(batches_of(destination_cluster, source_topic)) == contents(batches_of(source_cluster, source_topic))


@pytest.mark.parametrize("offsets", OFFSETS)
def test_attempts_side_by_side(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, source_topic: str, offsets: str
) -> None:
    """Three attempts at the same rows begin at the same moment."""
    create(destination_cluster, source_topic)
    rows = stored(source_cluster, source_topic)
    sink = options(destination_cluster, offsets=offsets)
    together = threading.Barrier(3)

    def attempt(_: int) -> int:
        together.wait(PATIENCE_S)
        done = write_rows(sink, one_by_one(rows))
        return done.appended + done.there

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(attempt, range(3))) == [40, 40, 40]
    assert contents(batches_of(destination_cluster, source_topic)) == contents(batches_of(source_cluster, source_topic))


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("behind", [2, 4, 5, 6, 30])
def test_an_attempt_that_was_overtaken(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, source_topic: str, offsets: str, behind: int
) -> None:
    """It has written a part, and sleeps; another one writes on, and it wakes. Brokers know the last five batches."""
    create(destination_cluster, source_topic)
    rows = stored(source_cluster, source_topic)
    sink = options(destination_cluster, offsets=offsets)

    def sleeps() -> Iterator[Any]:
        yield arrow(rows[:3])
        other = write_rows(sink, [arrow(rows[: 3 + behind])])
        assert (other.appended, other.there) == (behind, 3)
        yield arrow(rows[3:])

    slow = write_rows(sink, sleeps())
    assert slow.appended + slow.there == 40
    assert contents(batches_of(destination_cluster, source_topic)) == contents(batches_of(source_cluster, source_topic))


def test_transactions_leave_gaps(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """Committed data only, in two partitions; half of it, all of it, and all of it once more. Exact offsets are
    refused."""
    for cluster in (source_cluster, destination_cluster):
        create(cluster, topic_name, 2)
    writes(source_cluster, topic_name, 2)
    rows = committed(source_cluster, topic_name, 2)
    sink = options(destination_cluster)
    first = [each for each in rows if not each.at.partition][:15]
    assert write_rows(sink, [arrow(first)]).appended == 15
    done = write_rows(sink, [arrow(rows)])
    assert (done.appended, done.there) == (len(rows) - 15, 15)
    assert write_rows(sink, [arrow(rows)]).appended == 0
    there = consumed(destination_cluster, topic_name)
    assert [each.content for each in there] == [each.content for each in consumed(source_cluster, topic_name)]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_beside_other_writers(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, source_topic: str, codec: str
) -> None:
    """mapped: others' batches stand between ours; a second flow writes the same rows."""
    create(destination_cluster, source_topic)
    rows = stored(source_cluster, source_topic)
    sink = options(destination_cluster)

    def with_others() -> Iterator[Any]:
        for number, each in enumerate(rows):
            if number % 3 == 0:
                batch(destination_cluster, source_topic, "another's", codec=codec)
            yield arrow([each])

    with pytest.raises(ConnectionError):
        write_rows(sink, one_by_one(rows, fails_before=10))
    done = write_rows(sink, with_others())
    assert (done.appended, done.there) == (30, 10)
    assert write_rows(sink, [arrow(rows)]).there == 40
    assert write_rows(options(destination_cluster, flow="second"), [arrow(rows)]).appended == 40
    there = contents(batches_of(destination_cluster, source_topic))
    assert [there.count(each) for each in contents(bytes(one.batch) for one in rows)] == [2] * 40
    ours = [each for each in there if each in contents(bytes(one.batch) for one in rows)]
    assert ours == 2 * contents(bytes(one.batch) for one in rows)


def test_batches_that_are_equal_in_all_but_their_offsets(destination_cluster: SandboxCluster, topic_name: str) -> None:
    create(destination_cluster, topic_name)
    same = [Record(0, 1_700_000_000_000, b"k", b"v")]
    rows = [row(topic_name, 0, kafka_batch(same, base_offset=at)) for at in range(20)]
    sink = options(destination_cluster)
    for upto in (3, 4, 11, 20, 20):
        write_rows(sink, [arrow(rows[:upto])])
        assert len(batches_of(destination_cluster, topic_name)) == upto
    write_rows(sink, [arrow(rows[5:])])
    assert len(batches_of(destination_cluster, topic_name)) == 20


def test_a_later_run_is_appended_and_an_earlier_one_refused(
    destination_cluster: SandboxCluster, topic_name: str
) -> None:
    create(destination_cluster, topic_name)
    at = 1_700_000_000_000
    rows = [
        row(topic_name, 0, kafka_batch([Record(0, at + number, b"k", b"v")], base_offset=number)) for number in range(9)
    ]
    sink = options(destination_cluster)
    assert write_rows(sink, [arrow(rows[3:5])]).appended == 2
    assert write_rows(sink, [arrow(rows[6:8])]).appended == 2
    with pytest.raises(SinkError, match=r"^behind: .* does not have source offset 0, and has 3 at 0; .*another flow"):
        write_rows(sink, [arrow(rows[:5])])
    with pytest.raises(SinkError, match=r"^behind: .* does not have source offset 5, and has 6 at 2"):
        write_rows(sink, [arrow(rows[3:])])
    headers = [BatchHeader.read(each) for each in batches_of(destination_cluster, topic_name)]
    assert [each.base_sequence for each in headers] == [0, 1, 0, 1]
    assert [each.producer_epoch for each in headers] == [3, 3, 6, 6]


def test_exact_is_refused_where_it_cannot_be(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, source_topic: str
) -> None:
    create(destination_cluster, source_topic)
    rows = stored(source_cluster, source_topic)
    sink = options(destination_cluster, offsets="exact")
    with pytest.raises(SinkError, match=r"^leading_offsets: .*-0 .* 3 offsets .* max.leading.filler is 0; set max"):
        write_rows(sink, [arrow(rows[1:])])
    write_rows(sink, [arrow(rows[:4])])
    with pytest.raises(SinkError, match=r"^gap: .* ends at 15, and the next row begins at 19"):
        write_rows(sink, [arrow(rows[5:])])
    changed = kafka_batch(base_offset=rows[1].base_offset)
    with pytest.raises(SinkError, match=r"^not_a_copy: .* has another batch at offset 3 than the row at 3"):
        write_rows(sink, [arrow([row(source_topic, 0, changed)])])
    producer = Producer({"bootstrap.servers": destination_cluster.bootstrap_servers, "log_level": 0})
    producer.produce(source_topic, "another's", partition=0)
    producer.flush(PATIENCE_S)
    with pytest.raises(SinkError, match=r"^not_a_copy: .* has another batch at offset 15 than the row at 15"):
        write_rows(sink, [arrow(rows)])
    with pytest.raises(SinkError, match=r"^foreign_writer: .* the batch at offset 15 is of producer id"):
        write_rows(sink, [arrow([row(source_topic, 0, kafka_batch(base_offset=16))])])
    assert len(batches_of(destination_cluster, source_topic)) == 5


def test_exact_from_the_middle(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, source_topic: str
) -> None:
    """Filler takes the offsets before the first row, and is deleted again. Two attempts do it at the same time."""
    create(destination_cluster, source_topic)
    rows = stored(source_cluster, source_topic)[9:]
    sink = options(destination_cluster, offsets="exact", max_leading_filler="34")
    with ThreadPoolExecutor(2) as pool:
        attempts = [pool.submit(write_rows, sink, one_by_one(rows[: 5 + at])) for at in range(2)]
        assert [each.result(PATIENCE_S).partitions[rows[0].at].first for each in attempts] == [34, 34]
    assert write_rows(sink, one_by_one(rows)).appended == 31 - 6
    there = committed(destination_cluster, source_topic)
    assert [each.base_offset for each in there] == [each.base_offset for each in rows]
    assert contents(bytes(each.batch) for each in there) == contents(bytes(each.batch) for each in rows)


def test_rows_out_of_order_are_not_begun(destination_cluster: SandboxCluster, topic_name: str) -> None:
    create(destination_cluster, topic_name)
    rows = [row(topic_name, 0, kafka_batch(base_offset=at)) for at in (0, 9, 3)]
    sink = options(destination_cluster)
    with pytest.raises(SinkError, match=r"^not_in_order: .*-0 at 3 comes behind 9"):
        write_rows(sink, [arrow(rows)])
    assert batches_of(destination_cluster, topic_name) == []
    rows = [row(topic_name, 0, kafka_batch(base_offset=at)) for at in (0, 2)]
    with pytest.raises(SinkError, match=r"^not_in_order: .*-0 at 2 begins before the row before it ends, at 3"):
        write_rows(sink, [arrow(rows)])


def test_two_queries_with_other_rows(destination_cluster: SandboxCluster, topic_name: str) -> None:
    """One begins behind what the other has written, and gets its first rows late: the other has gone on meanwhile."""
    create(destination_cluster, topic_name)
    at = round(time.time() * 1000)
    batches = [kafka_batch([Record(0, at + number, b"k", b"v")], base_offset=number) for number in range(20)]
    rows = [row(topic_name, 0, each) for each in batches]
    sink = options(destination_cluster)

    def late() -> Iterator[Any]:
        yield arrow(rows[8:10])
        write_rows(sink, [arrow(rows[2:15])])
        time.sleep(2 * LOOK_FOR_S)
        yield arrow(rows[12:])

    write_rows(sink, [arrow(rows[2:8])])
    done = write_rows(sink, late())
    assert (done.appended, done.there) == (2 + 5, 3)
    assert contents(batches_of(destination_cluster, topic_name)) == contents(batches[2:])


def test_exact_beside_another_writer(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, source_topic: str
) -> None:
    create(destination_cluster, source_topic)
    rows = stored(source_cluster, source_topic)

    def with_another() -> Iterator[Any]:
        yield arrow(rows[:2])
        batch(destination_cluster, source_topic, "another's")
        yield arrow(rows[2:])

    sink = options(destination_cluster, offsets="exact")
    told = (
        rf"^misplaced: {source_topic}-0: source offset 7 stands at 8, behind source offset 7, .* written at 7 meanwhile"
    )
    with pytest.raises(SinkError, match=told):
        write_rows(sink, with_another())


def test_a_topic_that_changes_batches(destination_cluster: SandboxCluster, topic_name: str) -> None:
    create(destination_cluster, topic_name, message_timestamp_type="LogAppendTime")
    with pytest.raises(SinkError, match=r"^not_sendable: .*-0 at 0: destination_rewrites: .*=LogAppendTime; "):
        write_rows(options(destination_cluster), [arrow([row(topic_name, 0, kafka_batch())])])
    with pytest.raises(SinkError, match=r"^refused: .*-7 at 0: the destination's topic .* has 1 partitions; add"):
        write_rows(options(destination_cluster), [arrow([row(topic_name, 7, kafka_batch())])])


def test_over_tls_and_sasl(tmp_path: Path, topic_name: str) -> None:
    files = secured.made(tmp_path)
    with secured.cluster(files, more=secured.BOTH) as cluster:
        create(cluster, topic_name)
        keys = {f"kafka.{name}": value for name, value in secured.keys(files).items()}
        servers = cluster.servers(secured.SASL_TLS)
        sink = SinkOptions.read({"kafka.bootstrap.servers": servers, "flow": "copy", **keys})
        assert write_rows(sink, [arrow([row(topic_name, 0, kafka_batch())])]).appended == 1
        wrong = SinkOptions.read(
            {"kafka.bootstrap.servers": servers, "flow": "copy", **keys, "kafka.sasl.password": "not it"}
        )
        with pytest.raises(SinkError, match=r"^unreachable: ") as told:
            write_rows(wrong, [arrow([row(topic_name, 0, kafka_batch())])])
        assert "not it" not in str(told.value)
