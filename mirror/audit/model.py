"""The values that an audit is made of: what is asked, what was read, what differs. No I/O."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

DIGESTS = ("xxh3_128", "sha256")
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
FILLS = ("markers", "transaction")
OFFSETS = ("exact", "mapped")
ACCEPTABLE = ("unverifiable",)
"""Kinds of findings that a configuration may pass by name."""


class Side(Enum):
    """Which of the two clusters."""

    SOURCE = "source"
    DESTINATION = "destination"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How a cluster is reached. ``alias`` is its name in the configuration and in every message."""

    alias: str
    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "mirror-audit"
    request_timeout_s: float = 30.0
    setup_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What to audit.

    ``topics`` are names, and must be at both clusters; ``selects``, where given, picks further ones among the source's
    topics, internal ones never.
    ``catch_up_s`` is how long the destination may take to reach the source's end, which is frozen first: a mirror that
    is running has batches on their way. ``isolation_level`` and ``fill`` are the flow's: whether aborted data is due at
    the destination, and whose markers fill its holes. ``offsets: mapped`` copies have offsets of their own, and may be
    in topics of other names, which ``rename`` gives. ``accept``: kinds of findings that pass (``ACCEPTABLE``).
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
        """The destination's offsets are its own."""
        return self.offsets == "mapped"

    def destination_of(self, topic: str) -> str:
        """The topic that this one is copied into."""
        return self.rename(topic) if self.rename is not None else topic

    @property
    def committed(self) -> bool:
        """Aborted data is not due at the destination."""
        return self.isolation_level == "read_committed"


class TopicPartition(NamedTuple):
    """A partition's full name."""

    topic: str
    partition: int


class Span(NamedTuple):
    """Offsets from ``start`` to ``end``, the end not included."""

    start: int
    end: int

    @property
    def offsets(self) -> int:
        """How many they are; 0 where the end is not behind the start."""
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """One partition's logs as they were frozen, before anything was read."""

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
        """What both sides have, so far as their bounds tell: this is read and compared."""
        start = max(self.source.start, self.destination.start)
        return Span(start, max(start, min(self.source.end, self.destination.end)))


class What(IntEnum):
    """What the offsets of a batch, or those between two batches, are."""

    DATA = 0
    CONTROL = 1
    """A transaction marker; at the destination, one that the mirror wrote."""
    ABORTED = 2
    """Data of an aborted transaction."""
    EMPTY = 3
    """A batch from which compaction removed every record."""
    GAP = 4
    """No batch at all."""
    FOREIGN = 5
    """A control batch at the destination that the mirror did not write."""
    DAMAGED = 6
    """A control batch at the destination whose checksum does not match its bytes."""


class Hole(NamedTuple):
    """Offsets without a due record, the end not included."""

    start: int
    end: int
    what: What


class Kind(Enum):
    """What a difference is. The values are stable: files and scripts carry them."""

    MISSING = "missing"
    EXTRA = "extra"
    DUPLICATE = "duplicate"
    MOVED = "moved"
    MISROUTED = "misrouted"
    HEADER_CHANGED = "header changed"
    VALUE_CHANGED = "value changed"
    RESEGMENTED = "re-segmented"
    CORRUPT = "corrupt"
    OVERFILLED = "overfilled"
    UNFILLED = "unfilled"
    FOREIGN = "foreign marker"
    FILLER = "filler"
    CLEANED = "cleaned"
    """No difference: a log cleaner took away since what was copied, or a marker. Told in the notes."""
    UNREADABLE = "unreadable"
    """A broker shows nothing where its log goes on."""
    UNVERIFIABLE = "unverifiable"
    """No difference and no proof: the destination has records that the source's log cleaner has removed since."""
    WHOLESALE = "wholesale difference"


class RecordRow(NamedTuple):
    """One record as a reader saw it.

    ``key``: its key's digest in hex, None without one. ``size``: bytes of key, value and headers. ``whole``: False
    stands for a batch that cannot be opened; of its other fields, only the offset means anything.
    """

    offset: int
    key: str | None = None
    tombstone: bool = False
    size: int = 0
    digest: bytes = b""
    whole: bool = True


class RecordDifference(NamedTuple):
    """An offset at which the sides do not have the same record, of batches that were opened.

    ``at``: the side that has a record there; None where both have one, and not the same, or where a batch could not be
    opened. ``excused``: a log cleaner may have taken it on the other side, as there is a later record of its key.
    ``size``: bytes of its key, value and headers.
    """

    offset: int
    at: Side | None
    excused: bool
    size: int


class BatchRow(NamedTuple):
    """One batch as a reader saw it. Times in ms since 1970, ``size`` in bytes with the header."""

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
        """Its offsets."""
        return Span(self.base_offset, self.last_offset + 1)

    @property
    def content(self) -> tuple[object, ...]:
        """What a batch is wherever it lies: all that is compared, but for its offsets."""
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
    """What differs in one partition: the rows of each side, by base offset, at the places that are not equal.

    ``holes`` are the source's and ``markers`` the destination's, where they are not the same; ``odd`` is what else the
    destination has that is no batch of records; ``equal`` are those that both have, where rows were looked at one by
    one: at another shift they may be others'. In the order of offsets.
    """

    source: dict[int, BatchRow] = field(default_factory=dict)
    destination: dict[int, BatchRow] = field(default_factory=dict)
    holes: list[Hole] = field(default_factory=list)
    markers: list[Hole] = field(default_factory=list)
    odd: list[Hole] = field(default_factory=list)
    equal: list[Hole] = field(default_factory=list)

    def add(self, other: "Pairs") -> None:
        """What differs elsewhere in the partition, behind this."""
        self.source.update(other.source)
        self.destination.update(other.destination)
        self.holes += other.holes
        self.markers += other.markers
        self.odd += other.odd
        self.equal += other.equal

    @property
    def rows(self) -> list[BatchRow]:
        """Of both sides."""
        return [*self.source.values(), *self.destination.values()]

    @property
    def starts(self) -> list[int]:
        """Where anything differs."""
        others = (hole.start for hole in (*self.holes, *self.markers, *self.odd))
        return sorted({*self.source, *self.destination, *others})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One difference, or a run of the same. Offsets are those of the first batch up to the last one's end.

    ``partition`` is None where a whole topic is meant; ``source`` and ``destination`` are None where that side has
    nothing to show. ``batches`` is 0 where they were not read.
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
    """Of the records, where they were opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What was really read of one partition on one side: batches of records, and every audited offset by what it is.

    ``offsets`` are in batches of records; ``control``, ``aborted``, ``empty`` and ``gaps`` (no batch at all) are holes
    at the source, and ``control`` those that are filled at the destination; ``odd`` are in no way due there.
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

    @property
    def holes(self) -> int:
        """Offsets without a due record."""
        return self.control + self.aborted + self.empty + self.gaps


class Verdict(Enum):
    """What an audit says. The values are stable: files carry them."""

    IDENTICAL = "identical"
    ACCEPTED = "accepted"
    """Nothing differs; what cannot be compared any more is accepted by name."""
    UNVERIFIABLE = "unverifiable"
    """Nothing differs; something cannot be compared any more."""
    DIFFERENT = "different"


class Skipped(NamedTuple):
    """Source offsets that were skipped or taken on trust, by decision; ``why`` in words, ``at_ms`` since 1970."""

    topic: str
    partition: int
    source: Span
    why: str
    at_ms: int


class Undecided(NamedTuple):
    """Offsets of a log behind the first open transaction: nobody who reads committed sees them. ``topic``: its name on
    that side."""

    side: Side
    topic: str
    partition: int
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What came out. Without findings, both sides are identical over the frozen bounds: only that is a pass.

    ``skipped`` and ``notes`` say what is no difference and yet worth knowing. ``accepted``: kinds of findings that the
    configuration passes by name. ``undecided``: what was behind open transactions; at the source, it was not audited.
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
    skipped: tuple[Skipped, ...] = field(default=())
    undecided: tuple[Undecided, ...] = field(default=())
    elapsed_s: float = 0.0
    isolation_level: str = "read_committed"
    offsets: str = "exact"
    accepted: frozenset[str] = frozenset()

    @property
    def identical(self) -> bool:
        """The destination holds what the source holds, byte for byte."""
        return not self.findings

    @property
    def verdict(self) -> Verdict:
        """The worst that was found."""
        kinds = {finding.kind for finding in self.findings}
        if kinds - {Kind.UNVERIFIABLE}:
            return Verdict.DIFFERENT
        if kinds:
            return Verdict.ACCEPTED if Kind.UNVERIFIABLE.value in self.accepted else Verdict.UNVERIFIABLE
        return Verdict.IDENTICAL
