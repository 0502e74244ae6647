"""The plan of the topics, and sizes as people type them."""

import zlib

import lz4.frame
import pytest
import snappy
import zstandard

from mirror.demo.data import payload
from mirror.demo.data.topics import CODECS, TOPICS, TopicPlan, parse_size, records_for
from mirror.demo.errors import DemoError

SNAPPY_BLOCK = 32 << 10


def test_every_codec_is_written_by_both_clients() -> None:
    assert {(plan.client, plan.codec) for plan in TOPICS} == {
        (client, codec) for client in ("librdkafka", "java") for codec in CODECS
    }
    assert len({plan.name for plan in TOPICS}) == len(TOPICS)


def test_batches_are_small_and_large_and_no_topic_has_one_partition_only() -> None:
    sizes = [plan.batch_bytes for plan in TOPICS]
    assert min(sizes) <= 16_384
    assert 900_000 <= max(sizes) <= 1_000_000
    assert all(plan.partitions > 1 for plan in TOPICS)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("300MB", 300_000_000),
        ("1.5 GB", 1_500_000_000),
        ("20m", 20_000_000),
        ("5000K", 5_000_000),
        ("2000000", 2_000_000),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-5MB", "300 apples", "1MiB", "1e9", "0", "999K", "21GB"])
def test_what_is_no_size_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(DemoError, match="remedy: give"):
        parse_size(text)


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_stores_its_share_and_little_more(codec: str) -> None:
    """In batches of 64 records, some 55 KB: smaller ones compress worse, so they store more."""
    records = payload.pool(1_200)
    record_bytes = sum(record.size for record in records) / len(records)
    wanted = 250_000 if codec != "none" else 900_000
    plan = TopicPlan(client="java", codec=codec, partitions=1, batch_bytes=65_536, share=50)
    count = records_for(plan, total_bytes=2 * wanted, record_bytes=record_bytes)
    assert 500 < count <= len(records)
    stored = sum(len(_compress(codec, records[at : min(at + 64, count)])) for at in range(0, count, 64))
    assert wanted <= stored <= 1.2 * wanted


def test_the_smallest_topic_still_has_every_kind_of_record() -> None:
    assert min(records_for(plan, total_bytes=1, record_bytes=1_000) for plan in TOPICS) == 40


def _compress(codec: str, records: list[payload.DemoRecord]) -> bytes:
    """About what a client makes of these records."""
    body = b"".join(
        bytes(9)
        + (record.key or b"")
        + (record.value or b"")
        + b"".join(name.encode() + (value or b"") + bytes(2) for name, value in record.headers)
        for record in records
    )
    match codec:
        case "gzip":
            return zlib.compress(body)
        case "snappy":
            return b"".join(snappy.compress(body[at : at + SNAPPY_BLOCK]) for at in range(0, len(body), SNAPPY_BLOCK))
        case "lz4":
            return bytes(lz4.frame.compress(body, block_linked=False))
        case "zstd":
            return zstandard.compress(body)
    return body
