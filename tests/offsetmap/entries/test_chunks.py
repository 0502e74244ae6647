"""The pieces of an offset map hang together, back to its beginning, or there is no map."""

from dataclasses import replace

import pytest

from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.chunks import NOT_NOTED, ChunkId, MapChunk, Order, joined, linked
from mirror.offsetmap.entries.entry import read_entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.runs import MapError, MappedOffset, OffsetMap, Run
from mirror.records.identity import Identity

SIDE = Subject("t", 0, "t")


def chunk(
    writer: str,
    number: int,
    *runs: Run,
    takeover: int = 1,
    follows: ChunkId | None = None,
    gone_to: int = 0,
    since: int = 0,
    sealed: bool = True,
) -> MapChunk:
    return MapChunk(
        subject=SIDE,
        writer=writer,
        order=Order(takeover, 1000, takeover),
        number=number,
        since=since,
        map=OffsetMap(runs),
        sealed=sealed,
        follows=follows,
        gone_to=gone_to,
    )


FIRST = [chunk("a", 0, Run(0, 100, 5)), chunk("a", 1, Run(10, 110, 5)), chunk("a", 2, Run(20, 120, 5), sealed=False)]
"""Of one writer."""
SECOND = [
    chunk("b", at, Run(20 + 10 * at, 120 + 10 * at, 5), takeover=2, follows=FIRST[1].id, since=20) for at in range(2)
]
"""Of the next one, which has taken over what was open."""
LINKED = [*FIRST[:2], *SECOND]


def checkpoint(writer: str = "b", takeover: int = 2) -> Checkpoint:
    return Checkpoint(
        subject=SIDE,
        writer=writer,
        order=Order(takeover, 1000, takeover),
        source_offset=100,
        source_epoch=0,
        destination_offset=200,
        identity=Identity(1000, 0, 0),
    )


def ledger(*chunks: MapChunk) -> Ledger:
    found = Ledger()
    for one in chunks:
        found.put(one)
    found.put(checkpoint())
    return found


def test_what_hangs_together() -> None:
    """Also beside a chunk that a worker has written that had lost the partition."""
    assert ledger(*LINKED).linked(SIDE) == LINKED
    assert ledger(*LINKED, FIRST[2]).linked(SIDE) == LINKED
    assert ledger(*LINKED).map(SIDE) == joined(LINKED)


@pytest.mark.parametrize("at", range(len(LINKED)))
def test_a_chunk_that_is_missing(at: int) -> None:
    """
    1. Any one of them is gone: there is no map, since it would give what comes behind for what it lacks.
    2. Unless the destination has deleted that, as far as it is known now or was when the account began.
    """
    left = [each for each in LINKED if each is not LINKED[at]]
    if at + 1 == len(LINKED):
        # What was written last: the checkpoint is of later then, or is gone as well.
        assert ledger(*left).linked(SIDE) == left
        return
    with pytest.raises(MapError, match=f"chunk {LINKED[at].number} of writer {LINKED[at].writer} is missing"):
        ledger(*left).linked(SIDE)
    behind = LINKED[at + 1].map[0].destination
    assert joined(left).to_destination(LINKED[at].map[0].source) != MappedOffset(
        LINKED[at].map[0].destination, exact=True
    )
    with pytest.raises(MapError):
        ledger(*left).linked(SIDE, gone_to=behind - 1)
    assert ledger(*left).linked(SIDE, gone_to=behind) == LINKED[at + 1 :]
    noted = [replace(each, gone_to=behind) for each in left]
    assert ledger(*noted).linked(SIDE) == noted[at:]


def test_a_checkpoint_without_its_map() -> None:
    with pytest.raises(MapError, match="no chunk of writer b"):
        ledger(*FIRST).linked(SIDE)


def test_an_account_that_begins_anew() -> None:
    """What was written before is of other topics, and says nothing."""
    anew = chunk("b", 0, Run(20, 7, 5), takeover=2, since=20)
    assert ledger(*FIRST, anew).linked(SIDE) == [anew]


def test_chunks_of_a_version_that_did_not_note_what_is_before() -> None:
    """They follow what counts before them; that one of a writer is missing between is seen all the same."""
    older = [replace(each, follows=NOT_NOTED) for each in LINKED]
    assert b"follows" not in older[0].value()
    assert ledger(*older).linked(SIDE) == older
    assert ledger(*older[2:]).linked(SIDE) == older[2:]
    for at in (0, 2):
        with pytest.raises(MapError, match="is missing"):
            ledger(*older[:at], *older[at + 1 :]).linked(SIDE)


def test_accounts_that_follow_each_other_in_a_circle() -> None:
    """No mirror writes that."""
    one = chunk("a", 0, follows=ChunkId("b", 0))
    other = chunk("b", 0, takeover=2, follows=ChunkId("a", 0))
    with pytest.raises(MapError):
        linked([one, other], [one, other], writer="b")


@pytest.mark.parametrize("one", [FIRST[0], SECOND[1], replace(FIRST[0], follows=NOT_NOTED)])
def test_what_is_written_is_read(one: MapChunk) -> None:
    assert read_entry(one.key(), one.value()) == one
