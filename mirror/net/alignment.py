"""Which copy is of which original: all the ways in which a row of copies fits the source's log, narrowed down.

A copy is the next original, byte for byte. Two things leave a choice: originals that the source has deleted or cleaned
away since they were copied, and copies that the destination has. Sequences count the offsets that were copied, so they
bound where an original can have stood: only where the source's log has *room*, offsets that no batch takes any more.
Equal batches fit in several places. What decides then is told at ``Alignment.decide``; nothing is guessed.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, TRANSACTIONAL, BatchHeader
from mirror.records.mapping import Run

REWRITTEN = TRANSACTIONAL | DELETE_HORIZON
"""Attribute bits that a copy does not have, or not always: the transaction is decided, the horizon is the cleaner's."""
MOST_PATHS = 256
"""More ways to fit than anybody can tell apart."""
LEAD = 16
"""A way that has matched so many batches more than another is the right one: so many in a row are no coincidence."""
_LOOK_SIZE = 16


class Differs(Exception):
    """The destination holds something under the flow's identity that the source does not hold there."""


class Ambiguous(Differs):
    """The source has deleted originals, and the copies fit what is left of it in more than one place."""


class NeverArrived(Differs):
    """A batch was not appended, and the one behind it was: nothing is missing from the destination's own offsets."""


class Gap(NamedTuple):
    """Offsets of a log that no batch takes, or an empty one."""

    start: int
    offsets: int
    is_batch: bool = False
    """An empty batch: nothing can be read from its middle on."""

    def behind(self, used: int) -> int:
        """Where to read on when so many of its offsets are gone over."""
        return self.start if self.is_batch and used < self.offsets else self.start + used


class Batch(NamedTuple):
    """A batch of either log, as far as it is compared."""

    header: BatchHeader
    look: bytes
    """Digest of all but where it stands and who wrote it."""
    room: int = 0
    """Of an original: offsets between it and the one before that no batch takes."""
    gaps: tuple[Gap, ...] = ()
    """Where they are, in order. Batches that are not copied may stand between them."""

    @classmethod
    def of(cls, header: BatchHeader, batch: memoryview, gaps: tuple[Gap, ...] = ()) -> "Batch":
        """The checksum covers who wrote it, so the records are digested."""
        digest = blake2b(digest_size=_LOOK_SIZE)
        digest.update(
            b"%d %d %d %d %d %d;"
            % (
                header.length,
                header.attributes & ~REWRITTEN,
                header.last_offset_delta,
                header.base_timestamp,
                header.max_timestamp,
                header.record_count,
            )
        )
        digest.update(batch[HEADER_SIZE:])
        return cls(header, digest.digest(), sum(gap.offsets for gap in gaps), gaps)

    @property
    def length(self) -> int:
        """Offsets that it takes."""
        return self.header.last_offset_delta + 1

    def agrees(self, copy: "Batch") -> bool:
        """The same bytes; where a log cleaner has been at one of them, as many offsets."""
        if self.look == copy.look:
            return True
        return self.length == copy.length and (_was_cleaned(self.header) or _was_cleaned(copy.header))


def _was_cleaned(header: BatchHeader) -> bool:
    """The log cleaner was here, and records may be gone: the bytes are not those that were written."""
    return not header.is_dense or bool(header.attributes & DELETE_HORIZON)


class _Step(NamedTuple):
    """What a path has found, newest first."""

    before: "_Step | None"
    run: Run | None
    """An original and its copy; None: an original without one."""
    lost: tuple[int, int] | None
    """The original's offsets, where it never arrived."""


@dataclass(frozen=True, slots=True)
class _Path:
    """One way to fit.

    ``at``: index of the original that comes next; ``used``: offsets of the room before it whose originals are gone;
    ``begun``: the copy that is of the first original, -1 while there is none."""

    at: int = 0
    used: int = 0
    begun: int = -1
    matched: int = 0
    steps: _Step | None = None


class Alignment:
    """All ways that are left.

    Attributes:
        source_offset: of the way decided on: all originals below were copied.
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
    ) -> None:
        """
        Args:
            fetch: the next original, from ``source_offset`` or where the source begins on; None: not now.
            gaps: offsets behind the last original that no batch takes.
            source_offset: all before it was copied.
            source_start: where the source begins.
            source_epoch: leader epoch of what was copied last.
            accept_gap: choose the earliest place instead of ``Ambiguous``, and go over batches that never arrived.
        """
        self.source_offset = source_offset
        self.source_epoch = source_epoch
        self.passed = 0
        self._fetch = fetch
        self._last_gaps = gaps
        self._accept_gap = accept_gap
        self._deleted = max(0, source_start - source_offset)
        self._copies = 0
        self._originals: deque[Batch] = deque()
        self._first = 0
        """Index of the first original that is kept."""
        self._ends = source_offset
        """Where the one before it ended."""
        self._paths = [_Path()]

    async def next(self) -> Batch | None:
        """The original that comes next, of the way decided on."""
        (path,) = self._paths
        return await self._original(path.at)

    @property
    def overtaken(self) -> bool:
        """See the class."""
        (path,) = self._paths
        return path.at == 0 and path.used < self._deleted

    async def take(self, copy: Batch) -> bool:
        """The next copy; False if it fits nowhere."""
        base = copy.header.base_offset
        found: dict[tuple[int, int, int], _Path] = {}
        for path in self._paths:
            original = await self._original(path.at)
            if original is not None and original.agrees(copy):
                step = _Step(path.steps, Run(original.header.base_offset, base, copy.length), None)
                begun = self._copies if path.begun < 0 else path.begun
                _put(found, _Path(path.at + 1, 0, begun, path.matched + 1, step))
            if self._room(path, original) >= copy.length:
                _put(found, replace(path, used=path.used + copy.length))
        if not found:
            return False
        self._copies += 1
        self._narrow(found.values())
        return True

    async def skip(self, missing: int, gaps: Iterable[int]) -> bool:
        """So many offsets were copied whose copies are not there; False if that fits nowhere.

        Args:
            missing: how many.
            gaps: of the destination, in order: offsets in a row that no batch takes any more.

        Raises:
            NeverArrived: they were never there.
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
            original = await self._original(path.at)
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
                further = _Path(path.at + 1, 0, path.begun, path.matched, step)
                looking.append((further, behind, there if rest is None else rest))
        if not found:
            if refused:
                raise NeverArrived(f"{missing} offsets of this flow, from source offset {self._told} on, never arrived")
            return False
        self._narrow(found.values())
        return True

    def decide(self) -> tuple[list[Run], list[tuple[int, int]]]:
        """One way is left from here on.

        Where the source has deleted originals, it is the only one that fits. Where it has cleaned them away, it is the
        one that finds most copies equal: an original that equals a copy of another says the same about every key. Where
        no copies are left that tell, there must be one only.

        Returns:
            What was found since the last time: originals and their copies, and source offsets that never arrived.

        Raises:
            Ambiguous: several fit.
        """
        paths = self._paths
        best = max(paths, key=lambda path: (path.matched, -path.at, -path.used))
        equal = {path.at for path in paths if path.matched == best.matched}
        if len(equal) > 1 or (self._deleted and len({path.begun for path in paths}) > 1):
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
        while self._first < best.at:
            original = self._originals.popleft()
            self._ends, self.source_epoch = original.header.next_offset, original.header.leader_epoch
            self._first += 1
        self.passed = self._copies - best.matched
        self.source_offset = self._behind(best)
        self._paths = [replace(best, steps=None)]
        return runs[::-1], lost[::-1]

    async def told(self, source: str) -> str:
        """What the next copy must be, for messages."""
        original = await self._original(min(path.at for path in self._paths))
        if original is None:
            return f"is a batch of this flow, {source} has none from {self._told} on"
        return f"differs from offset {original.header.base_offset} of {source}"

    # -- the ways ----------------------------------------------------------------------------------------------------

    @property
    def _told(self) -> int:
        """Where the last thing is that is certain, for messages."""
        at = min(path.at for path in self._paths) - self._first
        return self._originals[at - 1].header.next_offset if at else self._ends

    async def _original(self, at: int) -> Batch | None:
        while at >= self._first + len(self._originals):
            original = await self._fetch()
            if original is None:
                return None
            self._originals.append(original)
        return self._originals[at - self._first]

    def _behind(self, path: _Path) -> int:
        """Where the path's next original is sought: behind the offsets that it has gone over, wherever these are."""
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
        """Offsets before the path's next original that others may have taken."""
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
                lead[path.begun] = max(path.matched, lead.get(path.begun, 0))
            if not self._deleted:
                lead = dict.fromkeys(lead, max(lead.values()))
            paths = [path for path in paths if path.matched > lead[path.begun] - LEAD]
        if len(paths) > MOST_PATHS:
            raise Ambiguous(f"what was copied from source offset {self._told} on fits in too many places")
        self._paths = paths


def _put(found: dict[tuple[int, int, int], _Path], path: _Path) -> None:
    """Of two ways to the same place, the one with more batches matched."""
    key = (path.at, path.used, path.begun)
    known = found.get(key)
    if known is None or known.matched < path.matched:
        found[key] = path


def _without(gaps: tuple[int, ...] | None, offsets: int, *, whole: bool) -> tuple[int, ...] | None:
    """What is left of the gaps when so many offsets stood in the first of them that have them; ``whole``: in one."""
    if gaps is None or not offsets:
        return gaps
    for at, gap in enumerate(gaps):
        if gap >= offsets:
            return (gap - offsets, *gaps[at + 1 :])
        if not whole:
            offsets -= gap
    return None
