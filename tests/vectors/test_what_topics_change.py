"""What brokers change in batches of topics with LogAppendTime, or with a codec of their own: docs/BROKERS.md."""

import time
from collections.abc import Iterator

import pytest

from mirror.records.header import CRC_FROM, HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Codec
from mirror.records.restamp import checksum
from mirror.records.stamped import unstamped
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.audit.clusters import edited
from tests.patience import PATIENT
from tests.records.builders import Record, kafka_batch
from tests.vectors import load
from tests.vectors.client import Client
from tests.vectors.test_what_brokers_take import Asked

pytestmark = pytest.mark.broker

DAY_MS = 86_400_000
STAMPS = {"message.timestamp.type": "LogAppendTime"}
NAMES = {Codec.NONE: "uncompressed"} | {codec: codec.name.lower() for codec in Codec if codec}
TOPICS: dict[str, tuple[int, load.Config]] = {
    "stamps": (8, STAMPS),
    **{f"to-{name}": (1, {"compression.type": name}) for name in NAMES.values()},
}
LEVELS = {"gzip": "1", "lz4": "17", "zstd": "22"}


@pytest.fixture(scope="module", params=["4.3.0", "3.9.2"])
def broker(request: pytest.FixtureRequest) -> Iterator[Asked]:
    topics = TOPICS | {
        f"{name}-{level}": (1, {"compression.type": name, f"compression.{name}.level": level})
        for name, level in LEVELS.items()
    }
    with SandboxCluster("changes", version=request.param, brokers=1, properties=PATIENT, quick=True) as cluster:
        load.create_topics(cluster.bootstrap_servers, topics)
        with Client(cluster.brokers[0].port) as client:
            client.learn({name: count for name, (count, _) in topics.items()})
            asked = Asked(request.param, client, topics=topics)
            asked.await_leading()
            yield asked


def now_ms() -> int:
    return int(time.time() * 1_000)


def written(codec: Codec, *, age_ms: int = 0, sequence: int = 0) -> bytes:
    """Three records, of a producer."""
    at_ms = now_ms() - age_ms
    made = [Record(at, at_ms + 7 * at, b"key", b"value %d " % at * 50) for at in range(3)]
    return kafka_batch(made, codec=codec, producer_id=5_000 + codec, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("age_ms", [0, 400 * DAY_MS, -400 * DAY_MS], ids=["now", "old", "ahead"])
def test_append_times_change_three_fields(broker: Asked, codec: Codec, age_ms: int) -> None:
    """Mark, max timestamp and checksum. The records, and the first one's timestamp in the header, stay as they came;
    and no timestamp is refused."""
    sent = edited(written(codec, age_ms=age_ms), producer_id=-1, producer_epoch=-1, base_sequence=-1)
    before, began = len(broker.stored("stamps", codec)), now_ms()
    (answer,) = broker.sends("stamps", (codec, sent))
    assert (answer.error, answer.base_offset) == (ErrorCode.NONE, 3 * before)
    assert began <= answer.log_append_time <= now_ms()
    header, stored = broker.stored("stamps", codec)[-1]
    mine = BatchHeader.read(sent)
    assert stored[HEADER_SIZE:] == sent[HEADER_SIZE:]
    assert header == mine._replace(
        base_offset=3 * before, leader_epoch=0, attributes=mine.attributes | LOG_APPEND_TIME,
        max_timestamp=answer.log_append_time, crc=checksum(stored),
    )  # fmt: skip
    assert unstamped(header, mine.max_timestamp).crc == mine.crc
    assert stored[CRC_FROM:] != sent[CRC_FROM:]


def test_a_repeat_is_answered_with_the_time_of_the_first(broker: Asked) -> None:
    """Sequences decide, whatever the times are: nothing is appended."""
    batch = written(Codec.LZ4)
    (first,) = broker.sends("stamps", (5, batch))
    time.sleep(0.01)
    (second,) = broker.sends("stamps", (5, batch))
    assert (second.error, second.base_offset, second.log_append_time) == (0, first.base_offset, first.log_append_time)
    assert len(broker.stored("stamps", 5)) == 1


def test_a_batch_that_is_marked_is_refused(broker: Asked) -> None:
    """Also where the topic would mark it."""
    marked = edited(written(Codec.NONE), attributes=LOG_APPEND_TIME)
    (answer,) = broker.sends("stamps", (6, marked))
    assert answer.error == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_has_the_topics_codec_stays_as_it_is(broker: Asked, codec: Codec) -> None:
    """Byte for byte: the broker has nothing to recompress, whatever level it would do that with."""
    batch = written(codec)
    name = NAMES[codec]
    for topic in (f"to-{name}", f"{name}-{LEVELS[name]}") if name in LEVELS else (f"to-{name}",):
        (answer,) = broker.sends(topic, (0, batch))
        assert answer.error == ErrorCode.NONE
        ((header, stored),) = broker.stored(topic, 0)
        assert header.codec_bits == codec
        assert stored[CRC_FROM:] == batch[CRC_FROM:]
