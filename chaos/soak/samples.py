"""The memory and the descriptors of a mirror over time, and whether they stay what they are. Pure."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["MOST_GROWTH", "SPARE", "Figure", "Sample", "figures", "halves", "problems"]

MOST_GROWTH = 0.10
"""The memory of the last half may be above that of the first by this part of it."""
SPARE = 2
"""So many descriptors more are no leak: connections that happened to be open at each look of a half. One that leaks
each minute makes three in five minutes."""
_MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the processes, at a moment when nothing was being restarted or reloaded.

    Attributes:
        minute: of the soak, from 0.
        phase: which of the minute's looks it is, from 0. Those of one phase are comparable: the same was done before.
        at_s: seconds since the first.
        total_bytes: resident memory of `mirror run`: of its supervisor and all workers.
        supervisor_bytes, worker_bytes: of the supervisor, and of the worker that is never restarted.
        supervisor_descriptors, worker_descriptors: what each of them has open: kind -> number.
    """

    minute: int
    phase: int
    at_s: float
    total_bytes: int
    supervisor_bytes: int
    worker_bytes: int
    supervisor_descriptors: Mapping[str, int]
    worker_descriptors: Mapping[str, int]


class Figure(NamedTuple):
    """One measurement of both halves.

    Attributes:
        what: in words, with the unit.
        first, last: of the halves.
        problem: what is wrong with it; empty: nothing.
    """

    what: str
    first: float
    last: float
    problem: str


def halves(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Returns the samples of the first half of all minutes, and those of the last. Of an odd number of minutes, the one
    in the middle is in neither: both have every phase equally often."""
    minutes = sorted({one.minute for one in samples})
    half = len(minutes) // 2
    first, last = set(minutes[:half]), set(minutes[len(minutes) - half :])
    return [one for one in samples if one.minute in first], [one for one in samples if one.minute in last]


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """Returns what was measured of both halves.

    Raises:
        ValueError: there are not at least two minutes.
    """
    first, last = halves(samples)
    if not first:
        raise ValueError("samples of at least two minutes are needed")
    return [
        _memory("mirror run", first, last, lambda one: one.total_bytes),
        _memory("its supervisor", first, last, lambda one: one.supervisor_bytes),
        _memory("the worker that lives", first, last, lambda one: one.worker_bytes),
        _open("its supervisor", first, last, lambda one: one.supervisor_descriptors),
        _open("the worker that lives", first, last, lambda one: one.worker_descriptors),
    ]


def problems(samples: Sequence[Sample]) -> list[str]:
    """Returns what grew, in words. Errors: as ``figures``."""
    return [one.problem for one in figures(samples) if one.problem]


def _memory(whose: str, first: Sequence[Sample], last: Sequence[Sample], size: Callable[[Sample], int]) -> Figure:
    before, after = (statistics.median(map(size, half)) / _MB for half in (first, last))
    growth = after / before - 1
    problem = f"the memory of {whose} grew by {growth:.1%}: from {before:.1f} to {after:.1f} MB (medians of the halves)"
    return Figure(f"memory of {whose}, MB", before, after, problem if growth > MOST_GROWTH else "")


def _open(
    whose: str, first: Sequence[Sample], last: Sequence[Sample], held: Callable[[Sample], Mapping[str, int]]
) -> Figure:
    """Compares what is open at least, phase by phase: a connection may come and go, and what leaks never goes."""
    before, after = (_least(half, lambda one: sum(held(one).values())) for half in (first, last))
    fewer, more = (statistics.mean(each.values()) for each in (before, after))
    grown = statistics.median(after[phase] - before[phase] for phase in before.keys() & after.keys())
    problem = f"the descriptors of {whose} grew: from {fewer:.1f} to {more:.1f} ({_kinds(first, last, held)})"
    return Figure(f"descriptors of {whose}", fewer, more, problem if grown > SPARE else "")


def _kinds(
    first: Sequence[Sample], last: Sequence[Sample], held: Callable[[Sample], Mapping[str, int]]
) -> str:  # fmt: skip
    """Returns what there is more of, in words."""
    told = []
    for kind in sorted({kind for one in (*first, *last) for kind in held(one)}):
        before, after = (statistics.mean(held(one).get(kind, 0) for one in half) for half in (first, last))
        if after > before:
            told.append(f"{kind} {before:.1f} to {after:.1f}")
    return ", ".join(told)


def _least(samples: Iterable[Sample], count: Callable[[Sample], int]) -> dict[int, int]:
    """Returns the least number for each phase."""
    found: dict[int, int] = {}
    for one in samples:
        found[one.phase] = min(count(one), found.get(one.phase, count(one)))
    return found
