"""Offset ranges cut and bundled into tasks of a useful size. Pure: estimates in, tasks out.

Both sides are read by the same tasks, so that each range's coverage on one side has its counterpart on the other.
"""

import itertools
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mirror.audit.model import Span, TopicPartition
from mirror.offsetmap.runs import OffsetMap, Run

MIB = 1 << 20
TASK_BYTES = 128 * MIB
"""A task of Spark costs some 12 ms and two connections; so many bytes make that less than a tenth of its work."""
LEAST_TASK_BYTES = 8 * MIB
"""Small audits are cut finer, so that every core has work."""
CHUNK_BYTES = MIB
"""About so many bytes are one row for Spark, until they turn out to differ."""
MOST_TASKS = 5_000
"""Each task's ranges travel in the plan; larger logs get larger tasks."""


class Copied(NamedTuple):
    """Where a range's source offsets are at the destination.

    ``start`` and ``end``: what is to be read there, of topic ``topic``. ``own``: producer ids of the flow. ``runs``: of
    the map, as far as they touch the range.
    """

    topic: str
    start: int
    end: int
    own: tuple[int, ...]
    runs: tuple[Run, ...]

    @classmethod
    def read(cls, topic: str, start: int, end: int, own: Iterable[int], runs: Iterable[Iterable[int]]) -> "Copied":
        """From JSON's lists."""
        return cls(topic, int(start), int(end), tuple(map(int, own)), tuple(Run(*map(int, run)) for run in runs))


def copied(
    offsets: OffsetMap, start: int, end: int, *, topic: str, bounds: Span, own: Iterable[int], shift: int = 0
) -> Copied:
    """Where source offsets ``start`` to before ``end`` are, in ``topic`` of the destination.

    Ranges that touch at the source touch at the destination, so that nothing between them is left out.

    Args:
        offsets: the partition's whole map.
        start: of the range.
        end: of the range.
        topic: at the destination.
        bounds: the destination's offsets that all ranges together read.
        own: producer ids of the flow.
        shift: how much further than the map says the destination has them.
    """
    begins, ends = offsets.to_destination(start), offsets.to_destination(end)
    low = min(max(bounds.end if begins is None else begins.offset + shift, bounds.start), bounds.end)
    there = bounds.end if ends is None else ends.offset + shift
    at = bisect_right(offsets, start, key=lambda run: run.source_end)
    runs = itertools.takewhile(lambda run: run.source < end, (offsets[index] for index in range(at, len(offsets))))
    moved = tuple(run._replace(destination=run.destination + shift) for run in runs)
    return Copied(topic, low, max(low, min(there, bounds.end)), tuple(own), moved)


class Range(NamedTuple):
    """Offsets of one partition that one task reads. A batch belongs to the range in which its base offset lies.

    ``first``: the partition's first range, which also owns the batch that begins before it and reaches into it (a log
    may start inside a batch, after DeleteRecords).
    ``width``: offsets in one chunk; the first chunk begins at ``start``.
    ``copied``: where these offsets are, at a destination with offsets of its own (``offsets: mapped``).
    ``shift``: how much further than there (or than here) the destination has them: the source is read as it is, and the
    destination's offsets are told less the shift, so that what moved as one compares equal.
    """

    topic: str
    partition: int
    start: int
    end: int
    first: bool
    width: int
    copied: Copied | None = None
    shift: int = 0

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


Task = tuple[Range, ...]


class Estimate(NamedTuple):
    """A partition's offsets to read, and about how many bytes they are."""

    key: TopicPartition
    span: Span
    size: int


def task_size(total: int, parallelism: int) -> int:
    """Bytes that one task should read, when all of them are to read ``total``."""
    fair = math.ceil(total / max(1, parallelism))
    return max(min(TASK_BYTES, fair), LEAST_TASK_BYTES, math.ceil(total / MOST_TASKS))


def cut(estimate: Estimate, size: int) -> list[tuple[Range, int]]:
    """One partition's ranges of about ``size`` bytes each, by equal numbers of offsets, with their estimates."""
    (topic, partition), span, total = estimate
    pieces = max(1, min(math.ceil(total / size), span.offsets))
    width = max(1, math.ceil(span.offsets * CHUNK_BYTES / max(total, 1)))
    borders = [span.start + span.offsets * index // pieces for index in range(pieces + 1)]
    return [
        (Range(topic, partition, start, end, index == 0, width), total // pieces)
        for index, (start, end) in enumerate(itertools.pairwise(borders))
    ]


def plan(estimates: Iterable[Estimate], parallelism: int) -> list[Task]:
    """Every offset in exactly one range, every range in exactly one task. Partitions without offsets take none."""
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
    """Tasks as the data source's option carries them."""
    return json.dumps(tasks, separators=(",", ":"))


def from_json(text: str) -> list[Task]:
    """The way back.

    Raises:
        ValueError: not such a text.
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
    if not isinstance(topic, str) or not 0 <= start < end or partition < 0 or width < 1:
        raise ValueError(f"range {start} to {end} of partition {partition!r}, chunks of {width}")
    found = Copied.read(*where) if where is not None else None
    return Range(topic, int(partition), int(start), int(end), bool(first), int(width), found, int(shift))


def chunk_range(whole: Range, start: int) -> Range:
    """The chunk of this range that begins at ``start``, as a range of its own."""
    return whole._replace(
        start=start, end=min(start + whole.width, whole.end), first=whole.first and start == whole.start
    )


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Ranges of the same partition that touch, joined."""
    joined: list[Range] = []
    for found in sorted(ranges):
        if joined and joined[-1][:2] + joined[-1][-1:] == found[:2] + found[-1:] and joined[-1].end == found.start:
            joined[-1] = joined[-1]._replace(end=found.end)
        else:
            joined.append(found)
    return joined


def bundled(ranges: Sequence[Range], parallelism: int) -> list[Task]:
    """Ranges dealt out to tasks, evenly by number."""
    size = max(1, math.ceil(len(ranges) / max(1, parallelism)))
    return [tuple(ranges[first : first + size]) for first in range(0, len(ranges), size)]
