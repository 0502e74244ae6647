"""Two batches side by side: what differs is named, what is the writer's own is not a difference, and nothing that is
damaged hides anything."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from mirror.audit.explain.comparing import ABSENT, DIFFERS, HIDES, OWN, SAME, Explained, explained, time_text
from mirror.audit.explain.looking import Looked, _holding, last_offset
from mirror.audit.explain.telling import MOST_RECORDS, data, table
from mirror.records.content.record import Record as Stored
from mirror.records.content.record import write_record
from mirror.records.header import (
    CONTROL,
    CRC_AT,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
)
from tests.audit.clusters import edited
from tests.records.builders import RECORDS, Record, kafka_batch, legacy_message, raw_batch

ZSTD = 4


def side(batch: bytes | None, *, offset: int = 10, alias: str = "a", **more: Any) -> Looked:
    return Looked(alias, "id", "t", 0, offset, 0, 100, batch, **more)


def compared(ours: bytes | None, theirs: bytes | None, *, there: int = 10, show: bool = False) -> Explained:
    return explained(side(ours), side(theirs, offset=there, alias="b"), show_records=show)


def remarks(found: Explained) -> dict[str, str]:
    """Of all that is not the same."""
    return {row.what: row.remark for row in (*found.fields, *found.records) if row.remark != SAME}


BATCH = kafka_batch(base_offset=10, codec=ZSTD, leader_epoch=4)


def test_a_copy_is_the_same_but_for_the_writers_own() -> None:
    ours = kafka_batch(base_offset=10, transactional=True, producer_id=5, producer_epoch=1, base_sequence=7)
    theirs = edited(ours, attributes=0, producer_id=99, producer_epoch=2, base_sequence=0, leader_epoch=8)
    found = compared(ours, theirs)
    assert remarks(found) == dict.fromkeys(
        ("leader epoch", "crc", "attributes", "producer id", "producer epoch", "base sequence"), OWN
    )
    assert (found.differs, found.same, found.records, found.notes) == (False, len(RECORDS), [], [])


@pytest.mark.parametrize(
    ("ours", "theirs", "remark"),
    [
        (TRANSACTIONAL, 0, OWN),
        (DELETE_HORIZON, 0, OWN),
        (0, DELETE_HORIZON, OWN),
        (TRANSACTIONAL | DELETE_HORIZON, DELETE_HORIZON, OWN),
        (0, TRANSACTIONAL, DIFFERS),
        (TRANSACTIONAL, TRANSACTIONAL, DIFFERS),
        (CONTROL | TRANSACTIONAL, CONTROL | TRANSACTIONAL, SAME),
        (0, LOG_APPEND_TIME, DIFFERS),
    ],
)
def test_a_copy_that_is_transactional_may_hide_records(ours: int, theirs: int, remark: str) -> None:
    """As the audit has it: a mirror takes the bit off. Only markers are of transactions on both sides. A note says
    where it is no difference. Mutation: the same bits are cleared on both sides."""
    plain = kafka_batch(base_offset=10)
    found = compared(edited(plain, attributes=ours), edited(plain, attributes=theirs))
    assert remarks(found).get("attributes", SAME) == remark
    noted = [note for note in found.notes if "transactional" in note]
    assert noted == (["b: " + HIDES] if remark == DIFFERS and theirs == TRANSACTIONAL else [])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"base_timestamp": 7}, "base timestamp"),
        ({"max_timestamp": 7}, "max timestamp"),
        ({"attributes": ZSTD | LOG_APPEND_TIME}, "attributes"),
        ({"base_offset": 9}, "base offset"),
        ({"record_count": 2}, "record count"),
        ({"last_offset_delta": 5}, "last offset delta"),
    ],
)
def test_each_field_that_a_copy_keeps(change: dict[str, int], what: str) -> None:
    found = compared(BATCH, edited(BATCH, **change))
    assert remarks(found)[what] == DIFFERS
    assert found.differs


def test_one_record_of_a_batch() -> None:
    """Its digest differs, and it is the only one that is listed; its content is not shown."""
    changed = (RECORDS[0], Record(1, RECORDS[1].timestamp, None, b"other"), RECORDS[2])
    found = compared(kafka_batch(base_offset=10), kafka_batch(changed, base_offset=10))
    (row,) = found.records
    assert (row.what, row.remark, found.same) == ("record 11", DIFFERS, 2)
    assert "other" not in str(found)
    assert remarks(found)["bytes behind the header"] == DIFFERS


def test_records_are_shown_only_if_asked_for() -> None:
    found = compared(BATCH, BATCH, show=True)
    assert [row.what for row in found.records] == ["record 10", "record 11", "record 12"]
    text = str(found)
    assert "key 'key'" in text
    assert "key null, value 'value value" in text
    assert "headers {'trace': 'abc', 'empty': null}" in text
    assert "value null" in text
    assert "value" not in str(compared(BATCH, BATCH))


def test_long_values_and_bytes_that_are_no_text() -> None:
    odd = Stored(10, 1, b"\xff\x00", b"x" * 5_000, (("\udcff", b"\n"),))
    batch = raw_batch(
        write_record(odd, offset_delta=0, timestamp_delta=0), base_offset=10, record_count=1, last_offset_delta=0
    )
    text = str(compared(batch, batch, show=True).records[0].source)
    assert r"key '\xff\x00'" in text
    assert "… (5,000 bytes)" in text
    assert len(text) < 500
    text.encode()  # no lone surrogate, which no terminal takes


def test_records_that_only_one_side_has() -> None:
    found = compared(kafka_batch(base_offset=10), kafka_batch(RECORDS[:2], base_offset=10))
    assert [(row.what, row.destination, row.remark) for row in found.records] == [("record 12", "-", ABSENT)]


def test_a_copy_at_other_offsets() -> None:
    """Offsets are not compared, and records by their order."""
    found = compared(BATCH, edited(BATCH, base_offset=70), there=70)
    assert (found.differs, found.same) == (False, 3)
    assert remarks(found) == {"base offset": OWN}  # no checksum covers it
    short = compared(kafka_batch(base_offset=10), kafka_batch(RECORDS[:2], base_offset=70), there=70)
    assert [row.what for row in short.records] == ["record 12 / -"]


def test_damage_is_shown_and_hides_nothing() -> None:
    """A checksum that is wrong on both sides proves nothing, so it is a difference."""
    damaged = BATCH[:-1] + bytes([BATCH[-1] ^ 1])
    found = compared(BATCH, damaged)
    assert remarks(found)["crc matches"] == DIFFERS
    assert any("b: its records cannot be read" in note for note in found.notes)
    assert compared(damaged, damaged).differs


def test_control_batches_have_no_records() -> None:
    control = raw_batch(b"\x00" * 9, base_offset=10, attributes=CONTROL, record_count=1, last_offset_delta=0)
    found = compared(BATCH, control)
    assert found.differs
    assert found.notes == ["b: a control batch, which has no records"]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_compared_as_a_whole(magic: int) -> None:
    old = legacy_message(magic, offset=10)
    found = compared(old, BATCH)
    assert remarks(found)["magic"] == DIFFERS
    assert "magic 0 or 1" in found.notes[0]
    assert not compared(old, old).differs


def test_no_batch_there() -> None:
    found = explained(side(BATCH), side(None, alias="b", behind=20))
    assert found.differs
    assert found.notes == ["b: no batch holds offset 10; the next batch begins at 20"]
    outside = explained(side(None, offset=100), side(None, offset=100, alias="b"))
    assert not outside.differs
    assert outside.notes[0] == "a: offset 100 is outside of the log, which has 0 to 99"


def test_where_neither_side_has_a_batch_nothing_is_the_same() -> None:
    sides = side(None, offset=100), side(None, offset=100, alias="b")
    lines = table(*sides, explained(*sides), 0).splitlines()
    assert lines[-1] == "neither side has a batch there"
    one = side(None), side(BATCH, alias="b")
    assert table(*one, explained(*one), 0).splitlines()[-1] == "they differ"


def test_which_batch_of_an_answer_holds_the_offset() -> None:
    """Brokers begin with the batch that holds it, or with the first behind it."""
    first, second = kafka_batch(base_offset=10), kafka_batch(base_offset=20)
    wanted = side(None, offset=21)
    assert _holding(wanted, first + second).batch == second
    assert _holding(wanted._replace(offset=12), first + second).batch == first
    missing = _holding(wanted._replace(offset=15), second)
    assert (missing.batch, missing.behind) == (None, 20)
    assert _holding(wanted, b"") == wanted
    assert _holding(wanted, first + second[:-1]).batch == second[:-1]  # cut off, or a length that cannot be
    wrong = bytearray(second)
    wrong[8:12] = b"\xff" * 4
    assert _holding(wanted, first + bytes(wrong)).batch == bytes(wrong)
    assert last_offset(legacy_message(1, offset=21)) == 21


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_whatever_is_left_of_a_batch_is_shown(magic: int) -> None:
    """A damaged length may leave a few bytes only, of a header too short to be one."""
    whole = BATCH if magic == 2 else legacy_message(magic, offset=10, count=2)
    for size in range(13, 80):
        for length in (0, 1, 4, 5, 9, 48, 49, size - 12, 1 << 30, (1 << 32) - 1):
            batch = whole[:8] + length.to_bytes(4, "big") + whole[12:size]
            left = _holding(side(None), batch)
            assert left.batch is not None
            assert batch.startswith(left.batch)
            for found in (explained(left, side(BATCH)), explained(side(BATCH), left), explained(left, left)):
                assert found.differs, (size, length)
                json.dumps([*found.fields, *found.records])


def test_messages_that_are_damaged_alike_on_both_sides_are_not_the_same() -> None:
    damaged = bytearray(legacy_message(1, offset=10))
    damaged[-1] ^= 1
    assert remarks(compared(bytes(damaged), bytes(damaged))) == {"crc matches": DIFFERS}


def test_times_that_no_calendar_has() -> None:
    assert time_text(0) == "1970-01-01 00:00:00.000 (0)"
    assert time_text((1 << 63) - 1) == str((1 << 63) - 1)
    assert time_text(-1) == "1969-12-31 23:59:59.999 (-1)"


@dataclass(frozen=True)
class Case:
    ours: bytes
    theirs: bytes
    last: str


@pytest.mark.parametrize("case", [Case(BATCH, BATCH, "they are the same"), Case(BATCH, edited(BATCH, at=70), "differ")])
@pytest.mark.parametrize("width", [0, 80])
def test_text_and_data(case: Case, width: int) -> None:
    sides = side(case.ours, alias="[red]a"), side(case.theirs, alias="b")
    found = explained(*sides)
    text = table(*sides, found, width)
    assert case.last in text.splitlines()[-1]
    assert text.startswith("[red]a: t partition 0, offset 10 (log 0 to 100, cluster id)")
    assert all(len(line) <= 80 for line in text.splitlines()[2:] if width and line[:1] in "│┃")
    shown = json.loads(json.dumps(data(*sides, found)))
    assert shown["differs"] == found.differs
    assert {row["what"] for row in shown["fields"]} >= {"base offset", "crc", "crc matches"}


def test_a_table_of_many_records_is_cut() -> None:
    many = [Record(at, 1, None, b"x") for at in range(3 * MOST_RECORDS)]
    sides = side(kafka_batch(many, base_offset=10)), side(kafka_batch(many, base_offset=10))
    found = explained(*sides, show_records=True)
    assert "200 more records; --format wide shows all" in table(*sides, found, 100)
    assert "more records" not in table(*sides, found, 0)


def test_no_byte_of_a_header_goes_unseen() -> None:
    """Whichever of the 61 bytes is flipped, in a batch whose checksum is right again."""
    for at in range(HEADER_SIZE):
        changed = bytearray(BATCH)
        changed[at] ^= 1
        if at in range(CRC_AT, CRC_FROM) or changed[16] != 2 or BatchHeader.read(changed).length != len(BATCH) - 12:
            continue  # a checksum is made right below; a length or a magic that no broker answers with
        whole = edited(bytes(changed))
        assert remarks(compared(BATCH, whole)), at
