"""What is written down of records that were passed over: in few entries, by owners that do not touch each other's."""

import pytest

from mirror.net.errors import NetworkError, Unreachable
from mirror.offsetmap.entries.passed import DEAD_LETTER, DROPPED, MOST_OFFSETS
from mirror.offsetmap.internal.batches import KeyValue
from mirror.relay.durable.passed import PassedOverRecords
from mirror.relay.partition.partition import Partition
from tests.fakes.state import MemoryState

IDS = bytes([1]) * 16, bytes([2]) * 16


def partition(source_id: bytes | None = IDS[0], destination_id: bytes | None = IDS[1]) -> Partition:
    found = Partition("t", 0)
    found.claim.identify(source_id, destination_id)
    return found


async def offsets_of(rows: list[KeyValue], at: Partition) -> dict[int, int | str]:
    """As another process reads them."""
    return dict(await PassedOverRecords(MemoryState(rows), fresh_s=1.0).offsets(at))


async def test_many_in_an_entry_and_then_another_one() -> None:
    rows: list[KeyValue] = []
    state = MemoryState(rows)
    passed, at = PassedOverRecords(state, fresh_s=1.0), partition()
    for offset in range(0, 2 * MOST_OFFSETS + 10, 2):
        await passed.write(at, offset, 3, DROPPED)
    first, second = state.ledger.passed(at.subject)
    assert (len(first.offsets), len(second.offsets)) == (MOST_OFFSETS, 5)
    assert await offsets_of(rows, at) == dict.fromkeys(range(0, 2 * MOST_OFFSETS + 10, 2), 3)


@pytest.mark.parametrize(
    ("offset", "epoch", "cause"), [(20, 4, DROPPED), (20, 3, DEAD_LETTER), (5, 3, DROPPED)],
    ids=["another epoch", "another cause", "before the last one"],
)  # fmt: skip
async def test_what_begins_another_entry(offset: int, epoch: int, cause: str) -> None:
    rows: list[KeyValue] = []
    state = MemoryState(rows)
    passed, at = PassedOverRecords(state, fresh_s=1.0), partition()
    await passed.write(at, 10, 3, DROPPED)
    await passed.write(at, offset, epoch, cause)
    assert len(state.ledger.passed(at.subject)) == 2
    assert await offsets_of(rows, at) == {10: 3, offset: epoch}


async def test_old_messages() -> None:
    """Several may have stood at an offset, and none has a leader epoch: a digest says which was meant."""
    rows: list[KeyValue] = []
    state = MemoryState(rows)
    passed, at = PassedOverRecords(state, fresh_s=1.0), partition()
    await passed.write(at, 10, -1, DEAD_LETTER, "0" * 16)
    letters = await passed.write(at, 12, -1, DEAD_LETTER, "1" * 16)
    before = await passed.write(at, 14, -1, DEAD_LETTER)
    assert (letters.offsets, letters.digests, before.digests) == ((10, 12), ("0" * 16, "1" * 16), ())
    assert await offsets_of(rows, at) == {10: "0" * 16, 12: "1" * 16, 14: -1}
    assert passed.known(at, 12, -1, "1" * 16) == letters
    assert passed.known(at, 12, -1, "0" * 16) is None, "another record: it is in no dead letter"
    assert passed.known(at, 14, -1, "2" * 16) == before, "a version that noted none has written it"


async def test_two_owners_have_entries_of_their_own() -> None:
    """The former one writes late, and by what it knew: nothing of the later one's is lost."""
    rows: list[KeyValue] = []
    at = partition()
    former, later = (PassedOverRecords(MemoryState(rows), fresh_s=1.0) for _ in range(2))
    await former.write(at, 10, 0, DROPPED)
    await later.offsets(at)
    await later.write(at, 12, 0, DROPPED)
    await former.write(at, 14, 0, DROPPED)
    await later.write(at, 16, 0, DROPPED)
    assert await offsets_of(rows, at) == dict.fromkeys((10, 12, 14, 16), 0)


async def test_only_of_these_topics_and_this_record() -> None:
    rows: list[KeyValue] = []
    state = MemoryState(rows)
    passed, at = PassedOverRecords(state, fresh_s=1.0), partition()
    await passed.write(at, 10, 3, DROPPED)
    letter = await passed.write(at, 10, 3, DEAD_LETTER)
    assert passed.known(at, 10, 3) == letter
    assert passed.known(at, 10, 4) is None
    assert passed.known(at, 11, 3) is None
    for other in (partition(b"9" * 16), partition(destination_id=b"9" * 16)):
        assert passed.known(other, 10, 3) is None
        assert await passed.offsets(other) == {}
    unknown = partition(None)
    assert passed.known(unknown, 10, 3) == letter, "a broker that tells no id: it may be the same topic"
    assert await passed.offsets(unknown) == {10: 3}
    await passed.write(unknown, 11, 3, DEAD_LETTER)
    assert passed.known(at, 11, 3) is not None
    assert passed.known(partition(b"9" * 16), 11, 3) is None, "the entry keeps the id that was known"


async def test_what_the_destination_has_deleted_is_taken_away() -> None:
    rows: list[KeyValue] = []
    state = MemoryState(rows)
    at = partition()
    await PassedOverRecords(state, fresh_s=1.0).write(at, 10, 0, DROPPED)
    await PassedOverRecords(state, fresh_s=1.0).write(at, 20, 0, DROPPED)
    passed = PassedOverRecords(state, fresh_s=1.0)
    await passed.forget(at, 10)
    assert await offsets_of(rows, at) == {10: 0, 20: 0}
    await passed.forget(at, 11)
    assert await offsets_of(rows, at) == {20: 0}


async def test_what_its_writer_has_added_to_stays() -> None:
    """An entry was about deleted offsets only, when it was read. Its writer has added one that is not deleted: without
    that, the marker in its place would be one too many."""
    rows: list[KeyValue] = []
    writer, other, at = MemoryState(rows), MemoryState(rows), partition()
    writing = PassedOverRecords(writer, fresh_s=1.0)
    await writing.write(at, 10, 0, DROPPED)
    await other.load()
    await writing.write(at, 20, 0, DROPPED)
    await PassedOverRecords(other, fresh_s=1.0).forget(at, 15)
    assert await offsets_of(rows, at) == {10: 0, 20: 0}


async def test_what_cannot_be_read_or_written() -> None:
    async def away() -> None:
        raise Unreachable("the destination is away")

    passed, at = PassedOverRecords(MemoryState([], away), fresh_s=1.0), partition()
    with pytest.raises(NetworkError):
        await passed.offsets(at)
    with pytest.raises(NetworkError):
        await passed.write(at, 10, 0, DROPPED)
    assert passed.known(at, 10, 0) is None
