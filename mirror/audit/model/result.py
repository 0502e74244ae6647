"""The result of an audit: what was read, what was found, and the verdict."""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from mirror.audit.model.findings import PROVED_OTHERWISE, Finding, Kind
from mirror.audit.model.places import Adopted, Side, Span, TopicPartition


class RangeContent(NamedTuple):
    """What identifies the batches that one side has in a range of offsets. ``width``: the number of offsets in a chunk;
    the first chunk begins at ``start``. ``digest``: the digest of the chunks (``read.rows.Chunks.content``), in hex."""

    start: int
    end: int
    width: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Counts of what was actually read of one partition on one side: batches of records, and offsets by their nature.

    ``log``: the log's bounds on that side. ``complete``: all audited offsets were read.

    ``offsets`` counts those in batches of records. At the source, ``control``, ``aborted``, ``empty`` and ``gaps`` (no
    batch at all) count holes; at the destination, ``control`` counts filled holes, and ``aborted`` aborted data that
    was there before the flow (``Adopted``). ``odd`` counts offsets of control batches that do not belong at the
    destination. ``stamped`` counts batches with the time of their append. ``cut``: a batch of records begins before the
    audited offsets, or ends behind them; all of its records count. ``contents``: what identifies the batches of each
    range, in order.
    """

    side: Side
    topic: str
    partition: int
    cluster_id: str
    log: Span
    audited: Span
    ranges: int
    batches: int
    records: int
    bytes: int
    gaps: int
    complete: bool
    offsets: int = 0
    control: int = 0
    aborted: int = 0
    empty: int = 0
    odd: int = 0
    stamped: int = 0
    cut: bool = False
    contents: tuple[RangeContent, ...] = ()

    @property
    def holes(self) -> int:
        """The number of offsets at which no record is due."""
        return self.control + self.aborted + self.empty + self.gaps

    @property
    def filled(self) -> int:
        """At the destination: the number of offsets at which consumers rightly get no record."""
        return self.control + self.aborted


class Cleaned(NamedTuple):
    """The changes of log cleaners in a partition that are no difference. ``batches``: the batches that they have
    rewritten or removed. ``records``: the records that the destination no longer has, and the source still has."""

    batches: int
    records: int


class SkippedRange(NamedTuple):
    """Source offsets that the flow skipped or took on trust by decision. ``why``: the cause in words. ``at_ms``: when,
    in ms since 1970."""

    topic: str
    partition: int
    source: Span
    why: str
    at_ms: int


class Undecided(NamedTuple):
    """Offsets of a log from its first open transaction on: read_committed consumers do not see them. ``topic``: its
    name on that side."""

    side: Side
    topic: str
    partition: int
    span: Span


class Verdict(Enum):
    """The outcome of an audit. The values are stable: files contain them."""

    IDENTICAL = "identical"
    ACCEPTED = "accepted"
    """Nothing differs. Something has no proof, or records were passed over, and the configuration accepts that
    (``AuditRequest.accept``)."""
    UNVERIFIABLE = "unverifiable"
    """Nothing differs, but something has no proof."""
    OVERSIZE = "oversize"
    """Nothing differs, except records that the flow has passed over as too large for the destination."""
    DIFFERENT = "different"
    INCOMPLETE = "incomplete"
    """A topic that the configuration names could not be audited; the others were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The result of an audit. Without findings, nothing differs that was due within the frozen bounds; ``notes``,
    ``skipped`` and ``undecided`` say what was not due or not compared.

    ``reencoded``: runs of batches whose records the destination has in other batches, for a cause. ``cleaned``: the
    changes of log cleaners, by partition at the source; the notes say where they are. ``skipped`` and ``notes`` hold
    what is not a difference but worth knowing. ``accepted``: kinds of findings that the configuration accepts by name.
    ``undecided``: offsets behind open transactions; the source's were not audited. ``adopted``: the part of each
    destination log that was there before the flow. ``fill``: the flow's setting (``AuditRequest.fill``). ``topic_ids``:
    ids by side and by the topic's name on that side; clusters without topic ids have none.
    """

    flow: str
    digest: str
    source_alias: str
    destination_alias: str
    source_cluster_id: str
    destination_cluster_id: str
    coverage: tuple[Coverage, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = field(default=())
    reencoded: tuple[Finding, ...] = field(default=())
    cleaned: Mapping[TopicPartition, Cleaned] = field(default_factory=dict)
    skipped: tuple[SkippedRange, ...] = field(default=())
    undecided: tuple[Undecided, ...] = field(default=())
    adopted: Mapping[TopicPartition, Adopted] = field(default_factory=dict)
    elapsed_s: float = 0.0
    isolation_level: str = "read_committed"
    offsets: str = "exact"
    fill: str = "markers"
    topic_ids: Mapping[Side, Mapping[str, str]] = field(default_factory=dict)
    accepted: frozenset[str] = frozenset()
    append_times: bool = False
    """True if the configuration allows times of the append at the destination (``destination.timestamps: append``)."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The topics that have another name at the destination: name at the source -> name at the destination."""

    @property
    def stamped(self) -> int:
        """The number of batches at the destination with the time of their append; 0 if the configuration does not allow
        that: then each is a finding."""
        stamped = sum(row.stamped for row in self.coverage if row.side is Side.DESTINATION)
        return stamped if self.append_times else 0

    @property
    def all_cleaned(self) -> Cleaned:
        """The changes of log cleaners in all partitions together."""
        return Cleaned(
            sum(one.batches for one in self.cleaned.values()), sum(one.records for one in self.cleaned.values())
        )

    @property
    def identical(self) -> bool:
        """True if nothing was found: the destination holds what the source holds, byte for byte."""
        return not self.findings

    @property
    def verdict(self) -> Verdict:
        """The verdict that follows from the worst finding."""
        return verdict_of({finding.kind for finding in self.findings}, self.accepted)


def verdict_of(kinds: Set[Kind], accepted: Collection[str]) -> Verdict:
    """Returns the verdict that follows from the worst of these kinds of findings. ``accepted``: the names of the kinds
    that the configuration accepts."""
    if Kind.ABSENT in kinds:
        return Verdict.INCOMPLETE
    if kinds - PROVED_OTHERWISE:
        return Verdict.DIFFERENT
    left = {kind for kind in kinds if kind.value not in accepted}
    if Kind.UNVERIFIABLE in left:
        return Verdict.UNVERIFIABLE
    if left:
        return Verdict.OVERSIZE
    return Verdict.ACCEPTED if kinds else Verdict.IDENTICAL
