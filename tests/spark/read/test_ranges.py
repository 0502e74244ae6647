"""Where partitions are cut: each offset once, tasks of a useful size."""

from hypothesis import given
from hypothesis import strategies as st

from mirror.raw.model import TopicPartition
from mirror.service.config.kinds import MIB
from mirror.spark.read.ranges import LEAST_TASK_BYTES, OffsetRange, RangesPartition, Sized, limited, tasks


def sized(start: int, end: int, size: float, *, partition: int = 0, first: bool = True) -> Sized:
    return Sized(OffsetRange("t", partition, start, end, first, "id"), size)


def ranges(found: list[RangesPartition]) -> list[OffsetRange]:
    return [each for task in found for each in task.ranges]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5_000), st.floats(0, 1e9)), max_size=6),
    st.integers(1 << 10, 1 << 30),
    st.integers(1, 40),
)
def test_each_offset_is_in_one_range(wanted: list[tuple[int, int, float]], most: int, least: int) -> None:
    given_ranges = [
        sized(start, start + count, size, partition=index) for index, (start, count, size) in enumerate(wanted)
    ]
    found = tasks(given_ranges, most_bytes=most, least_tasks=least)
    assert all(task.ranges for task in found)
    for each in given_ranges:
        own = [one for one in ranges(found) if one.partition == each.range.partition]
        borders = [each.range.start, *(one.end for one in own)]
        assert [one.start for one in own] == borders[:-1]
        assert borders[-1] == (each.range.end if own else each.range.start)
        assert [one.first for one in own] == [True, *[False] * len(own)][: len(own)]
    offsets = sum(count for _, count, _ in wanted)
    assert len(found) >= min(least, offsets, len(ranges(found)))


def test_by_bytes() -> None:
    found = tasks([sized(100, 1_100, 1_000 * MIB)], most_bytes=128 * MIB, least_tasks=1)
    assert [len(task.ranges) for task in found] == [1] * 8
    assert ranges(found)[0] == OffsetRange("t", 0, 100, 225, True, "id")


def test_small_partitions_share_a_task() -> None:
    many = [sized(0, 10, LEAST_TASK_BYTES / 4, partition=index) for index in range(8)]
    assert [len(task.ranges) for task in tasks(many, most_bytes=128 * MIB, least_tasks=1)] == [4, 4]
    assert [len(task.ranges) for task in tasks(many, most_bytes=128 * MIB, least_tasks=8)] == [1] * 8
    large = [sized(0, 10, LEAST_TASK_BYTES, partition=index) for index in range(3)]
    assert [len(task.ranges) for task in tasks(large, most_bytes=128 * MIB, least_tasks=1)] == [1] * 3


def test_at_least_so_many() -> None:
    found = tasks([sized(0, 100, 10.0), sized(0, 100, 30.0, partition=1)], most_bytes=128 * MIB, least_tasks=4)
    assert [each.partition for each in ranges(found)] == [0, 1, 1, 1]
    assert len(tasks([sized(0, 2, 10.0)], most_bytes=128 * MIB, least_tasks=4)) == 2


def test_nothing_to_read() -> None:
    assert tasks([sized(5, 5, 0.0)], most_bytes=MIB, least_tasks=3) == []


def at(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def test_each_partition_has_its_share_of_a_micro_batch() -> None:
    starts, ends = {at(0): 0, at(1): 100, at(2): 7}, {at(0): 900, at(1): 200, at(2): 7}
    assert limited(starts, ends, 100) == {at(0): 90, at(1): 110, at(2): 7}
    assert limited(starts, ends, 1_000) == ends
    assert limited(starts, ends, 1) == {at(0): 1, at(1): 101, at(2): 7}, "each goes on, however little that is"


@given(st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(0, 1_000))), st.integers(1, 2_000))
def test_a_limit_never_stops_it(wanted: dict[int, tuple[int, int]], most: int) -> None:
    starts = {at(index): start for index, (start, _) in wanted.items()}
    ends = {at(index): start + count for index, (start, count) in wanted.items()}
    found = limited(starts, ends, most)
    assert all(starts[key] < found[key] <= ends[key] or starts[key] == ends[key] for key in ends)
    assert sum(found[key] - starts[key] for key in ends) <= max(most, len(ends)) + len(ends)
