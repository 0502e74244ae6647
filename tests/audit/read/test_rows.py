"""Batches as Arrow rows and as chunks; digests that tell what is promised, and nothing else."""

import hashlib
import json
import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from mirror.audit.model.places import Side
from mirror.audit.model.rows import What
from mirror.audit.read.holes import PLAIN, Rules
from mirror.audit.read.rows import (
    SCHEMA,
    Block,
    Chunks,
    Runs,
    batch_rows,
    coverage_row,
    digester,
    gathered,
    headers_of,
    make_block,
    read_headers,
)
from mirror.audit.read.units import Unit
from mirror.audit.spark.options import SCHEMA as SPARK_SCHEMA
from mirror.records.scan import scan
from tests.records.builders import raw_batch, sealed

PAYLOADS = [bytes([index]) * (30 + index) for index in range(6)]


def log(**header: int) -> bytes:
    """Six batches of five records from offset 0 on."""
    return b"".join(raw_batch(data, base_offset=5 * index, **header) for index, data in enumerate(PAYLOADS))


def block_of(records: bytes, digest: str = "xxh3_128", rules: Rules = PLAIN) -> Block:
    """As the reader makes it."""
    body = memoryview(records)
    places = list(scan(body))
    return make_block(body, places, read_headers(body, places), digester(digest), rules=rules)


def chunk_rows(*parts: bytes, width: int = 10, start: int = 0, rules: Rules = PLAIN) -> list[dict[str, object]]:
    """The chunks of a log that came in some responses."""
    chunks = Chunks("xxh3_128", start, width)
    for part in parts:
        chunks.add(block_of(part, rules=rules))
    rows: list[dict[str, object]] = chunks.rows("c", "t", 0).to_pylist()
    return rows


def test_a_row_says_what_the_batch_is() -> None:
    rows = batch_rows("id", "t", 3, block_of(log(attributes=4, producer_id=9)))
    assert rows.schema == SCHEMA
    row = rows.to_pylist()[2]
    assert row == {
        "cluster": "id", "topic": "t", "partition": 3, "part": "batch", "base_offset": 10, "last_offset": 14,
        "count": 5, "codec": "zstd", "flags": 4,
        "base_timestamp": 1_700_000_000_000, "max_timestamp": 1_700_000_000_050,
        "size": 61 + 32, "crc_ok": True, "digest": xxhash.xxh3_128_digest(PAYLOADS[2]), "note": None,
    }  # fmt: skip


def test_digests() -> None:
    assert block_of(log(), "sha256").digests == [hashlib.sha256(data).digest() for data in PAYLOADS]
    with pytest.raises(ValueError, match="md5"):
        digester("md5")


def test_the_checksum_is_recomputed() -> None:
    damaged = bytearray(log())
    damaged[-1] ^= 1
    assert block_of(bytes(damaged)).crc_ok.tolist() == [True] * 5 + [False]


def test_arrow_batches_are_large_but_for_the_last() -> None:
    part = batch_rows("c", "t", 0, block_of(log()))
    sizes = [rows.num_rows for rows in gathered([part] * 10, least=13)]
    assert sizes == [18, 18, 18, 6]
    assert list(gathered([])) == []


def test_the_coverage_row() -> None:
    (row,) = coverage_row("c", "t", 1, 10, 20, "{}").to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "cluster": "c", "topic": "t", "partition": 1, "part": "coverage", "base_offset": 10, "last_offset": 19,
        "note": "{}",
    }  # fmt: skip


def test_the_schema_is_the_same_for_spark() -> None:
    kinds = {"int": "int32", "long": "int64", "short": "int16", "boolean": "bool"}
    fields = [field.split() for field in SPARK_SCHEMA.split(", ")]
    assert [(name, kinds.get(kind, kind)) for name, kind in fields] == [
        (field.name, str(field.type)) for field in SCHEMA
    ]


def test_chunks_do_not_depend_on_how_the_log_came() -> None:
    whole = log()
    size = [91, 183, 276, 370, 465]
    rows = chunk_rows(whole)
    assert [(row["base_offset"], row["last_offset"], row["count"]) for row in rows] == [
        (0, 9, 2),
        (10, 19, 2),
        (20, 29, 2),
    ]
    assert sum(int(str(row["size"])) for row in rows) == len(whole)
    for cut in size:
        assert chunk_rows(whole[:cut], whole[cut:]) == rows


def test_chunks_ignore_what_is_the_destinations_own() -> None:
    stamped = log(producer_id=(1 << 62) + 5, producer_epoch=2, base_sequence=77, leader_epoch=12)
    assert chunk_rows(stamped) == chunk_rows(log())


HERE, THERE = (Rules(side=side, append_times=True) for side in Side)


def test_times_of_the_append_are_left_out_where_that_is_allowed() -> None:
    """The mark and the max timestamp, of whichever batches have the mark; at the source, it is no such mark."""
    some = b"".join(
        raw_batch(data, base_offset=5 * index, **({"attributes": 8, "max_timestamp": 9} if index % 2 else {}))
        for index, data in enumerate(PAYLOADS)
    )
    assert chunk_rows(some, rules=THERE) == chunk_rows(log(), rules=HERE) == chunk_rows(log(), rules=THERE)
    assert chunk_rows(some, rules=HERE) != chunk_rows(log(), rules=THERE)
    assert chunk_rows(some) != chunk_rows(log())
    for change in ({"base_timestamp": 1}, {"record_count": 4}, {"attributes": 8 | 4}):
        assert chunk_rows(log(**{"attributes": 8} | change), rules=THERE) != chunk_rows(log(), rules=HERE)


def test_a_record_by_itself_has_no_time_where_the_destination_puts_its_own_in() -> None:
    """At the destination it would be that of the append."""
    found = []
    for rules, at_ms in ((HERE, 1_000), (THERE, 9_999)):
        units = [Unit(at, at, 0, at_ms + at, 0, b"x", 0, False, 10) for at in range(2)]
        block = make_block(memoryview(b""), units, headers_of(memoryview(b""), units), digester("sha256"), rules=rules)
        found.append(block.headers.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "change",
    [
        {"attributes": 8}, {"last_offset_delta": 3}, {"base_timestamp": 1}, {"max_timestamp": 1}, {"record_count": 4},
    ],
)  # fmt: skip
def test_every_promised_header_field_changes_its_chunk(change: dict[str, int]) -> None:
    changed = b"".join(
        raw_batch(data, base_offset=5 * index, **(change if index == 3 else {})) for index, data in enumerate(PAYLOADS)
    )
    same = [a == b for a, b in zip(chunk_rows(changed), chunk_rows(log()), strict=True)]
    assert same == [True, False, True]


def test_a_payload_byte_and_an_offset_change_their_chunk() -> None:
    parts = [raw_batch(data, base_offset=5 * index) for index, data in enumerate(PAYLOADS)]
    flipped = sealed(parts[0][:-1] + b"\xff")
    assert chunk_rows(b"".join([flipped, *parts[1:]]))[0]["digest"] != chunk_rows(log())[0]["digest"]
    moved = struct.pack(">q", 6) + parts[1][8:]
    assert chunk_rows(b"".join([parts[0], moved, *parts[2:]]))[0]["digest"] != chunk_rows(log())[0]["digest"]


def test_a_damaged_batch_shows_in_its_chunk() -> None:
    damaged = bytearray(log())
    damaged[-1] ^= 1
    assert [row["crc_ok"] for row in chunk_rows(bytes(damaged))] == [True, True, False]


def test_a_range_that_begins_inside_a_batch_has_it_in_its_first_chunk() -> None:
    rows = chunk_rows(log(), start=3, width=10)
    assert [(row["base_offset"], row["count"]) for row in rows] == [(3, 3), (13, 2), (23, 1)]


def test_a_range_without_batches_has_no_chunks() -> None:
    rows = Chunks("sha256", 0, 10).rows("c", "t", 0)
    assert (rows.num_rows, rows.schema) == (0, SCHEMA)
    assert pa.concat_batches([rows]).num_rows == 0


def test_holes_that_touch_share_a_row_however_they_came() -> None:
    """In one response or in several; what is odd at the destination stands alone."""
    pieces = [(0, 3, What.GAP), (3, 5, What.GAP), (5, 6, What.CONTROL), (6, 9, What.CONTROL), (20, 22, What.GAP)]
    wanted = [("holes", 0, 9, json.dumps([(0, 5, 4), (5, 9, 1)])), ("holes", 20, 22, json.dumps([(20, 22, 4)]))]
    for cut in range(len(pieces) + 1):
        runs = Runs(frozenset())
        parts = [np.array(some, np.int64).reshape(-1, 3) for some in (pieces[:cut], pieces[cut:])]
        assert [*runs.take(parts[0]), *runs.take(parts[1]), *runs.close()] == wanted
    odd = Runs(frozenset({What.FOREIGN}))
    found = [*odd.take(np.array([(0, 3, What.GAP), (3, 4, What.FOREIGN)], np.int64)), *odd.close()]
    assert found == [("odd", 3, 4, json.dumps([(3, 4, 5)])), ("holes", 0, 3, json.dumps([(0, 3, 4)]))]
