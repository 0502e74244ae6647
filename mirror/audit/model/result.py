"""The result of an audit: what was read, what was found, and the verdict."""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from mirror.audit.model.findings import PROVED_OTHERWISE, Finding, Kind
from mirror.audit.model.places import Adopted, Side, Span, TopicPartition


class RangeContent(NamedTuple):
    """The batches that one side has in a range of offsets. ``width``: offsets in a chunk, the first of which begins at
    ``start``. ``digest``: that of the chunks' digests (``read.rows.Chunks``), in hex."""

    start: int
    end: int
    width: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Counts of what was actually read of one partition on one side: batches of records, and offsets by their nature.

    ``offsets`` counts those in batches of records. At the source, ``control``, ``aborted``, ``empty`` and ``gaps`` (no
    batch at all) count holes; at the destination, ``control`` counts filled holes, and ``aborted`` what was there
    before the flow (``Adopted``). ``odd`` counts offsets of control batches that do not belong at the destination.
    ``stamped`` counts batches with the time of their append. ``cut``: a batch of records begins before the audited
    offsets, or ends behind them; all of its records count. ``contents``: each range's batches, in order.
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
        """At the destination: the number of offsets in which consumers get nothing, as it should be."""
        return self.control + self.aborted


class Cleaned(NamedTuple):
    """What log cleaners have changed in a partition, where that is no difference. ``batches``: those that they have
    rewritten or removed. ``records``: those that the destination no longer has, and the source still has."""

    batches: int
    records: int


class SkippedRange(NamedTuple):
    """Source offsets that the flow skipped or took on trust by decision. ``why`` is in words; ``at_ms`` since 1970."""

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
    """Nothing differs. Something can no longer be compared, or was passed over, and the configuration accepts that by
    name."""
    UNVERIFIABLE = "unverifiable"
    """Nothing differs, but something can no longer be compared."""
    OVERSIZE = "oversize"
    """Nothing differs but what the flow has passed over as too large for the destination."""
    DIFFERENT = "different"
    INCOMPLETE = "incomplete"
    """A topic that the configuration names could not be audited; the others were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The result of an audit. Without findings, nothing differs that was due within the frozen bounds; ``notes``,
    ``skipped`` and ``undecided`` say what was not due or not compared.

    ``reencoded``: runs of batches whose records the destination has in other batches, for a cause. ``cleaned``: what
    log cleaners have changed, by partition at the source; the notes say where. ``skipped`` and ``notes`` hold what is
    not a difference but worth knowing. ``accepted``: kinds of findings that the configuration accepts by name.
    ``undecided``: offsets behind open transactions; the source's were not audited. ``adopted``: what the destination
    had before the flow. ``fill``: whose markers fill holes, as the flow has it. ``topic_ids``: by side and by the
    topic's name there, where the cluster has ids.
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
    """True if the configuration allows times of the append at the destination."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Topics with another name at the destination: source -> destination."""

    @property
    def stamped(self) -> int:
        """Batches at the destination whose times are those of their append, as the configuration allows."""
        stamped = sum(row.stamped for row in self.coverage if row.side is Side.DESTINATION)
        return stamped if self.append_times else 0

    @property
    def all_cleaned(self) -> Cleaned:
        """What log cleaners have changed in all partitions together."""
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
    """Returns the verdict that follows from the worst of these kinds of findings. ``accepted``: those, by name, that
    the configuration accepts."""
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
