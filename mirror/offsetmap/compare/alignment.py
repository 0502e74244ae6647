"""Finds which copy is of which original: keeps all ways in which a row of copies fits the source's log, and narrows
them down.

A copy equals the next original, byte for byte, or in the records that log cleaners have left of both. Two things leave
a choice: originals that the source has deleted or cleaned away since they were copied, and copies that the destination
has deleted or cleaned away. Sequences count the offsets that were copied, so they bound where an original can have
stood: only where the source's log has *room*, offsets that no batch takes any more.
Equal batches fit in several places, and so do emptied ones. ``Alignment.decide`` says what decides then; nothing is
guessed.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mirror.offsetmap.compare.looks import Batch, Fit, Gap, fit
from mirror.offsetmap.runs import Run

MOST_PATHS = 256
"""The most ways to fit that are followed. Nobody could tell more of them apart."""
LEAD = 16
"""A way that has matched so many batches more than another is the right one: so many in a row are no coincidence."""
MOST_LEFT_OUT = 10_000
"""The most originals in a row that were not copied and are gone over."""
MOST_KEPT = 16 << 20
"""Bytes of originals that are kept to be opened. Of earlier ones, only the looks are kept."""


class Differs(Exception):
    """The destination holds something under the flow's identity that the source does not hold there. ``missing``: the
    least number of offsets that were copied behind what is certain, if the source may be to blame."""

    def __init__(self, detail: str, *, missing: int = 1) -> None:
        super().__init__(detail)
        self.missing = missing


class Ambiguous(Differs):
    """The source has deleted originals, and the copies fit what is left of it in more than one place."""


class NeverArrived(Differs):
    """A batch was not appended, and the one behind it was: nothing is missing from the destination's own offsets."""


class _Step(NamedTuple):
    """One match of a path. The matches of a path are linked, newest first."""

    before: "_Step | None"
    run: Run | None
    """An original and its copy; None: an original without one."""
    lost: tuple[int, int] | None
    """The original's offsets, if it never arrived."""


@dataclass(frozen=True, slots=True)
class _Path:
    """One way to fit.

    ``at``: index of the original that comes next; ``used``: offsets of the room before it whose originals are gone;
    ``begun``: index of the first copy that has its original, -1 while there is none; ``matched``: number of copies that
    have their original; ``whole``: number of these that fit as a whole; ``sure_from``: index of the original from which
    on all did so, and no copy in between has lost its own."""

    at: int = 0
    used: int = 0
    begun: int = -1
    matched: int = 0
    whole: int = 0
    sure_from: int = 0
    steps: _Step | None = None


class Alignment:
    """Keeps all ways that are left.

    Attributes:
        source_offset: by the way decided on, all originals below were copied.
        source_epoch: leader epoch of the original before; -1 if not known.
        overtaken: the source's deletion reached beyond what was copied, as far as sequences prove.
        passed: copies whose originals are gone.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Batch | None]],
        gaps: Callable[[], Sequence[Gap]] = tuple,
        *,
        source_offset: int,
        source_start: int,
        source_epoch: int = -1,
        accept_gap: bool = False,
        known_epoch: int = -1,
        opening: asyncio.Lock | None = None,
    ) -> None:
        """
        Args:
            fetch: returns the next original, from ``source_offset`` or the source's start on; None: there is none now.
            gaps: returns the offsets behind the last original that no batch takes.
            source_offset: all before it was copied.
            source_start: where the source begins.
            source_epoch: leader epoch of what was copied last.
            accept_gap: choose the earliest place instead of ``Ambiguous``, and go over batches that never arrived.
            known_epoch: for a compacted source, a leader epoch under which it was read before. Originals up to that one
                may have come back, since each replica's cleaner works by itself; later ones may be new. -1: none has.
            opening: held while batches are open; by default, one of its own.
        """
        self.source_offset = source_offset
        self.source_epoch = source_epoch
        self.passed = 0
        self._unread: int | None = None
        """Index of an original that could not be read when a copy, or a gap, was sought there: it may be the one."""
        self._fetch = fetch
        self._last_gaps = gaps
        self._accept_gap = accept_gap
        self._known_epoch = known_epoch
        self._opening = opening or asyncio.Lock()
        self._deleted = max(0, source_start - source_offset)
        self._copies = 0
        self._originals: deque[Batch] = deque()
        self._first = 0
        """Index of the first original that is kept."""
        self._ends = source_offset
        """The end offset of the original before it."""
        self._kept_from = 0
        """Index of the first original whose records are kept."""
        self._kept_bytes = 0
        self._paths = [_Path()]

    async def next(self) -> Batch | None:
        """Returns the original that comes next, by the way decided on."""
        (path,) = self._paths
        return await self._original(path.at)

    @property
    def overtaken(self) -> bool:
        """See the class."""
        (path,) = self._paths
        return path.at == 0 and path.used < self._deleted

    async def take(self, copy: Batch, *, follows: bool = False) -> bool:
        """Takes the next copy; False if it fits nowhere. ``follows``: its sequence is the next one after the previous
        copy's. Then originals that stand between those of both copies were left out. Any that is not new had been
        cleaned away, and has come back."""
        found: dict[tuple[int, int, int], _Path] = {}
        fits: dict[int, Fit] = {}
        for path in self._paths:
            original = await self._sought(path.at)
            if original is not None:
                await self._match(found, fits, path, path.at, copy)
            if self._room(path, original) >= copy.length:
                _put(found, replace(path, used=path.used + copy.length, sure_from=path.at))
        if not found and follows:
            for path in self._paths:
                for at in range(path.at + 1, path.at + 1 + MOST_LEFT_OUT):
                    original = await self._sought(at)
                    if original is None or original.header.leader_epoch > self._known_epoch:
                        break
                    if await self._match(found, fits, path, at, copy) is Fit.WHOLE:
                        break
        if not found:
            return False
        self._copies += 1
        self._narrow(found.values())
        return True

    async def _match(
        self, found: dict[tuple[int, int, int], _Path], fits: dict[int, Fit], path: _Path, at: int, copy: Batch
    ) -> Fit:
        """Adds the way by which the copy is of this original, if it fits. ``fits``: known results, by original."""
        original = self._originals[at - self._first]
        if at not in fits:
            fits[at] = await fit(original, copy, self._opening)
        if fits[at] is not Fit.NONE:
            is_whole = fits[at] is Fit.WHOLE
            step = _Step(path.steps, Run(original.header.base_offset, copy.header.base_offset, copy.length), None)
            begun = self._copies if path.begun < 0 else path.begun
            sure_from = at + 1 if not is_whole else path.sure_from if at == path.at else at
            _put(found, _Path(at + 1, 0, begun, path.matched + 1, path.whole + is_whole, sure_from, step))
        return fits[at]

    async def skip(self, missing: int, gaps: Iterable[int]) -> bool:
        """Passes over offsets that were copied and whose copies are not there; False if that fits nowhere.

        Args:
            missing: how many offsets.
            gaps: sizes of the destination's gaps, in order: offsets in a row that no batch takes any more.

        Raises:
            NeverArrived: the copies were never there.
        """
        found: dict[tuple[int, int, int], _Path] = {}
        refused = False
        looking: list[tuple[_Path, int, tuple[int, ...]]] = [(path, missing, tuple(gaps)) for path in self._paths]
        seen: set[tuple[int, int, int]] = set()
        while looking:
            path, left, there = looking.pop()
            if not left:
                _put(found, path)
                continue
            original = await self._sought(path.at)
            for gone in range(min(self._room(path, original), left) + 1):
                rest = _without(there, gone, whole=False)
                if gone == left:
                    refused = refused or rest is None
                    if rest is not None or self._accept_gap:
                        looking.append((replace(path, used=path.used + gone), 0, rest or ()))
                    continue
                if original is None:
                    continue
                behind = left - gone - original.length
                key = (path.at, path.begun, behind)
                if behind < 0 or key in seen:
                    continue
                rest = _without(rest, original.length, whole=True)
                if rest is None:
                    refused = True
                    if not self._accept_gap:
                        continue
                seen.add(key)
                header = original.header
                step = _Step(path.steps, None, None if rest is not None else (header.base_offset, header.next_offset))
                further = _Path(path.at + 1, 0, path.begun, path.matched, path.whole, path.at + 1, step)
                looking.append((further, behind, there if rest is None else rest))
        if not found:
            if refused:
                raise NeverArrived(
                    f"{missing} offsets of this flow, from source offset {self.certain} on, never arrived"
                )
            return False
        self._narrow(found.values())
        return True

    def decide(self) -> tuple[list[Run], list[tuple[int, int]]]:
        """Decides on one way, which is the only one left from here on.

        If the source has deleted originals, it is the only one that fits. If it has cleaned them away, it is the one
        that finds most copies whole: an original of which another's copy is whole says the same about every key. In all
        that this way goes over beyond any other, every copy must be whole. Otherwise, and if no copies are left that
        tell, only one way may be left.

        Returns:
            The findings since the last time: originals and their copies, and source offsets that never arrived.

        Raises:
            Ambiguous: several fit.
        """
        paths = self._paths
        best = max(paths, key=lambda path: (path.whole, -path.at, -path.used))
        equal = {path.at for path in paths if path.whole == best.whole}
        unsure = any(path.at < best.sure_from for path in paths)
        if len(equal) > 1 or unsure or (self._deleted and len({path.begun for path in paths}) > 1):
            if not self._accept_gap:
                begins = f"the source begins at {self._ends + self._deleted}, and " if self._deleted else ""
                raise Ambiguous(f"{begins}what was copied from {self._ends} on fits its batches in {len(paths)} places")
            best = min(paths, key=lambda path: (path.at, path.used))
        runs, lost = [], []
        step = best.steps
        while step is not None:
            if step.run is not None:
                runs.append(step.run)
            if step.lost is not None:
                lost.append(step.lost)
            step = step.before
        self._paths = [replace(best, steps=None)]
        self._forget()
        while self._first < best.at:
            original = self._originals.popleft()
            self._ends, self.source_epoch = original.header.next_offset, original.header.leader_epoch
            self._first += 1
        self.passed = self._copies - best.matched
        self.source_offset = self._behind(best)
        return runs[::-1], lost[::-1]

    async def told(self, source: str) -> str:
        """Returns what is wrong with the next copy, for messages."""
        original = await self._original(min(path.at for path in self._paths))
        if original is None:
            return f"is a batch of this flow, {source} has none from {self.certain} on"
        return f"differs from offset {original.header.base_offset} of {source}"

    @property
    def ended(self) -> bool:
        """True if a copy, or a gap, was sought behind all that could be read of the source."""
        return self._unread is not None

    async def goes_on(self) -> bool:
        """Returns True if more of the source can be read by now than when ``ended`` became true, or, if it is not true,
        than has been read."""
        at = self._first + len(self._originals) if self._unread is None else self._unread
        return at < self._first or await self._original(at) is not None

    @property
    def certain(self) -> int:
        """The source offset up to which all is certain."""
        at = min(path.at for path in self._paths) - self._first
        return self._originals[at - 1].header.next_offset if at else self._ends

    async def left_of(self, epoch: int, most: int) -> int:
        """Counts the offsets from ``certain`` on that are, or were, of originals of this leader epoch or of earlier
        ones, until there are ``most`` of them."""
        at, left = min(path.at for path in self._paths), 0
        while left < most:
            original = await self._original(at)
            if original is None or original.header.leader_epoch > epoch:
                break
            left += original.room + original.length
            at += 1
        return left

    # -- the ways ----------------------------------------------------------------------------------------------------

    async def _sought(self, at: int) -> Batch | None:
        """Returns the original there as a candidate for a copy. Notes its index if it cannot be read."""
        original = await self._original(at)
        if original is None and (self._unread is None or at < self._unread):
            self._unread = at
        return original

    async def _original(self, at: int) -> Batch | None:
        while at >= self._first + len(self._originals):
            original = await self._fetch()
            if original is None:
                return None
            self._originals.append(original)
            self._kept_bytes += len(original.records or b"")
        return self._originals[at - self._first]

    def _behind(self, path: _Path) -> int:
        """Returns where the path's next original is sought: behind the offsets that it has gone over, wherever these
        are."""
        used = path.used
        deleted = self._deleted if path.at == 0 else 0
        if used <= deleted:
            return self._ends + used
        used -= deleted
        for gap in self._originals[0].gaps if self._originals else self._last_gaps():
            if used <= gap.offsets:
                return gap.behind(used)
            used -= gap.offsets
        raise AssertionError(f"{used} offsets more than there is room for")

    def _room(self, path: _Path, original: Batch | None) -> int:
        """Returns how many offsets before the path's next original others may have taken."""
        deleted = self._deleted if path.at == 0 else 0
        return (
            deleted
            + (original.room if original is not None else sum(gap.offsets for gap in self._last_gaps()))
            - path.used
        )

    def _narrow(self, found: Iterable[_Path]) -> None:
        paths = list(found)
        if len(paths) > 1:
            lead: dict[int, int] = {}
            for path in paths:
                lead[path.begun] = max(path.whole, lead.get(path.begun, 0))
            if not self._deleted:
                lead = dict.fromkeys(lead, max(lead.values()))
            paths = [path for path in paths if path.whole > lead[path.begun] - LEAD]
        if len(paths) > MOST_PATHS:
            raise Ambiguous(f"what was copied from source offset {self.certain} on fits in too many places")
        self._paths = paths
        self._forget()

    def _forget(self) -> None:
        """Drops the records of originals that are behind all ways, or too many."""
        behind, end = min(path.at for path in self._paths), self._first + len(self._originals)
        while self._kept_from < end and (self._kept_from < behind or self._kept_bytes > MOST_KEPT):
            at = self._kept_from - self._first
            self._kept_bytes -= len(self._originals[at].records or b"")
            self._originals[at] = self._originals[at]._replace(records=None)
            self._kept_from += 1


def _put(found: dict[tuple[int, int, int], _Path], path: _Path) -> None:
    """Adds a path. Of two ways to the same place, keeps the one with more whole copies, and of those the surer one."""
    key = (path.at, path.used, path.begun)
    known = found.get(key)
    if known is None or (known.whole, -known.sure_from, known.matched) < (path.whole, -path.sure_from, path.matched):
        found[key] = path


def _without(gaps: tuple[int, ...] | None, offsets: int, *, whole: bool) -> tuple[int, ...] | None:
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
