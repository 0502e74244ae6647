"""Batches with the time of their append, as they were sent before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.header import HEADER_SIZE, BatchHeader, Codec
from mirror.records.restamp import NEAR, checksum
from mirror.records.stamped import is_stamped, unstamped
from tests.records.builders import Record, kafka_batch, raw_batch
from tests.simulation.model.broker import stamped

TIMES = st.integers(-1, (1 << 63) - 1)


@pytest.mark.parametrize("codec", Codec)
def test_what_was_sent(codec: Codec) -> None:
    sent = kafka_batch([Record(at, 1_000 + at, b"k", b"v" * 99) for at in range(3)], codec=codec, base_offset=7)
    there = stamped(sent, 5_000)
    header = BatchHeader.read(there)
    assert is_stamped(header)
    assert not is_stamped(BatchHeader.read(sent))
    assert unstamped(header, 1_002) == BatchHeader.read(sent)


@given(sent=TIMES, appended=TIMES, payload=st.binary(max_size=200))
def test_the_checksum_follows(sent: int, appended: int, payload: bytes) -> None:
    there = stamped(raw_batch(payload, max_timestamp=sent), appended)
    found = unstamped(BatchHeader.read(there), sent)
    assert found.crc == checksum(found.pack() + there[HEADER_SIZE:])
    assert found.max_timestamp == sent


@pytest.mark.parametrize("size", [NEAR - 10, NEAR + 10, 1 << 20])
def test_large_batches(size: int) -> None:
    there = stamped(raw_batch(bytes(size), max_timestamp=3), 9)
    found = unstamped(BatchHeader.read(there), 3)
    assert found.crc == checksum(found.pack() + there[HEADER_SIZE:])


def test_a_wrong_checksum_stays_wrong() -> None:
    """The records are not read, so nothing is made right."""
    there = stamped(raw_batch(b"payload", max_timestamp=3), 9)
    found = unstamped(BatchHeader.read(there), 3)
    assert found.crc != checksum(found.pack() + b"PAYLOAD")
