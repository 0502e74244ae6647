"""The ways in which a row of copies can fit the source's log, as ``offsetmap.compare.alignment`` follows them."""

from dataclasses import dataclass
from typing import NamedTuple

from mirror.offsetmap.runs import Run


class Step(NamedTuple):
    """One match of a path. The matches of a path are linked, newest first."""

    before: "Step | None"
    run: Run | None
    """An original and its copy; None: an original without one."""
    lost: tuple[int, int] | None
    """The original's offsets, if it never arrived."""


@dataclass(frozen=True, slots=True)
class Path:
    """One way to fit.

    ``at``: index of the original that comes next; ``inside``: how many of its offsets were gone over, in pieces;
    ``used``: offsets of the room before the next record whose originals are gone; ``begun``: index of the first copy
    that has its original, -1 while there is none; ``matched``: number of copies that have their original; ``whole``:
    number of these that fit as a whole; ``sure_from``: the place from which on all did so, and no copy in between has
    lost its own; ``unshown``: behind the last one that fits as a whole there is another copy, and the source has
    nothing that shows where its original stood, or that it had one."""

    at: int = 0
    inside: int = 0
    used: int = 0
    begun: int = -1
    matched: int = 0
    whole: int = 0
    sure_from: tuple[int, int] = (0, 0)
    unshown: bool = False
    steps: Step | None = None

    @property
    def place(self) -> tuple[int, int]:
        """``at`` and ``inside``: where the next copy is sought."""
        return self.at, self.inside


Found = dict[tuple[int, int, int, int], Path]


def put(found: Found, path: Path) -> None:
    """Adds a path. Of two ways to the same place, keeps the one with more whole copies, and of those the surer one."""
    key = (*path.place, path.used, path.begun)
    known = found.get(key)
    if known is None or _worth(known) < _worth(path):
        found[key] = path


def _worth(path: Path) -> tuple[int, int, int, int, int]:
    at, inside = path.sure_from
    return path.whole, -at, -inside, path.matched, not path.unshown


def without(gaps: tuple[int, ...] | None, offsets: int, *, whole: bool) -> tuple[int, ...] | None:
    """Returns what is left of the gaps if so many offsets stood in the first of them that have room; None if none has.
    ``whole``: all of them stood in one gap."""
    if gaps is None or not offsets:
        return gaps
    for at, gap in enumerate(gaps):
        if gap >= offsets:
            return (gap - offsets, *gaps[at + 1 :])
        if not whole:
            offsets -= gap
    return None
