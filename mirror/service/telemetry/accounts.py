"""Counts what was replicated of one partition, over all the times that a worker of this supervisor had it. Pure.

A worker counts from the position where it first located the partition. Records that landed before that, but after the
previous owner's last report, were counted by nobody: their answers were still due when that owner let go, doubted, or
died. The account counts them by positions: from where the previous owner was to where the next one began.
"""

import math
from collections.abc import Hashable
from typing import NamedTuple

KEPT = 8
"""Stints that are kept because their owners may still report; older ones are added up."""


class Totals(NamedTuple):
    """Offsets with a record, batches, bytes as stored, and filled offsets."""

    records: int = 0
    batches: int = 0
    bytes: int = 0
    filled: int = 0

    def plus(self, other: "Totals") -> "Totals":
        """Returns the sum of both."""
        return Totals(
            self.records + other.records,
            self.batches + other.batches,
            self.bytes + other.bytes,
            self.filled + other.filled,
        )


class Stint(NamedTuple):
    """One time that a worker process had a partition, from its assignment until it was let go."""

    number: int
    """The stint's number in that process; each assignment gets another."""
    begun: int
    """The position when it was first located, where the counts begin; -1: it was not located yet."""
    begun_at_s: float
    """When that was, in seconds by the machine's monotonic clock."""
    holes_from: int
    """From here up to ``begun``, the destination had only markers."""
    inherited: int
    """The position that the previous owner had committed; -1: not known."""
    position: int
    """The position as last known; -1: it was never known."""
    records: int = 0
    batches: int = 0
    bytes: int = 0
    filled: int = 0

    @property
    def totals(self) -> Totals:
        """The counts of the stint itself."""
        return Totals(self.records, self.batches, self.bytes, self.filled)


class Account:
    """The account of one partition."""

    def __init__(self) -> None:
        self._stints: dict[Hashable, Stint] = {}
        self._closed = Totals()
        self._position = -1
        """The position at which the last closed stint ended."""
        self._closed_s = -math.inf
        """When the last closed stint had begun: a report on it, or on an earlier one, comes too late."""

    def told(self, worker: Hashable, stint: Stint) -> None:
        """Takes a worker's latest report. ``worker``: the process; reports of several may come in any order."""
        key = worker, stint.number
        if stint.begun < 0 or stint.begun_at_s <= self._closed_s:
            return
        known = key in self._stints
        self._stints[key] = stint
        if not known:
            # Sorted by their begin: a later owner may report before an earlier one.
            self._stints = dict(sorted(self._stints.items(), key=lambda item: item[1].begun_at_s))
            while len(self._stints) > KEPT:
                oldest = self._stints.pop(next(iter(self._stints)))
                self._closed = self._closed.plus(_between(self._position, oldest)).plus(oldest.totals)
                self._position, self._closed_s = oldest.position, oldest.begun_at_s

    @property
    def totals(self) -> Totals:
        """The counts of all stints, and of what landed between them."""
        found, position = self._closed, self._position
        for stint in self._stints.values():
            found = found.plus(_between(position, stint)).plus(stint.totals)
            position = stint.position
        return found


def _between(position: int, stint: Stint) -> Totals:
    """Returns the records and filled offsets that landed between two owners. Batches and bytes are not known."""
    known = max(position, stint.inherited)
    if known < 0 or stint.begun <= known:
        return Totals()
    filled = max(0, stint.begun - max(known, stint.holes_from))
    return Totals(records=stint.begun - known - filled, filled=filled)
