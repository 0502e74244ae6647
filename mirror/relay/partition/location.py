"""Where copying a partition continues, as found by a look at both logs."""

import math
from typing import NamedTuple

from mirror.net.metadata import Leader
from mirror.records.admit import NOT_INSIDE
from mirror.records.identity import Identity

NEVER = (1 << 63) - 1
"""Above any offset."""


class Location(NamedTuple):
    """Where copying a partition continues, and what the look at both logs found on the way."""

    offset: int
    """The next source offset to copy. With exact offsets, it is the destination's log end."""
    identity: Identity
    last_epoch: int
    """Leader epoch of the source batch before ``offset``. -1: not known; the broker then cannot detect truncation."""
    destination_leader: Leader
    source_leader: Leader
    source_end: int
    log_start: int
    proven: bool
    """True if the batch before ``offset`` was compared on both sides."""
    coordinator_epoch: int
    """The coordinator epoch of our markers: above the highest that the destination's leader remembers, and above that
    of every former owner."""
    source_start: int
    """Base offset of the source's first batch. It is above ``offset`` only if the gap in between was accepted."""
    floor: int = 0
    """The source's first offset: the least offset that a Fetch may request. It may lie inside the source's first
    batch."""
    holes_from: int = NEVER
    """From here up to ``offset``, the destination has only markers. ``NEVER``: it has none there."""
    fill_to: int = -1
    """If above ``offset``, the offsets up to here are filled: ``offset`` lies inside a source batch, or a gap there was
    accepted."""
    accepted: tuple[int, int] | None = None
    """First and next offset where markers take the place of records, by a decision that was just made and is written
    down."""
    inside: int = NOT_INSIDE
    """Base offset of the source batch that is known to hold ``offset``, if that is not its first offset."""
    ended_at: float = math.inf
    """When the last look at the destination's log end began (``since_boot``). Infinite: just now."""
    settled_at: float = 0.0
    """The time from which on nothing that was sent before the position was found can arrive any more (monotonic clock,
    in s)."""
