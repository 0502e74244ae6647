"""Old formats of real brokers: what real clients wrote and read, and Kafka's own conversion as an oracle for ours."""

from collections.abc import Iterator

import pytest

from mirror.legacy import (
    BatchSpan,
    Converted,
    LeftOut,
    LegacySpan,
    UnsupportedCodec,
    cut,
    down_convert,
    up_convert,
)
from mirror.legacy.downward import OldMagic
from mirror.records.content.opening import Record
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec
from mirror.sandbox import SandboxCluster
from mirror.wire.produce import read_produce_response
from tests.legacy.logs import (
    CODECS,
    MIB,
    OLD,
    ROUNDS,
    TOPICS,
    await_cleaned,
    await_format,
    consumed,
    fetched_old,
    fill_old,
    raw,
    records_in,
    set_format,
)
from tests.legacy.samples import bare, messages_of, patched, records_from, without_time, wrapper_of
from tests.patience import PATIENT
from tests.vectors import load
from tests.vectors.client import Client

pytestmark = pytest.mark.broker
PROPERTIES = {**PATIENT, "auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "200"}
NEW_TOPICS: dict[str, tuple[int, load.Config]] = {
    "librdkafka": (len(load.CODECS), {}),
    "transactions": (1, {}),
    "append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    **{f"java-{codec}": (1, {}) for codec in load.CODECS},
}
MAGICS: tuple[OldMagic, OldMagic] = (0, 1)
INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE = 32, 76


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxCluster]:
    """Kafka 0.10, which stores magic 0 and 1."""
    with SandboxCluster(name="old", version=OLD, properties=PROPERTIES, quick=True, heap_mb=512) as cluster:
        fill_old(cluster, tmp_path_factory.mktemp("java"))
        await_cleaned(cluster)
        yield cluster


@pytest.fixture(scope="module")
def converting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxCluster]:
    """Kafka 3.9, the last that converts batches for old clients."""
    with SandboxCluster(name="converting", version="3.9.2", properties=PROPERTIES, quick=True, heap_mb=512) as cluster:
        servers = cluster.bootstrap_servers
        load.create_topics(servers, NEW_TOPICS)
        for partition, codec in enumerate(load.CODECS):
            load.produce(servers, "librdkafka", ROUNDS, partition=partition, compression_type=codec)
        load.produce(servers, "append-time", ROUNDS, compression_type="lz4")
        load.produce_transactions(servers, "transactions")
        java = [(f"java-{codec}", codec) for codec in load.CODECS]
        load.produce_with_java(servers, java, tmp_path_factory.mktemp("java"))
        yield cluster


def up_converted(record_set: bytes) -> list[bytes]:
    """The batches."""
    view = memoryview(record_set)
    return [
        one.batch if isinstance(one, Converted) else bytes(view[one.at : one.at + one.size])
        for one in up_convert(view, cut(view), most=MIB)
    ]


def produced(cluster: SandboxCluster, topic: str, batches: list[bytes]) -> list[int]:
    """Appends the batches, each as it is but for the base offset. Returns where the broker put them."""
    load.create_topics(cluster.bootstrap_servers, {topic: (1, {})})
    offsets = []
    with Client(cluster.brokers[0].port) as client:
        client.learn({topic: 1})
        version = client.produce_versions()[-1]
        for batch in batches:
            sent = BatchHeader.read(batch)._replace(base_offset=0).pack() + batch[HEADER_SIZE:]
            (answer,) = read_produce_response(version, client.produce(version, {topic: {0: sent}})).partitions
            assert (answer.error, answer.message) == (0, None)
            offsets.append(answer.base_offset)
    return offsets


@pytest.mark.parametrize(
    ("topic", "partition"), [(topic, at) for topic, (count, _) in TOPICS.items() for at in range(count)]
)
def test_up(
    old: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, topic: str, partition: int
) -> None:
    """1. What clients wrote into Kafka 0.10 is fetched as it is stored, and converted.
    2. The batches have the records that a consumer reads there, at the same offsets.
    3. Kafka 4.3 takes the batches, and its consumers read the same records.
    """
    expected = consumed(old.bootstrap_servers, topic, partition)
    assert len(expected) >= 5
    stored = fetched_old(old, 2, topic, partition, end=expected[-1].offset + 1)
    spans = list(cut(memoryview(stored)))
    codec = 3 if topic == "cleaned" else CODECS.index(topic.removeprefix("java-")) if "java" in topic else partition
    magics = {span.magic for span in spans if isinstance(span, LegacySpan)}
    assert magics == {0 if topic == "magic-0" else 1}
    assert {span.codec_bits for span in spans if isinstance(span, LegacySpan)} == {codec}

    batches = up_converted(stored)
    assert records_in(stored) == records_in(b"".join(batches)) == expected
    assert {BatchHeader.read(batch).codec_bits for batch in batches} == {codec}
    assert (len(batches) > len(spans)) is (topic == "cleaned"), "holes inside wrappers are cut"

    offsets = produced(destination_cluster, topic_name, batches)
    got = consumed(destination_cluster.bootstrap_servers, topic_name)
    if topic == "cleaned":
        assert [record._replace(offset=0) for record in got] == [record._replace(offset=0) for record in expected]
    else:
        assert got == expected
        assert offsets == [BatchHeader.read(batch).base_offset for batch in batches]


def test_lz4_in_magic_0_has_the_old_header_checksum(old: SandboxCluster) -> None:
    """In magic 1 it has the right one. The first bytes are the same: flags and block size."""
    with Client(old.brokers[0].port) as client:
        frames = [
            stored[(at := stored.index(b"\x04\x22\x4d\x18")) : at + 7]
            for stored in (client.fetch_old(2, topic, MIB, CODECS.index("lz4")) for topic in ("magic-0", "magic-1"))
        ]
    assert frames[0][:6] == frames[1][:6]
    assert frames[0][6] != frames[1][6]


@pytest.mark.parametrize("magic", MAGICS)
def test_down_to_an_old_broker(
    old: SandboxCluster, converting: SandboxCluster, topic_name: str, magic: OldMagic
) -> None:
    """1. Batches of Kafka 3.9, in every codec that the old formats have, are converted in small chunks.
    2. Kafka 0.10 takes what is in them, a wrapper in a request, and its consumers read the same records at the same
       offsets.
    """
    config = {"message.format.version": "0.9.0"} if magic == 0 else {}
    load.create_topics(old.bootstrap_servers, {topic_name: (len(CODECS), config)})
    with Client(old.brokers[0].port) as client:
        for partition, codec in enumerate(CODECS):
            view = memoryview(raw(converting, "librdkafka", partition))
            due = 0
            for chunk in down_convert(view, cut(view), magic=magic, most=MIB, chunk_bytes=300):
                assert chunk.runs[0].first_offset == due
                for span in cut(memoryview(chunk.messages)):
                    message_set = chunk.messages[span.at : span.at + span.size]
                    answer = client.produce_old(2 if magic else 1, topic_name, partition, message_set)
                    assert answer == (0, due), codec
                    due = span.last_offset + 1
    for partition in range(len(CODECS)):
        expected = bare(consumed(converting.bootstrap_servers, "librdkafka", partition))
        got = consumed(old.bootstrap_servers, topic_name, partition)
        assert got == (expected if magic else without_time(expected))


def test_an_old_broker_stamps_the_first_wrapper_only(old: SandboxCluster, topic_name: str) -> None:
    """1. Two wrappers in one request, whose messages count from 0: the broker stamps the first with the last offset,
       and two messages have one offset.
    2. Each in a request of its own has its offset.
    """
    load.create_topics(old.bootstrap_servers, {topic_name: (2, {})})
    first, second = (wrapper_of(1, Codec.GZIP, records_from(offset, 1)) for offset in (0, 1))
    with Client(old.brokers[0].port) as client:
        assert client.produce_old(2, topic_name, 0, first + second) == (0, 0)
        assert [client.produce_old(2, topic_name, 1, one) for one in (first, second)] == [(0, 0), (0, 1)]
    consumed_offsets = [
        [record.offset for record in consumed(old.bootstrap_servers, topic_name, at)] for at in range(2)
    ]
    assert consumed_offsets == [[1, 1], [0, 1]]


def test_the_mark_of_append_times_is_refused_from_producers(old: SandboxCluster) -> None:
    """So a conversion clears it."""
    (record,) = records_from(0, 1)
    marked = patched(messages_of(1, [record]), 0, 0x08)
    with Client(old.brokers[0].port) as client:
        assert client.produce_old(2, "java-none", 0, marked)[0] == INVALID_TIMESTAMP


def test_three_formats_in_one_log(destination_cluster: SandboxCluster, topic_name: str) -> None:
    """A topic whose format was changed twice: a Fetch v4 brings all three, and each record is converted."""
    with SandboxCluster(name="mixed", version="2.8.2", properties=PROPERTIES, quick=True, heap_mb=512) as cluster:
        servers = cluster.bootstrap_servers
        load.create_topics(servers, {"mixed": (1, {"message.format.version": "0.9.0"})})
        for magic, version in enumerate(("0.9.0", "0.10.2", "2.8")):
            set_format(cluster, "mixed", version)
            await_format(cluster, "mixed", magic)
            for codec in CODECS:
                load.produce(servers, "mixed", 1, headers=magic == 2, compression_type=codec)
        stored = raw(cluster, "mixed", 0, version=4)
        expected = consumed(servers, "mixed")
    spans = list(cut(memoryview(stored)))
    kinds = [
        (2, span.header.codec_bits) if isinstance(span, BatchSpan) else (span.magic, span.codec_bits) for span in spans
    ]
    assert [magic for magic, _ in kinds] == sorted(magic for magic, _ in kinds)
    assert set(kinds) == {(magic, codec) for magic in range(3) for codec in range(len(CODECS))}
    batches = up_converted(stored)
    assert records_in(b"".join(batches)) == expected
    assert len(expected) > 3 * 5 * len(CODECS)
    offsets = produced(destination_cluster, topic_name, batches)
    assert offsets == [BatchHeader.read(batch).base_offset for batch in batches]
    assert consumed(destination_cluster.bootstrap_servers, topic_name) == expected


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize(
    ("topic", "partition"), [(topic, at) for topic, (count, _) in NEW_TOPICS.items() for at in range(count)]
)
def test_down_as_kafka_does(converting: SandboxCluster, topic: str, partition: int, magic: OldMagic) -> None:
    """Fetch v1 is answered in magic 0, v2 and v3 in magic 1: the same records, in the same entries, from our own
    conversion of what is stored; zstd is refused by both."""
    stored = raw(converting, topic, partition)
    view = memoryview(stored)
    zstd = "zstd" in topic or (topic, partition) == ("librdkafka", load.CODECS.index("zstd"))
    lost = LeftOut()
    versions = (2, 3) if magic else (1,)
    if zstd:
        with Client(converting.brokers[0].port) as client:
            for version in versions:
                answer = client.fetch_old_or_error(version, topic, MIB, partition)
                assert answer == (UNSUPPORTED_COMPRESSION_TYPE, b"")
        with pytest.raises(UnsupportedCodec):
            list(down_convert(view, cut(view), magic=magic, most=MIB, lost=lost))
        return
    (ours,) = down_convert(view, cut(view), magic=magic, most=MIB, lost=lost)
    for version in versions:
        theirs = fetched_old(converting, version, topic, partition, end=sum(ours.runs[-1]))
        assert entries(ours.messages) == entries(theirs)
        assert records_in(ours.messages) == records_in(theirs)
    every = records_in(stored)
    assert [record.offset for record in records_in(ours.messages)] == [record.offset for record in every]
    assert lost == expected_loss(every, magic, markers=5 if topic == "transactions" else 0)
    assert lost.headers > 0


def entries(message_set: bytes) -> list[tuple[int, int, int, int]]:
    """What the entries' headers say; of append times, only their value: in ours they have become create times."""
    return [
        (span.magic, span.codec_bits, span.last_offset, span.timestamp)
        for span in cut(memoryview(message_set))
        if isinstance(span, LegacySpan)
    ]


def expected_loss(records: list[Record], magic: int, *, markers: int) -> LeftOut:
    return LeftOut(
        control_batches=markers,
        headers=sum(len(record.headers) for record in records),
        headed_records=sum(bool(record.headers) for record in records),
        timestamps=0 if magic else len(records),
    )
