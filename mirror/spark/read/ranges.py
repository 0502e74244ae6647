"""Cuts the offsets to read into Spark partitions of a useful size. Pure.

Kafka does not tell how many bytes lie between two offsets. So the bytes per offset are measured by samples, and a
partition is cut into equal numbers of offsets. A wrong estimate costs time, never correctness: each offset is in
exactly one range, and a batch belongs to the range that has its base offset.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from mirror.raw.model import TopicPartition
from mirror.service.config.kinds import MIB

LEAST_TASK_BYTES = 8 * MIB
"""Ranges with fewer bytes share a Spark partition with others: a task costs 10 to 50 ms by itself."""
GUESS = 1_000.0
"""Bytes per offset, if there is no sample."""


class OffsetRange(NamedTuple):
    """Offsets of one partition, ``end`` excluded, that one task reads.

    ``first``: True if the query reads nothing before this range. Then a batch that begins before it and reaches into it
    belongs to it, too.
    ``topic_id``: the topic's id in hexadecimal digits when the range was made; empty if the cluster has none.
    """

    topic: str
    partition: int
    start: int
    end: int
    first: bool = False
    topic_id: str = ""

    @property
    def at(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def name(self) -> str:
        """The partition's name in messages."""
        return f"{self.topic}-{self.partition}"


class RangesPartition(InputPartition):
    """The ranges that one Spark task reads, one after the other."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class Sized(NamedTuple):
    """A range to cut, and about how many bytes it has."""

    range: OffsetRange
    size: float


def tasks(wanted: Iterable[Sized], *, most_bytes: int, least_tasks: int) -> list[RangesPartition]:
    """Returns the Spark partitions. Each offset is in one of them. Ranges without offsets are left out.

    Args:
        wanted: the ranges, one for each partition.
        most_bytes: approximate limit for the bytes of one Spark partition.
        least_tasks: least number of Spark partitions, if there are as many offsets.
    """
    left = [each for each in wanted if each.range.start < each.range.end]
    total = sum(each.size for each in left)
    most = min(most_bytes, max(1.0, total / least_tasks))
    pieces = [piece for each in left for piece in _cut(each, most)]
    least = min(LEAST_TASK_BYTES, most)
    made: list[list[OffsetRange]] = []
    room = 0.0
    spare = len(pieces) - least_tasks
    for piece in pieces:
        if made and piece.size <= room and spare > 0:
            made[-1].append(piece.range)
            room -= piece.size
            spare -= 1
        else:
            made.append([piece.range])
            room = least - piece.size
    return [RangesPartition(ranges) for ranges in made]


def _cut(whole: Sized, most: float) -> list[Sized]:
    """Cuts one range into equal numbers of offsets, with about ``most`` bytes each."""
    start, end = whole.range.start, whole.range.end
    pieces = max(1, min(math.ceil(whole.size / most), end - start))
    borders = [start + (end - start) * index // pieces for index in range(pieces + 1)]
    return [
        Sized(
            whole.range._replace(start=borders[index], end=borders[index + 1], first=whole.range.first and not index),
            whole.size / pieces,
        )
        for index in range(pieces)
    ]


def limited(
    starts: dict[TopicPartition, int], ends: dict[TopicPartition, int], most_offsets: int
) -> dict[TopicPartition, int]:
    """Returns the end offsets of a micro-batch with at most ``most_offsets`` offsets in all (but at least one of each
    partition). A partition's share is proportional to its backlog, as in Spark's connector.

    Args:
        starts: the offset at which each partition begins.
        ends: the offset at which each partition ends now.
        most_offsets: ``maxOffsetsPerTrigger``.
    """
    waiting = {at: max(0, end - starts[at]) for at, end in ends.items()}
    total = sum(waiting.values())
    if total <= most_offsets:
        return ends
    found = dict(ends)
    for at, offsets in waiting.items():
        if offsets:
            found[at] = starts[at] + min(offsets, max(1, most_offsets * offsets // total))
    return found
