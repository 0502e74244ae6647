"""What a source has in an old format at the offsets of a copy, and how the copy compares to it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.legacy import stand_ins
from mirror.net.errors import Unreachable
from mirror.net.logs.log import Segment
from mirror.net.logs.reading import verified
from mirror.records.admit import Terms
from mirror.records.content.opening import NotOpened, Record, opened
from mirror.records.content.raw import raw_records, record_digest
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec
from mirror.relay.locate.cleaned import survivors
from mirror.relay.locate.cleaned.survivors import Likeness, compare, records_at
from mirror.relay.locate.compare import Comparison
from mirror.relay.locate.filled import FilledCheck
from mirror.relay.locate.tails import Data
from tests.legacy.samples import messages_of, records_from, wrapper_of
from tests.records.builders import kafka_batch


class Source:
    """A log in old formats, or not; it answers with a few batches at a time."""

    name = "t-0 at source"

    def __init__(self, *stored: bytes) -> None:
        self._stored = b"".join(stored)

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        batches, _ = verified(memoryview(self._stored), offset, converts=True)
        return Segment(batches[:2], [], 100, 100, 0)


def copy_of(records: list[Record], codec: Codec = Codec.NONE) -> Data:
    """A batch at the destination."""
    wrapper = wrapper_of(1, codec, records) if codec else messages_of(1, records)
    (batch,) = stand_ins(memoryview(wrapper)).batches
    return BatchHeader.read(batch)._replace(producer_id=7), batch[HEADER_SIZE:]


async def likeness(source: Source, copy: Data, *, gaps: bool = False) -> Likeness:
    original = await records_at(source, copy[0].base_offset, copy[0].last_offset, old=True)
    return (await compare(copy, original, opening=asyncio.Lock(), gaps=gaps, pieces=True)).likeness


ALONE = [messages_of(1, [one]) for one in records_from(10, 6)]


@pytest.mark.parametrize("stored", [ALONE, [wrapper_of(1, Codec.LZ4, records_from(10, 6))]], ids=["alone", "wrapper"])
@pytest.mark.parametrize(("first", "last"), [(10, 15), (11, 13), (15, 15)])
async def test_only_the_offsets_of_the_copy_count(stored: list[bytes], first: int, last: int) -> None:
    """However it stands at the source."""
    records = records_from(10, 6)[first - 10 : last - 9]
    header, whole = await records_at(Source(*stored), first, last, old=True)
    assert (header.base_offset, header.last_offset, header.is_stand_in) == (first, last, True)
    assert [*opened(header, whole[HEADER_SIZE:])] == records
    assert BatchHeader.read(whole) == header
    assert await likeness(Source(*stored), copy_of(records)) is Likeness.SAME


async def test_a_copy_that_was_compressed_by_another_library() -> None:
    """The bytes differ, the records do not."""
    records = records_from(10, 6)
    stored = wrapper_of(1, Codec.GZIP, records)
    assert await likeness(Source(stored), copy_of(records, Codec.SNAPPY)) is Likeness.SAME


@pytest.mark.parametrize("what", ["value", "key", "timestamp"])
async def test_another_record(what: str) -> None:
    records = records_from(10, 6)
    changes: dict[str, Any] = {what: 5 if what == "timestamp" else b"other"}
    other = records[3]._replace(**changes)
    copy = copy_of([*records[:3], other, *records[4:]])
    assert await likeness(Source(*ALONE), copy) is Likeness.DIFFERENT
    assert await likeness(Source(*ALONE), copy, gaps=True) is Likeness.DIFFERENT


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_a_cleaner_leaves_no_borders(codec: Codec) -> None:
    """The first and the last message of the copy are gone: only at a compacted source is that no difference."""
    records = records_from(10, 6)
    left = [records[1], records[3]]
    stored = [wrapper_of(1, codec, left)] if codec else [messages_of(1, [one]) for one in left]
    source = Source(*stored, messages_of(1, records_from(30, 1)))
    assert await likeness(source, copy_of(records)) is Likeness.DIFFERENT
    assert await likeness(source, copy_of(records), gaps=True) is Likeness.SAME


async def test_a_record_that_the_copy_lacks() -> None:
    """It was never left out: the copy is dense, and nobody has cleaned it."""
    records = records_from(10, 6)
    header, payload = copy_of(records[:3])
    longer = header._replace(last_offset_delta=5)
    assert await likeness(Source(*ALONE), (longer, payload)) is Likeness.SAME, "a cleaner has been at the destination"
    assert await likeness(Source(*ALONE[:2]), (header, payload)) is Likeness.DIFFERENT


async def test_nothing_is_left_there() -> None:
    copy = copy_of(records_from(10, 3))
    source = Source(wrapper_of(1, Codec.GZIP, [records_from(5, 1)[0], records_from(20, 1)[0]]))
    assert await likeness(source, copy, gaps=True) is Likeness.NOTHING
    assert await likeness(source, copy) is Likeness.DIFFERENT
    assert await likeness(Source(), copy) is Likeness.DIFFERENT


async def test_a_new_batch_in_its_place_is_something_else() -> None:
    """A source that was truncated, and goes on in another format."""
    source = Source(*ALONE[:2], kafka_batch(base_offset=12))
    header, _ = await records_at(source, 10, 15, old=True)
    assert (header.base_offset, header.last_offset) == (10, 11)
    assert await likeness(source, copy_of(records_from(10, 6)), gaps=True) is Likeness.DIFFERENT


async def test_no_more_than_a_bound_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survivors, "MOST_OPENED", 300)
    with pytest.raises(NotOpened, match="more than 300 bytes"):
        await records_at(Source(*ALONE), 10, 15, old=True)


class NewLeader(Source):
    """It has all of the log, and shows what is before ``shown``."""

    def __init__(self, shown: int, *stored: bytes) -> None:
        super().__init__(*stored)
        self._shown = shown

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        found = await super().read(offset, max_bytes=max_bytes, committed=committed)
        batches = [each for each in found.batches if each[0].base_offset < self._shown]
        return found._replace(batches=batches, high_watermark=self._shown)

    async def true_end(self) -> int:
        return 16


@pytest.mark.parametrize("shown", [11, 13, 15])
async def test_a_new_leader_shows_a_part_of_what_was_gathered(shown: int) -> None:
    """The source has the rest as well: nothing differs."""
    copy, _ = copy_of(records_from(10, 6))
    rules: Any = None
    comparison = Comparison(NewLeader(shown, *ALONE), rules, rules)  # type: ignore[arg-type]
    with pytest.raises(Unreachable, match="not to be read yet"):
        await comparison._original(copy)
    comparison = Comparison(NewLeader(16, *ALONE), rules, rules)  # type: ignore[arg-type]
    found = await comparison._original(copy)
    assert found is not None
    assert found[0].record_count == 6


@pytest.mark.parametrize(
    ("most", "noted", "passed"),
    [
        (250, "", {10}),
        (None, "", {10, 11}),
        (1000, "", set()),
        (250, "its own", {10, 11}),
        (1000, "its own", {10, 11}),
        (250, "another's", set()),
        (None, "another's", set()),
    ],
)
async def test_which_old_messages_were_passed_over(most: int | None, noted: str, passed: set[int]) -> None:
    """They have no leader epoch that says whether it is the same record as then. Its digest does, whatever the limit is
    by now. A version that noted none has passed over only what was too large."""
    large, small = records_from(10, 1)[0]._replace(value=b"." * 300), records_from(11, 1)[0]
    (batch,) = stand_ins(memoryview(messages_of(1, [large, small]))).batches
    header = BatchHeader.read(batch)
    digests = [record_digest(header, record) for record in raw_records(header, batch[HEADER_SIZE:])]
    kinds: dict[str, list[Any]] = {"": [-1, -1], "its own": digests, "another's": digests[::-1]}
    told = kinds[noted]

    async def written() -> dict[int, int | str]:
        return {10: told[0], 11: told[1], 12: "behind it"}

    rules: Any = SimpleNamespace(terms=Terms(rewrites=True, max_batch_size=most), passed=written)
    assert await FilledCheck(rules, rules, rules)._passed_over(header, memoryview(batch)) == passed


async def test_a_digest_says_nothing_of_a_batch() -> None:
    """That has the leader epoch, and so has what is written down of it."""
    batch = kafka_batch(base_offset=10, leader_epoch=3)
    header = BatchHeader.read(batch)
    (record, *_) = raw_records(header, batch[HEADER_SIZE:])

    async def written() -> dict[int, int | str]:
        return {10: record_digest(header, record)}

    rules: Any = SimpleNamespace(terms=Terms(rewrites=True), passed=written)
    assert await FilledCheck(rules, rules, rules)._passed_over(header, memoryview(batch)) == set()


async def test_a_source_that_begins_in_the_middle_of_what_was_gathered() -> None:
    """Its retention has taken the first messages of the copy. The others prove it all the same."""
    rules: Any = SimpleNamespace(opening=asyncio.Lock(), terms=Terms(rewrites=True, converts=True))
    copy = copy_of(records_from(10, 6))
    other = copy_of([*records_from(10, 5), records_from(15, 1)[0]._replace(value=b"other")])
    at_13 = Comparison(NewLeader(16, *ALONE[3:]), rules, rules)  # type: ignore[arg-type]
    assert await at_13._shares_rest(copy, 13)
    assert not await at_13._shares_rest(other, 13)
    assert not await at_13._shares_rest(copy, 16)
    new = Comparison(NewLeader(16, kafka_batch(base_offset=13)), rules, rules)  # type: ignore[arg-type]
    assert not await new._shares_rest(copy, 13)
