"""Topics that real clients have written, and true copies of them, to be spoiled."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Producer

from mirror.audit.model.places import Side, Span
from mirror.records.content.opening import Record, opened
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, TRANSACTIONAL, BatchHeader, Codec
from mirror.records.identity import MIRROR_BIT, Identity
from mirror.records.restamp import restamp
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import CODECS, batches_of
from tests.audit.exact import LAYOUT, transactions
from tests.audit.faults.segments import Unit, bases
from tests.records.builders import Record as Written
from tests.records.builders import kafka_batch
from tests.records.cleaner import cleaned
from tests.simulation.model.broker import ABORT, marker_batch

OWNER = MIRROR_BIT + 12_345
"""The producer id under which copies are written."""
BATCHES = 10
KEYS = ("abc", "ade", "bfg", "ch-", "ajk", "lmn")
"""Of compacted topics, a word for each batch and a letter for each record; -: a tombstone of h. Of the first batch, all
records have a later one of their key; of the second, the first has."""


@dataclass
class Copy:
    """One topic and its copy. Functions of ``kinds`` and ``healthy`` spoil it, or do to it what may happen.

    Attributes:
        source: the source's log.
        destination: the copy's.
        starts: where both logs begin.
        flips: side, index of the source's batch, byte of that batch or of its copy, mask: turned over on the disk.
        spans: of the source's batches, as they were written.
        others: batches of another topic of the flow.
        trimmed: side and offset: deleted with DeleteRecords.
        meanwhile: the same, while the audit reads.
        mapped: it has offsets of its own.
        stored: of a source in old formats, which is not laid out anew: the byte at which each batch begins.
        runs: what the flow's map says of them: base offsets on both sides, offsets.
        adopted: up to where the flow's pin says that the destination was there before; 0: it does not.
        adopted_epoch: of its leader then.
    """

    topic: str
    source: list[Unit]
    destination: list[Unit] = field(default_factory=list)
    starts: dict[Side, int] = field(default_factory=lambda: dict.fromkeys(Side, 0))
    flips: list[tuple[Side, int, int, int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)
    trimmed: list[tuple[Side, int]] = field(default_factory=list)
    meanwhile: list[tuple[Side, int]] = field(default_factory=list)
    mapped: bool = False
    stored: list[int] = field(default_factory=list)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    adopted: int = 0
    adopted_epoch: int = -1

    def __post_init__(self) -> None:
        at = bases(self.source)
        self.spans = [Span(base, base + unit.offsets) for base, unit in zip(at, self.source, strict=False)]

    def adopt(self) -> None:
        """The flow leads back to where the clients wrote: the copy is its source."""
        written = [unit._replace(of=at) for at, unit in enumerate(self.source)]
        self.source, self.destination = exact(written, is_due), written
        self.adopted = self.end

    def map(self) -> None:
        """The map says where all of the copy is now."""
        self.runs = [
            (self.spans[unit.of].start, base, unit.offsets)
            for base, unit in zip(bases(self.destination), self.destination, strict=False)
            if unit.of >= 0
        ]

    @property
    def end(self) -> int:
        """Where the source ended when it was copied."""
        return self.spans[-1].end

    def index(self, of: int) -> int:
        """Where the copy of this batch of the source, or the first marker of its hole, is in the destination's log."""
        return next(at for at, unit in enumerate(self.destination) if unit.of == of)

    def there(self, of: int) -> Span:
        """The offsets of that at the destination."""
        found = [
            Span(base, base + unit.offsets)
            for base, unit in zip(
                bases(self.destination, self.starts[Side.DESTINATION]), self.destination, strict=False
            )
            if unit.of == of
        ]
        return Span(found[0].start, found[-1].end)

    def take_out(self, of: int, *, gap: bool | None = None) -> None:
        """Without that copy, and what is behind it moves up; with ``gap``, its offsets are nobody's. A map knows where
        all of it is: a mapped copy loses a batch with its offsets."""
        at = self.index(of)
        unit = self.destination.pop(at)
        if (self.mapped if gap is None else gap) and at < len(self.destination):
            behind = self.destination[at]
            self.destination[at] = behind._replace(gap=unit.gap + unit.offsets + behind.gap)

    def replace(self, of: int, data: bytes) -> None:
        """Another batch in the place of that copy."""
        at = self.index(of)
        self.destination[at] = self.destination[at]._replace(data=data)

    def data(self, of: int) -> bytes:
        """That copy."""
        return self.destination[self.index(of)].data


def markers(count: int, *, of: int = -1, producer: int = OWNER, epoch: int = 1, kind: int = ABORT) -> list[Unit]:
    """What fills so many offsets; by default, the mirror's."""
    return [Unit(marker_batch(0, producer, epoch, kind=kind), of=of) for _ in range(count)]


def stamped(batch: bytes, epoch: int = 0, sequence: int = 0) -> bytes:
    """As the mirror sends it on."""
    header = BatchHeader.read(batch)
    attributes = header.attributes & ~(TRANSACTIONAL | DELETE_HORIZON)
    return restamp(header, Identity(OWNER, epoch, sequence), attributes).pack() + batch[HEADER_SIZE:]


def exact(source: Iterable[Unit], due: Callable[[int], bool]) -> list[Unit]:
    """The copy of a log with its own offsets. ``due``: whether the batch of this index is copied; holes are filled."""
    found: list[Unit] = []
    epoch = sequence = 0
    for index, unit in enumerate(source):
        hole = unit.gap if due(index) else unit.gap + unit.offsets
        if hole:
            # Markers have the odd epoch behind that of the data before them, data behind them has the next even one.
            found += markers(hole, of=-1 if due(index) else index, epoch=epoch + 1)
        if due(index):
            if found and BatchHeader.read(found[-1].data).is_control:
                epoch, sequence = epoch + 2, 0
            found.append(Unit(stamped(unit.data, epoch, sequence), of=index))
            sequence += unit.offsets
    return found


def among_others(source: Iterable[Unit], due: Callable[[int], bool]) -> list[Unit]:
    """The copy of a log in a topic that somebody else writes to as well, with offsets of its own."""
    found: list[Unit] = []
    sequence = 0
    for index, unit in enumerate(source):
        if index % 3 == 1:
            found.append(Unit(kafka_batch()))
        if due(index):
            found.append(Unit(stamped(unit.data, 0, sequence), of=index))
            sequence += unit.offsets
    return found


# -- what real clients write -----------------------------------------------------------------------------------------


def write_plain(cluster: SandboxCluster, topics: Sequence[str]) -> None:
    """``BATCHES`` batches of 3 to 5 records to each, no two records alike; the codecs in turn."""
    for codec, chosen in _by_codec(topics).items():
        producer = _producer(cluster, codec, chosen)
        for batch in range(BATCHES):
            for topic in chosen:
                for record in range(3 + batch % 3):
                    producer.produce(
                        topic, f"{topic} {batch} {record} ".encode() * 20, f"key-{record}" if record else None,
                        partition=0, headers=[("trace", b"%d" % batch), ("empty", None)] if record == 2 else None,
                    )  # fmt: skip
            producer.flush()


def write_keyed(cluster: SandboxCluster, topics: Sequence[str]) -> None:
    """A batch to each for each of ``KEYS``."""
    for codec, chosen in _by_codec(topics).items():
        producer = _producer(cluster, codec, chosen)
        hour_ago = round(time.time() * 1000) - 3_600_000
        for batch, keys in enumerate(KEYS):
            for topic in chosen:
                for record, key in enumerate(keys):
                    value = None if key == "-" else f"{topic} {batch} {record} ".encode() * 20
                    producer.produce(topic, value, "h" if key == "-" else key, partition=0, timestamp=hour_ago + batch)
            producer.flush()


def _by_codec(topics: Sequence[str]) -> Mapping[str, Sequence[str]]:
    return {codec: topics[at :: len(CODECS)] for at, codec in enumerate(CODECS) if topics[at :: len(CODECS)]}


def _producer(cluster: SandboxCluster, codec: str, topics: Sequence[str]) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec, "linger.ms": 60_000}
    )
    for topic in topics:
        producer.list_topics(topic)  # a flush while the topic is still looked up could cut a batch in two
    return producer


def written(cluster: SandboxCluster, topic: str) -> Copy:
    """What is there now, as it is stored."""
    return Copy(topic, [Unit(raw) for raw in batches_of(cluster, topic)])


def write_transactions(cluster: SandboxCluster, topics: Sequence[str]) -> None:
    """See ``tests.audit.exact.transactions``."""
    if topics:
        transactions(cluster, *topics, codec="zstd")


def is_due(index: int) -> bool:
    """Of what that writes."""
    return LAYOUT[index % len(LAYOUT)].isupper()


# -- what a log cleaner does, and what anybody could do to a batch ---------------------------------------------------


def records_of(batch: bytes) -> list[Record]:
    """Offsets are those that the batch says."""
    return list(opened(BatchHeader.read(batch), batch[HEADER_SIZE:]))


def rewritten(batch: bytes, change: Callable[[list[Written]], Sequence[Written]], codec: int | None = None) -> bytes:
    """Another batch of what ``change`` makes of its records, from an encoder that is not ours."""
    header = BatchHeader.read(batch)
    inside = [one._replace(offset=one.offset - header.base_offset) for one in records_of(batch)]
    records = change([Written(*one) for one in inside])
    return kafka_batch(
        [one._replace(offset=at) for at, one in enumerate(records)],
        codec=header.attributes & 7 if codec is None else codec,
        producer_id=OWNER,
        producer_epoch=0,
        base_sequence=0,
    )


def compacted(log: Sequence[Unit], *, horizon: bool = False, keep: str = "") -> list[Unit]:
    """The log when a cleaner has been there. Of each key the last record is left; ``keep``: of these keys, all are.
    Control batches stay as they are. ``horizon``: what is rewritten has a delete horizon, too."""
    newest: dict[bytes | None, tuple[int, int]] = {}
    for index, unit in enumerate(log):
        if not BatchHeader.read(unit.data).is_control:
            newest |= {one.key: (index, at) for at, one in enumerate(records_of(unit.data))}
    found: list[Unit] = []
    gap = 0
    for index, unit in enumerate(log):
        if BatchHeader.read(unit.data).is_control:
            found.append(unit._replace(gap=unit.gap + gap))
            gap = 0
            continue
        records = records_of(unit.data)
        left = [
            Written(*one)
            for at, one in enumerate(records)
            if newest[one.key] == (index, at) or (one.key or b"").decode() in keep
        ]
        if not left:
            gap += unit.gap + unit.offsets
            continue
        data = unit.data
        if len(left) < len(records) or horizon:
            header = BatchHeader.read(unit.data)
            data = cleaned(unit.data, left, horizon=horizon, codec=Codec(header.codec_bits))
        found.append(unit._replace(data=data, gap=unit.gap + gap))
        gap = 0
    return found
