"""Cuts offsets into ranges and bundles the ranges into tasks of a useful size. Pure: estimates in, tasks out.

The same tasks read both sides, so that each range's coverage on one side has its counterpart on the other.
"""

import itertools
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mirror.audit.model.places import Span, TopicPartition
from mirror.offsetmap.runs import OffsetMap, Run

MIB = 1 << 20
TASK_BYTES = 128 * MIB
"""The most that a task usually reads. A Spark task costs about 12 ms and two connections, which is less than a tenth of
the work on this many bytes."""
LEAST_TASK_BYTES = 8 * MIB
"""Small audits are cut finer than ``TASK_BYTES`` so that every core has work, but not finer than this."""
CHUNK_BYTES = MIB
"""About the size of a chunk. A chunk is one row for Spark, until it turns out to differ."""
MOST_TASKS = 5_000
"""About the maximum number of tasks, because the plan contains each task's ranges. Larger logs get larger tasks."""


class CopiedRange(NamedTuple):
    """The place of a range's source offsets at the destination.

    ``start`` and ``end``: the offsets to read there, in topic ``topic``. ``own``: producer ids of the copy. ``runs``:
    the runs of the offset map that touch the range. ``sharing``: producer ids of the flow's other copies in the same
    partition.
    """

    topic: str
    start: int
    end: int
    own: tuple[int, ...]
    runs: tuple[Run, ...]
    sharing: tuple[int, ...] = ()

    @classmethod
    def read(
        cls, topic: str, start: int, end: int, own: Iterable[int], runs: Iterable[Iterable[int]],
        sharing: Iterable[int] = (),
    ) -> "CopiedRange":  # fmt: skip
        """Returns the value that these JSON lists contain.

        Raises:
            TypeError, ValueError: they do not fit.
        """
        found = tuple(Run(*map(int, run)) for run in runs)
        return cls(topic, int(start), int(end), tuple(map(int, own)), found, tuple(map(int, sharing)))


def copied(
    offsets: OffsetMap,
    start: int,
    end: int,
    *,
    topic: str,
    bounds: Span,
    own: Iterable[int],
    shift: int = 0,
    sharing: Iterable[int] = (),
) -> CopiedRange:
    """Returns the place of source offsets ``start`` up to but not including ``end``, in ``topic`` of the destination.

    Ranges that touch at the source also touch at the destination, so that nothing between them is left out.

    Args:
        offsets: the partition's whole offset map.
        start: first source offset of the range.
        end: its end, exclusive.
        topic: name at the destination.
        bounds: the destination offsets that all ranges together read.
        own: producer ids of the copy.
        shift: by how many offsets the copies lie behind where the map has them.
        sharing: producer ids of the flow's other copies in the same partition.
    """
    begins, ends = offsets.to_destination(start), offsets.to_destination(end)
    low = min(max(bounds.end if begins is None else begins.offset + shift, bounds.start), bounds.end)
    there = bounds.end if ends is None else ends.offset + shift
    at = bisect_right(offsets, start, key=lambda run: run.source_end)
    runs = itertools.takewhile(lambda run: run.source < end, (offsets[index] for index in range(at, len(offsets))))
    moved = tuple(run._replace(destination=run.destination + shift) for run in runs)
    return CopiedRange(topic, low, max(low, min(there, bounds.end)), tuple(own), moved, tuple(sharing))


class Range(NamedTuple):
    """Offsets of one partition that one task reads. A batch belongs to the range in which its base offset lies.

    ``first``: the partition's first range. It also owns a batch that begins before it and reaches into it (after
    DeleteRecords, a log may start inside a batch).
    ``width``: offsets per chunk; the first chunk begins at ``start``.
    ``copied``: the place of these offsets at a destination with offsets of its own (``offsets: mapped``).
    ``shift``: by how many offsets the copies lie behind ``copied``, or without that, behind the source's offsets.
    The destination is read that many offsets further on, and the shift is subtracted from its offsets, so that batches
    that moved together compare equal. The source is read without a shift.
    """

    topic: str
    partition: int
    start: int
    end: int
    first: bool
    width: int
    copied: CopiedRange | None = None
    shift: int = 0

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


Task = tuple[Range, ...]


class ReadingEstimate(NamedTuple):
    """The offsets of a partition to read. ``size``: about how many bytes they have."""

    key: TopicPartition
    span: Span
    size: int


def task_size(total: int, parallelism: int) -> int:
    """Returns the bytes that one task should read, if all tasks together read ``total``."""
    fair = math.ceil(total / max(1, parallelism))
    return max(min(TASK_BYTES, fair), LEAST_TASK_BYTES, math.ceil(total / MOST_TASKS))


def cut(estimate: ReadingEstimate, size: int) -> list[tuple[Range, int]]:
    """Cuts one partition into ranges with equal numbers of offsets and about ``size`` bytes each. Returns them with
    their estimated sizes."""
    (topic, partition), span, total = estimate
    pieces = max(1, min(math.ceil(total / size), span.offsets))
    width = max(1, math.ceil(span.offsets * CHUNK_BYTES / max(total, 1)))
    borders = [span.start + span.offsets * index // pieces for index in range(pieces + 1)]
    return [
        (Range(topic, partition, start, end, index == 0, width), total // pieces)
        for index, (start, end) in enumerate(itertools.pairwise(borders))
    ]


def plan(estimates: Iterable[ReadingEstimate], parallelism: int) -> list[Task]:
    """Returns tasks with every offset in exactly one range, and every range in exactly one task. Partitions without
    offsets have no range."""
    wanted = [estimate for estimate in estimates if estimate.span.offsets]
    size = task_size(sum(estimate.size for estimate in wanted), parallelism)
    tasks: list[Task] = []
    bundle: list[Range] = []
    bundled = 0
    for estimate in wanted:
        for piece, piece_size in cut(estimate, size):
            if bundle and bundled + piece_size > size:
                tasks.append(tuple(bundle))
                bundle, bundled = [], 0
            bundle.append(piece)
            bundled += piece_size
    if bundle:
        tasks.append(tuple(bundle))
    return tasks


def to_json(tasks: Sequence[Task]) -> str:
    """Returns tasks as text for the data source's option."""
    return json.dumps(tasks, separators=(",", ":"))


def from_json(text: str) -> list[Task]:
    """Returns the tasks of a text that ``to_json`` made.

    Raises:
        ValueError: ``to_json`` did not make this text.
    """
    try:
        return [tuple(_range(*entry) for entry in task) for task in json.loads(text)]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"ranges are not a list of lists of [topic, partition, start, end, first, width, copied, shift]: {error}"
        ) from error


def _range(
    topic: str, partition: int, start: int, end: int, first: bool, width: int,
    where: list[Any] | None = None, shift: int = 0,
) -> Range:  # fmt: skip
    # With a shift, the destination's first offsets may correspond to source offsets below 0.
    if not isinstance(topic, str) or start + max(shift, 0) < 0 or start >= end or partition < 0 or width < 1:
        raise ValueError(f"range {start} to {end} of partition {partition!r}, chunks of {width}")
    found = CopiedRange.read(*where) if where is not None else None
    return Range(topic, int(partition), int(start), int(end), bool(first), int(width), found, int(shift))


def chunk_range(whole: Range, start: int) -> Range:
    """Returns the chunk of this range that begins at ``start``, as a range of its own."""
    return whole._replace(
        start=start, end=min(start + whole.width, whole.end), first=whole.first and start == whole.start
    )


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Returns the ranges in order, with those of the same partition and shift that touch joined into one."""
    joined: list[Range] = []
    for found in sorted(ranges):
        if joined and joined[-1][:2] + joined[-1][-1:] == found[:2] + found[-1:] and joined[-1].end == found.start:
            joined[-1] = joined[-1]._replace(end=found.end)
        else:
            joined.append(found)
    return joined


def bundled(ranges: Sequence[Range], parallelism: int) -> list[Task]:
    """Distributes ranges to tasks, with about the same number of ranges in each."""
    size = max(1, math.ceil(len(ranges) / max(1, parallelism)))
    return [tuple(ranges[first : first + size]) for first in range(0, len(ranges), size)]
