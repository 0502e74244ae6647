"""What is found: differences by their names, as people and files get them."""

from dataclasses import dataclass
from enum import Enum

from mirror.audit.model.places import Span

APART = "; not every batch between these offsets"
"""The end of what a finding says that stands for several with others between them."""


class Kind(Enum):
    """The kind of a finding. The values are stable: files and scripts contain them."""

    ABSENT = "absent"
    """A topic that the configuration names, and that one side does not have, or does not show; or one of a pattern that
    one side lists and lets nobody describe."""
    MISSING = "missing"
    EXTRA = "extra"
    DUPLICATE = "duplicate"
    MOVED = "moved"
    MISROUTED = "misrouted"
    HEADER_CHANGED = "header changed"
    APPEND_TIMES = "append times"
    """The destination's broker has put the time of the append in, and the configuration does not allow that. All else
    is the same."""
    VALUE_CHANGED = "value changed"
    RESEGMENTED = "re-segmented"
    CORRUPT = "corrupt"
    OVERFILLED = "overfilled"
    UNFILLED = "unfilled"
    FOREIGN = "foreign marker"
    FILLER = "filler"
    CLEANED = "cleaned"
    """No difference: a log cleaner has since removed what was copied, or a marker. Reported in the notes."""
    REENCODED = "re-encoded"
    """No difference: no broker takes the batch as it is, and the copy has its records in other batches, at the same
    offsets. Counted in the verdict."""
    UNREADABLE = "unreadable"
    """A broker returns nothing at a place where its log continues."""
    UNVERIFIABLE = "unverifiable"
    """No difference and no proof, for example: the source's log cleaner has since removed records that the destination
    still has."""
    OVERSIZE = "oversize"
    """A record that only the source has, because the flow has passed it over as too large for the destination: its
    internal topic says so. Listed, and counted in the verdict."""
    WHOLESALE = "wholesale difference"


PROVED_OTHERWISE = frozenset({Kind.UNVERIFIABLE, Kind.OVERSIZE})
"""Kinds of findings that do not mean that anything is wrong, and with which the sides are not proved to be the same.
Their values are ``ACCEPTABLE``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One difference, or a run of equal ones. The offsets go from the first batch's start to the last batch's end.

    ``partition`` is None if the finding is about a whole topic. ``source`` and ``destination`` are None if that side
    has nothing there. ``batches`` is 0 if batches were not read or not counted.
    """

    kind: Kind
    topic: str
    partition: int | None
    source: Span | None
    destination: Span | None
    batches: int
    records: int
    detail: str
    bytes: int = 0
    """Bytes of the records, if their batches were opened; otherwise 0."""
