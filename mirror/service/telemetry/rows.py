"""A worker's reports on its partitions, which the supervisor reads: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mirror.service.telemetry.accounts import Stint

if TYPE_CHECKING:
    from mirror.relay.assignment import Key


class PartitionRow(NamedTuple):
    """One partition that the worker has."""

    topic: str
    partition: int
    state: str
    """A phase (``relay.partition.phases``), or "paused": a halt that an operator has requested, without a reason."""
    lag_records: int | None
    """Number of source offsets that the destination is known to lack. None (never 0): not known."""
    source_end: int
    """The last known end of the source's log; -1: never known."""
    position: int
    """The last known source offset up to which the partition is copied; -1: not known."""
    committed: int
    """The group's committed offset; -1: none yet."""
    reason: str
    """The reason why the partition halted; empty if it has not."""
    detail: str
    remedy: str
    waits: str
    """The reason why the partition waits: it is not copied now, but has not halted. Empty if it does not wait."""
    waits_since: float
    """Since when it waits, in seconds since 1970; 0: it does not wait."""
    held_back: int
    """Number of source offsets that an open transaction keeps back from read_committed consumers."""
    held_since: float
    """Since when that transaction is known to keep them back, in seconds since 1970; 0: there is none."""
    destination: str
    """The destination topic."""
    stint: Stint
    """The counts since the partition was assigned."""

    @property
    def key(self) -> Key:
        """Topic and partition index."""
        return self.topic, self.partition

    @classmethod
    def read(cls, values: Sequence[Any]) -> PartitionRow:
        """Restores the tuple from JSON."""
        return cls._make([*values[:-1], Stint._make(values[-1])])


class Gone(NamedTuple):
    """The last report on a partition that was let go."""

    topic: str
    partition: int
    stint: Stint

    @classmethod
    def read(cls, values: Sequence[Any]) -> Gone:
        """Restores the tuple from JSON."""
        return cls._make([*values[:-1], Stint._make(values[-1])])
