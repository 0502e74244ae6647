"""The data types of an audit: the request, what was read, and what differs. No I/O."""

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from mirror.net.security.options import PLAINTEXT, SecurityOptions

DIGESTS = ("xxh3_128", "sha256")
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
FILLS = ("markers", "transaction")
OFFSETS = ("exact", "mapped")
ACCEPTABLE = ("unverifiable", "oversize")
"""Kinds of findings that a configuration may accept by name."""


class Side(Enum):
    """One of the two clusters."""

    SOURCE = "source"
    DESTINATION = "destination"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How to reach a cluster. ``alias`` is its name in the configuration and in every message."""

    alias: str
    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "mirror-audit"
    request_timeout_s: float = 30.0
    setup_timeout_s: float = 10.0
    security: SecurityOptions = PLAINTEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """The scope and settings of one audit.

    ``topics`` are names that must exist on both clusters. ``selects``, if given, picks further topics of the source,
    but never internal ones.
    ``catch_up_s`` is how long the destination may take to reach the source's end. That end is frozen first, and a
    running mirror has batches on their way. ``isolation_level`` and ``fill`` are the flow's: they say whether aborted
    data is due at the destination, and whose markers fill its holes. With ``offsets: mapped``, copies have offsets of
    their own and may be in topics with other names, which ``rename`` returns. ``accept``: kinds of findings that do not
    fail the audit (``ACCEPTABLE``). ``append_times``: the destination's broker may put the time of the append into
    batches (``destination.timestamps: append``). ``codec``: with which the flow compresses batches anew
    (``compression.type``); None: with their own. ``rebatches``: small batches in a row become larger ones (``mode``).
    """

    flow: str
    source: Endpoint
    destination: Endpoint
    topics: tuple[str, ...] = ()
    selects: Callable[[str], bool] | None = None
    digest: str = "xxh3_128"
    catch_up_s: float = 10.0
    isolation_level: str = "read_committed"
    fill: str = "markers"
    offsets: str = "exact"
    rename: Callable[[str], str] | None = None
    accept: frozenset[str] = frozenset()
    append_times: bool = False
    codec: int | None = None
    rebatches: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("digest", self.digest, DIGESTS),
            ("isolation level", self.isolation_level, ISOLATION_LEVELS),
            ("fill", self.fill, FILLS),
            ("offsets", self.offsets, OFFSETS),
            *(("audit.accept", kind, ACCEPTABLE) for kind in self.accept),
        ):
            if value not in known:
                raise ValueError(f"{name} {value!r} is not one of {', '.join(known)}")

    @property
    def mapped(self) -> bool:
        """True if the destination has offsets of its own."""
        return self.offsets == "mapped"

    def destination_of(self, topic: str) -> str:
        """Returns the destination topic of this source topic.

        Raises:
            ValueError: it has another name, with ``offsets: exact``: readers take the source's name there.
        """
        name = self.rename(topic) if self.rename is not None else topic
        if name != topic and not self.mapped:
            raise ValueError(f"topic {topic} is {name} at the destination: only with offsets: mapped")
        return name

    @property
    def committed(self) -> bool:
        """True if aborted data is not due at the destination."""
        return self.isolation_level == "read_committed"


class TopicPartition(NamedTuple):
    """A partition's full name."""

    topic: str
    partition: int


class Span(NamedTuple):
    """Offsets from ``start`` up to but not including ``end``."""

    start: int
    end: int

    @property
    def offsets(self) -> int:
        """The number of offsets; 0 if the end is not after the start."""
        return max(0, self.end - self.start)


class OldRange(NamedTuple):
    """Source offsets in which it has messages of old formats. ``starts_at`` and ``ends_at``: where the copies of these
    begin and end at the destination, if that is known to be elsewhere."""

    start: int
    end: int
    starts_at: int | None = None
    ends_at: int | None = None

    def there(self, ahead: int, less: int = 0) -> Span:
        """Returns the destination's offsets, ``less`` subtracted from those that are known; others are ``ahead`` of the
        source's."""
        starts = self.start + ahead if self.starts_at is None else self.starts_at - less
        ends = self.end + ahead if self.ends_at is None else self.ends_at - less
        return Span(starts, max(starts, ends))


class Adopted(NamedTuple):
    """The part of a destination's log that was there before the flow, which leads back to where its source was copied
    from (``Pin.adopted``): others' batches and markers, in their places all the same.

    ``end``: the first offset that is not of it. ``leader_epoch``: of the destination's leader when that was certified:
    a batch of a later one was written since; -1: not known. ``committed``: of its aborted data nothing is due at the
    source (``isolation.level: read_committed``).
    """

    end: int
    leader_epoch: int = -1
    committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one partition's two logs, frozen before anything was read."""

    topic: str
    partition: int
    source: Span
    destination: Span

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def audited(self) -> Span:
        """The offsets within both sides' bounds: these are read and compared."""
        start = max(self.source.start, self.destination.start)
        return Span(start, max(start, min(self.source.end, self.destination.end)))


class What(IntEnum):
    """The nature of a batch's offsets, or of the offsets between two batches."""

    DATA = 0
    CONTROL = 1
    """A transaction marker; at the destination, a marker that the mirror wrote."""
    ABORTED = 2
    """Data of an aborted transaction; at the destination, of one that was there before the flow (``Adopted``)."""
    EMPTY = 3
    """A batch from which compaction removed every record."""
    GAP = 4
    """No batch at all."""
    FOREIGN = 5
    """A control batch at the destination that the mirror did not write."""
    DAMAGED = 6
    """A control batch at the destination whose checksum does not match its bytes."""
    INSIDE = 7
    """Offsets without a record inside of a batch, or of a wrapper of an old format, that is compared record by
    record (compaction)."""


class Hole(NamedTuple):
    """Offsets at which no record is due; the end is not included."""

    start: int
    end: int
    what: What


class Kind(Enum):
    """The kind of a finding. The values are stable: files and scripts contain them."""

    ABSENT = "absent"
    """A topic that the configuration names, and that one side does not have, or does not show."""
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


class RecordRow(NamedTuple):
    """One record as a reader saw it.

    ``key``: the digest of its key in hex, or None without a key. ``size``: bytes of key, value and headers. ``whole``:
    False if the row stands for a batch that cannot be opened; then only the offset has a meaning. ``mistimed``: it is
    the first record of a batch whose header has a max timestamp that is not that of its records.
    """

    offset: int
    key: str | None = None
    tombstone: bool = False
    size: int = 0
    digest: bytes = b""
    whole: bool = True
    mistimed: bool = False


class RecordDifference(NamedTuple):
    """An offset, in batches that were opened, at which the two sides do not have the same record.

    ``at``: the side that has a record there; None if both have different records, or if a batch could not be opened.
    ``excused``: the other side's log cleaner may have removed the record (``by_record`` has the rules). ``size``: bytes
    of its key, value and headers. ``digests``: of what source and destination have there; empty where one has nothing,
    or where nobody asked for them. ``mistimed``: this says nothing of the record, which may be the same. At the
    destination it is the first one of a batch whose max timestamp is not that of its records.
    """

    offset: int
    at: Side | None
    excused: bool
    size: int
    digests: tuple[bytes, bytes] = (b"", b"")
    mistimed: bool = False


OLD_FORMAT, UNREAD, STRADDLES = 0x4000, 0x2000, 0x1000
"""Flags of rows that no batch's attributes have. ``OLD_FORMAT``: a message from before Kafka 0.11, at the destination
or with a wrong checksum. ``UNREAD``: the checksum is right, and it cannot be opened all the same. ``STRADDLES``: a
record of a batch that begins or ends among messages of an old format, and is not one of their copies."""


class BatchRow(NamedTuple):
    """One batch as a reader saw it. Timestamps are in ms since 1970; ``size`` is in bytes and includes the header.

    A record that is compared by itself is a row, too: a batch of one record, whose ``size`` is that of its content.
    """

    base_offset: int
    last_offset: int
    records: int
    flags: int
    base_timestamp: int
    max_timestamp: int
    size: int
    crc_ok: bool
    digest: bytes

    @property
    def span(self) -> Span:
        """The batch's offsets."""
        return Span(self.base_offset, self.last_offset + 1)

    @property
    def content(self) -> tuple[object, ...]:
        """Everything that is compared except the base offset, so that equal batches can be found at any offset."""
        return (
            self.last_offset - self.base_offset,
            self.records,
            self.flags,
            self.base_timestamp,
            self.max_timestamp,
            self.size,
            self.digest,
        )


@dataclass(slots=True)
class Pairs:
    """The differences in one partition: each side's rows that are not equal to the other side's, by base offset.

    ``holes`` (the source's) and ``markers`` (the destination's) are those that differ. ``odd`` is anything else at the
    destination that is not a batch of records. ``equal`` are holes that both sides have; they are known only where rows
    were compared one by one, and at another shift they may belong to other offsets. With ``offsets: mapped``, all
    of the source's are: a copy has no offsets there. All are in offset order.
    """

    source: dict[int, BatchRow] = field(default_factory=dict)
    destination: dict[int, BatchRow] = field(default_factory=dict)
    holes: list[Hole] = field(default_factory=list)
    markers: list[Hole] = field(default_factory=list)
    odd: list[Hole] = field(default_factory=list)
    equal: list[Hole] = field(default_factory=list)

    def add(self, other: "Pairs") -> None:
        """Appends the differences of later offsets of the same partition."""
        self.source.update(other.source)
        self.destination.update(other.destination)
        self.holes += other.holes
        self.markers += other.markers
        self.odd += other.odd
        self.equal += other.equal

    @property
    def rows(self) -> list[BatchRow]:
        """The rows of both sides."""
        return [*self.source.values(), *self.destination.values()]

    @property
    def starts(self) -> list[int]:
        """The offsets at which a difference begins, in order."""
        others = (hole.start for hole in (*self.holes, *self.markers, *self.odd))
        return sorted({*self.source, *self.destination, *others})


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
    ``stamped`` counts batches with the time of their append. ``contents``: each range's batches, in order.
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
    contents: tuple[RangeContent, ...] = ()

    @property
    def holes(self) -> int:
        """The number of offsets at which no record is due."""
        return self.control + self.aborted + self.empty + self.gaps

    @property
    def filled(self) -> int:
        """At the destination: the number of offsets in which consumers get nothing, as it should be."""
        return self.control + self.aborted


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The result of an audit. Without findings, both sides are identical over the frozen bounds.

    ``reencoded``: runs of batches whose records the destination has in other batches, for a cause. ``skipped`` and
    ``notes`` hold what is not a difference but worth knowing. ``accepted``: kinds of findings that the configuration
    accepts by name. ``undecided``: offsets behind open transactions; the source's were not audited. ``adopted``: what
    the destination had before the flow.
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
    skipped: tuple[SkippedRange, ...] = field(default=())
    undecided: tuple[Undecided, ...] = field(default=())
    adopted: Mapping[TopicPartition, Adopted] = field(default_factory=dict)
    elapsed_s: float = 0.0
    isolation_level: str = "read_committed"
    offsets: str = "exact"
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
