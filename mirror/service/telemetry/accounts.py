"""Counts what was replicated of one partition, over all the times that a worker of this supervisor had it. Pure.

A worker counts from the position at which it first located the partition. Records that were appended before that, but
after the previous owner's last report, were counted by no worker: their answers were still missing when that owner let
go, came into doubt, or died. The account counts them by positions: from the previous owner's last one to the next
owner's first one.
"""

import math
from collections.abc import Hashable
from typing import NamedTuple

KEPT = 8
"""Number of stints that are kept because their owners may still report; older ones are only kept as a sum."""


class Totals(NamedTuple):
    """Numbers of offsets with a record, of batches, of bytes as stored, and of filled offsets."""

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
    """One period for which a worker process had a partition, from the assignment until it was let go."""

    number: int
    """The stint's number in that process; each assignment gets another."""
    begun: int
    """The position at which the partition was first located, and from which it is counted; -1: not located yet."""
    begun_at_s: float
    """When it was located, in seconds by the machine's monotonic clock."""
    holes_from: int
    """From this offset up to ``begun``, the destination had only markers; -1: not located yet."""
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
    """Counts what was replicated of one partition."""

    def __init__(self) -> None:
        self._stints: dict[Hashable, Stint] = {}
        self._closed = Totals()
        self._position = -1
        """The position at which the last closed stint ended."""
        self._closed_s = -math.inf
        """``begun_at_s`` of the last closed stint: a report on this stint or an earlier one is too late, and
        ignored."""

    def told(self, worker: Hashable, stint: Stint) -> None:
        """Takes a worker's latest report. ``worker``: identifies the process. Reports of several workers may come in
        any order."""
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
        """The counts of all stints, and of the records that were appended between them."""
        found, position = self._closed, self._position
        for stint in self._stints.values():
            found = found.plus(_between(position, stint)).plus(stint.totals)
            position = stint.position
        return found


def _between(position: int, stint: Stint) -> Totals:
    """Returns the records and filled offsets that were appended between two owners. Batches and bytes are not known."""
    known = max(position, stint.inherited)
    if known < 0 or stint.begun <= known:
        return Totals()
    filled = max(0, stint.begun - max(known, stint.holes_from))
    return Totals(records=stint.begun - known - filled, filled=filled)
