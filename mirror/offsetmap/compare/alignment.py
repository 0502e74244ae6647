"""Finds which copy is of which original: keeps all ways in which a row of copies fits the source's log, and narrows
them down.

A copy equals the next original, byte for byte, or in the records that log cleaners have left of both. Two things leave
a choice: originals that the source has deleted or cleaned away since they were copied, and copies that the destination
has deleted or cleaned away. Sequences count the offsets that were copied, so they bound where an original can have
stood: only where the source's log has *room*, offsets that no batch takes any more.
Equal batches fit in several places, and so do emptied ones. ``Alignment.decide`` says what decides then; nothing is
guessed. A copy may also be a piece of an original (``offsetmap.compare.pieces``): then the next one is sought inside.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from mirror.offsetmap.compare.looks import ComparedBatch, Fit, Gap, fit
from mirror.offsetmap.compare.paths import Found, Path, Step, put, without
from mirror.offsetmap.compare.pieces import STEPS, Rows, rows_of, spots
from mirror.offsetmap.runs import Run

MOST_PATHS = 256
"""The most ways to fit that are followed. Nobody could tell more of them apart."""
MOST_STATES = 20_000
"""The most ways to go over what is gone that are looked at: where batches have holes, there are many for each."""
LEAD = 16
"""Batches that one way has matched more than another before it is the right one: this many in a row are no
coincidence."""
MOST_LEFT_OUT = 10_000
"""The most originals in a row that were not copied and are gone over."""
MOST_KEPT = 16 << 20
"""Bytes of originals that are kept to be opened. Of earlier ones, only the looks are kept."""


_State = tuple[tuple[int, int], int, int, int, int, tuple[int, ...]]
"""Of a way to go over what is gone: place, used, begun and whole of its path, what is left, and the gaps that are."""


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


class Alignment:
    """Keeps all ways that are left.

    Attributes:
        source_offset: by the way decided on, all originals below were copied.
        source_epoch: leader epoch of the original before; -1 if not known.
        overtaken: the source's deletion reached beyond what was copied, as far as sequences prove.
        passed: copies whose originals are gone.
        unshown: nothing that the source has shows where it had the last copies, or that it had them: their originals
            were cleaned away, or were of an end that it has lost.
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
                The first may begin before that.
            gaps: returns the offsets behind the last original that no batch takes.
            source_offset: all before it was copied.
            source_start: where the source begins.
            source_epoch: leader epoch of what was copied last.
            accept_gap: choose the earliest place instead of ``Ambiguous``, and go over batches that never arrived.
            known_epoch: for a compacted source, a leader epoch under which it was read before. Originals up to that one
                may have come back, since each replica's cleaner works by itself; later ones may be new. -1: none has.
            opening: held while batches are open; by default, one of its own.
            may_be_cut: copies that are gone may have been pieces. Those that are there show what they are.
        """
        self.source_offset = source_offset
        self.source_epoch = source_epoch
        self.passed = 0
        self.unshown = False
        self._unread: int | None = None
        """Index of an original that could not be read when a copy, or a gap, was sought there: it may be the one."""
        self._fetch = fetch
        self._last_gaps = gaps
        self._accept_gap = accept_gap
        self._known_epoch = known_epoch
        self._opening = opening or asyncio.Lock()
        self._may_be_cut = may_be_cut
        self._rows: dict[int, Rows | None] = {}
        """What is in originals of which pieces were sought, by index."""
        self._begins_at = source_offset
        self._begins_inside: int | None = None
        """The offset in the first original at which all begins; None: that was not read yet."""
        self._deleted = max(0, source_start - source_offset)
        self._copies = 0
        self._originals: deque[ComparedBatch] = deque()
        self._first = 0
        """Index of the first original that is kept."""
        self._ends = source_offset
        """The end offset of the original before it."""
        self._kept_from = 0
        """Index of the first original whose records are kept."""
        self._kept_bytes = 0
        self._paths = [Path()]

    async def next(self) -> ComparedBatch | None:
        """Returns the original that comes next, or of which a part comes next, by the way decided on."""
        await self._begin()
        (path,) = self._paths
        return await self._original((await self._onward(path))[-1].at)

    @property
    def overtaken(self) -> bool:
        """See the class."""
        (path,) = self._paths
        return path.used < self._deleted_before(path)

    async def take(self, copy: ComparedBatch, *, follows: bool = False) -> bool:
        """Takes the next copy; False if it fits nowhere. ``follows``: its sequence is the next one after the previous
        copy's. Then originals that stand between those of both copies were left out. Any that is not new had been
        cleaned away, and has come back."""
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
                    if original is None or original.header.leader_epoch > self._known_epoch:
                        break
                    if await self._match(found, fits, path, at, copy) is Fit.WHOLE:
                        break
        if not found:
            return False
        self._copies += 1
        self._narrow(found.values())
        return True

    async def _match(self, found: Found, fits: dict[int, Fit], path: Path, at: int, copy: ComparedBatch) -> Fit:
        """Adds the way by which the copy is of this original, if it fits. ``fits``: known results, by original."""
        original = self._originals[at - self._first]
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
        """Adds the ways by which the copy is the next piece of the path's original."""
        if copy.batch.length > original.length - path.inside:
            return
        mine, rows = await copy.rows(self._opening), await self._opened(path.at)
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
        """Passes over offsets that were copied and whose copies are not there; False if that fits nowhere.

        Args:
            missing: how many offsets.
            gaps: sizes of the destination's gaps, in order: offsets in a row that no batch takes any more.

        Raises:
            NeverArrived: the copies were never there.
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
        """Returns the ways on behind so many offsets, and True if the destination's gaps speak against one. The limit
        for a batch may have been another one then: whatever it is now, any of them may have been cut."""
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
        """Adds a state to those that were looked at; False if it was one of them."""
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
        """Returns the ways on if the copies that are not there were pieces of the path's original. Where it has holes,
        these may have had records then, which the source's cleaner has taken since."""
        offsets = original.length - path.inside
        if original.header.is_dense:
            places, records = [path.inside + left] if left <= offsets else [], offsets
        elif (rows := await self._opened(path.at)) is not None:
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
        best = max(paths, key=lambda path: (path.whole, -path.at, -path.inside, -path.used))
        equal = {path.place for path in paths if path.whole == best.whole}
        unsure = any(path.place < best.sure_from for path in paths)
        if len(equal) > 1 or unsure or (self._deleted and len({path.begun for path in paths}) > 1):
            if not self._accept_gap:
                begins = f"the source begins at {self._ends + self._deleted}, and " if self._deleted else ""
                raise Ambiguous(f"{begins}what was copied from {self._ends} on fits its batches in {len(paths)} places")
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
        self._forget()
        while self._first < best.at:
            original = self._originals.popleft()
            self._ends, self.source_epoch = original.header.next_offset, original.header.leader_epoch
            self._first += 1
        if best.inside and best.inside != self._begins_inside:
            self.source_epoch = self._originals[0].header.leader_epoch
        self.passed = self._copies - best.matched
        self.unshown = best.unshown
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
        await self._begin()
        at = self._first + len(self._originals) if self._unread is None else self._unread
        return at < self._first or await self._original(at) is not None

    @property
    def certain(self) -> int:
        """The source offset up to which all is certain."""
        at, inside = min(path.place for path in self._paths)
        at -= self._first
        if inside:
            return self._originals[at].header.base_offset + inside
        return self._originals[at - 1].header.next_offset if at else self._ends

    async def left_of(self, epoch: int, most: int) -> int:
        """Counts the offsets from ``certain`` on that are, or were, of originals of this leader epoch or of earlier
        ones, until there are ``most`` of them."""
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
        """Reads where in the first original all begins, once there is one."""
        if self._begins_inside is None and (first := await self._read(self._first)) is not None:
            self._begins_inside = max(0, self._begins_at - first.header.base_offset)
            self._paths = [replace(path, inside=self._begins_inside) for path in self._paths]

    async def _onward(self, path: Path) -> list[Path]:
        """Returns the path, and the one behind its original if nothing of that is left."""
        rows = await self._opened(path.at) if path.inside else None
        if rows is None or rows.left(path.inside):
            return [path]
        return [path, replace(path, at=path.at + 1, inside=0, used=0)]

    async def _opened(self, at: int) -> Rows | None:
        """Returns what is in an original; None if it cannot be read any more."""
        if at not in self._rows:
            original = await self._original(at)
            assert original is not None
            async with self._opening:
                self._rows[at] = await rows_of(original)
        return self._rows[at]

    async def _sought(self, at: int) -> ComparedBatch | None:
        """Returns the original there as a candidate for a copy. Notes its index if it cannot be read."""
        original = await self._original(at)
        if original is None and (self._unread is None or at < self._unread):
            self._unread = at
        return original

    async def _original(self, at: int) -> ComparedBatch | None:
        """Returns the original there; None if it cannot be read, or if it was not to be read when this began: then it
        is not known yet where in the first one all begins."""
        return await self._read(at) if self._begins_inside is not None else None

    async def _read(self, at: int) -> ComparedBatch | None:
        while at >= self._first + len(self._originals):
            original = await self._fetch()
            if original is None:
                return None
            self._originals.append(original)
            self._kept_bytes += len(original.records or b"")
        return self._originals[at - self._first]

    def _behind(self, path: Path) -> int:
        """Returns where the path's next original is sought: behind the offsets that it has gone over, wherever these
        are."""
        used, deleted = path.used, self._deleted_before(path)
        if used <= deleted and (not path.inside or path.place == (0, self._begins_inside)):
            return self._ends + used
        used -= deleted
        if path.inside:
            return self._originals[0].header.base_offset + path.inside + used
        for gap in self._originals[0].gaps if self._originals else self._last_gaps():
            if used <= gap.offsets:
                return gap.behind(used)
            used -= gap.offsets
        raise AssertionError(f"{used} offsets more than there is room for")

    def _room(self, path: Path, original: ComparedBatch | None) -> int:
        """Returns how many offsets before the path's next original, or the next record of it, others may have taken."""
        room = self._deleted_before(path) - path.used
        if original is None:
            return room + sum(gap.offsets for gap in self._last_gaps())
        if not path.inside:
            return room + original.room
        rows = self._rows.get(path.at)
        begins = rows.next(path.inside) if rows is not None else path.inside
        return room + (original.length if begins is None else begins) - path.inside

    def _deleted_before(self, path: Path) -> int:
        """Returns how many offsets the source has deleted between what was copied and the path's place."""
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
        self._forget()

    def _forget(self) -> None:
        """Drops the records of originals that are behind all ways, or too many."""
        behind, end = min(path.at for path in self._paths), self._first + len(self._originals)
        self._rows = {at: rows for at, rows in self._rows.items() if at >= behind}
        while self._kept_from < end and (self._kept_from < behind or self._kept_bytes > MOST_KEPT):
            at = self._kept_from - self._first
            self._kept_bytes -= len(self._originals[at].records or b"")
            self._originals[at] = self._originals[at]._replace(records=None)
            self._kept_from += 1


class _Cut:
    """A copy that may be a piece of an original. ``batch``: it; it is opened when that is needed, once."""

    def __init__(self, batch: ComparedBatch) -> None:
        self.batch = batch
        self._rows: Rows | None = None
        self._opened = False

    async def rows(self, opening: asyncio.Lock) -> Rows | None:
        """Returns what is in it; None if it cannot be read. ``opening``: held meanwhile."""
        if not self._opened:
            self._opened = True
            async with opening:
                self._rows = await rows_of(self.batch, timed=self.batch.timed)
        return self._rows
