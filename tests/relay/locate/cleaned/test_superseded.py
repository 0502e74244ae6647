"""Records that come back with a leader of a compacted source that was cleaned less: told from records that are lost."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mirror.net.errors import Unreachable
from mirror.net.logs.log import Marker, PartitionLog
from mirror.records.admit import Cause, Terms
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, BatchHeader, Codec
from mirror.relay.locate.cleaned import superseded
from mirror.relay.locate.cleaned.superseded import Superseded
from mirror.relay.locate.filled import Filled
from mirror.relay.locate.position import Locator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.topics.verdicts import TRIES
from tests.fakes.loop import until
from tests.records.builders import Record, kafka_batch, raw_batch, sealed
from tests.relay.stage.flows import clusters, mirroring
from tests.relay.stage.noting import ledger
from tests.relay.stage.scenes import Scene, scene
from tests.simulation.model.broker import marker_batch

TIME = 1_700_000_000_000
DAY_MS = 86_400_000
Said = tuple[str | None, str | None]
"""Key and value."""


def written(base: int, *said: Said, codec: int = Codec.ZSTD) -> bytes:
    """A batch as a producer wrote it."""
    encoded = [tuple(None if one is None else one.encode() for one in pair) for pair in said]
    records = [Record(at, TIME + at, key, value) for at, (key, value) in enumerate(encoded)]
    return kafka_batch(records, codec=codec, base_offset=base)


def with_horizon(batch: bytes, at_ms: int) -> bytes:
    """The same batch when a cleaner has noted in it when its tombstones may go."""
    header = BatchHeader.read(batch)
    noted = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=at_ms)
    return sealed(noted.pack() + batch[HEADER_SIZE:])


def filled(at: Scene, count: int) -> None:
    """Markers of ours at the destination's end, where the leader before had a gap."""
    for _ in range(count):
        at.there.store(marker_batch(at.there.end, at.owner, 1))


def came_back(at: Scene, *behind: bytes, markers: int = 3) -> None:
    """A batch is copied; the offsets behind it are filled, and the new leader has these batches there."""
    at.partition.terms = Terms(compacted=True)
    at.copy([written(0, ("first", "0"))])
    filled(at, markers)
    at.source.store("t", 0, *behind)


HOT = written(1, ("hot", "1"), ("hot", "2"), ("hot", "3"))
"""Came back: offsets 1 to 3."""


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("newer", ["4", None])
async def test_superseded_behind_the_end(codec: int, newer: str | None) -> None:
    """Each record has a later one of its key, which is still to be copied, also a tombstone: the copy is good."""
    async with scene() as at:
        came_back(at, HOT, written(4, ("else", "x"), ("hot", newer), codec=codec))
        found = await at.locate()
        assert (found.offset, found.proven, found.fill_to, found.accepted) == (4, True, 4, None)
        assert found.identity.epoch == 2


async def test_several_batches_of_several_keys() -> None:
    """A key that is filled again and again waits for what is behind the last time."""
    async with scene() as at:
        behind = (
            written(1, ("a", "1"), ("b", "1")),
            written(3, ("a", "2"), ("c", "1")),
            written(5, ("c", "2")),
            written(6, ("b", "2")),
            written(7, ("a", "3")),
        )
        came_back(at, *behind, markers=4)
        assert (await at.locate()).offset == 5


@pytest.mark.parametrize(
    ("back", "behind", "offset", "why"),
    [
        (HOT, [written(4, ("cold", "x"))], 3, "no later record of its key was found from offset 4 up to 5"),
        (HOT, [], 3, "no later record of its key"),
        (written(1, ("hot", "1"), ("alive", "1"), ("hot", "2")), [written(4, ("hot", "3"))], 2, "no later record"),
        (written(1, ("hot", "1"), ("hot", "2"), ("gone", None)), [written(4, ("hot", "3"))], 3, "no later record"),
        (written(1, ("hot", "1"), ("hot", "2"), (None, "x")), [written(4, ("hot", "3"))], 3, "it has no key"),
        (raw_batch(b"x", base_offset=1, last_offset_delta=2, record_count=3), [written(4, ("hot", "3"))], 1, "damaged"),
    ],
    ids=["another key", "nothing behind", "one of several", "a tombstone", "no key", "not opened"],
)
async def test_a_record_that_is_lost(back: bytes, behind: list[bytes], offset: int, why: str) -> None:
    """A marker of ours that should not be there: no later record has the key of what is missing."""
    async with scene() as at:
        came_back(at, back, *behind)
        reason, detail = await at.halts()
        assert reason == "overfilled"
        assert f"the source has a record at offset {offset}, and the destination a marker" in detail
        assert why in detail


async def test_only_a_compacted_source_has_records_that_come_back() -> None:
    async with scene() as at:
        came_back(at, HOT, written(4, ("hot", "4")))
        at.partition.terms = Terms(compacted_there=True)
        reason, detail = await at.halts()
        assert (reason, "at offset 1, and the destination a marker" in detail) == ("overfilled", True)


@pytest.mark.parametrize(("ahead_ms", "halts"), [(-DAY_MS, False), (DAY_MS, True)])
async def test_a_tombstone_is_missed_by_nobody_behind_its_horizon(ahead_ms: int, halts: bool) -> None:
    """The cleaner has noted until when it stays; before that, consumers may count on it."""
    async with scene() as at:
        tombstone = written(1, ("hot", "1"), ("gone", "x"), ("gone", None))
        horizon_ms = round(time.time() * 1000) + ahead_ms
        came_back(at, with_horizon(tombstone, horizon_ms), written(4, ("hot", "2")))
        if halts:
            assert (await at.halts())[0] == "overfilled"
        else:
            assert (await at.locate()).offset == 4


async def test_a_batch_that_the_copy_ends_inside_of() -> None:
    """Half of it was filled. Brokers take it whole only, so the rest is filled, too, if all of it is superseded."""
    async with scene() as at:
        came_back(at, HOT, written(4, ("hot", "4")), markers=1)
        found = await at.locate()
        assert (found.offset, found.fill_to) == (2, 4)
        partition = Partition("t", 0)
        partition.start(found, topic_head=b"")
        (hole,) = partition.queue.outbox
        assert (hole.records, hole.cause, partition.cursor.due, partition.cursor.last_epoch) == (
            2,
            Cause.COMPACTED,
            4,
            -1,
        )
        assert partition.cursor.identity.epoch == 4
    async with scene() as at:
        came_back(at, written(1, ("hot", "1"), ("alive", "1")), written(3, ("hot", "4")), markers=1)
        reason, detail = await at.halts()
        assert (reason, "a record at offset 2" in detail) == ("overfilled", True)


async def test_a_batch_that_begins_before_what_was_filled() -> None:
    """A cleaner leaves a batch both its ends or nothing of it: one whose rest alone was filled did not come back."""
    async with scene() as at:
        at.partition.terms = Terms(compacted=True)
        at.source.store("t", 0, written(0, ("hot", "1"), ("hot", "2")), written(2, ("hot", "3")))
        filled(at, 2)
        at.there.delete_before(1)
        at.partition.claim.accept_unproven = True
        assert (await at.halts())[0] == "overfilled"


async def test_a_new_leader_that_is_behind() -> None:
    """What would show it stands above its high watermark for a moment: looked at again, and not halted."""
    async with scene() as at:
        came_back(at, HOT, written(4, ("hot", "4")))
        at.here.hidden = 1
        with pytest.raises(Unreachable, match="not to be read yet"):
            await at.locate()
        at.here.hidden = 0
        assert (await at.locate()).offset == 4


@pytest.mark.parametrize(("key", "found"), [("near", True), ("late", True), ("middle", False)])
async def test_how_far_it_is_looked(monkeypatch: pytest.MonkeyPatch, key: str, found: bool) -> None:
    """Right behind what was filled, and at the source's end; not in between."""
    size = len(written(0, ("filler", "0"), codec=Codec.NONE))
    monkeypatch.setattr(superseded, "MOST_OPENED", 3 * size)
    monkeypatch.setattr(superseded, "READ_BYTES", size)
    async with scene() as at:
        keys = ["filler", "near", *["filler"] * 8, "middle", *["filler"] * 8, "late", "filler"]
        behind = [written(2 + number, (each, "2"), codec=Codec.NONE) for number, each in enumerate(keys)]
        came_back(at, written(1, (key, "1"), codec=Codec.NONE), *behind, markers=1)
        if found:
            assert (await at.locate()).offset == 2
        else:
            assert (await at.halts())[0] == "overfilled"


@pytest.mark.parametrize(("name", "value"), [("MOST_OPENED", 10), ("MOST_KEYS", 1)])
async def test_what_is_opened_is_bounded(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    monkeypatch.setattr(superseded, name, value)
    async with scene() as at:
        came_back(at, written(1, ("a", "1"), ("b", "1"), ("c", "1")), written(4, *[(key, "2") for key in "abc"]))
        reason, detail = await at.halts()
        assert (reason, f"more than {value}" in detail) == ("overfilled", True)


async def test_what_the_operator_goes_on_without() -> None:
    """A remedy that keeps the copy: it goes on behind the markers, and says which records are missing."""
    async with scene() as at:
        came_back(at, written(1, ("hot", "1"), ("alive", "1"), ("hot", "2")), written(4, ("hot", "3")), markers=2)
        at.partition.claim.accept_gap = True
        found = await at.locate()
        assert (found.offset, found.fill_to, found.accepted) == (3, 4, (1, 4))
        partition = Partition("t", 0)
        partition.start(found, topic_head=b"")
        assert [hole.cause for hole in partition.queue.outbox] == [Cause.COMPACTED]


# With the whole relay.


async def mirrored(monkeypatch: pytest.MonkeyPatch, check: Callable[[Any], Any], *behind: bytes) -> None:
    """The copy was filled up to offset 1, and the source has these batches from there on."""
    async with clusters() as (source, destination):
        source.add_topic("t", configs={"cleanup.policy": "compact"})
        destination.add_topic("t")

        async def write_markers(self: PartitionLog, marker: Marker, count: int) -> None:
            for _ in range(count):
                end = destination.log("t").end
                destination.log("t").store(marker_batch(end, marker.producer_id, marker.epoch))

        monkeypatch.setattr(PartitionLog, "write_markers", write_markers)
        async with mirroring(source, destination) as flow:
            source.store("t", 0, written(0, ("first", "0")))
            await flow.copied()
        owner = BatchHeader.read(destination.log("t").batches[0]).producer_id
        destination.log("t").store(marker_batch(1, owner, 1))
        source.log("t").end = 2
        source.store("t", 0, *behind)
        async with mirroring(source, destination) as flow:
            await check(flow)


async def test_it_goes_on_behind_what_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the batch that the copy ends inside of is filled, and what stands behind it is copied."""

    async def check(flow: Any) -> None:
        here, there = flow.logs()
        await until(lambda: there.end == here.end, what="the copy")
        data = [header for header in map(BatchHeader.read, there.batches) if not header.is_control]
        assert [header.base_offset for header in data] == [0, 4]
        assert not flow.log.of("halted")

    await mirrored(monkeypatch, check, HOT, written(4, ("hot", "4")))


async def test_resumed_without_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halted with a remedy that begins with the copy being kept; accepted, it goes on, and the range is recorded."""

    async def check(flow: Any) -> None:
        assert await flow.halted() == "overfilled"
        remedy = flow.partition().halted.remedy
        assert remedy.index("Keep the copy") < remedy.index("compare") < remedy.index("--accept-gap")
        assert remedy.index("--accept-gap") < remedy.index("delete the topic")
        assert await flow.relay.resume(("t", 0), accept_gap=True) == ""
        here, there = flow.logs()
        await until(lambda: there.end == here.end, what="the copy")
        told = [line["detail"] for line in flow.log.of("skipped")]
        assert [detail.split(" of ")[0] for detail in told] == ["offsets 1 to 3"]
        assert [(each.start, each.end) for each in ledger(flow.destination).skipped()] == [(1, 4)]

    await mirrored(monkeypatch, check, written(1, ("hot", "1"), ("alive", "1"), ("hot", "2")), written(4, ("hot", "3")))


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("filled", [True, False])
async def test_what_was_given_up_stays_so(monkeypatch: pytest.MonkeyPatch, *, filled: bool, held: bool) -> None:
    """
    1. Accepted, and killed before the next data: before or behind the rest of the batch.
    2. The next start goes on, and tells nothing twice. Without what is written down of it, it halts again.
    """

    async def check(flow: Any) -> None:
        assert await flow.halted() == "overfilled"
        with monkeypatch.context() as patches:
            if not filled:
                patches.setattr(PartitionLog, "write_markers", _never)
            assert await flow.relay.resume(("t", 0), accept_gap=True) == ""
            here, there = flow.logs()
            await until(lambda: (there.end == here.end) if filled else flow.log.of("skipped"), what="the resumption")
            await flow.relay.close()
        if not held:
            rules = Locator.rules
            monkeypatch.setattr(Locator, "rules", lambda *known: replace(rules(*known), gaps_to=0))
        async with mirroring(flow.source, flow.destination) as again:
            if not held:
                assert await again.halted() == "overfilled"
                return
            again.source.store("t", 0, written(4, ("hot", "4")))
            await until(lambda: there.end == here.end, what="the copy")
            assert not again.log.of("halted")
            assert not again.log.of("skipped")
            assert [each[:5] for each in again.relay.stats.skipped] == [("t", 0, 1, 4, "on.gap")]

    await mirrored(monkeypatch, check, written(1, ("hot", "1"), ("alive", "1"), ("hot", "2")))


async def _never(*_: object) -> None:
    await asyncio.Event().wait()


async def test_it_comes_back_while_it_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is found in a gap; when it is fetched, another leader has a batch there: both are looked at anew."""

    async def check(flow: Any) -> None:
        here, there = flow.logs()
        await until(lambda: flow.partition().phase is Phase.ACTIVE, what="the position")
        flow.source.store("t", 0, HOT, written(4, ("hot", "4")))
        await until(lambda: there.end == here.end, what="the copy")
        assert [line["cause"] for line in flow.log.of("resync")] == ["mid_batch"]
        assert not flow.log.of("halted")

    await mirrored(monkeypatch, check)


# Mutations.


async def test_without_looking_for_what_supersedes_a_lost_record_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever came back at a compacted source is excused."""

    async def never(*_: object) -> None:
        return None

    monkeypatch.setattr(Superseded, "lost", never)
    async with scene() as at:
        came_back(at, HOT, written(4, ("cold", "x")))
        assert (await at.locate()).offset == 4


async def test_without_filling_the_rest_it_halts_mid_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy goes on inside of the batch; it is looked at anew some times, and not for ever."""

    monkeypatch.setattr(Filled, "until", property(lambda filled: -1))

    async def check(flow: Any) -> None:
        assert await flow.halted() == "mid_batch"
        assert [line["cause"] for line in flow.log.of("resync")] == ["mid_batch"] * TRIES

    await mirrored(monkeypatch, check, HOT, written(4, ("hot", "4")))


async def test_without_the_rule_what_came_back_halts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is found again."""

    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(Superseded, "_found", nothing)
    async with scene() as at:
        came_back(at, HOT, written(4, ("hot", "4")))
        assert (await at.halts())[0] == "overfilled"
