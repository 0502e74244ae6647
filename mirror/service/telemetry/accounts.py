"""What was replicated of one partition, over all the times that a worker of this supervisor had it. Pure.

A worker counts from where it first located the partition. What landed after the last owner's last word and before that
was counted by nobody: its answers were still due when the owner let go, doubted, or died. Positions tell: the account
counts what lies between where the last owner was and where the next one began.
"""

import math
from collections.abc import Hashable
from typing import NamedTuple

KEPT = 8
"""Stints whose owners may still have something to say; older ones are added up."""


class Totals(NamedTuple):
    """Offsets with a record, batches, bytes as stored, and filled offsets."""

    records: int = 0
    batches: int = 0
    bytes: int = 0
    filled: int = 0

    def plus(self, other: "Totals") -> "Totals":
        """Both together."""
        return Totals(
            self.records + other.records,
            self.batches + other.batches,
            self.bytes + other.bytes,
            self.filled + other.filled,
        )


class Stint(NamedTuple):
    """One time that a worker process had a partition, from its assignment until it was let go."""

    number: int
    """Of that process; each assignment has another."""
    begun: int
    """The position when it was first located, where the counts begin; -1: it was not located yet."""
    begun_at_s: float
    """By the machine's monotonic clock."""
    holes_from: int
    """From here up to ``begun`` there were only markers."""
    inherited: int
    """The position that the owner before had committed; -1: not known."""
    position: int
    """As last known; -1: it never was."""
    records: int = 0
    batches: int = 0
    bytes: int = 0
    filled: int = 0

    @property
    def totals(self) -> Totals:
        """What it counted itself."""
        return Totals(self.records, self.batches, self.bytes, self.filled)


class Account:
    """Of one partition."""

    def __init__(self) -> None:
        self._stints: dict[Hashable, Stint] = {}
        self._closed = Totals()
        self._position = -1
        """Where the last closed stint ended."""
        self._closed_s = -math.inf
        """When it had begun: a word of it, or of one before, comes too late."""

    def told(self, worker: Hashable, stint: Stint) -> None:
        """The worker's word of now. ``worker``: the process; words of several may come in any order."""
        key = worker, stint.number
        if stint.begun < 0 or stint.begun_at_s <= self._closed_s:
            return
        known = key in self._stints
        self._stints[key] = stint
        if not known:
            # In the order in which they began, whoever is heard first.
            self._stints = dict(sorted(self._stints.items(), key=lambda item: item[1].begun_at_s))
            while len(self._stints) > KEPT:
                oldest = self._stints.pop(next(iter(self._stints)))
                self._closed = self._closed.plus(_between(self._position, oldest)).plus(oldest.totals)
                self._position, self._closed_s = oldest.position, oldest.begun_at_s

    @property
    def totals(self) -> Totals:
        """Of all stints, and of what landed between them."""
        found, position = self._closed, self._position
        for stint in self._stints.values():
            found = found.plus(_between(position, stint)).plus(stint.totals)
            position = stint.position
        return found


def _between(position: int, stint: Stint) -> Totals:
    """What landed between two owners. Of batches and bytes, nobody knows."""
    known = max(position, stint.inherited)
    if known < 0 or stint.begun <= known:
        return Totals()
    filled = max(0, stint.begun - max(known, stint.holes_from))
    return Totals(records=stint.begun - known - filled, filled=filled)
