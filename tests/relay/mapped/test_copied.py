"""What is kept of a mapped partition: jumps, runs, chunks, and what of them is yet to be written down."""

from hypothesis import given
from hypothesis import strategies as st

from mirror.offsetmap.entries.chunks import CHUNK_RUNS, Order
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.records.admit import Cause
from mirror.records.identity import Identity
from mirror.relay.mapped.copied import UNWRITTEN_CHUNKS, CopiedRuns, Jump, OpenMap

SIDE = Subject("t", 0, "t")
ORDER = Order(3, 1000, 5)


def open_map(*runs: Run) -> OpenMap:
    return OpenMap(SIDE, writer="w", order=ORDER, since=0, start=OffsetMap(runs))


def copied(source: int = 0, destination: int = 0) -> CopiedRuns:
    return CopiedRuns(
        open_map=open_map(),
        source=source,
        source_epoch=0,
        destination=destination,
        identity=Identity(1000, 5, 0),
        own=frozenset({1000}),
        source_id=b"\x01" * 16,
    )


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 3))
def test_whatever_is_written_when_the_ledger_has_the_whole_map(writes: list[bool], every: int) -> None:
    """OpenMap batches, now and then written down: at the end the map in the ledger is the whole one, chunk by chunk."""
    ledger, kept, whole = Ledger(), open_map(), OffsetMap()
    source = destination = 0
    for number, write in enumerate([*writes, True]):
        for _ in range(CHUNK_RUNS // 7):
            kept.landed(source, destination, 2)
            whole.append(source, destination, 2)
            source, destination = source + 2, destination + 2 + every
        if write or number % 5 == 4:
            chunks = kept.unwritten()
            for chunk in chunks:
                ledger.put(chunk)
            kept.written(chunks)
            assert not kept.changed
            assert ledger.map(SIDE) == whole
    assert all(len(chunk.map) <= CHUNK_RUNS for chunk in ledger.chunks(SIDE))
    assert kept.last == whole[-1]
    assert len(kept.unwritten()) == 1


def test_what_landed_while_it_was_written_is_written_next() -> None:
    kept = open_map(Run(0, 10, 5))
    chunks = kept.unwritten()
    kept.landed(5, 15, 5)
    kept.written(chunks)
    assert kept.changed
    assert list(kept.unwritten()[-1].map) == [Run(0, 10, 10)]


def test_too_much_that_waits_is_told() -> None:
    kept = open_map()
    for number in range((UNWRITTEN_CHUNKS + 1) * CHUNK_RUNS):
        assert not kept.overflows or number > UNWRITTEN_CHUNKS * CHUNK_RUNS
        kept.landed(2 * number, number, 1)
    assert kept.overflows
    kept.written(kept.unwritten())
    assert not kept.overflows


def test_nothing_is_sent_behind_an_account_that_is_not_confirmed() -> None:
    """It says so; confirmed, it is written again."""
    account = copied()
    first = account.checkpoint(0)
    assert (first.closed, first.confirmed) == (True, False)
    account.written(account.unwritten(), first)
    account.confirmed = True
    second = account.checkpoint(0)
    assert (second.closed, second.confirmed) == (False, True)
    assert account.changed
    assert not account.unwritten()


def test_what_is_confirmed_is_written_once() -> None:
    account = copied()
    account.confirmed = True
    account.written(account.unwritten(), account.checkpoint(0))
    assert not account.changed


def test_jumps_are_passed_once_all_before_them_has_landed() -> None:
    """Holes in a row are one, but for a gap that was accepted, which is recorded by itself."""
    one = copied(source=10, destination=100)
    one.skip(13, 2, Cause.MARKER)
    one.skip(15, 1, Cause.ABORTED)
    one.skip(16, 4, Cause.ACCEPTED)
    assert one.jump() is None
    one.landed(107, 3)
    assert (one.source, one.destination, one.identity) == (13, 110, Identity(1000, 5, 3))
    assert [one.jump(), one.jump(), one.jump()] == [Jump(13, 16, Cause.MARKER), Jump(16, 20, Cause.ACCEPTED), None]
    assert one.source == 20
    one.landed(110, 1)
    checkpoint = one.checkpoint(at_ms=7)
    assert (checkpoint.source_offset, checkpoint.destination_offset) == (21, 111)
    assert (checkpoint.source_id, checkpoint.destination_id) == ("01" * 16, None)
    assert list(one.open_map.unwritten()[-1].map) == [Run(10, 107, 3), Run(20, 110, 1)]
    assert one.changed
    one.written(one.open_map.unwritten(), checkpoint)
    assert not one.changed


def test_what_both_logs_say_is_taken_over() -> None:
    one = copied(source=10, destination=100)
    one.skip(12, 2, Cause.MARKER)
    one.found(OffsetMap([Run(10, 103, 2), Run(14, 105, 2)]), 16, 4, Identity(1000, 5, 4), 107)
    assert (one.source, one.destination, one.source_epoch, one.identity.sequence) == (16, 107, 4, 4)
    assert one.jump() is None
    one.found(OffsetMap(), 16, 4, one.identity, 107)
    assert one.destination == 107
