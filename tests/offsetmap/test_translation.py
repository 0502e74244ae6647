"""Offsets translated by what both logs show behind the checkpoint; logs that only answer. (The rest, on real brokers:
``tests/service/offsets/test_translate.py``.)"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from mirror.net.logs.log import Segment
from mirror.offsetmap.entries.chunks import Order
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.runs import MappedOffset
from mirror.offsetmap.translation import translation
from mirror.records.header import TRANSACTIONAL, BatchHeader
from mirror.relay.mapped.copied import CopiedRuns, OpenMap, Unwritten
from tests.net.stage.scripted import FIRST, OWN, Scripted
from tests.offsetmap.compare.test_pieces import BEHIND, HALF, LARGE, SPARSE, batch, copies, pieces

SIDE = Subject("t", 0, "t")


class Log(Scripted):
    """One that also tells where it begins and ends."""

    topic = SimpleNamespace(name="t", topic_id=None)
    index = 0

    async def start(self) -> int:
        return 0

    async def visible_end(self) -> int:
        return self.end


def written() -> Any:
    """An internal topic that says that nothing was copied yet."""
    ledger = Ledger()
    open_map = OpenMap(SIDE, writer="w", order=Order(1, OWN, 0), since=0)
    account = Unwritten.of(
        CopiedRuns(open_map=open_map, source=0, source_epoch=-1, destination=0, identity=FIRST, own=frozenset({OWN}))
    )
    entries: list[Entry] = [*account.chunks, account.checkpoint]
    for entry in entries:
        ledger.apply(entry.key(), entry.value())
    return SimpleNamespace(ledger=ledger, topic="internal")


async def test_pieces_behind_the_checkpoint_of_which_the_first_is_gone() -> None:
    source: Any = Log("source", [LARGE, SPARSE, BEHIND])
    there = copies([*pieces(LARGE, most=HALF), *pieces(SPARSE), BEHIND])
    gone = BatchHeader.read(there[0]).next_offset
    assert 0 < gone < 6
    destination: Any = Log("destination", there[1:])
    found = await translation(written(), source, destination, committed=True)
    assert found is not None
    assert found.source_end == 14
    assert [found.to_destination(at) for at in (gone, 7, 10, 13)] == [
        MappedOffset(gone, exact=True), MappedOffset(7, exact=True), MappedOffset(8, exact=True),
        MappedOffset(10, exact=True),
    ]  # fmt: skip


class Transactional(Log):
    """The batches of producer 9 are of an aborted transaction, which only those learn who ask for committed data."""

    async def read(self, offset: int, *, committed: bool = False, **more: Any) -> Segment:
        found = await super().read(offset, **more)
        return found._replace(aborted=[(9, 3)] if committed else [])


async def test_under_the_level_of_the_checkpoint() -> None:
    """``isolation.level`` was changed since: what stands behind the checkpoint was copied under the former one."""
    first, last = batch(0, range(3)), batch(6, range(6, 9))
    aborted = batch(3, range(3, 6), producer_id=9, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    source: Any = Transactional("source", [first, aborted, last])
    state = written()
    before = state.ledger.checkpoint(SIDE)
    for level, copied, place in (("read_committed", [first, last], 3), ("read_uncommitted", [first, aborted, last], 6)):
        state.ledger.put(replace(before, isolation_level=level))
        destination: Any = Log("destination", copies(copied))
        for committed in (True, False):
            found = await translation(state, source, destination, committed=committed)
            assert found is not None
            assert (found.to_destination(6), found.source_end) == (MappedOffset(place, exact=True), 9)


async def test_a_destination_that_ends_before_the_checkpoint() -> None:
    """Others had written behind the copies, and that is lost. What comes next comes at the end that the log has now."""
    destination: Any = Log("destination", copies([LARGE]))
    source: Any = Log("source", [LARGE, SPARSE])
    state = written()
    state.ledger.put(replace(state.ledger.checkpoint(SIDE), destination_offset=destination.end + 20))
    found = await translation(state, source, destination, committed=True)
    assert found is not None
    assert (found.seen, found.destination_end) == (destination.end, destination.end)
