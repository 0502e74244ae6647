"""Bits that turn over on the disks of either side: what is damaged is not believed, and a halt says whose it is."""

import asyncio
from unittest.mock import patch

import pytest

from mirror.net.backoff import Backoff
from mirror.records.header import HEADER_SIZE
from mirror.relay.halts import Halted
from mirror.relay.holes import gaps
from mirror.relay.locate import seeking
from mirror.relay.partition.partition import Partition
from mirror.relay.topics.verdicts import Verdicts
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.fakes.loop import until
from tests.relay.stage.flows import batches, clusters, copies, mirroring


def flip(cluster: FakeCluster, bit: int, *, at: int, index: int = 0) -> None:
    """Turns over a bit of a batch of a log: ``bit`` of the batch, ``at`` in the log."""
    stored = cluster.log("t", index).batches
    damaged = bytearray(stored[at])
    damaged[bit >> 3] ^= 1 << (bit & 7)
    stored[at] = bytes(damaged)


@pytest.mark.parametrize(("side", "reason"), [("source", "corrupt"), ("destination", "corrupt_destination")])
@pytest.mark.parametrize("byte", [22, 26, 60, 61])
async def test_damage_seen_while_locating(side: str, reason: str, byte: int) -> None:
    """What the two logs are compared by is verified first: the halt names the side, and is not ``not_a_copy``."""
    async with clusters() as (source, destination):
        stored = batches(6)
        for cluster in (source, destination):
            cluster.add_topic("t")
        source.store("t", 0, *stored)
        for one in copies(stored[:4], cluster_id=source.cluster_id):
            assert destination.log("t").produce(one)[0] == 0
        flip(source if side == "source" else destination, 8 * byte + 5, at=3)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == reason
            halted = flow.partition().halted
            assert halted is not None
            assert f"{side}: t-0 at " in halted.detail
            assert destination.log("t").end == 12


@pytest.mark.parametrize(("side", "reason"), [("source", "corrupt"), ("destination", "corrupt_destination")])
async def test_each_bit_of_the_last_batch_copied(side: str, reason: str) -> None:
    """Where a partition goes on is read from there: each bit that no checksum covers, in a partition of its own. What
    cannot be halts, and is not taken for a hole, a foreign batch or another source. A leader epoch does not matter."""
    bits = range(17 * 8)
    async with clusters() as (source, destination):
        for cluster in (source, destination):
            cluster.add_topic("t", partitions=len(bits))
        written = batches(6)
        for bit in bits:
            source.store("t", bit, *written)
            for one in copies(written[:4], partition=bit, cluster_id=source.cluster_id):
                assert destination.log("t", bit).produce(one)[0] == 0
            flip(source if side == "source" else destination, bit, at=3, index=bit)
        async with mirroring(source, destination) as flow:
            partitions = [flow.partition(index=bit) for bit in bits]
            await until(lambda: all(each.halted or each.queue.acknowledged == 18 for each in partitions))
        for bit, partition in zip(bits, partitions, strict=True):
            if 12 * 8 <= bit < 16 * 8:
                assert destination.log("t", bit).end == 18, bit
            else:
                assert partition.halted is not None
                assert partition.halted.reason == reason, (bit, partition.halted)
                assert destination.log("t", bit).end == 12


async def test_a_length_for_which_the_broker_finds_nothing() -> None:
    """
    1. The last batch but one is said to be longer than its file: a broker then answers with nothing, and no error.
    2. That is looked at, and told; what stands before it is copied.
    """
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(6))
        flip(source, 8 * 8 + 0, at=4)

        def read(log: FakeLog, offset: int, most: int, **_: bool) -> bytes:
            found = b"".join(log.batches[offset // 3 : 4])
            return found + log.batches[4][: max(0, most - len(found))] if found else b""

        usual = FakeLog.read

        def either(log: FakeLog, *asked: int, **how: bool) -> bytes:
            return read(log, *asked) if log is source.log("t") else usual(log, *asked, **how)

        with patch.object(FakeLog, "read", either):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "corrupt"
                assert destination.log("t").end == 12


async def test_nothing_where_something_should_be() -> None:
    """The same, where not even the beginning of the batch is to be seen: the end of a log does not vanish."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(4))
        source.log("t").end += 3
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "corrupt"
            halted = flow.partition().halted
            assert halted is not None
            assert "offset 12 is answered with nothing" in halted.detail
            assert destination.log("t").end == 12


async def test_each_bit_that_no_checksum_covers() -> None:
    """Base offset, length, leader epoch and magic of a batch in the middle: each in a partition of its own. Right up to
    a halt, or to the end: a leader epoch does not halt, whatever it says."""
    bits = range(17 * 8)
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=len(bits))
        written = batches(6)
        for bit in bits:
            source.store("t", bit, *written)
            flip(source, bit, at=3, index=bit)
        async with mirroring(source, destination) as flow:
            partitions = [flow.partition(index=bit) for bit in bits]
            await until(lambda: all(each.halted or each.queue.acknowledged == 18 for each in partitions))
        for bit, partition in zip(bits, partitions, strict=True):
            copied = destination.log("t", bit).batches
            assert [one[HEADER_SIZE:] for one in copied] == [one[HEADER_SIZE:] for one in written[: len(copied)]], bit
            in_epoch = 12 * 8 <= bit < 16 * 8
            assert len(copied) == (6 if in_epoch else 3), bit
            if not in_epoch:
                assert partition.halted is not None
                assert partition.halted.reason in ("corrupt", "unexplained_gap"), bit


@pytest.mark.parametrize(
    "code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR]
)
async def test_a_refusal_of_a_damaged_batch(code: int) -> None:
    """Whatever the destination calls it: a batch that came with a wrong checksum is ``corrupt``."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(3))
        flip(source, 8 * HEADER_SIZE, at=1)
        destination.next("Produce", faults.Fault())
        destination.next("Produce", faults.refuse(code))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "corrupt"
            halted = flow.partition().halted
            assert halted is not None
            assert "it came with a wrong checksum" in halted.detail


async def test_a_refusal_of_a_sound_batch() -> None:
    """It was damaged on its way: it is sent again, and only if that goes on does the partition halt."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(3))
        destination.next("Produce", faults.refuse(ErrorCode.CORRUPT_MESSAGE))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            for _ in range(9):
                destination.next("Produce", faults.refuse(ErrorCode.CORRUPT_MESSAGE))
            source.store("t", 0, *batches(1, first=9))
            assert await flow.halted() == "refused"


@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD])
async def test_a_broker_that_names_it(code: int) -> None:
    """What it calls a magic that cannot be is not what it says when it refuses a batch."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(3))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            for _ in range(100):
                source.next("Fetch", faults.refuse(code))
            assert await flow.halted() == "corrupt"
            source.forgive()


@pytest.mark.parametrize("while_locating", [True, False])
@pytest.mark.parametrize("what", ["an error", "nothing"])
async def test_tiered_storage_that_gives_nothing(what: str, while_locating: bool) -> None:
    """What is not on the leader's disk may be away for a while (KIP-405): that is no damage, and no gap."""
    fault = faults.refuse(ErrorCode.UNKNOWN_SERVER_ERROR) if what == "an error" else faults.nothing()
    async with clusters() as (source, destination):
        stored = batches(3)
        for cluster in (source, destination):
            cluster.add_topic("t")
        source.store("t", 0, *stored)
        if while_locating:
            for one in copies(stored[:1], cluster_id=source.cluster_id):
                assert destination.log("t").produce(one)[0] == 0
        source.log("t").local_start = source.log("t").end
        for _ in range(2_000):
            source.next("Fetch", fault)
        async with mirroring(source, destination, backoff_ms=1, backoff_max_ms=2, accept_gaps=True) as flow:
            await until(lambda: len(source.seen("Fetch")) > 100 or flow.partition().halted)
            assert flow.partition().halted is None
            source.forgive()
            await flow.copied()
            assert not flow.log.of("skipped")


async def test_a_gap_that_tiered_storage_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched has a gap, and the look at it gets nothing: it is looked at again after a pause, not at once."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        stored = batches(6)
        source.store("t", 0, *stored[:2])
        monkeypatch.setattr(gaps, "Backoff", lambda **_: Backoff(least_ms=60_000, most_ms=60_000))
        async with mirroring(source, destination, fetch_max_wait_ms=60_000) as flow:
            await flow.copied()
            source.log("t").local_start = 1 << 40
            assert flow.partition().cursor.due == 6
            for _ in range(1_000):
                source.next("Fetch", faults.nothing())
            source.store("t", 0, *stored[4:])
            await until(lambda: bool(flow.log.of("storage_unavailable")))
            asked = len(source.seen("Fetch"))
            await asyncio.sleep(0.3)
            assert len(source.seen("Fetch")) == asked
            assert flow.partition().halted is None
            assert destination.log("t").end == 6


@pytest.mark.parametrize("while_locating", [True, False])
async def test_a_broker_that_fails_at_what_it_has(while_locating: bool) -> None:
    """Brokers say UNKNOWN_SERVER_ERROR when they meet a length that cannot be. Once may be anything."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(3))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            source.next("Fetch", faults.refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
            source.store("t", 0, *batches(1, first=9))
            await flow.copied()
            for _ in range(100):
                if not while_locating:
                    source.next("Fetch", faults.Fault())
                source.next("Fetch", faults.refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
            assert await flow.halted() == "corrupt"
            halted = flow.partition().halted
            assert halted is not None
            assert "UNKNOWN_SERVER_ERROR" in halted.detail
            source.forgive()


@pytest.mark.parametrize("moves", [True, False])
async def test_a_log_that_another_broker_could_not_read(moves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight times in a row is damage on that broker's disk: a new leader has a disk of its own."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(3))
        suspect = Verdicts.suspect

        def suspected(verdicts: Verdicts, partition: Partition, halted: Halted) -> bool:
            found = suspect(verdicts, partition, halted)
            if found and moves:
                source.forgive()
                source.log("t").epoch += 1
                source.changed()
            return found

        monkeypatch.setattr(Verdicts, "suspect", suspected)
        monkeypatch.setattr(seeking, "REFRESH_AT_MOST_EVERY_S", 0.0)  # or the new leader would not be known yet
        for _ in range(1_000):
            source.next("Fetch", faults.refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
        async with mirroring(source, destination) as flow:
            if moves:
                await until(lambda: destination.log("t").end == 9 or flow.partition().halted)
                assert flow.partition().halted is None
                assert flow.log.of("resync")
            else:
                assert await flow.halted() == "corrupt"
