"""The memory and the descriptors of a mirror over time, and the check that they do not grow. Pure."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["MOST_GROWTH", "SPARE", "Figure", "Sample", "figures", "halves", "problems"]

MOST_GROWTH = 0.10
"""Share by which the memory of the last half may exceed that of the first half."""
SPARE = 2
"""Number of additional descriptors that do not count as a leak: connections that happened to be open at each look of a
half. A descriptor that leaks each minute makes three in five minutes."""
_MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A look at the processes, at a moment when nothing is being restarted or reloaded.

    Attributes:
        minute: minute of the soak, from 0.
        phase: number of the look within the minute, from 0. Looks of the same phase are comparable, since they follow
            the same change.
        at_s: seconds since the soak began.
        total_bytes: resident memory of ``mirror run``: of its supervisor and all workers.
        supervisor_bytes, worker_bytes: resident memory of the supervisor, and of the worker that is never restarted.
        supervisor_descriptors, worker_descriptors: kind -> number of open descriptors of these two processes.
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
    """A value of the first and of the last half of a soak.

    Attributes:
        what: what was measured, in words, with the unit.
        first, last: values of the two halves.
        problem: what is wrong with them; empty: nothing.
    """

    what: str
    first: float
    last: float
    problem: str


def halves(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Returns the samples of the first half of the minutes, and those of the last half. If the number of minutes is
    odd, the one in the middle is left out, so that both halves have every phase equally often."""
    minutes = sorted({one.minute for one in samples})
    half = len(minutes) // 2
    first, last = set(minutes[:half]), set(minutes[len(minutes) - half :])
    return [one for one in samples if one.minute in first], [one for one in samples if one.minute in last]


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """Returns all figures: memory and descriptors.

    Raises:
        ValueError: the samples are of fewer than two minutes.
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
    """Returns what has grown too much, in words. Raises: as ``figures``."""
    return [one.problem for one in figures(samples) if one.problem]


def _memory(whose: str, first: Sequence[Sample], last: Sequence[Sample], size: Callable[[Sample], int]) -> Figure:
    before, after = (statistics.median(map(size, half)) / _MB for half in (first, last))
    growth = after / before - 1
    problem = f"the memory of {whose} grew by {growth:.1%}: from {before:.1f} to {after:.1f} MB (medians of the halves)"
    return Figure(f"memory of {whose}, MB", before, after, problem if growth > MOST_GROWTH else "")


def _open(
    whose: str, first: Sequence[Sample], last: Sequence[Sample], held: Callable[[Sample], Mapping[str, int]]
) -> Figure:
    """Compares the lowest number of open descriptors of each phase: a connection may come and go, but a leaked
    descriptor stays."""
    before, after = (_least(half, lambda one: sum(held(one).values())) for half in (first, last))
    fewer, more = (statistics.mean(each.values()) for each in (before, after))
    grown = statistics.median(after[phase] - before[phase] for phase in before.keys() & after.keys())
    problem = f"the descriptors of {whose} grew: from {fewer:.1f} to {more:.1f} ({_kinds(first, last, held)})"
    return Figure(f"descriptors of {whose}", fewer, more, problem if grown > SPARE else "")


def _kinds(
    first: Sequence[Sample], last: Sequence[Sample], held: Callable[[Sample], Mapping[str, int]]
) -> str:  # fmt: skip
    """Returns the kinds of descriptors of which there are more in the last half, in words."""
    told = []
    for kind in sorted({kind for one in (*first, *last) for kind in held(one)}):
        before, after = (statistics.mean(held(one).get(kind, 0) for one in half) for half in (first, last))
        if after > before:
            told.append(f"{kind} {before:.1f} to {after:.1f}")
    return ", ".join(told)


def _least(samples: Iterable[Sample], count: Callable[[Sample], int]) -> dict[int, int]:
    """Returns phase -> the lowest count of its samples."""
    found: dict[int, int] = {}
    for one in samples:
        found[one.phase] = min(count(one), found.get(one.phase, count(one)))
    return found
