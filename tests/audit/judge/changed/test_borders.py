"""Batches with other borders: those whose header claims more than the log has, and those over the same offsets."""

from collections.abc import Iterable, Mapping, Set

import pytest

from mirror.audit.judge.changed.borders import is_overlaid, overreaching, told_by_borders
from mirror.audit.model.differences import RecordDifference
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow
from tests.audit.judge.test_kinds import log, row, told

KEY = TopicPartition("t", 0)
CLAIMED = (1 << 31) - 1
ENDS = {Side.SOURCE: 15, Side.DESTINATION: 15}


def overreach(
    source: dict[int, BatchRow], destination: dict[int, BatchRow], ends: Mapping[Side, int] = ENDS, **flags: bool
) -> list[Finding]:
    return list(overreaching(KEY, source, destination, ends, **{"compacted": False, "rebatches": False, **flags}))


@pytest.mark.parametrize("side", Side)
def test_a_header_that_claims_what_is_behind_the_log(side: Side) -> None:
    """The other side's batches from there on belong to the same finding, and nothing else is said of them."""
    logs = {each: log("abc") for each in Side}
    logs[side] = {0: row(0, "a"), 5: row(5, "b", last_offset=5 + CLAIMED)}
    (found,) = overreach(logs[Side.SOURCE], logs[Side.DESTINATION])
    assert (found.kind, found.source, found.destination) == (Kind.CORRUPT, Span(5, 15), Span(5, 15))
    assert found.detail == (
        f"the header at the {side.value} claims offsets up to 2,147,483,652, and the log ends at 14; its checksum is "
        "right"
    )
    assert all([*rows] == [0] for rows in logs.values())


def test_without_the_other_side() -> None:
    assert told(overreach({5: row(5, "b", last_offset=5 + CLAIMED)}, {})) == [(Kind.CORRUPT, Span(5, 15), None, 1)]


def test_a_destination_may_go_on_behind_what_is_audited() -> None:
    """A dense batch is a copy of what the source got since; a cleaner may have taken records of that."""
    dense = {10: row(10, "c", 10)}
    assert overreach({}, dict(dense)) == []
    sparse = {10: row(10, "c", 10, records=4)}
    assert overreach({}, dict(sparse), compacted=True, rebatches=True) == []
    assert [one.kind for one in overreach({}, dict(sparse), compacted=True)] == [Kind.CORRUPT]
    assert [one.kind for one in overreach(dict(dense), {})] == [Kind.CORRUPT], "a source ends where a batch does"


def test_ends_that_are_not_known_and_other_damage() -> None:
    wide = row(5, "b", last_offset=5 + CLAIMED)
    assert overreach({5: wide}, {}, {}) == []
    assert overreach({5: wide._replace(crc_ok=False)}, {}) == [], "its fields say nothing"
    assert overreach({5: wide}, {}, {Side.SOURCE: 5}) == [], "it begins behind what is audited"


OURS = {0: row(0, "a"), 5: row(5, "b")}
THEIRS = {0: row(0, "x", 3), 3: row(3, "y", 7)}


def over_each_other(*wrong: RecordDifference, cleaned: Set[Side] = frozenset()) -> list[Finding]:
    return list(told_by_borders(KEY, OURS, THEIRS, list(wrong), cleaned))


def differing(offsets: Iterable[int], ours: str, theirs: str) -> list[RecordDifference]:
    """Each letter is a record."""
    return [
        RecordDifference(offset, None, False, 1, (here.encode(), there.encode()))
        for offset, here, there in zip(offsets, ours, theirs, strict=True)
    ]


def test_the_same_records_in_other_batches() -> None:
    assert told(over_each_other()) == [(Kind.RESEGMENTED, Span(0, 10), Span(0, 10), 2)]


def test_batches_that_lie_over_missing_ones() -> None:
    """None of their records is the source's: what is missing is one finding, and each of theirs is another."""
    found = over_each_other(*differing(range(10), "abcdefghij", "0123456789"))
    assert told(found) == [
        (Kind.MISSING, Span(0, 10), None, 2),
        (Kind.EXTRA, None, Span(0, 3), 1),
        (Kind.EXTRA, None, Span(3, 10), 1),
    ]
    assert {one.detail for one in found} == {""}


def test_other_records_among_the_same() -> None:
    (found,) = over_each_other(*differing(range(4, 6), "ab", "xy"))
    assert told([found]) == [(Kind.VALUE_CHANGED, Span(0, 10), Span(0, 10), 2)]
    assert found.detail == (
        "2 batches at the source, 2 at the destination: 2 of the source's records are not there, "
        "2 of the destination's are not the source's"
    )


def test_records_at_other_offsets() -> None:
    """Nothing is at its offset, and the records are the source's all the same."""
    (found,) = over_each_other(*differing(range(10), "abcdefghij", "bcdefghijx"))
    assert found.kind is Kind.VALUE_CHANGED
    assert found.detail.endswith(
        ": 1 of the source's records are not there, 1 of the destination's are not the source's, 9 are at other offsets"
    )


def test_records_of_batches_that_are_beside_the_group() -> None:
    """A record of a batch that was found elsewhere is none of theirs."""
    found = list(
        told_by_borders(KEY, {5: OURS[5]}, {5: row(5, "y", 4)}, differing(range(5, 10), "abcde", "bcdeX"), set())
    )
    assert [one.detail.rpartition(": ")[2] for one in found] == [
        "1 of the source's records are not there, 4 are at other offsets"
    ]


def test_what_cleaners_have_taken_does_not_count() -> None:
    gone = RecordDifference(4, Side.DESTINATION, True, 1)
    assert over_each_other(gone, cleaned={Side.SOURCE})[0].kind is Kind.RESEGMENTED
    assert over_each_other(gone)[0].kind is Kind.VALUE_CHANGED


def test_when_batches_have_to_be_opened() -> None:
    assert is_overlaid(OURS.values(), THEIRS.values())
    assert not is_overlaid(OURS.values(), [])
    assert not is_overlaid(OURS.values(), log("xy").values()), "other bytes with the same borders: a changed value"
