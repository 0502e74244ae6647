"""The offset map against a dictionary of single offsets."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.offsetmap.runs import MapError, MappedOffset, OffsetMap, Run

GAPS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 6)), max_size=30
)  # (hole at the source, others' offsets at the destination, offsets copied)


def built(gaps: list[tuple[int, int, int]], source: int = 0, destination: int = 0) -> tuple[OffsetMap, dict[int, int]]:
    """A map, and the same as a plain dictionary: source offset -> destination offset."""
    found = OffsetMap()
    plain = {}
    for hole, others, count in gaps:
        source += hole
        destination += others
        found.append(source, destination, count)
        plain.update({source + at: destination + at for at in range(count)})
        source += count
        destination += count
    return found, plain


def expected(plain: dict[int, int], offset: int) -> MappedOffset | None:
    later = [known for known in plain if known >= offset]
    if not later:
        return None
    return MappedOffset(plain[min(later)], exact=offset in plain)


@given(GAPS)
def test_both_look_ups_say_what_single_offsets_say(gaps: list[tuple[int, int, int]]) -> None:
    found, plain = built(gaps)
    back = {there: here for here, there in plain.items()}
    for offset in range(max([*plain, *back], default=0) + 3):
        assert found.to_destination(offset) == expected(plain, offset)
        assert found.to_source(offset) == expected(back, offset)


@given(GAPS)
def test_runs_are_as_few_as_can_be(gaps: list[tuple[int, int, int]]) -> None:
    found, plain = built(gaps)
    assert sum(run.length for run in found) == len(plain)
    for one, next_one in pairwise(found):
        assert (one.source_end, one.destination_end) != (next_one.source, next_one.destination)
    assert found.source_end == max(plain, default=-1) + 1
    assert found.destination_end == max(plain.values(), default=-1) + 1


@given(GAPS)
def test_pack_and_unpack(gaps: list[tuple[int, int, int]]) -> None:
    found, _ = built(gaps, 10**12, 3)
    assert OffsetMap.unpack(json.loads(json.dumps(found.pack()))) == found
    assert OffsetMap(found) == found


@given(GAPS, st.integers(0, 200))
def test_truncating_forgets_the_offsets_from_there_on(gaps: list[tuple[int, int, int]], cut: int) -> None:
    found, plain = built(gaps)
    found.truncate(cut)
    assert found == OffsetMap(Run(here, there, 1) for here, there in plain.items() if here < cut)
    found, plain = built(gaps)
    found.truncate_destination(cut)
    assert found == OffsetMap(Run(here, there, 1) for here, there in plain.items() if there < cut)


def test_runs_that_do_not_ascend_are_refused() -> None:
    found = OffsetMap([Run(10, 100, 5)])
    for run in ((14, 105, 1), (15, 104, 1), (15, 105, 0), (-1, 105, 1)):
        with pytest.raises(MapError):
            found.append(*run)
    assert list(found) == [Run(10, 100, 5)]
    with pytest.raises(MapError):
        OffsetMap.unpack([1, 2])
    with pytest.raises(MapError):
        OffsetMap.unpack([1, 2, -3])


def test_an_empty_map_knows_nothing() -> None:
    found = OffsetMap()
    assert found.to_destination(0) is None
    assert found.to_source(0) is None
    assert (found.source_end, found.destination_end, found.pack(), len(found)) == (0, 0, [], 0)
    found.truncate(0)
    found.truncate_destination(5)
    assert not len(found)
    assert "0 runs" in repr(found)


def test_a_long_copy_without_holes_is_one_run() -> None:
    found = OffsetMap()
    for at in range(1000):
        found.append(at * 7, 50 + at * 7, 7)
    assert list(found) == [Run(0, 50, 7000)]
    assert repr(found) == "<OffsetMap, 1 runs, 0 to 7000>"
