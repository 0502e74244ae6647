"""Finds which copy belongs to which original. It keeps all ways in which a series of copies fits the source's log, and
narrows them down.

An *original* is a batch of the source that is copied. A copy equals the next original, byte for byte, or in the records
that log cleaners have left of both. There may be several ways for two reasons: the source has deleted or cleaned away
originals since they were copied, or the destination has deleted or cleaned away copies. Sequences count the offsets
that were copied, which limits where an original can have been: only where the source's log has *room*, which means
offsets that no batch takes any more.

Equal batches fit in several places, and so do batches that cleaners have emptied. ``Alignment.decide`` has the rules
for these cases; nothing is guessed. A copy may also be a piece of an original (``offsetmap.compare.pieces``). Then the
next copy is searched for inside of the same original.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from mirror.offsetmap.compare.kept import KeptOriginals
from mirror.offsetmap.compare.looks import ComparedBatch, Fit, Gap, fit
from mirror.offsetmap.compare.paths import Found, Path, Step, put, without
from mirror.offsetmap.compare.pieces import STEPS, Rows, rows_of, spots
from mirror.offsetmap.runs import Run

MOST_PATHS = 256
"""Maximum number of ways that are followed. With more, the copies do not tell which one is right."""
MOST_STATES = 20_000
"""Maximum number of states that are examined to pass over missing copies: batches with holes have many each."""
LEAD = 16
"""A way that has matched so many whole batches more than another way is the right one: that is no coincidence."""
MOST_LEFT_OUT = 10_000
"""Maximum number of consecutive originals without a copy that are passed over."""

_State = tuple[tuple[int, int], int, int, int, int, tuple[int, ...]]
"""A state of passing over missing copies: place, used, begun and whole of the path, the number of offsets that are left
to pass over, and the gaps that are left."""


class Differs(Exception):
    """The destination has something under the flow's identity that the source does not have in its place. ``missing``:
    at least so many offsets were copied behind what is certain, if the source may have lost them; otherwise 0."""

    def __init__(self, detail: str, *, missing: int = 1) -> None:
        super().__init__(detail)
        self.missing = missing


class Ambiguous(Differs):
    """The copies fit what is left of the source in more than one place, and nothing decides between these."""


class NeverArrived(Differs):
    """A batch was not appended, and the next one was: the destination's offsets have no gap that it could have
    taken."""


class Alignment:
    """Keeps all ways that still fit.

    Attributes:
        source_offset: according to the way that was decided on, all originals below this offset were copied.
        source_epoch: the leader epoch of the original before that offset; -1 if not known.
        overtaken: True if the source has deleted more than was copied, as far as sequences prove that.
        passed: the number of copies whose originals are gone.
        unshown: True if nothing in the source shows where the originals of the last copies were, or that there were
            any: they were cleaned away, or belonged to an end of the log that the source has lost.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[ComparedBatch | None]],
        gaps: Callable[[], Sequence[Gap]] = tuple,
        *,
        source_offset: int,
        source_start: int,
        source_epoch: int = -1,
        accept_gap: bool = False,
        known_epoch: int = -1,
        opening: asyncio.Lock | None = None,
        may_be_cut: bool = False,
    ) -> None:
        """
        Args:
            fetch: returns the next original, from ``source_offset`` or the source's start on; None: there is none now.
                The first one may begin before that.
            gaps: returns the offsets behind the last original that no batch takes.
            source_offset: everything before this offset was copied.
            source_start: the start of the source's log.
            source_epoch: the leader epoch of what was copied last; -1 if not known.
            accept_gap: choose the earliest place instead of raising ``Ambiguous``, and pass over batches that never
                arrived.
            known_epoch: for a compacted source, a leader epoch under which it was read before. Originals of epochs up
                to this one may have come back, since each replica's cleaner works by itself. Later ones may be new, and
                so may those without an epoch, of formats before Kafka 0.11. -1: no original can have come back.
            opening: is held while batches are open, to limit memory; None: a lock of its own.
            may_be_cut: missing copies may have been pieces of originals. (Existing copies show whether they are.)
        """
        self.source_offset = source_offset
        self.source_epoch = source_epoch
        self.passed = 0
        self.unshown = False
        self._unread: int | None = None
        """The lowest index at which an original was needed to match a copy, or to pass over a missing one, and could
        not be read: it may be the right one."""
        self._last_gaps = gaps
        self._accept_gap = accept_gap
        self._known_epoch = known_epoch
        self._opening = opening or asyncio.Lock()
        self._may_be_cut = may_be_cut
        self._kept = KeptOriginals(fetch, self._opening, begins=source_offset)
        self._begins_at = source_offset
        self._begins_inside: int | None = None
        """The offset inside of the first original at which the comparison begins; None: no original was read yet."""
        self._deleted = max(0, source_start - source_offset)
        self._copies = 0
        self._paths = [Path()]

    async def next(self) -> ComparedBatch | None:
        """Returns the original of which the next copy, or the next piece, is due, according to the way that was decided
        on; None if there is none now. To be called after ``decide``."""
        await self._begin()
        (path,) = self._paths
        return await self._original((await self._onward(path))[-1].at)

    @property
    def overtaken(self) -> bool:
        """See the class. To be called after ``decide``."""
        (path,) = self._paths
        return path.used < self._deleted_before(path)

    async def take(self, copy: ComparedBatch, *, follows: bool = False) -> bool:
        """Takes the next copy. Returns False if it fits nowhere.

        Args:
            copy: the next copy.
            follows: its sequence follows the previous copy's directly. Then originals between those of the two copies
                were never copied. One of them that is not new had been cleaned away, and has come back with a new
                leader.
        """
        found: Found = {}
        fits: dict[int, Fit] = {}
        cut = _Cut(copy)
        await self._begin()
        for path in [way for each in self._paths for way in await self._onward(each)]:
            original = await self._sought(path.at)
            if original is not None:
                whole = Fit.NONE if path.inside else await self._match(found, fits, path, path.at, copy)
                if whole is Fit.NONE:
                    await self._match_pieces(found, path, original, cut)
            if self._room(path, original) >= copy.length:
                put(found, replace(path, used=path.used + copy.length, sure_from=path.place, unshown=True))
        if not found and follows:
            for path in self._paths:
                for at in range(path.at + 1, path.at + 1 + MOST_LEFT_OUT):
                    original = await self._sought(at)
                    # Messages of old formats have no leader epoch: nothing says that they are not new.
                    if original is None or not 0 <= original.header.leader_epoch <= self._known_epoch:
                        break
                    if await self._match(found, fits, path, at, copy) is Fit.WHOLE:
                        break
        if not found:
            return False
        self._copies += 1
        self._narrow(found.values())
        return True

    async def _match(self, found: Found, fits: dict[int, Fit], path: Path, at: int, copy: ComparedBatch) -> Fit:
        """Adds the way in which the copy belongs to this original, if it fits. ``fits``: known results, by original."""
        original = self._kept.at(at)
        if at not in fits:
            fits[at] = await fit(original, copy, self._opening)
        if fits[at] is not Fit.NONE:
            is_whole = fits[at] is Fit.WHOLE
            step = Step(path.steps, Run(original.header.base_offset, copy.header.base_offset, copy.length), None)
            begun = self._copies if path.begun < 0 else path.begun
            sure_from = (at + 1, 0) if not is_whole else path.sure_from if at == path.at else (at, 0)
            matched, whole = path.matched + 1, path.whole + is_whole
            put(found, Path(at + 1, 0, 0, begun, matched, whole, sure_from, not is_whole, step))
        return fits[at]

    async def _match_pieces(self, found: Found, path: Path, original: ComparedBatch, copy: "_Cut") -> None:
        """Adds the ways in which the copy is the next piece of the path's original."""
        if copy.batch.length > original.length - path.inside:
            return
        mine, rows = await copy.rows(self._opening), await self._kept.open(path.at)
        if rows is not None and not copy.batch.timed:
            async with self._opening:
                rows = await rows_of(original, timed=False)
        if mine is None or rows is None:
            return
        for start, end, is_whole in spots(rows, original.length, path.inside, mine, copy.batch.length):
            run = Run(original.header.base_offset + start, copy.batch.header.base_offset, copy.batch.length)
            at, inside = (path.at + 1, 0) if end == original.length else (path.at, end)
            begun = self._copies if path.begun < 0 else path.begun
            sure_from = path.sure_from if is_whole else (at, inside)
            step = Step(path.steps, run, None)
            matched, whole = path.matched + 1, path.whole + is_whole
            put(found, Path(at, inside, 0, begun, matched, whole, sure_from, not is_whole, step))

    async def skip(self, missing: int, gaps: Iterable[int]) -> bool:
        """Passes over offsets that were copied and whose copies are missing. Returns False if that fits nowhere.

        Args:
            missing: the number of these offsets.
            gaps: the sizes of the destination's gaps, in order. A gap is a run of offsets that no batch takes any more.

        Raises:
            NeverArrived: the gaps show that the copies were never there.
            Ambiguous: there are too many ways.
        """
        await self._begin()
        gone = tuple(gaps)
        found, refused = await self._skipped(missing, gone)
        if not found:
            if refused:
                raise NeverArrived(
                    f"{missing} offsets of this flow, from source offset {self.certain} on, never arrived"
                )
            return False
        self._narrow(found.values())
        return True

    async def _skipped(self, missing: int, gaps: tuple[int, ...]) -> tuple[Found, bool]:
        """Returns the ways that have passed over so many offsets, and True if the destination's gaps exclude one. With
        ``may_be_cut``, any original may have been cut into pieces: the limit for a batch may have been different
        then."""
        found: Found = {}
        refused = False
        ways = [way for path in self._paths for way in await self._onward(path)]
        looking: list[tuple[Path, int, tuple[int, ...]]] = [(path, missing, gaps) for path in ways]
        seen: set[tuple[int, int, int, int]] = set()
        known: set[_State] = set()
        while looking:
            path, left, there = looking.pop()
            if not left:
                put(found, path)
                continue
            state = (path.place, path.used, path.begun, path.whole, left, there)
            if not await self._is_new(state, known):
                continue
            original = await self._sought(path.at)
            for gone in range(min(self._room(path, original), left) + 1):
                rest = without(there, gone, whole=False)
                if gone == left:
                    refused = refused or rest is None
                    if rest is not None or self._accept_gap:
                        looking.append((replace(path, used=path.used + gone), 0, rest or ()))
                    continue
                if original is None:
                    continue
                if path.inside or self._may_be_cut:
                    looking += await self._skip_pieces(path, original, left - gone, rest)
                behind = left - gone - original.length
                key = (*path.place, path.begun, behind)
                if path.inside or behind < 0 or key in seen:
                    continue
                rest = without(rest, original.length, whole=True)
                if rest is None:
                    refused = True
                    if not self._accept_gap:
                        continue
                seen.add(key)
                header = original.header
                step = Step(path.steps, None, None if rest is not None else (header.base_offset, header.next_offset))
                place = (path.at + 1, 0)
                further = replace(path, at=path.at + 1, inside=0, used=0, sure_from=place, steps=step)
                looking.append((further, behind, there if rest is None else rest))
        return found, refused

    async def _is_new(self, state: _State, known: set[_State]) -> bool:
        """Adds a state to ``known``. Returns False if it was there already.

        Raises:
            Ambiguous: there are too many states.
        """
        if state in known:
            return False
        known.add(state)
        if len(known) > MOST_STATES:
            raise Ambiguous(f"what was copied from source offset {self.certain} on fits in too many places")
        if len(known) % STEPS == 0:
            await asyncio.sleep(0)
        return True

    async def _skip_pieces(
        self, path: Path, original: ComparedBatch, left: int, gaps: tuple[int, ...] | None
    ) -> list[tuple[Path, int, tuple[int, ...]]]:
        """Returns the ways that remain if the missing copies were pieces of the path's original. Where it has holes
        now, it may have had records then, which the source's cleaner has removed since."""
        offsets = original.length - path.inside
        if original.header.is_dense:
            places, records = [path.inside + left] if left <= offsets else [], offsets
        elif (rows := await self._kept.open(path.at)) is not None:
            places, records = rows.places(path.inside, original.length, left), rows.left(path.inside)
        else:
            return []
        found: list[tuple[Path, int, tuple[int, ...]]] = []
        if len(places) > MOST_PATHS:
            raise Ambiguous(f"what was copied from source offset {self.certain} on fits in too many places")
        ends = [(path.at + 1, 0) if end == original.length else (path.at, end) for end in places]
        ways = [(place, left) for place in ends]
        ways += [((path.at + 1, 0), count) for count in range(max(1, records), min(left - 1, offsets) + 1)]
        for (at, inside), count in ways:
            rest = without(gaps, count, whole=False)
            if rest is not None:
                step = Step(path.steps, None, None)
                further = replace(path, at=at, inside=inside, used=0, sure_from=(at, inside), steps=step)
                found.append((further, left - count, rest))
        return found

    def decide(self) -> tuple[list[Run], list[tuple[int, int]]]:
        """Decides on one way, which is the only one from then on.

        If the source has deleted originals, only one place behind the deletion may fit. If it has cleaned originals
        away, the way with the most whole copies is right, since a copy that is whole says the same about every key,
        whichever original it was made of. But in the part that this way passes over and another way does not, every
        copy must be whole. If several ways remain that have equally many whole copies, or if such a part is not whole,
        it is ambiguous.

        Returns:
            What was found since the last call: runs of originals and their copies, and ranges of source offsets that
            never arrived.

        Raises:
            Ambiguous: several ways fit.
        """
        paths = self._paths
        best = max(paths, key=lambda path: (path.whole, -path.at, -path.inside, -path.used))
        equal = {path.place for path in paths if path.whole == best.whole}
        unsure = any(path.place < best.sure_from for path in paths)
        if len(equal) > 1 or unsure or (self._deleted and len({path.begun for path in paths}) > 1):
            if not self._accept_gap:
                begins = f"the source begins at {self._kept.ends + self._deleted}, and " if self._deleted else ""
                where = f"what was copied from {self._kept.ends} on fits its batches in {len(paths)} places"
                raise Ambiguous(begins + where)
            best = min(paths, key=lambda path: (path.place, path.used))
        runs, lost = [], []
        step = best.steps
        while step is not None:
            if step.run is not None:
                runs.append(step.run)
            if step.lost is not None:
                lost.append(step.lost)
            step = step.before
        self._paths = [replace(best, steps=None)]
        self._kept.forget(best.at)
        for original in self._kept.drop_before(best.at):
            self.source_epoch = original.header.leader_epoch
        if best.inside and best.inside != self._begins_inside:
            self.source_epoch = self._kept.at(best.at).header.leader_epoch
        self.passed = self._copies - best.matched
        self.unshown = best.unshown
        self.source_offset = self._behind(best)
        return runs[::-1], lost[::-1]

    async def told(self, source: str) -> str:
        """Returns what is wrong with the copy that was not taken, for messages. ``source``: the name of the source's
        log."""
        original = await self._original(min(path.at for path in self._paths))
        if original is None:
            return f"is a batch of this flow, {source} has none from {self.certain} on"
        return f"differs from offset {original.header.base_offset} of {source}"

    @property
    def ended(self) -> bool:
        """True if an original was needed, to match a copy or to pass over a missing one, behind everything that could
        be read of the source."""
        return self._unread is not None

    async def goes_on(self) -> bool:
        """Returns True if more of the source can be read now than when ``ended`` became True; if it is not True, than
        has been read."""
        await self._begin()
        at = self._kept.end if self._unread is None else self._unread
        return at < self._kept.first or await self._original(at) is not None

    @property
    def certain(self) -> int:
        """The source offset that all ways have reached."""
        at, inside = min(path.place for path in self._paths)
        if inside:
            return self._kept.at(at).header.base_offset + inside
        return self._kept.at(at - 1).header.next_offset if at > self._kept.first else self._kept.ends

    async def left_of(self, epoch: int, most: int) -> int:
        """Returns how many offsets from ``certain`` on belong, or belonged, to originals of this leader epoch or of
        earlier ones. It stops counting at ``most`` or more."""
        await self._begin()
        (at, inside), left = min(path.place for path in self._paths), 0
        while left < most:
            original = await self._original(at)
            if original is None or original.header.leader_epoch > epoch:
                break
            left += original.length - inside if inside else original.room + original.length
            at, inside = at + 1, 0
        return left

    # -- the ways ----------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Determines where in the first original the comparison begins, once that original can be read."""
        if self._begins_inside is None and (first := await self._kept.read(self._kept.first)) is not None:
            self._begins_inside = max(0, self._begins_at - first.header.base_offset)
            self._paths = [replace(path, inside=self._begins_inside) for path in self._paths]

    async def _onward(self, path: Path) -> list[Path]:
        """Returns the path; and also the path behind its original, if no record of that original is left."""
        rows = await self._kept.open(path.at) if path.inside else None
        if rows is None or rows.left(path.inside):
            return [path]
        return [path, replace(path, at=path.at + 1, inside=0, used=0)]

    async def _sought(self, at: int) -> ComparedBatch | None:
        """Returns the original with this index as a candidate for a copy. Notes the index if it cannot be read."""
        original = await self._original(at)
        if original is None and (self._unread is None or at < self._unread):
            self._unread = at
        return original

    async def _original(self, at: int) -> ComparedBatch | None:
        """Returns the original with this index; None if it cannot be read, or if the first original could not be read
        when this call began: then it is not known yet where in it the comparison begins."""
        return await self._kept.read(at) if self._begins_inside is not None else None

    def _behind(self, path: Path) -> int:
        """Returns the source offset at which the path's next original is due: behind the offsets that the path has
        passed over, wherever these are."""
        used, deleted = path.used, self._deleted_before(path)
        if used <= deleted and (not path.inside or path.place == (0, self._begins_inside)):
            return self._kept.ends + used
        used -= deleted
        if path.inside:
            return self._kept.at(path.at).header.base_offset + path.inside + used
        for gap in self._kept.at(path.at).gaps if path.at < self._kept.end else self._last_gaps():
            if used <= gap.offsets:
                return gap.behind(used)
            used -= gap.offsets
        raise AssertionError(f"{used} offsets more than there is room for")

    def _room(self, path: Path, original: ComparedBatch | None) -> int:
        """Returns how many offsets other originals may have taken in front of the path's next original, or in front of
        the next record of it."""
        room = self._deleted_before(path) - path.used
        if original is None:
            return room + sum(gap.offsets for gap in self._last_gaps())
        if not path.inside:
            return room + original.room
        rows = self._kept.rows(path.at)
        begins = rows.next(path.inside) if rows is not None else path.inside
        return room + (original.length if begins is None else begins) - path.inside

    def _deleted_before(self, path: Path) -> int:
        """Returns how many offsets the source has deleted between what was copied and the path's place; 0 behind the
        first original."""
        return self._deleted if path.place == (0, self._begins_inside or 0) else 0

    def _narrow(self, found: Iterable[Path]) -> None:
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
        self._kept.forget(min(path.at for path in paths))


class _Cut:
    """A copy that may be a piece of an original. It is opened when its records are first needed, and only once."""

    def __init__(self, batch: ComparedBatch) -> None:
        self.batch = batch
        self._rows: Rows | None = None
        self._opened = False

    async def rows(self, opening: asyncio.Lock) -> Rows | None:
        """Returns the copy's records; None if they cannot be read. ``opening``: is held while the batch is open."""
        if not self._opened:
            self._opened = True
            async with opening:
                self._rows = await rows_of(self.batch, timed=self.batch.timed)
        return self._rows
