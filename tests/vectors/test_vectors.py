"""The captured vectors: each is counted, read, scanned, restamped, and held against kafka-python's account of it."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatch

from mirror.reasons import HaltReason
from mirror.records.admit import Forward, Halt, Terms, admit
from mirror.records.header import HEADER_SIZE, MAGIC_AT, BatchHeader
from mirror.records.identity import Identity, producer_id
from mirror.records.restamp import NEAR, checksum, restamp
from mirror.records.scan import Remainder, scan, tail
from mirror.records.transactions import ABORT, COMMIT, Aborted, marker_kind
from mirror.wire.fetch import Fetched, read_fetch_response
from mirror.wire.primitives import MalformedFrame
from mirror.wire.produce import base_offsets, plain_answer, read_produce_response
from tests.vectors.describe import describe

HERE = Path(__file__).parent
CAPTURED = HERE / "captured"
MOST_BYTES = 500_000
"""Of all vectors together: they are in every clone."""

Entry = dict[str, Any]
INDEX: list[Entry] = json.loads((CAPTURED / "index.json").read_text())
IDENTITY = Identity(producer_id(flow="a->b", cluster_id="c", topic="t", partition=0), 2, 1_000)


class Batch(NamedTuple):
    """One captured batch of magic 2, and the vector that it is from."""

    entry: Entry
    header: BatchHeader
    data: bytes


def of_api(api: str) -> list[Any]:
    return [pytest.param(entry, id=entry["file"].removesuffix(".bin")) for entry in INDEX if entry["api"] == api]


def holding(what: str, api: str = "fetch") -> list[Any]:
    return [row for row in of_api(api) if row.values[0]["holds"] == what]


@cache
def data_of(file: str) -> bytes:
    return (CAPTURED / file).read_bytes()


def frame_of(entry: Entry) -> memoryview:
    return memoryview(data_of(entry["file"]))


def partitions_of(entry: Entry) -> list[Fetched]:
    return read_fetch_response(entry["version"], frame_of(entry)).partitions


def record_sets(entry: Entry) -> list[memoryview]:
    frame = frame_of(entry)
    return [frame[one.start : one.end] for one in partitions_of(entry)]


def batches_of(entry: Entry) -> Iterator[Batch]:
    """Those of magic 2."""
    for record_set in record_sets(entry):
        for at, size in scan(record_set):
            if record_set[at + MAGIC_AT] == 2:
                yield Batch(entry, BatchHeader.read(record_set, at), bytes(record_set[at : at + size]))


def all_batches() -> Iterator[Batch]:
    for row in of_api("fetch"):
        yield from batches_of(row.values[0])


# The collection.


def test_the_index_lists_every_file_and_nothing_else() -> None:
    listed = [entry["file"] for entry in INDEX]
    assert sorted(listed) == sorted(path.name for path in CAPTURED.glob("*.bin"))
    assert len(set(listed)) == len(listed)
    assert all(len(data_of(entry["file"])) == entry["size"] for entry in INDEX)
    assert sum(entry["size"] for entry in INDEX) < MOST_BYTES


def test_the_readme_counts_them() -> None:
    readme = (HERE / "README.md").read_text()
    for kafka in {entry["kafka"] for entry in INDEX}:
        assert f"| {kafka} | {sum(entry['kafka'] == kafka for entry in INDEX)} |" in readme
    for what in {entry["holds"] for entry in INDEX}:
        assert f"| {what} |" in readme


@pytest.mark.parametrize(
    ("kafka", "fetch", "produce"),
    [
        ("4.3.0", set(range(4, 18)), set(range(3, 14))),
        ("3.9.2", {4, 11, 12, 13, 17}, {3, 5, 8, 9, 11}),
        ("2.8.2", {4, 11, 12}, {3, 5, 8, 9}),
    ],
)
def test_versions_that_are_there(kafka: str, fetch: set[int], produce: set[int]) -> None:
    mine = [entry for entry in INDEX if entry["kafka"] == kafka]
    assert {entry["version"] for entry in mine if entry["holds"] == "batches"} == fetch
    assert {entry["version"] for entry in mine if entry["holds"] == "acknowledged"} == produce
    assert {codec for entry in mine for codec in entry.get("codecs", [])} == {0, 1, 2, 3, 4}


def test_kinds_that_are_there() -> None:
    batches = list(all_batches())
    assert len(batches) == sum(entry["batches"] for entry in INDEX if entry["api"] == "fetch") - OLD_MESSAGES
    assert any(batch.header.size > NEAR for batch in batches), "beyond the switch of restamp"
    assert any(len(batch.data) < 100 for batch in batches)
    reasons = {
        verdict.reason
        for batch in batches
        if isinstance(verdict := admit(batch.header, batch.header.base_offset, Terms()), Halt)
    }
    assert reasons == {HaltReason.SPARSE_BATCH, HaltReason.LOG_APPEND_TIME}
    assert any(batch.header.is_control for batch in batches)
    assert any(batch.header.is_transactional and not batch.header.is_control for batch in batches)


OLD_MESSAGES = 11
"""Of magic 0 and 1: five, five, and one wrapper."""


# Fetch.


@pytest.mark.parametrize("entry", of_api("fetch"))
def test_every_fetch_frame_is_what_kafka_python_says(entry: Entry) -> None:
    partitions = partitions_of(entry)
    assert [one.error for one in partitions] == entry["errors"]
    assert [list(pair) for one in partitions for pair in one.aborted] == entry["aborted"]
    assert sum(len(list(scan(record_set))) for record_set in record_sets(entry)) == entry["batches"]
    assert describe("fetch", entry["version"], data_of(entry["file"])).items() <= entry.items()


@pytest.mark.parametrize("entry", of_api("fetch"))
def test_every_batch_is_sound_and_stays_so_when_restamped(entry: Entry) -> None:
    """CRC as stored, CRC carried over, and the same records for an independent reader."""
    for _, header, data in batches_of(entry):
        assert header.crc == checksum(data)
        sent = restamp(header, IDENTITY, header.attributes).pack() + data[HEADER_SIZE:]
        assert len(sent) == len(data)
        assert BatchHeader.read(sent).crc == checksum(sent)
        theirs, original = DefaultRecordBatch(sent), DefaultRecordBatch(data)
        assert theirs.validate_crc()
        assert (theirs.base_offset, theirs.producer_id, theirs.base_sequence) == (0, IDENTITY.producer_id, 1_000)
        assert [
            (one.offset + header.base_offset, one.timestamp, one.key, one.value, one.headers) for one in theirs
        ] == [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in original]


@pytest.mark.parametrize("entry", of_api("fetch"))
def test_damage_is_seen_after_restamping(entry: Entry) -> None:
    for _, header, data in batches_of(entry):
        damaged = data[:-1] + bytes([data[-1] ^ 0x10])
        sent = restamp(BatchHeader.read(damaged), IDENTITY, header.attributes).pack() + damaged[HEADER_SIZE:]
        assert BatchHeader.read(sent).crc != checksum(sent)


@pytest.mark.parametrize("entry", of_api("fetch"))
def test_every_fetch_frame_is_malformed_when_cut(entry: Entry) -> None:
    frame = frame_of(entry)
    for cut in {*range(0, len(frame), 1 + len(frame) // 300), *range(min(len(frame), 60)), len(frame) - 1}:
        with pytest.raises(MalformedFrame):
            read_fetch_response(entry["version"], frame[:cut])


@pytest.mark.parametrize("entry", holding("batches"))
def test_what_real_clients_write_is_forwarded(entry: Entry) -> None:
    """Of librdkafka and of Java, with every codec: all but the topics that are made to be refused."""
    verdicts = [
        admit(header, header.base_offset, Terms(max_batch_size=1_048_588)) for _, header, _ in batches_of(entry)
    ]
    forwarded = sum(isinstance(verdict, Forward) for verdict in verdicts)
    if len(entry["errors"]) == 1:
        assert forwarded == len(verdicts) == 3
        return
    assert forwarded >= 10 + 3 + 5
    records = [
        record
        for _, _, data in batches_of(entry)
        for record in DefaultRecordBatch(data)
        if ("kind", b"java") in record.headers
    ]
    assert len(records) == 5 * 5
    assert sum(record.value is None for record in records) == 5


@pytest.mark.parametrize("entry", holding("batches"))
def test_the_log_start_and_the_high_watermark(entry: Entry) -> None:
    for one, record_set in zip(partitions_of(entry), record_sets(entry), strict=True):
        assert one.log_start_offset == (0 if entry["version"] >= 5 else -1)
        last = [BatchHeader.read(record_set, at).next_offset for at, _ in scan(record_set)][-1]
        assert 0 < last <= one.high_watermark == one.last_stable_offset
        assert tail(record_set) is Remainder.CLEAN


@pytest.mark.parametrize("entry", holding("read committed"))
def test_aborted_transactions_are_listed(entry: Entry) -> None:
    """Three aborted, by two producers; their first offsets are those of their first batches."""
    (one,) = partitions_of(entry)
    batches = list(batches_of(entry))
    assert len(one.aborted) == 3
    assert len({number for number, _ in one.aborted}) == 2
    assert {(batch.header.producer_id, batch.header.base_offset) for batch in batches} >= set(one.aborted)
    assert sum(batch.header.is_control for batch in batches) == 5
    assert sum(batch.header.is_transactional for batch in batches) == 10
    dropped = Aborted(one.aborted)
    kept = []
    for batch in batches:
        if batch.header.is_control:
            assert marker_kind(batch.data) in (ABORT, COMMIT)
            dropped.ends(batch.header, marker_kind(batch.data))
        elif not dropped.drops(batch.header):
            kept.append(batch)
    assert sum(batch.header.is_transactional for batch in kept) == 2
    assert sum(not batch.header.is_transactional for batch in kept) == 1


@pytest.mark.parametrize("entry", holding("partial tail"))
def test_a_partial_tail(entry: Entry) -> None:
    (record_set,) = record_sets(entry)
    assert len(list(scan(record_set))) == 1
    assert tail(record_set) is Remainder.PARTIAL


@pytest.mark.parametrize("entry", holding("mid batch"))
def test_a_batch_around_the_asked_offset_comes_whole(entry: Entry) -> None:
    """Offset 3 and ten bytes were asked for: the answer is the whole batch from offset 0."""
    (batch,) = batches_of(entry)
    assert (batch.header.base_offset, batch.header.last_offset) == (0, 4)


@pytest.mark.parametrize("entry", holding("nothing new"))
def test_nothing_new(entry: Entry) -> None:
    (one,) = partitions_of(entry)
    assert (one.error, one.start) == (0, one.end)


@pytest.mark.parametrize("entry", holding("errors"))
def test_fetch_errors(entry: Entry) -> None:
    """An offset out of range, and a topic that is not there (by name, or by id)."""
    assert [one.error for one in partitions_of(entry)] == [1, 100 if entry["version"] >= 13 else 3]


@pytest.mark.parametrize("entry", holding("diverged"))
def test_divergence_names_the_old_epochs_end(entry: Entry) -> None:
    (one,) = partitions_of(entry)
    assert one.diverging is not None
    assert one.diverging[1] == 15
    assert one.start == one.end


@pytest.mark.parametrize("entry", holding("not the leader"))
def test_a_fetch_from_another_than_the_leader(entry: Entry) -> None:
    response = read_fetch_response(entry["version"], frame_of(entry))
    (one,) = response.partitions
    assert one.error == 6
    check_new_leader(one.leader, [node.node_id for node in response.nodes], told=entry["version"] >= 16)


def check_new_leader(leader: tuple[int, int] | None, nodes: list[int], *, told: bool) -> None:
    if told:
        assert leader is not None
        assert leader[0] == 2
        assert nodes == [2]
    else:
        assert (leader, nodes) == (None, [])


@pytest.mark.parametrize("entry", holding("old formats"))
def test_messages_of_magic_0_and_1(entry: Entry) -> None:
    for record_set, magic, places in zip(record_sets(entry), (0, 1, 1), (5, 5, 1), strict=True):
        found = list(scan(record_set))
        assert len(found) == places
        records = [
            one for at, size in found for one in LegacyRecordBatch(bytes(record_set[at : at + size]), magic)
        ]  # fmt: skip
        assert [one.offset for one in records] == [0, 1, 2, 3, 4]
        header = BatchHeader.read(record_set)
        verdict = admit(header, 0, Terms())
        assert isinstance(verdict, Halt)
        assert verdict.reason is HaltReason.OLD_FORMAT


# Record sets of older Fetches.


@pytest.mark.parametrize("entry", of_api("records"))
def test_filler_of_a_real_broker(entry: Entry) -> None:
    """KIP-283 as built: the markers fell out in the conversion, and what they left is filled up."""
    record_set = frame_of(entry)
    found = list(scan(record_set))
    assert len(found) == entry["batches"]
    assert {record_set[place.at + MAGIC_AT] for place in found} == set(entry["magics"])
    assert tail(record_set) is Remainder.FILLER


# Produce.


@pytest.mark.parametrize("entry", of_api("produce"))
def test_every_produce_frame_is_what_kafka_python_says(entry: Entry) -> None:
    partitions = read_produce_response(entry["version"], frame_of(entry)).partitions
    assert [one.error for one in partitions] == entry["errors"]
    assert [one.base_offset for one in partitions] == entry["base_offsets"]
    if entry["version"] >= 8:
        assert [one.message for one in partitions] == entry["messages"]
    assert describe("produce", entry["version"], data_of(entry["file"])).items() <= entry.items()


@pytest.mark.parametrize("entry", of_api("produce"))
def test_the_plain_reader_takes_exactly_the_plain_answers(entry: Entry) -> None:
    answer = plain_answer(entry["version"], frame_of(entry))
    told = read_produce_response(entry["version"], frame_of(entry)).partitions
    # Repeats are answered with a time, too: that of the batch that is there.
    plain = entry["version"] >= 5 and all(not one.error and one.log_append_time < 0 for one in told)
    assert (answer is not None) is plain
    if answer is not None:
        found = [pair for _, pairs in base_offsets(answer) for pair in pairs]
        response = read_produce_response(entry["version"], frame_of(entry))
        assert found == [(one.partition, one.base_offset) for one in response.partitions]


@pytest.mark.parametrize("entry", of_api("produce"))
def test_every_produce_frame_is_malformed_when_cut(entry: Entry) -> None:
    frame = frame_of(entry)
    for cut in range(len(frame)):
        assert plain_answer(entry["version"], frame[:cut]) is None
        with pytest.raises(MalformedFrame):
            read_produce_response(entry["version"], frame[:cut])


@pytest.mark.parametrize("entry", holding("repeated", "produce"))
def test_a_repeat_is_answered_with_the_old_offset(entry: Entry) -> None:
    """The same identity and sequence again: acknowledged where it lies, not appended."""
    (first,) = (
        one
        for one in INDEX
        if (one["kafka"], one["version"], one["holds"]) == (entry["kafka"], entry["version"], "acknowledged")
    )
    assert set(entry["base_offsets"]) == set(first["base_offsets"])


@pytest.mark.parametrize("entry", holding("append time", "produce"))
def test_log_append_time_is_told(entry: Entry) -> None:
    (one,) = read_produce_response(entry["version"], frame_of(entry)).partitions
    assert one.log_append_time > 0


@pytest.mark.parametrize("entry", holding("errors", "produce"))
def test_produce_errors_come_in_any_order(entry: Entry) -> None:
    """A wrong checksum, a sequence gap, a partition and a topic that are not there, two batches for one partition.

    A broker answers in an order of its own, not in the request's.
    """
    missing = 100 if entry["version"] >= 13 else 3
    assert sorted(entry["errors"]) == sorted([2, 45, 3, missing, 87])


@pytest.mark.parametrize("entry", holding("record errors", "produce"))
def test_record_errors(entry: Entry) -> None:
    (one,) = read_produce_response(entry["version"], frame_of(entry)).partitions
    assert one.error == 87
    if entry["version"] >= 8:
        assert one.message is not None
        assert "record" in one.message


@pytest.mark.parametrize("entry", holding("not the leader", "produce"))
def test_a_produce_to_another_than_the_leader(entry: Entry) -> None:
    response = read_produce_response(entry["version"], frame_of(entry))
    (one,) = response.partitions
    assert one.error == 6
    check_new_leader(one.leader, [node.node_id for node in response.nodes], told=entry["version"] >= 10)
