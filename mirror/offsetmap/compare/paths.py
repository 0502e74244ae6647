"""The ways in which a series of copies can fit the source's log (``offsetmap.compare.alignment`` follows them)."""

from dataclasses import dataclass
from typing import NamedTuple

from mirror.offsetmap.runs import Run


class Step(NamedTuple):
    """One step of a path. The steps of a path are linked, the newest first."""

    before: "Step | None"
    run: Run | None
    """The offsets of an original and its copy; None: the original's copy is missing."""
    lost: tuple[int, int] | None
    """Start and end of the original's offsets if its copy never arrived; otherwise None."""


@dataclass(frozen=True, slots=True)
class Path:
    """One way to fit.

    Attributes:
        at: the index of the next original.
        inside: how many offsets of that original were already passed, in pieces.
        used: how many offsets of the room in front of the next record were passed for copies whose originals are gone.
        begun: the index of the first copy that has its original; -1 while there is none.
        matched: the number of copies that have their original.
        whole: the number of these that fit as ``Fit.WHOLE``.
        sure_from: the place from which on all copies fit whole, and none of them has lost its original.
        unshown: behind the last copy that fits whole there is another one, and nothing in the source shows where its
            original was, or that it had one.
        steps: the newest step since the last decision; None if there is none.
    """

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
        """``at`` and ``inside``: the place at which the next copy is due."""
        return self.at, self.inside


Found = dict[tuple[int, int, int, int], Path]
"""The paths that fit, by place, ``used`` and ``begun``."""


def put(found: Found, path: Path) -> None:
    """Adds a path. Of two paths with the same key, it keeps the one with more whole copies; of equal ones, that with
    the earlier ``sure_from``."""
    key = (*path.place, path.used, path.begun)
    known = found.get(key)
    if known is None or _worth(known) < _worth(path):
        found[key] = path


def _worth(path: Path) -> tuple[int, int, int, int, int]:
    at, inside = path.sure_from
    return path.whole, -at, -inside, path.matched, not path.unshown


def without(gaps: tuple[int, ...] | None, offsets: int, *, whole: bool) -> tuple[int, ...] | None:
    """Returns the gaps that are left if ``offsets`` missing offsets were in the first gaps with room for them; None if
    there is not enough room. ``whole``: the offsets were all in one gap, because they belong to one batch."""
    if gaps is None or not offsets:
        return gaps
    for at, gap in enumerate(gaps):
        if gap >= offsets:
            return (gap - offsets, *gaps[at + 1 :])
        if not whole:
            offsets -= gap
    return None
