"""What a worker says of its partitions, and the supervisor reads: plain data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mirror.service.telemetry.accounts import Stint

if TYPE_CHECKING:
    from mirror.relay.assignment import Key

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Row(NamedTuple):
    """One partition that the worker has."""

    topic: str
    partition: int
    state: str
    lag_records: int | None
    """Source offsets that the destination is known to lack. None: not known; never 0 then."""
    source_end: int
    """As last heard; -1: never."""
    position: int
    """Up to where it is copied, as last known; -1: it never was."""
    committed: int
    """The group's offset; -1: none yet."""
    reason: str
    """Why it halted; empty: it has not."""
    detail: str
    remedy: str
    waits: str
    """Why it is not copied for now, without being halted; empty: it is."""
    waits_since: float
    """Since 1970; 0: it does not wait."""
    held_back: int
    """Offsets at the source that a transaction that is still open keeps from read_committed consumers."""
    held_since: float
    """Since when that transaction is known to keep back whatever comes, since 1970; 0: there is none."""
    stint: Stint
    """What was replicated since it was assigned."""

    @property
    def key(self) -> Key:
        """Topic and partition index."""
        return self.topic, self.partition

    @classmethod
    def read(cls, values: Sequence[Any]) -> Row:
        """Back from JSON."""
        return cls._make([*values[:-1], Stint._make(values[-1])])


class Gone(NamedTuple):
    """The last word on a partition that was let go."""

    topic: str
    partition: int
    stint: Stint

    @classmethod
    def read(cls, values: Sequence[Any]) -> Gone:
        """Back from JSON."""
        return cls._make([*values[:-1], Stint._make(values[-1])])


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * PAGE_SIZE
