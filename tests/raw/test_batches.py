"""Single batches: what brokers would not take as it is has a name, and what can be made of it."""

import random
import struct
from dataclasses import dataclass, field

import pytest

from mirror.net.errors import (
    AuthenticationFailed,
    ConnectionLost,
    NetworkError,
    Refused,
    TlsFailed,
    TlsInterrupted,
    Unreachable,
)
from mirror.net.rights import TOPIC, WRITE, Right
from mirror.raw.batches import check, records_of, sendable, stamped, trimmed
from mirror.raw.errors import NotAuthenticated, NotAuthorized, NotSendable, Unavailable, Unfit, heals, of_network
from mirror.raw.model import TimestampType, TopicPartition
from mirror.records.content.opening import Record, opened
from mirror.records.header import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
)
from mirror.records.identity import Identity
from mirror.records.intact import is_intact
from tests.records import builders
from tests.records.builders import RECORDS, kafka_batch, legacy_message, sealed

AT = TopicPartition("t", 3)
SPARSE = [record._replace(offset=offset) for record, offset in zip(RECORDS, (0, 2, 3), strict=True)]


def marked(batch: bytes, bits: int, **changes: int) -> bytes:
    """The batch with more attribute bits, and other fields of its header."""
    header = BatchHeader.read(batch)
    changed = header._replace(attributes=header.attributes | bits, **changes)
    return sealed(changed.pack() + batch[HEADER_SIZE:])


def records(*batches: bytes) -> list[Record]:
    return [record for each in batches for record in opened(BatchHeader.read(each), each[HEADER_SIZE:])]


GOOD = kafka_batch(base_offset=70)
UNFIT = {
    "not_one_batch": [b"", GOOD[:30], GOOD[:-1], GOOD + GOOD, GOOD + b"x", struct.pack(">qi", 5, 3) + b"x" * 60],
    "old_format": [legacy_message(0), legacy_message(1), legacy_message(1, codec=1, count=3)],
    "corrupt": [
        GOOD[:-1] + b"!",
        GOOD[:22] + b"\1" + GOOD[23:],
        marked(GOOD, 0, record_count=9),
        marked(GOOD, 0, last_offset_delta=-1),
    ],
    "unknown_attributes": [marked(GOOD, 0x80), marked(GOOD, 5), marked(GOOD, 0x4000)],
    "control": [marked(GOOD, CONTROL | TRANSACTIONAL)],
    "empty": [marked(GOOD[:HEADER_SIZE], 0, record_count=0, length=49)],
    "transactional": [marked(GOOD, TRANSACTIONAL), marked(GOOD, TRANSACTIONAL | DELETE_HORIZON)],
    "delete_horizon": [marked(GOOD, DELETE_HORIZON)],
    "log_append_time": [marked(GOOD, LOG_APPEND_TIME)],
    "sparse_batch": [kafka_batch(SPARSE)],
}


@pytest.mark.parametrize(
    ("reason", "value"),
    [
        pytest.param(reason, each, id=f"{reason} {at}")
        for reason, values in UNFIT.items()
        for at, each in enumerate(values)
    ],
)
def test_what_is_not_sent(reason: str, value: bytes) -> None:
    with pytest.raises(NotSendable, match=f"^{reason}: .+; .+") as caught:
        check(value)
    assert caught.value.reason == reason
    assert caught.value.unfit.remedy in str(caught.value)


def test_too_large() -> None:
    assert check(GOOD, max_bytes=len(GOOD)).size == len(GOOD)
    with pytest.raises(NotSendable, match=f"too_large: {len(GOOD)} bytes, .*; raise max.message.bytes"):
        check(GOOD, max_bytes=len(GOOD) - 1)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_is_sent_as_it_is(codec: Codec, kind: type[bytes]) -> None:
    """Only the producer's fields, base offset and leader epoch change; the checksum goes along."""
    value = kind(kafka_batch(codec=codec, base_offset=70, leader_epoch=4))
    header = check(value)
    assert sendable(value) == [bytes(value)]
    sent = stamped(header, value, Identity(9, 2, 33))
    stored = BatchHeader.read(sent)
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (9, 2, 33)
    assert (stored.base_offset, stored.leader_epoch) == (0, -1)
    assert sent[HEADER_SIZE:] == bytes(value)[HEADER_SIZE:]
    assert is_intact(sent)


def test_every_reason_is_shown() -> None:
    of_topics = {"too_large", "record_too_large", "destination_rewrites"}
    assert UNFIT.keys() | of_topics == {each.slug for each in Unfit}


def test_what_is_made_of_it() -> None:
    for reason in ("transactional", "delete_horizon"):
        for value in UNFIT[reason]:
            (made,) = sendable(value)
            assert made[HEADER_SIZE:] == value[HEADER_SIZE:]
            assert check(made)._replace(crc=0) == BatchHeader.read(value)._replace(crc=0, attributes=0)
    assert sendable(*UNFIT["control"]) == sendable(*UNFIT["empty"]) == []
    for reason in ("not_one_batch", "old_format", "corrupt", "unknown_attributes"):
        for value in UNFIT[reason]:
            with pytest.raises(NotSendable, match=f"^{reason}: "):
                sendable(value)


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_written_anew(codec: Codec) -> None:
    """Holes, append times and size: dense batches with the same codec, at the same offsets."""
    sparse = kafka_batch(SPARSE, codec=codec, base_offset=70)
    made = sendable(sparse)
    assert [check(each).base_offset for each in made] == [70, 72]
    assert records(*made) == records(sparse)
    appended = marked(kafka_batch(codec=codec), LOG_APPEND_TIME, max_timestamp=77)
    (stamped_anew,) = sendable(appended)
    assert [each.timestamp for each in records(stamped_anew)] == [77] * 3
    assert [each[2:] for each in records(stamped_anew)] == [each[2:] for each in records(kafka_batch())]
    noise = random.Random(7)
    written = [builders.Record(number, number, b"k", noise.randbytes(100) + bytes(100)) for number in range(40)]
    many = kafka_batch(written, codec=codec, base_offset=9)
    for most in (len(many) // 2, 400):
        pieces = sendable(many, max_bytes=most)
        assert len(pieces) > 1
        assert all(check(each, max_bytes=most).codec_bits == codec for each in pieces)
        assert records(*pieces) == records(many)
    with pytest.raises(NotSendable, match="record_too_large: the record at offset 9 makes a batch of"):
        sendable(many, max_bytes=70)


def test_a_batch_that_cannot_be_opened() -> None:
    """Its checksum is right; what it is of is not."""
    broken = marked(kafka_batch(SPARSE), Codec.ZSTD)
    with pytest.raises(NotSendable, match=r"corrupt: .*cannot be decompressed"):
        sendable(broken)
    with pytest.raises(NotSendable, match=r"corrupt: .*cannot be decompressed"):
        trimmed(BatchHeader.read(broken), broken, 1)


@pytest.mark.parametrize("codec", list(Codec))
def test_trimmed(codec: Codec) -> None:
    value = kafka_batch(codec=codec, base_offset=70, producer_id=5, producer_epoch=1, base_sequence=3)
    header = BatchHeader.read(value)
    for offset, left in ((71, 2), (72, 1)):
        (made,) = trimmed(header, value, offset)
        assert records(made) == records(value)[-left:]
        assert check(made).codec_bits == codec
        assert BatchHeader.read(made).producer_id == -1
    sparse = kafka_batch(SPARSE, codec=codec, base_offset=70)
    assert records(*trimmed(BatchHeader.read(sparse), sparse, 71)) == records(sparse)[1:]
    cleaned = marked(kafka_batch(SPARSE[:1], codec=codec, base_offset=70), 0, last_offset_delta=3)
    assert trimmed(BatchHeader.read(cleaned), cleaned, 71) == []


def test_what_a_consumer_gets() -> None:
    """Empty batches, markers and with read_committed aborted data are left out; the first batch is trimmed."""
    empty = marked(GOOD[:HEADER_SIZE], 0, record_count=0, length=49, base_offset=64, last_offset_delta=5)
    open_one = marked(kafka_batch(base_offset=73, producer_id=7), TRANSACTIONAL)
    append_time = marked(kafka_batch(base_offset=76), LOG_APPEND_TIME)
    emptied = marked(empty, 0, base_offset=79)
    stored = (empty, GOOD, open_one, append_time, emptied)
    batches = [(BatchHeader.read(each), memoryview(each)) for each in stored]
    for committed, offsets in ((True, [(71, 72), (76, 78)]), (False, [(71, 72), (73, 75), (76, 78)])):
        found = records_of(AT, 71, batches, [(7, 70)], committed=committed)
        assert [(each.base_offset, each.offset) for each in found] == offsets
        assert {(each.topic, each.partition) for each in found} == {AT}
        assert found[-1].timestamp_type is TimestampType.LOG_APPEND_TIME
        assert found[-1].value == append_time


@dataclass
class _Case:
    error: NetworkError
    kind: type
    told: str
    code: int = field(default=0)


@pytest.mark.parametrize(
    "case",
    [
        _Case(AuthenticationFailed("a: no"), NotAuthenticated, "a: no; check the ssl and sasl settings"),
        _Case(TlsFailed("a: no"), NotAuthenticated, "a: no; check the ssl and sasl settings"),
        _Case(Unreachable("all: no", refused=True), NotAuthenticated, "all: no; check the ssl and sasl settings"),
        _Case(Unreachable("some: no"), Unavailable, "some: no"),
        _Case(ConnectionLost("gone"), Unavailable, "gone"),
        _Case(TlsInterrupted("a: broken"), Unavailable, "a: broken"),
        _Case(
            Refused("x", 29, needs=Right(WRITE, TOPIC, "t", "c")),
            NotAuthorized,
            r"TOPIC_AUTHORIZATION_FAILED \(29\): grant the principal Write on topic t of cluster c",
            29,
        ),
    ],
    ids=lambda case: case.told,
)
def test_errors_of_the_network(case: _Case) -> None:
    found = of_network(case.error)
    with pytest.raises(case.kind, match=f"^{case.told}$"):
        raise found
    assert found.code == case.code
    assert heals(case.error) is (case.kind is not NotAuthenticated)
