"""The exact map from source offsets to destination offsets, in runs (``offsets: mapped``).

In a run, ``length`` consecutive source offsets from ``source`` on correspond to the destination offsets from
``destination`` on. Between runs lie offsets that only one side has: holes of the source, which are not copied, and
batches of other writers at the destination. Runs ascend on both sides, since a partition is copied in order, so a
look-up in either direction is a binary search.

Pure. A run takes 24 bytes of memory. A copy without holes and other writers is a single run, however long it is.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

from mirror.offsetmap.fields import MOST


class Run(NamedTuple):
    """``length`` consecutive offsets on both sides, which correspond to each other."""

    source: int
    destination: int
    length: int

    @property
    def source_end(self) -> int:
        """The source offset behind the run."""
        return self.source + self.length

    @property
    def destination_end(self) -> int:
        """The destination offset behind the run."""
        return self.destination + self.length


class MappedOffset(NamedTuple):
    """The place of one side's offset on the other side. ``exact``: False if the other side does not have it. Then
    ``offset`` is the place of the next offset that it has, as for a consumer that starts at a hole."""

    offset: int
    exact: bool


class MapError(ValueError):
    """Runs do not ascend on both sides, or packed runs are invalid. The message has the numbers."""


class OffsetMap:
    """The runs of one source partition."""

    __slots__ = ("_destinations", "_lengths", "_sources")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._sources = array("q")
        self._destinations = array("q")
        self._lengths = array("q")
        for run in runs:
            self.append(*run)

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self._sources, self._destinations, self._lengths)

    def __getitem__(self, at: int) -> Run:
        return Run(self._sources[at], self._destinations[at], self._lengths[at])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetMap) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # changes

    def __repr__(self) -> str:
        ends = f", {self[0].source} to {self.source_end}" if len(self) else ""
        return f"<OffsetMap, {len(self)} runs{ends}>"

    @property
    def source_end(self) -> int:
        """The source offset behind the last run; 0 for an empty map."""
        return self[-1].source_end if len(self) else 0

    @property
    def destination_end(self) -> int:
        """The destination offset behind the last run; 0 for an empty map."""
        return self[-1].destination_end if len(self) else 0

    # -- changes -----------------------------------------------------------------------------------------------------

    def append(self, source: int, destination: int, length: int) -> None:
        """Adds ``length`` offsets behind all others. They extend the last run if they follow it directly on both sides.

        Raises:
            MapError: they do not lie behind the last run on both sides, or ``length`` is not positive.
        """
        if length <= 0 or source < 0 or destination < 0:
            raise MapError(f"no run: {length} offsets from {source} at {destination}")
        if len(self):
            last = self[-1]
            if source < last.source_end or destination < last.destination_end:
                raise MapError(f"{length} offsets from {source} at {destination} do not lie behind {tuple(last)}")
            if source == last.source_end and destination == last.destination_end:
                self._lengths[-1] += length
                return
        self._sources.append(source)
        self._destinations.append(destination)
        self._lengths.append(length)

    def extend(self, runs: Iterable[Run]) -> None:
        """Appends each of these runs.

        Raises:
            MapError: see ``append``.
        """
        for run in runs:
            self.append(*run)

    def truncate(self, source: int) -> None:
        """Removes every source offset from ``source`` on."""
        self._keep_before(bisect_right(self._sources, source), source - self._run_start(self._sources, source))

    def truncate_destination(self, destination: int) -> None:
        """Removes every destination offset from ``destination`` on, because the destination's log lost them."""
        kept = bisect_right(self._destinations, destination)
        self._keep_before(kept, destination - self._run_start(self._destinations, destination))

    @staticmethod
    def _run_start(side: "array[int]", offset: int) -> int:
        """Returns the first offset of the run at or before ``offset``; ``offset`` if there is none."""
        at = bisect_right(side, offset) - 1
        return side[at] if at >= 0 else offset

    def _keep_before(self, runs: int, length: int) -> None:
        """Keeps the first ``runs`` runs, and at most ``length`` offsets of the last of them."""
        if runs and not length:
            runs, length = runs - 1, self._lengths[runs - 2] if runs > 1 else 0
        del self._sources[runs:], self._destinations[runs:], self._lengths[runs:]
        if runs:
            self._lengths[-1] = min(self._lengths[-1], length)

    # -- look-ups ----------------------------------------------------------------------------------------------------

    def to_destination(self, offset: int) -> MappedOffset | None:
        """Returns the place of a source offset at the destination; None behind the last run."""
        return _look_up(self._sources, self._destinations, self._lengths, offset)

    def to_source(self, offset: int) -> MappedOffset | None:
        """Returns the place of a destination offset at the source; None behind the last run."""
        return _look_up(self._destinations, self._sources, self._lengths, offset)

    # -- as plain numbers ----------------------------------------------------------------------------------------------

    def pack(self) -> list[int]:
        """Returns three numbers per run: the distances from the end of the previous run at the source and at the
        destination, and the length. The numbers are small, and so short in JSON."""
        packed: list[int] = []
        source_end = destination_end = 0
        for run in self:
            packed += (run.source - source_end, run.destination - destination_end, run.length)
            source_end, destination_end = run.source_end, run.destination_end
        return packed

    @classmethod
    def unpack(cls, packed: object) -> Self:
        """Returns the map that ``pack`` packed.

        Raises:
            MapError: ``packed`` is not such a list.
        """
        if type(packed) is not list or len(packed) % 3 or not all(type(number) is int for number in packed):
            raise MapError("a packed map is a list of three integers a run")
        found = cls()
        numbers = iter(packed)
        for gap, other_gap, length in zip(numbers, numbers, numbers, strict=True):
            source, destination = found.source_end + gap, found.destination_end + other_gap
            if max(source, destination) + length > MOST:
                raise MapError(f"{length} offsets from {source} at {destination}: there are none so high")
            found.append(source, destination, length)
        return found


def _look_up(here: "array[int]", there: "array[int]", lengths: "array[int]", offset: int) -> MappedOffset | None:
    at = bisect_right(here, offset) - 1
    if at >= 0 and offset < here[at] + lengths[at]:
        return MappedOffset(there[at] + offset - here[at], exact=True)
    if at + 1 < len(here):
        return MappedOffset(there[at + 1], exact=False)
    return None
