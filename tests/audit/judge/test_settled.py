"""What a log cleaner explains, of batches that were opened, and what it does not."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from mirror.audit.judge.changed.cleaned import OpenedBatches, settled
from mirror.audit.judge.fills import Explained
from mirror.audit.model.differences import RecordDifference
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole, What

KEY = TopicPartition("t", 0)
BOTH = frozenset(Side)
OURS, THEIRS = Side.SOURCE, Side.DESTINATION
Told = tuple[Kind, Span | None, Span | None, int, int]


def row(base: int, name: str = "a", records: int = 3) -> BatchRow:
    """A batch of three offsets."""
    return BatchRow(base, base + 2, records, 0, 1_000, 1_000, 100, True, name.encode())


def only(at: Side | None, *offsets: int, excused: bool = True) -> list[RecordDifference]:
    """Records that one side alone has, of ten bytes each."""
    return [RecordDifference(offset, at, excused, 10) for offset in offsets]


def opened(*differences: RecordDifference, here: Iterable[Hole] = (), there: Iterable[Hole] = ()) -> OpenedBatches:
    """Cleaners work on both sides."""
    return OpenedBatches(
        differences=sorted(differences), cleaned=BOTH, here=Explained(here), there=Explained(there)
    )  # fmt: skip


def judged(ours: BatchRow | None, theirs: BatchRow | None, told: OpenedBatches) -> list[Told]:
    """What is said; that rows are taken out if, and only if, something is."""
    source = {ours.base_offset: ours} if ours else {}
    destination = {theirs.base_offset: theirs} if theirs else {}
    found = list(settled(KEY, source, destination, told))
    assert bool(found) == (not source and not destination)
    return [(one.kind, one.source, one.destination, one.records, one.bytes) for one in found]


def test_records_that_the_source_lacks() -> None:
    ours, theirs = row(3, "left", 1), row(3)
    assert judged(ours, theirs, opened(*only(THEIRS, 3, 4))) == [(Kind.UNVERIFIABLE, Span(3, 6), Span(3, 6), 2, 20)]


def test_records_that_the_destination_lacks() -> None:
    ours, theirs = row(3), row(3, "left", 2)
    assert judged(ours, theirs, opened(*only(OURS, 5))) == [(Kind.CLEANED, Span(3, 6), Span(3, 6), 1, 10)]


def test_records_that_each_lacks() -> None:
    ours, theirs = row(3, "x", 2), row(3, "y", 1)
    differences = [*only(OURS, 3, 4), *only(THEIRS, 5)]
    assert judged(ours, theirs, opened(*differences)) == [(Kind.UNVERIFIABLE, Span(3, 6), Span(3, 6), 1, 10)]


def test_a_batch_that_was_only_rewritten() -> None:
    ours, theirs = row(3, "x"), row(3, "y")
    assert judged(ours, theirs, opened()) == [(Kind.CLEANED, Span(3, 6), Span(3, 6), 0, 0)]
    assert judged(ours, theirs._replace(max_timestamp=7), opened()) == []


def test_a_batch_that_is_gone() -> None:
    gap = Hole(2, 9, What.GAP)
    assert judged(None, row(3), opened(*only(THEIRS, 3, 4, 5), here=[gap])) == [
        (Kind.UNVERIFIABLE, None, Span(3, 6), 3, 30)
    ]
    assert judged(row(3), None, opened(*only(OURS, 3, 4, 5), there=[gap])) == [(Kind.CLEANED, Span(3, 6), None, 3, 30)]


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (row(3, "x", 2), row(3), opened(*only(THEIRS, 3, excused=False))),
        (row(3, "x", 2), row(3), opened(*only(THEIRS, 3), *only(None, 4))),
        (row(3, "x", 2), row(3), replace(opened(*only(THEIRS, 3)), cleaned={THEIRS})),
        (row(3), row(3, "x", 2), replace(opened(*only(OURS, 3)), cleaned={OURS})),
        (row(3, "x", 2), row(3)._replace(flags=16), opened(*only(THEIRS, 3))),
        (row(3, "x", 2)._replace(last_offset=4), row(3), opened(*only(THEIRS, 3))),
        (row(3, "x", 1), row(3), opened(*only(THEIRS, 3))),
        (None, row(3), opened(*only(THEIRS, 3, 4, 5))),
        (None, row(3), opened(*only(THEIRS, 3, 4, 5), here=[Hole(3, 5, What.GAP)])),
        (None, row(3), opened(*only(THEIRS, 3, 4, 5), here=[Hole(3, 6, What.ABORTED)])),
        (None, row(3), opened(*only(THEIRS, 3, 4), here=[Hole(3, 6, What.GAP)])),
        (None, row(3), opened(*only(THEIRS, 3, 4, 5, excused=False), here=[Hole(3, 6, What.GAP)])),
        (row(3), None, opened(*only(OURS, 3, 4, 5))),
    ],
    ids=[
        "no later record of its key", "another record", "no cleaner at the source", "no cleaner at the destination",
        "other attributes", "other borders", "records that nobody looked at", "the source has something there",
        "in part", "aborted data", "a record that nobody looked at", "a key of its own", "a marker in its place",
    ],
)  # fmt: skip
def test_what_no_cleaner_explains(ours: BatchRow | None, theirs: BatchRow | None, told: OpenedBatches) -> None:
    assert judged(ours, theirs, told) == []


def test_a_batch_beside_others() -> None:
    """Where the other side has a batch at some of its offsets, nothing was only removed."""
    source, destination = {4: row(4)}, {3: row(3)}
    told = opened(*only(THEIRS, 3, 4, 5), here=[Hole(3, 6, What.GAP)])
    assert list(settled(KEY, source, destination, told)) == []
