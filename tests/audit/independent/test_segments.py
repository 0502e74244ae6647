"""Segments of today's format as the audit's own code reads them, held against Kafka's DumpLogSegments."""

import random
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from mirror.audit.model.rows import What
from mirror.audit.prepare.plan import Range
from mirror.audit.read import ranges
from mirror.audit.read.ranges import cut_records
from mirror.audit.read.rows import digester, make_block
from mirror.records.content.opening import opened
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, TRANSACTIONAL, BatchHeader
from mirror.records.scan import scan
from mirror.records.transactions import ABORT, COMMIT
from tests.audit.independent.tools import SEED, Told, all_but, dump, record_of, text
from tests.records.builders import Record, kafka_batch, raw_batch, sealed
from tests.vectors.test_vectors import holding, record_sets

SEGMENTS = 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONTROL, ATTRIBUTES_AT, CRC_AT = 0x20, 21, 17


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
    for line in dump(files, folder):
        if line.startswith("Dumping "):
            name = line.rpartition("/")[2].removeprefix("Dumping ")
            log = logs[name] = Log([], [], 0)
        elif found := BATCH.fullmatch(line):
            log.batches.append(_batch(found))
        elif found := RECORD.fullmatch(line):
            if not log.batches[-1].is_control:
                log.records.append(record_of(found))
        elif found := REST.match(line):
            logs[name] = log._replace(rest=int(found[1]))
    return logs


def _batch(found: re.Match[str]) -> Batch:
    number = {name: int(text) for name, text in found.groupdict().items() if text.lstrip("-").isdigit()}
    return Batch(
        number["position"], number["size"], number["base"], number["last"], number["count"], found["codec"],
        found["control"] == "true", found["transactional"] == "true",
        (number["id"], number["epoch"], number["sequence"]), number["leader"], number["time"], number["crc"],
        found["valid"] == "true",
    )  # fmt: skip


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
