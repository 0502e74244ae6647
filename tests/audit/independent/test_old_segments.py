"""Segments of the formats from before Kafka 0.11 as the audit's own code reads them, held against Kafka's
DumpLogSegments."""

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mirror.audit.prepare.plan import Range
from mirror.audit.read import units as audit_units
from mirror.audit.read.ranges import cut_records
from mirror.audit.read.units import Unit
from mirror.legacy import messages
from mirror.records.content.opening import Record as Opened
from mirror.records.content.opening import opened
from mirror.records.header import BatchHeader, Codec
from tests.audit.independent.tools import SEED, Told, dump, record_of, text, varint
from tests.legacy.samples import WRAPPING, messages_of, wrapper_of
from tests.records.builders import raw_batch

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
    for line in dump(files, folder):
        if line.startswith("Dumping "):
            log = logs[line.rpartition("/")[2].removeprefix("Dumping ")] = OldLog([], [])
        elif found := OLD_BATCH.fullmatch(line):
            assert found["valid"] == "true"
            log.entries.append((int(found["position"]), int(found["size"]), int(found["last"])))
        elif found := OLD_RECORD.fullmatch(line):
            offset, time, key, value, _ = record_of(found)
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
