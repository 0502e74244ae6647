"""Every offset is in exactly one range, every range in exactly one task, whatever the sizes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.audit.model.places import Span, TopicPartition
from mirror.audit.prepare.plan import (
    LEAST_TASK_BYTES,
    MIB,
    MOST_TASKS,
    TASK_BYTES,
    Range,
    ReadingEstimate,
    bundled,
    chunk_range,
    from_json,
    merged,
    plan,
    task_size,
    to_json,
)

SPANS = st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 30)).map(lambda pair: Span(pair[0], pair[0] + pair[1]))
ESTIMATES = st.lists(st.tuples(SPANS, st.integers(0, 1 << 42)), max_size=12).map(
    lambda found: [ReadingEstimate(TopicPartition("t", index), span, size) for index, (span, size) in enumerate(found)]
)


@given(estimates=ESTIMATES, parallelism=st.integers(1, 64))
def test_ranges_cover_every_offset_once(estimates: list[ReadingEstimate], parallelism: int) -> None:
    tasks = plan(estimates, parallelism)
    assert all(tasks)
    ranges = [wanted for task in tasks for wanted in task]
    for estimate in estimates:
        mine = sorted(wanted for wanted in ranges if wanted.key == estimate.key)
        if not estimate.span.offsets:
            assert mine == []
            continue
        assert (mine[0].start, mine[-1].end) == estimate.span
        assert all(a.end == b.start for a, b in itertools.pairwise(mine))
        assert [wanted.first for wanted in mine] == [True] + [False] * (len(mine) - 1)
        assert all(wanted.width >= 1 and wanted.start < wanted.end for wanted in mine)
    assert from_json(to_json(tasks)) == tasks


@pytest.mark.parametrize(
    ("total", "parallelism", "size"),
    [
        (0, 2, LEAST_TASK_BYTES),
        (10 * MIB, 2, LEAST_TASK_BYTES),
        (100 * MIB, 2, 50 * MIB),
        (10_000 * MIB, 2, TASK_BYTES),
        (MOST_TASKS * 1000 * MIB, 2, 1000 * MIB),
    ],
)
def test_tasks_are_large_but_every_core_has_work(total: int, parallelism: int, size: int) -> None:
    assert task_size(total, parallelism) == size


def test_a_large_partition_is_cut_and_small_ones_are_bundled() -> None:
    large = plan([ReadingEstimate(TopicPartition("t", 0), Span(100, 1_100), 1_280 * MIB)], 2)
    assert [[(wanted.start, wanted.end) for wanted in task] for task in large] == [
        [(start, start + 100)] for start in range(100, 1_100, 100)
    ]
    small = plan([ReadingEstimate(TopicPartition("t", p), Span(0, 10), MIB) for p in range(32)], 2)
    assert [len(task) for task in small] == [16, 16]


def test_chunks_of_a_range() -> None:
    whole = Range("t", 0, 10, 35, True, 10)
    assert [chunk_range(whole, start)[2:5] for start in (10, 20, 30)] == [
        (10, 20, True),
        (20, 30, False),
        (30, 35, False),
    ]
    chunks = [chunk_range(whole, start) for start in (30, 10, 20)]
    assert merged(chunks) == [whole]
    apart = [chunk_range(whole, 10), chunk_range(whole, 30), whole._replace(partition=1)]
    assert merged(apart) == sorted(apart)
    assert [len(task) for task in bundled(sorted(chunks), 2)] == [2, 1]
    assert bundled([], 2) == []


@pytest.mark.parametrize(("size", "width"), [(10 * MIB, 2), (9 * MIB, 3), (20 * MIB, 1), (0, 20 * MIB)])
def test_a_chunk_has_so_many_offsets(size: int, width: int) -> None:
    """Of twenty; rounded up."""
    ((wanted, *_), *_) = plan([ReadingEstimate(TopicPartition("t", 0), Span(0, 20), size)], 1)
    assert wanted.width == width


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "[[1]]",
        '[[["t",0,5,5,true,1]]]',
        '[[["t",0,6,5,true,1]]]',
        '[[["t",-1,0,5,true,1]]]',
        "[[[7,0,0,5,true,1]]]",
    ],
)
def test_other_texts_are_no_ranges(text: str) -> None:
    if text == "{}":
        assert from_json(text) == []
        return
    with pytest.raises(ValueError, match=r"ranges|range"):
        from_json(text)
