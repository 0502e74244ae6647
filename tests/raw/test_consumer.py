"""The raw consumer at real brokers: batches as they are stored, from any offset, alone and in a group."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from mirror.raw import RawConsumer, TimestampType, TopicPartition
from mirror.raw.errors import (
    Closed,
    CommitFailed,
    InvalidConfig,
    NoOffset,
    NotAssigned,
    OffsetOutOfRange,
    Unavailable,
    UnknownTopic,
)
from mirror.records.header import BatchHeader, Codec
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import CODECS, batches_of, create, delete_before, fill
from tests.net.stage.real import transaction
from tests.raw.real import PATIENCE_S, batch, consumed, polled, raw_consumer, records_in, to_the_end

broker = pytest.mark.broker
WAIT_MS = 500


@broker
@pytest.mark.parametrize("codec", CODECS)
def test_batches_as_they_are_stored(source_cluster: SandboxCluster, topic_name: str, codec: str) -> None:
    """
    1. librdkafka writes batches with a codec.
    2. Each comes as a record: the very bytes that the broker stores, the last offset, no key, no headers.
    """
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, codec=codec)
    at = TopicPartition(topic_name, 0)
    with raw_consumer(source_cluster) as consumer:
        consumer.assign([at])
        found = to_the_end(consumer)
    stored = batches_of(source_cluster, topic_name)
    assert [record.value for record in found] == stored
    assert [each for record in found for each in records_in(record)] == consumed(source_cluster, topic_name)
    for record, value in zip(found, stored, strict=True):
        header = BatchHeader.read(value)
        assert (record.topic, record.partition) == at
        assert (record.base_offset, record.offset) == (header.base_offset, header.last_offset)
        assert (record.key, record.headers, record.leader_epoch) == (None, None, header.leader_epoch)
        assert (record.timestamp, record.timestamp_type) == (header.max_timestamp, TimestampType.CREATE_TIME)


@broker
@pytest.mark.parametrize("codec", CODECS)
def test_a_start_inside_a_batch(source_cluster: SandboxCluster, topic_name: str, codec: str) -> None:
    """
    1. A batch of 40 records, then another one.
    2. From an offset inside the first one, there are the records from there on, in a batch with the same codec.
    3. The second one comes as it is stored.
    """
    create(source_cluster, topic_name)
    for name in ("first", "second"):
        batch(source_cluster, topic_name, *(f"{name} {number} " * 20 for number in range(40)), codec=codec)
    everything = consumed(source_cluster, topic_name)
    first, second = batches_of(source_cluster, topic_name)
    at = TopicPartition(topic_name, 0)
    with raw_consumer(source_cluster) as consumer:
        consumer.assign([at])
        for offset in (0, 1, 17, 39, 40):
            consumer.seek(at, offset)
            assert consumer.position(at) == offset
            found = to_the_end(consumer)
            assert [each for record in found for each in records_in(record)] == everything[offset:]
            assert found[-1].value == second
            assert found[-1].offset == 79
            if offset in (1, 17, 39):
                header = BatchHeader.read(found[0].value)
                assert (found[0].base_offset, found[0].offset, header.record_count) == (offset, 39, 40 - offset)
                assert Codec(header.codec_bits).name.lower() == codec
                assert found[0].timestamp == max(each.timestamp for each in everything[offset:40])
            elif offset == 0:
                assert found[0].value == first


@broker
def test_transactions(source_cluster: SandboxCluster, topic_name: str) -> None:
    """With read_committed, neither aborted batches nor markers, and nothing behind an open transaction; with
    read_uncommitted, all data. Positions move behind what is left out."""
    create(source_cluster, topic_name)
    for number, commit in enumerate([True, False, True]):
        values = [f"{topic_name} {number} {each}" for each in range(3)]
        transaction(source_cluster, topic_name, values, commit=commit, transactional_id=f"{topic_name}-{number}")
    at = TopicPartition(topic_name, 0)
    for isolation, bases in (("read_committed", [0, 8]), ("read_uncommitted", [0, 4, 8])):
        with raw_consumer(source_cluster, isolation_level=isolation) as consumer:
            consumer.assign([at])
            found = to_the_end(consumer)
            assert [record.base_offset for record in found] == bases
            assert consumer.position(at) == 12
            assert all(BatchHeader.read(record.value).is_transactional for record in found)
    with raw_consumer(source_cluster) as consumer:
        consumer.assign([at])
        consumer.seek(at, 9)
        (trimmed,) = to_the_end(consumer)
        assert [each.offset for each in records_in(trimmed)] == [9, 10]
        transaction(source_cluster, topic_name, ["open"], commit=None, transactional_id=f"{topic_name}-open")
        assert consumer.end_offsets([at]) == {at: 12}
        assert consumer.poll(WAIT_MS) == []


@broker
def test_append_times(source_cluster: SandboxCluster, topic_name: str) -> None:
    """A record says whose time it is; of a batch that is trimmed, the records have the time of its append."""
    create(source_cluster, topic_name, message_timestamp_type="LogAppendTime")
    batch(source_cluster, topic_name, "a", "b", "c")
    at = TopicPartition(topic_name, 0)
    everything = consumed(source_cluster, topic_name)
    with raw_consumer(source_cluster) as consumer:
        consumer.assign([at])
        (whole,) = to_the_end(consumer)
        assert whole.timestamp_type is TimestampType.LOG_APPEND_TIME
        consumer.seek(at, 1)
        (trimmed,) = to_the_end(consumer)
    assert trimmed.timestamp_type is TimestampType.CREATE_TIME
    assert records_in(trimmed) == everything[1:]


@broker
def test_a_group_shares_and_hands_over(source_cluster: SandboxCluster, topic_name: str) -> None:
    """
    1. Two consumers of a group get two partitions each, and read what is in them.
    2. One commits in on_revoke, and is closed: the other one gets its partitions, and goes on where it was.
    3. Nothing is read twice, nothing is left out.
    """
    create(source_cluster, topic_name, 4)
    for index in range(4):
        fill(source_cluster, topic_name, partition=index, batches=3)
    settings = {"group_id": topic_name, "session_timeout_ms": 10_000}
    with raw_consumer(source_cluster, **settings) as first, raw_consumer(source_cluster, **settings) as second:
        read: dict[str, list[tuple[int, int]]] = {"first": [], "second": []}

        def poll(consumer: RawConsumer, name: str) -> None:
            read[name] += [(record.partition, record.offset) for record in consumer.poll(100)]

        first.subscribe([topic_name], on_revoke=lambda _: first.commit())
        second.subscribe([topic_name], on_revoke=lambda _: second.commit())
        until = time.monotonic() + PATIENCE_S
        while not (len(first.assignment()) == len(second.assignment()) == 2):
            assert time.monotonic() < until, (first.assignment(), second.assignment())
            poll(first, "first")
            poll(second, "second")
        assert {*first.assignment(), *second.assignment()} == {TopicPartition(topic_name, index) for index in range(4)}
        for index in range(4):
            fill(source_cluster, topic_name, partition=index, batches=2)
        wanted = {(index, offset) for index in range(4) for offset in _last_offsets(source_cluster, topic_name, index)}
        while {*read["first"], *read["second"]} != wanted:
            assert time.monotonic() < until, (read, wanted)
            poll(first, "first")
            poll(second, "second")
        second.close()
        for index in range(4):
            batch(source_cluster, topic_name, "late", partition=index)
        wanted = {(index, offset) for index in range(4) for offset in _last_offsets(source_cluster, topic_name, index)}
        while {*read["first"], *read["second"]} != wanted:
            assert time.monotonic() < until, (read, wanted)
            poll(first, "first")
        assert len(first.assignment()) == 4
        assert len(read["first"]) + len(read["second"]) == len(wanted)


def _last_offsets(cluster: SandboxCluster, topic: str, partition: int) -> list[int]:
    return [BatchHeader.read(each).last_offset for each in batches_of(cluster, topic, partition)]


@broker
def test_an_exception_commits_nothing(source_cluster: SandboxCluster, topic_name: str) -> None:
    """on_revoke commits what poll() has returned; after an exception, that was not done. close() calls it."""
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, batches=2)
    at = TopicPartition(topic_name, 0)
    for error in (ZeroDivisionError, None):
        with suppress(ZeroDivisionError), raw_consumer(source_cluster, group_id=topic_name) as consumer:
            commit = consumer.commit

            def revoked(_: list[TopicPartition], commit: Callable[[], None] = commit) -> None:
                commit()

            consumer.subscribe([topic_name], on_revoke=revoked)
            polled(consumer, lambda records: len(records) == 2)
            if error is not None:
                raise error
        with raw_consumer(source_cluster, group_id=topic_name) as consumer:
            assert consumer.committed([at]) == ({} if error else {at: 7})


@broker
def test_a_program_that_does_not_poll(source_cluster: SandboxCluster, topic_name: str) -> None:
    """
    1. Longer than max.poll.interval.ms, poll() is not called: the group takes the partition away, and takes no commit.
    2. on_lost tells of it; then the partition comes back, and reading begins at the last committed offset.
    """
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, batches=3)
    at = TopicPartition(topic_name, 0)
    lost: list[TopicPartition] = []
    settings = {"group_id": topic_name, "session_timeout_ms": 6_000, "max_poll_interval_ms": 6_000}
    with raw_consumer(source_cluster, **settings) as consumer:
        consumer.subscribe([topic_name], on_lost=lost.extend)
        found = polled(consumer, lambda records: len(records) == 3)
        consumer.commit({at: found[0].offset + 1})
        admin = AdminClient({"bootstrap.servers": source_cluster.bootstrap_servers})
        while admin.describe_consumer_groups([topic_name])[topic_name].result(60).members:
            time.sleep(0.1)
        with pytest.raises(CommitFailed, match=f"group {topic_name}: .*another member has the partitions meanwhile"):
            consumer.commit()
        assert polled(consumer, lambda records: len(records) == 2) == found[1:]
        assert lost == [at]


@broker
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_committed_and_continued(source_cluster: SandboxCluster, topic_name: str, protocol: str) -> None:
    """
    1. A member reads, commits a part, and ends.
    2. The next one goes on behind that part, on a batch boundary; what it has committed in the end, others see.
    """
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, batches=6)
    at = TopicPartition(topic_name, 0)
    settings = {"group_id": topic_name, "group_protocol": protocol}
    with raw_consumer(source_cluster, **settings) as consumer:
        consumer.subscribe([topic_name])
        found = polled(consumer, lambda records: len(records) == 6)
        consumer.commit({at: found[2].offset + 1})
        assert consumer.committed([at]) == {at: found[2].offset + 1}
    with raw_consumer(source_cluster, **settings) as consumer:
        consumer.subscribe([topic_name])
        rest = polled(consumer, lambda records: len(records) >= 3)
        assert rest == found[3:]
        consumer.commit()
    with raw_consumer(source_cluster, **settings) as consumer:
        consumer.assign([at])
        assert consumer.position(at) == found[-1].offset + 1
        consumer.seek_to_beginning()
        assert polled(consumer, lambda records: len(records) >= 6) == found
        consumer.commit({at: 0})
        assert consumer.committed([at]) == {at: 0}


@broker
def test_a_pattern_and_what_a_callback_raises(source_cluster: SandboxCluster, topic_name: str) -> None:
    create(source_cluster, f"{topic_name}.a")
    with raw_consumer(source_cluster, group_id=topic_name) as consumer:

        def refuse(partitions: list[TopicPartition]) -> None:
            raise ZeroDivisionError(f"{partitions}")

        consumer.subscribe([rf"^{topic_name}\..*"], on_assign=refuse)
        with pytest.raises(ZeroDivisionError, match=f"{topic_name}.a"):
            polled(consumer, lambda records: bool(records))
        consumer.unsubscribe()
        assert consumer.assignment() == []


@broker
def test_where_reading_begins(source_cluster: SandboxCluster, topic_name: str) -> None:
    """auto.offset.reset decides where nothing is committed, and where the log has lost the position."""
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, batches=4)
    at = TopicPartition(topic_name, 0)
    end = BatchHeader.read(batches_of(source_cluster, topic_name)[-1]).next_offset
    with raw_consumer(source_cluster, auto_offset_reset="latest") as consumer:
        consumer.assign([at])
        assert consumer.position(at) == end
        batch(source_cluster, topic_name, "new")
        assert [record.offset for record in to_the_end(consumer)] == [end]
    with raw_consumer(source_cluster, auto_offset_reset="none") as consumer:
        consumer.assign([at])
        with pytest.raises(NoOffset, match=r"-0: there is no group.id, and auto.offset.reset is none; seek\(\)"):
            consumer.poll(WAIT_MS)
        consumer.seek(at, 2)
        assert consumer.poll(int(PATIENCE_S) * 1_000)[0].base_offset == 2
        delete_before(source_cluster, topic_name, end)
        consumer.seek(at, 0)
        with pytest.raises(OffsetOutOfRange, match="-0 at offset 0: the log does not have this offset") as caught:
            polled(consumer, lambda records: bool(records))
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic_name, 0, 0)
        consumer.seek_to_beginning()
        assert [record.offset for record in to_the_end(consumer)] == [end]
    with raw_consumer(source_cluster) as consumer:
        consumer.assign([at])
        consumer.seek(at, 0)
        assert [record.offset for record in to_the_end(consumer)] == [end]
        assert consumer.beginning_offsets([at]) == {at: end}


@broker
def test_no_more_than_was_asked_for(source_cluster: SandboxCluster, topic_name: str) -> None:
    """
    1. 6 MB in four partitions, and a program that does not poll: the broker is asked for fetch.max.bytes once.
    2. poll() returns no more than that at a time, and each partition has its turn.
    3. A batch that is larger comes whole, by itself (KIP-74).
    """
    most = 200_000
    create(source_cluster, topic_name, 4, max_message_bytes="10000000")
    for index in range(4):
        for number in range(30):
            batch(source_cluster, topic_name, bytes([number]) * 50_000, partition=index)
    partitions = [TopicPartition(topic_name, index) for index in range(4)]
    settings: dict[str, Any] = {"fetch_max_bytes": most, "max_partition_fetch_bytes": 60_000}
    with raw_consumer(source_cluster, **settings) as consumer:
        consumer.assign(partitions)
        assert [record.partition for record in polled(consumer, bool)]
        time.sleep(1.0)
        received = consumer._cluster.bytes_received
        assert received < 3 * most, "one answer was taken, one is kept, one may be on its way"
        seen: list[int] = []
        while len(seen) < 80:
            records = consumer.poll(WAIT_MS)
            assert sum(len(record.value) for record in records) <= most
            seen += [record.partition for record in records]
        assert min(seen.count(index) for index in range(4)) > 10
        to_the_end(consumer)
        batch(source_cluster, topic_name, b"x" * 3_000_000, partition=1)
        (large,) = polled(consumer, bool)
        assert len(large.value) > 3_000_000


@broker
def test_paused(source_cluster: SandboxCluster, topic_name: str) -> None:
    create(source_cluster, topic_name, 2)
    one, other = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    for index in range(2):
        fill(source_cluster, topic_name, partition=index, batches=2)
    with raw_consumer(source_cluster) as consumer:
        consumer.assign([one, other])
        consumer.pause(other)
        assert {record.partition for record in polled(consumer, lambda records: len(records) == 2)} == {0}
        assert consumer.poll(WAIT_MS) == []
        consumer.resume(other)
        assert {record.partition for record in polled(consumer, lambda records: len(records) == 2)} == {1}
        consumer.pause(one, other)
        consumer.seek_to_beginning(one)
        assert consumer.poll(WAIT_MS) == []
        consumer.resume(one)
        assert len(polled(consumer, lambda records: len(records) == 2)) == 2


@broker
def test_what_is_not_there(source_cluster: SandboxCluster, topic_name: str) -> None:
    """A topic or partition that does not exist is named, and so is a partition that the consumer does not have."""
    create(source_cluster, topic_name)
    with raw_consumer(source_cluster, group_id=topic_name) as consumer:
        consumer.assign([TopicPartition(topic_name, 7)])
        with pytest.raises(UnknownTopic, match="has 1 partitions, counted from 0, and no partition 7"):
            polled(consumer, bool)
        consumer.assign([TopicPartition(f"{topic_name}-none", 0)])
        with pytest.raises(UnknownTopic, match=f"no topic {topic_name}-none; create it, or check its name"):
            polled(consumer, bool)
        with pytest.raises(NotAssigned, match=r"-0: the consumer does not have this partition; assign\(\) it"):
            consumer.seek(TopicPartition(topic_name, 0), 0)
        consumer.subscribe([f"{topic_name}-none"])
        with pytest.raises(UnknownTopic, match=f"{topic_name}-none"):
            polled(consumer, bool)
    with pytest.raises(Closed):
        consumer.poll()
    consumer.close()


@broker
def test_an_interrupt_loses_nothing(
    source_cluster: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KeyboardInterrupt while poll() takes what came: the next poll() returns it."""
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, batches=3)
    at = TopicPartition(topic_name, 0)
    with raw_consumer(source_cluster) as consumer:
        consumer.assign([at])
        run = consumer._thread.run

        def interrupted(*arguments: Any) -> Any:
            if run(*arguments):
                monkeypatch.setattr(consumer._thread, "run", run)
                raise KeyboardInterrupt
            return []

        consumer.position(at)
        monkeypatch.setattr(consumer._thread, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            polled(consumer, bool)
        assert consumer.position(at) == 0
        assert len(to_the_end(consumer)) == 3


def test_no_group() -> None:
    """What needs one says so; so does what no cluster answers."""
    with pytest.raises(InvalidConfig, match=r"bootstrap\.servers: is required; add it"):
        RawConsumer({"group.id": "g"})
    with pytest.raises(Unavailable, match=r"cannot reach cluster 127.0.0.1:1: .*check bootstrap.servers"):
        RawConsumer({"bootstrap.servers": "127.0.0.1:1"})
    assert not [each for each in threading.enumerate() if each.name == "raw consumer"]
