"""The findings of an audit, and the names of their kinds, as people and files get them."""

from dataclasses import dataclass
from enum import Enum

from mirror.audit.model.places import Span

APART = "; not every batch between these offsets"
"""The end of the detail of a finding that stands for several batches with other batches between them."""


class Kind(Enum):
    """The kind of a finding. The values are stable: files and scripts contain them."""

    ABSENT = "absent"
    """A topic that the configuration names, and that one side does not have or does not show; or a topic that matches a
    pattern, and that one side does not let the audit describe."""
    MISSING = "missing"
    EXTRA = "extra"
    DUPLICATE = "duplicate"
    MOVED = "moved"
    MISROUTED = "misrouted"
    HEADER_CHANGED = "header changed"
    APPEND_TIMES = "append times"
    """The destination's broker has put the time of the append into the batch, and the configuration does not allow
    that. Everything else is the same."""
    VALUE_CHANGED = "value changed"
    RESEGMENTED = "re-segmented"
    CORRUPT = "corrupt"
    OVERFILLED = "overfilled"
    UNFILLED = "unfilled"
    FOREIGN = "foreign marker"
    FILLER = "filler"
    CLEANED = "cleaned"
    """No difference: a log cleaner has since removed copied records, or a marker. Reported in the notes."""
    REENCODED = "re-encoded"
    """No difference: the copy has the batch's records in other batches, at the same offsets, and there is a cause for
    that. Counted in the verdict."""
    UNREADABLE = "unreadable"
    """A broker returns nothing at a place where its log continues."""
    UNVERIFIABLE = "unverifiable"
    """No difference and no proof. For example, the source's log cleaner has since removed records that the destination
    still has."""
    OVERSIZE = "oversize"
    """A record that only the source has, because the flow has passed it over as too large for the destination. The
    flow's internal topic says so. Listed, and counted in the verdict."""
    WHOLESALE = "wholesale difference"


PROVED_OTHERWISE = frozenset({Kind.UNVERIFIABLE, Kind.OVERSIZE})
"""Kinds of findings that are no differences, but leave it unproved that the sides are the same. Their values are those
of ``model.request.ACCEPTABLE``."""


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
