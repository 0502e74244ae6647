"""``offsets: mapped``: a batch of the flow's own between those that were acknowledged, which a leader took that had
forgotten who owns the partition."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

import pytest

from mirror.net.errors import Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.net.logs.reading import Segment
from mirror.records.header import BatchHeader
from mirror.relay.mapped.copied import Between
from mirror.relay.mapped.strays import Strays, first_own
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.fakes.loop import until
from tests.records.builders import raw_batch, sealed
from tests.relay.stage.flows import Flow, batch, clusters, fill, mirroring
from tests.relay.stage.noting import SIDE, ledger
from tests.simulation.model.broker import marker_batch

END = 60
LONG_MS = 600_000
"""Nothing is written down by the clock."""


def at(batch: bytes, base_offset: int) -> bytes:
    """The same, elsewhere in the log."""
    header = BatchHeader.read(batch)._replace(base_offset=base_offset)
    return header.pack() + batch[len(header.pack()) :]


@contextmanager
def behind(destination: FakeCluster, offset: int, *, own: bool) -> Iterator[None]:
    """Once the destination ends at ``offset``, somebody else's batch is appended, or the flow's first one once more: at
    the very moment, so that the next batch of the flow's comes behind it."""
    log, produce = destination.log("t"), FakeLog.produce

    def interfered(self: FakeLog, records: bytes, **how: Any) -> tuple[int, int]:
        found = produce(self, records, **how)
        if self is log and self.end == offset:
            self.store(at(log.batches[0], offset) if own else batch(offset, payload=b"other"))
        return found

    with patch.object(FakeLog, "produce", interfered):
        yield


def begin(source: FakeCluster, destination: FakeCluster) -> None:
    """Old records at the source, and a destination that forgets after a day who sent them."""
    fill(source)
    destination.add_topic("t")
    destination.producer_id_expiration_ms = 86_400_000


async def copied(flow: Flow, end: int = END) -> None:
    """Up to this source offset."""
    await until(lambda: flow.partition().queue.acknowledged == end)


def written_to(destination: FakeCluster) -> int:
    """Up to where the partition is copied, by what is written down."""
    checkpoint = ledger(destination).checkpoint(SIDE)
    assert checkpoint is not None
    return checkpoint.source_offset


@pytest.mark.parametrize("looked", [True, False])
async def test_a_batch_that_stands_there_twice(looked: bool) -> None:
    """
    1. The source's records are old, so that the leader forgets who sent them: it takes the first batch a second time,
       between two of those that follow.
    2. Nothing behind it is written down before it is looked at: the partition halts, also for whoever comes next.
    3. Without that look, the checkpoint is behind it, and nobody ever says so.
    """
    async with clusters() as (source, destination):
        begin(source, destination)
        with (
            behind(destination, 12, own=True),
            patch.object(Strays, "concerns", Strays.concerns if looked else _unconcerned),
        ):
            async with mirroring(source, destination, mapped=True, checkpoint_interval_ms=LONG_MS) as flow:
                await copied(flow)
                await flow.relay.durable.write_down()
                if looked:
                    assert await flow.halted() == "not_a_copy"
                    assert flow.log.of("resync")[-1]["cause"] == "stray"
                assert written_to(destination) == (0 if looked else END)
        async with mirroring(source, destination, mapped=True) as flow:
            if looked:
                assert await flow.halted() == "not_a_copy"
            else:
                await copied(flow)
                assert not flow.log.of("halted")


@pytest.mark.parametrize("stopped", [True, False])
async def test_batches_of_others_hold_nothing_up(stopped: bool) -> None:
    """Looked at, they are nobody's concern; what follows is written down as it is."""
    async with clusters() as (source, destination):
        begin(source, destination)
        async with mirroring(source, destination, mapped=True, checkpoint_interval_ms=LONG_MS) as flow:
            with behind(destination, 12, own=False):
                await copied(flow)
            place = flow.partition().queue.copied
            assert place is not None
            assert list(place.between) == [Between(12, 15)]
            if stopped:
                assert await flow.relay.drain()
            else:
                await flow.relay.durable.write_down()
                await until(lambda: written_to(destination) == END)
            assert not place.between
            checkpoint = ledger(destination).checkpoint(SIDE)
            assert checkpoint is not None
            assert (checkpoint.source_offset, checkpoint.destination_offset) == (END, END + 3)
            assert checkpoint.closed is stopped


async def test_what_cannot_be_looked_at_is_not_written_down() -> None:
    """Neither is it lost: the next time has it all."""

    async def unreachable(*_: Any) -> None:
        raise Unreachable("not now")

    async with clusters() as (source, destination):
        begin(source, destination)
        async with mirroring(source, destination, mapped=True, checkpoint_interval_ms=LONG_MS) as flow:
            with behind(destination, 12, own=False):
                await copied(flow)
            strays = flow.relay.durable.strays
            with patch("mirror.relay.mapped.strays.first_own", unreachable):
                await flow.relay.durable.write_down()
                await strays.ended()
            assert written_to(destination) == 0
            await flow.relay.durable.write_down()
            await strays.ended()
            assert written_to(destination) == END


async def test_what_is_damaged_may_be_anybodys() -> None:
    """It is found again from the checkpoint on, where a damaged batch halts."""

    async with clusters() as (source, destination):
        begin(source, destination)
        async with mirroring(source, destination, mapped=True, checkpoint_interval_ms=LONG_MS) as flow:
            with behind(destination, 12, own=False):
                await copied(flow)
            log = destination.log("t")
            place = [BatchHeader.read(one).base_offset for one in log.batches].index(12)
            log.batches[place] = log.batches[place][:-1] + b"!"
            await flow.relay.durable.write_down()
            assert await flow.halted() == "corrupt_destination"
            assert written_to(destination) == 0


def _unconcerned(*_: object) -> bool:
    return False


class Log:
    """A destination with these batches, read one at a time."""

    name = "t-0 at dest"

    def __init__(self, *batches: bytes, start: int = 0, end: int | None = None) -> None:
        self._batches = [(BatchHeader.read(one), memoryview(one)) for one in batches]
        self._start = start
        self._end = self._batches[-1][0].next_offset if end is None else end
        self.read_at: list[int] = []

    async def start(self) -> int:
        return self._start

    async def read(self, offset: int, **_: int) -> Segment:
        self.read_at.append(offset)
        there = [one for one in self._batches if one[0].last_offset >= offset and one[0].base_offset < self._end]
        return Segment(there[:1], [], self._end, self._end, self._start)


def ours(base: int, producer_id: int = 1000) -> bytes:
    """Three records."""
    return sealed(
        raw_batch(
            b"ours", base_offset=base, last_offset_delta=2, producer_id=producer_id, producer_epoch=0, base_sequence=0
        )
    )


async def looked_at(log: Log, *places: tuple[int, int]) -> int | None:
    """Base offset of what was found."""
    found = await first_own(cast(PartitionLog, cast(Any, log)), {1000, 1001}, [Between(*place) for place in places])
    return None if found is None else found.base_offset


async def test_only_the_places_between_are_looked_at() -> None:
    log = Log(ours(0), batch(3), ours(6), batch(9), ours(12, 1001), ours(15))
    assert await looked_at(log, (3, 6), (9, 12)) is None
    assert log.read_at == [3, 9]
    assert await looked_at(log, (3, 6), (9, 15)) == 12


async def test_markers_are_no_batches() -> None:
    log = Log(ours(0), marker_batch(3, 1000, 1), ours(4))
    assert await looked_at(log, (3, 4)) is None


async def test_what_is_gone_hurts_nobody() -> None:
    """Deleted, or cleaned away: inside of the log, or where the log has nothing behind it."""
    assert await looked_at(Log(ours(9), start=9), (3, 6)) is None
    assert await looked_at(Log(ours(0), ours(9)), (3, 6)) is None
    assert await looked_at(Log(ours(0), end=9), (3, 6)) is None


async def test_what_a_leader_does_not_show_yet_is_not_known() -> None:
    with pytest.raises(Unreachable):
        await looked_at(Log(ours(0), batch(3), ours(6), end=3), (3, 6))
