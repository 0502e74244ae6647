"""What the audit shares with the mirror (``records``), held against readers that share nothing with it: Kafka's own
DumpLogSegments and Kafka's own consumer, on the same logs.

A batch that the shared code drops would be dropped on both sides of an audit, and two wrong logs would look the same.
"""

import asyncio
import random
import re
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import xxhash
from kafka.record.util import encode_varint

from mirror.audit.model.request import Endpoint
from mirror.audit.model.rows import RecordRow, What
from mirror.audit.prepare.plan import Range
from mirror.audit.read import ranges
from mirror.audit.read import units as audit_units
from mirror.audit.read.holes import Rules
from mirror.audit.read.ranges import RangeCoverage, cut_records
from mirror.audit.read.reader import Reader
from mirror.audit.read.rows import digester, make_block
from mirror.audit.read.units import Unit
from mirror.legacy import messages
from mirror.records.content.opening import Record as Opened
from mirror.records.content.opening import opened
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, TRANSACTIONAL, BatchHeader, Codec
from mirror.records.scan import BatchPlace, scan
from mirror.records.transactions import ABORT, COMMIT
from mirror.sandbox import SandboxCluster
from mirror.sandbox.jvm import Jvm
from mirror.sandbox.kafka import jars
from tests.audit.clusters import create, endpoint, fill
from tests.audit.exact import transactions
from tests.legacy.samples import WRAPPING, messages_of, wrapper_of
from tests.records.builders import Record, kafka_batch, raw_batch, sealed
from tests.vectors.load import TOOLS, produce_with_java
from tests.vectors.test_vectors import holding, record_sets

KAFKA = "4.3.0"
SEGMENTS, SEED = 1_000, 20_261_124
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONTROL, ATTRIBUTES_AT, CRC_AT = 0x20, 21, 17
JVM_S = 300


class Batch(NamedTuple):
    """One batch, by whoever read it. ``sound``: its checksum is that of its bytes."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    records: int
    codec: str
    is_control: bool
    is_transactional: bool
    producer: tuple[int, int, int]
    leader_epoch: int
    max_timestamp: int
    crc: int
    sound: bool


Told = tuple[int, int, bytes | None, bytes | None, tuple[str, ...]]
"""A record: offset, timestamp, key, value, names of headers."""


class Log(NamedTuple):
    """A segment, by whoever read it. ``rest``: bytes behind its last whole batch."""

    batches: list[Batch]
    records: list[Told]
    rest: int


# -- segments ---------------------------------------------------------------------------------------------------------


def generated(chance: random.Random, start: int) -> bytes:
    """A segment from an offset on: every codec, markers, gaps, empty batches, wrong checksums, a cut-off end."""
    found: list[bytes] = []
    at = start
    for _ in range(chance.randint(1, 12)):
        at += chance.choice((0, 0, 0, 1, 17))
        kind = chance.random()
        if kind < 0.1:
            raw = marker(chance, at)
        elif kind < 0.2:
            raw = raw_batch(b"", base_offset=at, last_offset_delta=chance.randint(0, 5), record_count=0)
        else:
            raw = data(chance, at)
        if chance.random() < 0.05:
            raw = raw[:CRC_AT] + bytes([raw[CRC_AT] ^ 1 << chance.randrange(8)]) + raw[CRC_AT + 1 :]
        found.append(raw)
        at = BatchHeader.read(raw).next_offset
    if chance.random() < 0.25:
        raw = data(chance, at)
        found.append(raw[: chance.randrange(1, len(raw))])
    return b"".join(found)


def data(chance: random.Random, at: int) -> bytes:
    """A batch of records, some of them cleaned away."""
    records = []
    offset = 0
    for _ in range(chance.randint(1, 6)):
        key = None if chance.random() < 0.2 else text(chance, 12)
        value = None if chance.random() < 0.2 else text(chance, 200)
        headers = [(text(chance, 5).decode(), text(chance, 5)) for _ in range(chance.choice((0, 0, 1, 3)))]
        records.append(Record(offset, 1_700_000_000_000 + chance.randrange(10_000), key, value, headers))
        offset += 1 if chance.random() < 0.9 else 4
    attributes = chance.choice((0, 0, TRANSACTIONAL, DELETE_HORIZON))
    owned = chance.random() < 0.6
    raw = kafka_batch(
        records, codec=chance.randrange(5), base_offset=at, leader_epoch=chance.randrange(9),
        producer_id=chance.randrange(1 << 40) if owned else -1, producer_epoch=chance.randrange(90) if owned else -1,
        base_sequence=chance.randrange(900) if owned else -1,
    )  # fmt: skip
    return with_attributes(raw, attributes)


def marker(chance: random.Random, at: int) -> bytes:
    """What a coordinator writes at a transaction's end."""
    key, value = struct.pack(">hh", 0, chance.choice((ABORT, COMMIT))), struct.pack(">hi", 0, 3)
    raw = kafka_batch(
        [Record(0, 1_700_000_000_000, key, value)], base_offset=at, producer_id=chance.randrange(1 << 30),
        producer_epoch=1,
    )  # fmt: skip
    return with_attributes(raw, TRANSACTIONAL | CONTROL)


def with_attributes(raw: bytes, bits: int) -> bytes:
    """The same batch with these attributes as well."""
    (attributes,) = struct.unpack_from(">h", raw, ATTRIBUTES_AT)
    return sealed(raw[:ATTRIBUTES_AT] + struct.pack(">h", attributes | bits) + raw[ATTRIBUTES_AT + 2 :])


def text(chance: random.Random, most: int) -> bytes:
    """Printable, as DumpLogSegments prints it."""
    return bytes(chance.choice(b"abcdefghijklmnopqrstuvwxyz 0123456789:[],|") for _ in range(chance.randint(1, most)))


def captured() -> Iterator[bytes]:
    """Record sets of real brokers, written by real clients."""
    for what in ("batches", "read committed"):
        for row in holding(what):
            for record_set in record_sets(row.values[0]):
                raw = bytes(record_set)
                if raw and next(iter(scan(memoryview(raw)))).at == 0 and raw[16] == 2:
                    yield raw


# -- readers ----------------------------------------------------------------------------------------------------------

BATCH = re.compile(
    r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>-?\d+) count: (?P<count>\d+) baseSequence: (?P<sequence>-?\d+) "
    r"lastSequence: -?\d+ producerId: (?P<id>-?\d+) producerEpoch: (?P<epoch>-?\d+) "
    r"partitionLeaderEpoch: (?P<leader>-?\d+) isTransactional: (?P<transactional>\w+) isControl: (?P<control>\w+) "
    r"deleteHorizonMs: \S+ position: (?P<position>\d+) \w+: (?P<time>-?\d+) size: (?P<size>\d+) magic: 2 "
    r"compresscodec: (?P<codec>\w+) crc: (?P<crc>\d+) isvalid: (?P<valid>\w+)"
)
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) \w+: (?P<time>-?\d+) keySize: (?P<key>-?\d+) valueSize: (?P<value>-?\d+) "
    r"sequence: -?\d+ headerKeys: (?P<rest>.*)"
)
REST = re.compile(r"Found (\d+) invalid bytes at the end of")


def dumped(files: Sequence[Path], folder: Path) -> dict[str, Log]:
    """What DumpLogSegments says of these segments, by file name."""
    logs: dict[str, Log] = {}
    log = Log([], [], 0)
    name = ""
    for line in _dump(files, folder):
        if line.startswith("Dumping "):
            name = line.rpartition("/")[2].removeprefix("Dumping ")
            log = logs[name] = Log([], [], 0)
        elif found := BATCH.fullmatch(line):
            log.batches.append(_batch(found))
        elif found := RECORD.fullmatch(line):
            if not log.batches[-1].is_control:
                log.records.append(_record(found))
        elif found := REST.match(line):
            logs[name] = log._replace(rest=int(found[1]))
    return logs


def _dump(files: Sequence[Path], folder: Path) -> list[str]:
    command = Jvm().command(
        f"{jars.classpath(KAFKA)}:{jars.classpath_of([TOOLS])}", "org.apache.kafka.tools.DumpLogSegments",
        ["--files", ",".join(file.name for file in files), "--deep-iteration", "--print-data-log"],
        folder=folder, small=True,
    )  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=JVM_S, check=True)
    return done.stdout.decode().splitlines()


def _batch(found: re.Match[str]) -> Batch:
    number = {name: int(text) for name, text in found.groupdict().items() if text.lstrip("-").isdigit()}
    return Batch(
        number["position"], number["size"], number["base"], number["last"], number["count"], found["codec"],
        found["control"] == "true", found["transactional"] == "true",
        (number["id"], number["epoch"], number["sequence"]), number["leader"], number["time"], number["crc"],
        found["valid"] == "true",
    )  # fmt: skip


def _record(found: re.Match[str]) -> Told:
    """Names of headers come first, in brackets, and may hold whatever; key and value come with their sizes."""
    rest, sizes = found["rest"].encode(), (int(found["key"]), int(found["value"]))
    value = None
    if sizes[1] >= 0:
        value = rest[len(rest) - sizes[1] :]
        rest = rest[: len(rest) - sizes[1]].removesuffix(b" payload: ")
    key = None
    if sizes[0] >= 0:
        key = rest[len(rest) - sizes[0] :]
        rest = rest[: len(rest) - sizes[0]].removesuffix(b" key: ")
    names = rest.decode().removeprefix("[").removesuffix("]")
    return int(found["offset"]), int(found["time"]), key, value, (names,)


def read(raw: bytes, start: int) -> Log:
    """What the audit's own code reads in the same bytes."""
    body = memoryview(raw)
    whole = Range("t", 0, start, 1 << 50, first=True, width=1 << 20)
    piece = cut_records(body, 0, len(raw), whole, start)
    block = make_block(body, piece.places, piece.headers, digester("xxh3_128"))
    sound = {int(base): bool(ok) for base, ok in zip(block.headers["base_offset"], block.crc_ok, strict=True)}
    holes = {offset: what for begins, ends, what in piece.holes.tolist() for offset in range(begins, ends)}
    batches: list[Batch] = []
    records: list[Told] = []
    end = 0
    for at, size in scan(body):
        header = BatchHeader.read(body, at)
        end = at + size
        is_data = header.base_offset in sound
        # What has a wrong checksum is no hole, whatever it says that it is.
        assert is_data or holes.get(header.base_offset) in (What.CONTROL, What.EMPTY)
        batches.append(
            Batch(
                at, size, header.base_offset, header.last_offset, header.record_count, CODECS[header.codec_bits],
                header.is_control, header.is_transactional,
                (header.producer_id, header.producer_epoch, header.base_sequence), header.leader_epoch,
                header.max_timestamp, header.crc, sound.get(header.base_offset, True),
            )
        )  # fmt: skip
        if is_data and not header.is_control:
            records += [
                (one.offset, one.timestamp, one.key, one.value, (",".join(name for name, _ in one.headers),))
                for one in opened(header, raw[at + HEADER_SIZE : end])
            ]
    assert len(sound) == len(piece.places)
    return Log(batches, records, len(raw) - end)


def test_segments_as_kafkas_own_tool_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A thousand generated segments, and what real brokers have answered: every batch, with its place, header, checksum
       and records, is read as DumpLogSegments reads it; and what is no batch is no batch to either.
    2. Mutation: the shared code passes over a batch, or over the last one of each log.
    """
    chance = random.Random(SEED)
    segments = [(at * 1_000, generated(chance, at * 1_000)) for at in range(SEGMENTS)]
    segments += [(10_000_000 + at, raw) for at, raw in enumerate(captured())]
    assert len(segments) > SEGMENTS + 20
    files = []
    for number, raw in segments:
        files.append(tmp_path / f"{number:020}.log")
        files[-1].write_bytes(raw)
    logs = dumped(files, tmp_path)
    assert len(logs) == len(files)

    def differing() -> list[str]:
        return [
            file.name
            for file, (number, raw) in zip(files, segments, strict=True)
            if read(raw, min(number, BatchHeader.read(raw).base_offset) if len(raw) >= HEADER_SIZE else number)
            != logs[file.name]
        ]

    assert differing() == []
    every = [batch for log in logs.values() for batch in log.batches]
    assert {batch.codec for batch in every} == set(CODECS)
    assert all(any(test(batch) for batch in every) for test in (
        lambda batch: not batch.sound, lambda batch: batch.is_control, lambda batch: not batch.records,
    ))  # fmt: skip
    assert sum(log.rest > 0 for log in logs.values()) > 100
    assert sum(len(log.records) for log in logs.values()) > 10_000

    for at in (1, -1):
        with monkeypatch.context() as patched:
            patched.setattr(ranges, "scan", all_but(at))
            with pytest.raises(AssertionError):
                differing()


def all_but(at: int) -> Callable[..., list[BatchPlace]]:
    """In place of ``scan``: passes over a batch."""

    def some(*arguments: Any) -> list[BatchPlace]:
        places = list(scan(*arguments))
        return places[:at] + places[at:][1:] if len(places) > 1 else places

    return some


# -- formats from before 0.11 -----------------------------------------------------------------------------------------

OLD_SEGMENTS = 300
OLD_BATCH = re.compile(
    r"offset: (?P<last>\d+) position: (?P<position>\d+) (?P<kind>\w+): (?P<time>-?\d+) size: (?P<size>\d+) "
    r"magic: (?P<magic>[01]) compresscodec: (?P<codec>\w+) crc: (?P<crc>\d+) isvalid: (?P<valid>\w+)"
)
OLD_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) \w+: (?P<time>-?\d+) keySize: (?P<key>-?\d+) valueSize: (?P<value>-?\d+)(?P<rest>.*)"
)


class OldLog(NamedTuple):
    """A segment of messages of magic 0 and 1. ``entries``: position, size and last offset of each."""

    entries: list[tuple[int, int, int]]
    records: list[Told]


def generated_old(chance: random.Random, start: int) -> bytes:
    """Messages alone and wrappers in every codec, of magic 0 and then of magic 1; gaps between them and inside of
    wrappers, append times, null keys and values. By an encoder that is not ours."""
    found: list[bytes] = []
    at = start
    for magic in (0, 1):
        for _ in range(chance.randint(1, 6)):
            at += chance.choice((0, 0, 0, 1, 17))
            records = []
            for _ in range(chance.randint(1, 6)):
                key = None if chance.random() < 0.2 else text(chance, 12)
                value = None if chance.random() < 0.2 else text(chance, 200)
                time = 1_700_000_000_000 + chance.randrange(10_000) if magic else -1
                records.append(Opened(at, time, key, value, ()))
                at += 1 if chance.random() < 0.9 else 4
            codec = chance.choice((Codec.NONE, *WRAPPING))
            if codec is Codec.NONE:
                found.append(messages_of(magic, records))
            else:
                appended = 1_800_000_000_000 if magic and chance.random() < 0.2 else None
                found.append(wrapper_of(magic, codec, records, append_time=appended))
            at = records[-1].offset + 1
    return b"".join(found)


def dumped_old(files: Sequence[Path], folder: Path) -> dict[str, OldLog]:
    """What DumpLogSegments says of these segments, by file name."""
    logs: dict[str, OldLog] = {}
    log = OldLog([], [])
    for line in _dump(files, folder):
        if line.startswith("Dumping "):
            log = logs[line.rpartition("/")[2].removeprefix("Dumping ")] = OldLog([], [])
        elif found := OLD_BATCH.fullmatch(line):
            assert found["valid"] == "true"
            log.entries.append((int(found["position"]), int(found["size"]), int(found["last"])))
        elif found := OLD_RECORD.fullmatch(line):
            offset, time, key, value, _ = _record(found)
            log.records.append((offset, time, key, value, ()))
    return logs


def read_old(raw: bytes, start: int) -> OldLog:
    """What the audit's own code reads in the same bytes."""
    piece = cut_records(memoryview(raw), 0, len(raw), Range("t", 0, start, 1 << 50, first=True, width=1 << 20), start)
    assert piece.broken is None
    units = [row for row in piece.places if isinstance(row, Unit)]
    assert len(units) == len(piece.places)
    assert not any(unit.why for unit in units)
    last = {unit.at: (unit.at, unit.stored, unit.offset) for unit in units if unit.stored}
    records: list[Told] = []
    for unit in units:
        (record,) = opened(*_as_batch(unit))
        assert record.headers == ()
        records.append((unit.offset, record.timestamp, record.key, record.value, ()))
    assert len(records) == int(piece.headers["record_count"].sum())
    return OldLog(list(last.values()), records)


def _as_batch(unit: Unit) -> tuple[BatchHeader, bytes]:
    """The unit as a batch of today, so that another reader (kafka-python's) says what is in it."""
    record = bytes((unit.attributes, 0, 0)) + unit.content
    payload = varint(len(record)) + record
    raw = raw_batch(
        payload, base_offset=unit.offset, last_offset_delta=0, record_count=1, base_timestamp=unit.timestamp,
        max_timestamp=unit.timestamp,
    )  # fmt: skip
    return BatchHeader.read(raw), payload


def test_old_segments_as_kafkas_own_tool_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Generated segments of magic 0 and 1: every message, and every record inside of the wrappers, with its offset and
       the time that consumers see, is read as DumpLogSegments reads it.
    2. Mutation: the shared code passes over a record of each wrapper.
    """
    chance = random.Random(SEED)
    segments = [(at * 1_000, generated_old(chance, at * 1_000)) for at in range(OLD_SEGMENTS)]
    files = []
    for number, raw in segments:
        files.append(tmp_path / f"{number:020}.log")
        files[-1].write_bytes(raw)
    logs = dumped_old(files, tmp_path)

    def differing() -> list[str]:
        return [
            file.name
            for file, (number, raw) in zip(files, segments, strict=True)
            if read_old(raw, number) != logs[file.name]
        ]

    assert differing() == []
    assert sum(len(log.records) for log in logs.values()) > 5_000
    assert sum(len(log.entries) for log in logs.values()) < 4_500

    def all_but_one(*arguments: Any, **more: Any) -> Iterator[Opened]:
        found = list(messages(*arguments, **more))
        return iter(found[:1] + found[2:])

    monkeypatch.setattr(audit_units, "messages", all_but_one)
    assert len(differing()) > OLD_SEGMENTS // 2


# -- a consumer -------------------------------------------------------------------------------------------------------


def consumed(cluster: SandboxCluster, topic: str, folder: Path) -> dict[int, bytes]:
    """What Kafka's own consumer reads, read committed: offset -> digest of the record's text. A busy machine may take
    long for its first record."""
    return _consumed(cluster, topic, folder, quiet_s=8) or _consumed(cluster, topic, folder, quiet_s=60)


def _consumed(cluster: SandboxCluster, topic: str, folder: Path, *, quiet_s: int) -> dict[int, bytes]:
    """It ends when nothing has come for so long."""
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--partition", "0"]
    arguments += ["--offset", "earliest", "--timeout-ms", f"{quiet_s}000", "--isolation-level", "read_committed"]
    for name in ("print.offset", "print.timestamp", "print.headers", "print.key"):
        arguments += ["--formatter-property", f"{name}=true"]
    for name in ("key.separator=\x1f", "headers.separator=\x1e"):
        arguments += ["--formatter-property", name]
    command = Jvm().command(
        jars.classpath_of([TOOLS]), "org.apache.kafka.tools.consumer.ConsoleConsumer", arguments, folder=folder,
        small=True,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=JVM_S, check=False)
    found = {}
    for line in done.stdout.splitlines():
        time, offset, headers, key, value = line.split(b"\x1f")
        found[int(offset.removeprefix(b"Offset:"))] = b"\x1f".join(
            (time.removeprefix(b"CreateTime:"), headers, key, value)
        )
    assert found, done.stderr[-2_000:]
    return found


def audited(at: Endpoint, cluster: SandboxCluster, topic: str, end: int) -> dict[int, RecordRow]:
    """The records of the batches that the audit's reader takes for due."""

    async def rows() -> list[RecordRow]:
        reader = Reader(
            at, cluster_id=cluster.cluster_id, topic_ids={}, digest="xxh3_128", rules=Rules(committed=True), opens=True,
            fetch_bytes=2_000,
        )  # fmt: skip
        await reader.open({topic})
        try:
            whole = Range(topic, 0, 0, end, first=True, width=1 << 20)
            return [row async for block in reader.blocks(whole, RangeCoverage()) for row in block.records]
        finally:
            await reader.close()

    return {row.offset: row for row in asyncio.run(rows())}


@pytest.mark.broker
def test_records_as_kafkas_own_consumer_reads_them(
    source_cluster: SandboxCluster, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. Written by librdkafka and by Java, with transactions that commit and abort: the same records, in all they hold.
    2. Mutation: the shared code passes over a batch of each answer.
    """
    create(source_cluster, topic_name)
    transactions(source_cluster, topic_name)
    fill(source_cluster, topic_name, codec="zstd")
    produce_with_java(source_cluster.bootstrap_servers, [(topic_name, "gzip")], tmp_path)
    theirs = consumed(source_cluster, topic_name, tmp_path)
    ours = audited(endpoint(source_cluster, "source"), source_cluster, topic_name, max(theirs) + 1)
    assert ours.keys() == theirs.keys()
    assert len(ours) > 40
    for offset, told in theirs.items():
        assert ours[offset].digest == _digest(told), (offset, told)
    monkeypatch.setattr(ranges, "scan", all_but(1))
    assert (
        audited(endpoint(source_cluster, "source"), source_cluster, topic_name, max(theirs) + 1).keys() < theirs.keys()
    )


def _digest(told: bytes) -> bytes:
    """The audit's digest of a record, from the consumer's text of it."""
    time, headers, key, value = (None if part == b"null" else part for part in told.split(b"\x1f"))
    assert time is not None
    found = [] if headers == b"NO_HEADERS" or headers is None else headers.split(b"\x1e")
    parts = [struct.pack(">qB", int(time), 0), stored(key), stored(value), varint(len(found))]
    for header in found:
        name, _, content = header.partition(b":")
        parts += [stored(name), stored(None if content == b"null" else content)]
    return xxhash.xxh3_128_digest(b"".join(parts))


def stored(part: bytes | None) -> bytes:
    """As it stands in a batch."""
    return varint(-1) if part is None else varint(len(part)) + part


def varint(value: int) -> bytes:
    """By kafka-python's encoder."""
    out = bytearray()
    encode_varint(value, out.append)
    return bytes(out)
