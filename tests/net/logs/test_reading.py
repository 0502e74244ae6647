"""A piece of a log read off the data path: what was not written by anybody is told, and from which side."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import Damaged, Refused
from mirror.net.logs.log import PartitionLog, Segment, SourceLog
from mirror.net.logs.reading import verified
from mirror.net.metadata import Leader, Topic
from mirror.records.header import BatchHeader, Codec, CorruptBatch
from mirror.records.intact import is_intact
from mirror.records.scan import NOT_SEEN
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.legacy.samples import messages_of, patched, records_from, wrapper_of
from tests.records.builders import kafka_batch, raw_batch

LED = Leader(1, 0)


def batches(*bases: int) -> list[bytes]:
    """Of five records each."""
    return [raw_batch(b"p" * 50, base_offset=base, leader_epoch=0) for base in bases]


def flipped(batch: bytes, byte: int, mask: int = 1) -> bytes:
    """The same with bits of one byte turned over."""
    return batch[:byte] + bytes([batch[byte] ^ mask]) + batch[byte + 1 :]


@asynccontextmanager
async def log_of(stored: Sequence[bytes]) -> AsyncIterator[PartitionLog]:
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *stored)
        async with await Cluster.open("here", fake.options()) as cluster:
            yield PartitionLog(cluster, Topic(name="t", topic_id=None, internal=False), 0, LED)


async def read(stored: Sequence[bytes], offset: int = 0, max_bytes: int = 1 << 20) -> Segment:
    async with log_of(stored) as log:
        return await log.read(offset, max_bytes=max_bytes)


async def test_what_is_cut_off_shows_where_it_begins() -> None:
    """Its base offset is in the first eight bytes; with less there is nothing to see."""
    one, two, three = batches(0, 5, 12)
    size = len(one)
    for max_bytes, number, next_base in (
        (2 * size, 2, NOT_SEEN),
        (2 * size + 7, 2, NOT_SEEN),
        (2 * size + 8, 2, 12),
        (3 * size, 3, NOT_SEEN),
    ):
        segment = await read([one, two, three], max_bytes=max_bytes)
        assert [header.base_offset for header, _ in segment.batches] == [0, 5, 12][:number]
        assert segment.next_base == next_base


@pytest.mark.parametrize("byte", [17, 21, 22, 26, 34, 42, 50, 52, 56, 60, 61, 110])
async def test_a_wrong_checksum(byte: int) -> None:
    one, two, three = batches(0, 5, 10)
    with pytest.raises(Damaged, match="here: t-0 at 0: the batch of 111 bytes at byte 111 does not match") as caught:
        await read([one, flipped(two, byte), three])
    assert caught.value.cluster == "here"


async def test_also_of_what_is_left_out() -> None:
    """A broker may answer with batches before the offset; one that is passed over is verified as well."""
    one, two = batches(0, 5)
    async with log_of([flipped(one, 26, 0x80), two]) as log:
        with pytest.raises(Damaged, match="does not match its checksum"):
            await log.read(2, max_bytes=1 << 20)


@pytest.mark.parametrize("bases", [(0, 5, 3), (0, 5, 5), (0, 5, 9), (8, 5, 10)])
async def test_offsets_go_back(bases: Sequence[int]) -> None:
    """Base offsets are not covered by the checksum; but behind a batch comes none with its offsets, or lower ones."""
    stored = batches(*bases)
    for max_bytes in (3 * len(stored[0]), 2 * len(stored[0]) + 8):
        with pytest.raises(Damaged, match=r"base offset [359] behind a batch that ends at"):
            await read(stored, max_bytes=max_bytes)


async def test_behind_the_end_of_the_log() -> None:
    """The last batch's base offset has no batch behind it to be held against; the log's end is what tells."""
    stored = batches(0, 5)
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *stored)
        log = fake.log("t")
        log.batches[1] = batches(7)[0]
        async with await Cluster.open("here", fake.options()) as cluster:
            with pytest.raises(Damaged, match="a batch ends at offset 11, the log at 10"):
                await PartitionLog(cluster, Topic(name="t", topic_id=None, internal=False), 0, LED).read(7)


async def test_a_length_that_cannot_be() -> None:
    """The first batch of an answer comes whole; one that does not is longer than it can be."""
    (one,) = batches(0)
    with pytest.raises(Damaged, match="111 bytes hold no whole batch"):
        await read([flipped(one, 9, 0x10)])


# Old formats.

OLD = [
    *(messages_of(1, [one]) for one in records_from(0, 3)),
    wrapper_of(1, Codec.GZIP, records_from(3, 4)),
    messages_of(0, records_from(7, 1, magic=0)),
]
BEHIND = kafka_batch(base_offset=8)


def shape(record_set: bytes, offset: int = 0) -> list[tuple[int, int, bool]]:
    """First and last offset of each batch, and whether it stands for a message."""
    batches, _ = verified(memoryview(record_set), offset, converts=True)
    assert all(BatchHeader.read(batch) == header and is_intact(batch) for header, batch in batches)
    return [(header.base_offset, header.last_offset, header.is_stand_in) for header, _ in batches]


def test_each_old_message_has_a_batch() -> None:
    """Also those on their own: a look sees the same whatever it reads at a time."""
    last = BatchHeader.read(BEHIND).last_offset
    whole = [(0, 0, True), (1, 1, True), (2, 2, True), (3, 6, True), (7, 7, True), (8, last, False)]
    assert shape(b"".join(OLD) + BEHIND) == whole
    assert shape(b"".join(OLD) + BEHIND, 5) == whole[3:]
    assert shape(BEHIND.replace(BEHIND[:8], bytes(8), 1) + messages_of(1, records_from(20, 1)))[1] == (20, 20, True)


def test_where_it_goes_on_behind_old_messages() -> None:
    """A wrapper that is cut off does not show its first offset, nor does a message before its magic."""
    for behind, cut_at, expected in (
        (OLD[3], 30, NOT_SEEN), (OLD[3], 12, NOT_SEEN), (OLD[1], 17, NOT_SEEN), (OLD[1], 18, 1), (BEHIND, 18, 8)
    ):  # fmt: skip
        _, next_base = verified(memoryview(OLD[0] + behind[:cut_at]), 0, converts=True)
        assert next_base == expected


def test_old_messages_that_are_wrong() -> None:
    spoilt = flipped(OLD[3], len(OLD[3]) - 1)
    for record_set in (spoilt, OLD[0] + spoilt, OLD[1] + OLD[0], BEHIND + OLD[4]):
        with pytest.raises(CorruptBatch):
            verified(memoryview(record_set), 0, converts=True)
    odd = patched(OLD[3], 6, 0x41)
    with pytest.raises(CorruptBatch, match="unknown attributes"):
        verified(memoryview(odd), 0, converts=True)
    batches, next_base = verified(memoryview(OLD[0] + odd), 0, converts=True)
    assert (len(batches), next_base) == (1, NOT_SEEN), "what stands before it can be read"


async def test_a_source_log_converts() -> None:
    def change(answer: Any) -> None:
        answer.responses[0].partitions[0].records = b"".join(OLD)

    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(0, 5))
        fake.next("Fetch", faults.alter(change))
        fake.next("Fetch", faults.alter(change))
        topic = Topic(name="t", topic_id=None, internal=False)
        async with await Cluster.open("here", fake.options()) as cluster:
            with pytest.raises(Refused, match="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
                await SourceLog(cluster, topic, 0, LED).read(0)
            found = await SourceLog(cluster, topic, 0, LED, converts=True).batch_at(0)
        assert found is not None
        assert found[0].is_stand_in
