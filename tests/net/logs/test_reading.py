"""A piece of a log read off the data path: what was not written by anybody is told, and from which side."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import Damaged
from mirror.net.logs.log import PartitionLog, Segment
from mirror.net.metadata import Leader, Topic
from mirror.records.scan import NOT_SEEN
from tests.fakes.broker import FakeCluster
from tests.records.builders import raw_batch

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
