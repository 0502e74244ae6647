"""The batch that was copied last, held against the source again: logs that only answer what they are told to."""

from types import SimpleNamespace
from typing import Any

import pytest

from mirror.records.header import BatchHeader
from mirror.records.identity import Identity
from mirror.records.mapping import Run
from mirror.records.state import Order, Side
from mirror.relay.halts import PartitionHalted
from mirror.relay.journal import Copied, Journal
from mirror.relay.lastcopy import Sides, check_end, check_last
from tests.records.builders import Record, kafka_batch

OWN = 7
LAST = Run(0, 100, 10)
"""Ten offsets, the last batch of which holds two."""


def batch(base_offset: int, value: bytes = b"value", *, producer_id: int = -1, leader_epoch: int = 3) -> bytes:
    records = [Record(at, 0, None, value) for at in range(2)]
    return kafka_batch(records, base_offset=base_offset, producer_id=producer_id, leader_epoch=leader_epoch)


class Held:
    """A log: one batch, and ends that are told one after the other."""

    def __init__(self, found: bytes | None, *ends: int) -> None:
        self._found = found
        self._ends = list(ends)

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        return None if self._found is None else (BatchHeader.read(self._found), self._found)

    async def true_end(self) -> int:
        return self._ends.pop(0)


def sides(here: Held, there: Held | None = None, *, compacted: bool = False, log_start: int = 0) -> Sides:
    logs: Any = SimpleNamespace(here=here, there=there)
    return Sides("t-0", logs.here, logs.there, 0, log_start, compacted)


COPY = Held(batch(108, producer_id=OWN, leader_epoch=0))


async def test_it_is_the_one() -> None:
    """Its leader epoch is known then, and asked for with the next fetch."""
    assert await check_last(sides(Held(batch(8)), COPY), LAST, {OWN}) == 3


@pytest.mark.parametrize("found", [batch(8, b"VALUE"), batch(9), None], ids=["others", "elsewhere", "nothing"])
async def test_a_source_that_was_truncated_and_has_grown(found: bytes | None) -> None:
    """What stands there now was never copied, and what was copied is nowhere at the source: going on would lose it."""
    with pytest.raises(PartitionHalted, match="source_truncated: t-0: the source's batch at offset 9 is not the one"):
        await check_last(sides(Held(found), COPY), LAST, {OWN})


@pytest.mark.parametrize(
    ("at", "last"),
    [
        (sides(Held(batch(8)), COPY), None),
        (sides(Held(batch(8, b"VALUE")), COPY, log_start=110), LAST),
        (sides(Held(batch(8, b"VALUE")), Held(batch(108))), LAST),
        (sides(Held(None), COPY, compacted=True), LAST),
        (sides(Held(batch(12)), COPY, compacted=True), LAST),
    ],
    ids=["nothing copied", "deleted at the destination", "another's", "cleaned away", "cleaned away, more behind"],
)
async def test_nothing_can_be_said(at: Sides, last: Run | None) -> None:
    assert await check_last(at, last, {OWN}) == -1


async def test_a_source_that_ends_before() -> None:
    """Seen twice; once may be a leader that is still catching up."""
    await check_end(sides(Held(None, 10)), 10, 0.0)
    await check_end(sides(Held(None, 6, 10)), 10, 0.0)
    with pytest.raises(PartitionHalted, match="source_truncated: t-0: copied up to offset 10, and the source ends at"):
        await check_end(sides(Held(None, 6, 6)), 10, 0.0)


def test_an_epoch_is_of_its_batch() -> None:
    """The epoch of what was copied first, asked for with what was copied last, would make a healthy source look
    truncated after any election."""
    journal = Journal(Side("t", 0, "t"), writer="w", order=Order(1, OWN, 0), since=0)
    copied = Copied(
        journal=journal, source=0, source_epoch=5, destination=0, identity=Identity(OWN, 0, 0), own=frozenset({OWN})
    )
    copied.landed(0, 3)
    assert (copied.source, copied.source_epoch) == (3, -1)
