"""Where copies begin that do not begin where their source does (``start.from``)."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from mirror.net.admin.groups import CommittedOffset
from mirror.net.errors import Refused, Unreachable
from mirror.net.logs.log import EpochEnd, PartitionLog
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import FlowEntry, Pin
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.fields import id_text
from mirror.records.admit import NOT_INSIDE, Terms
from mirror.records.header import BatchHeader
from mirror.relay.durable.flows import LOOKED_UP_FOR_S
from mirror.relay.durable.starts import Starts, check_kept
from mirror.relay.halts import PartitionHalted
from mirror.relay.locate import position, resync
from mirror.relay.locate.holding import batch_holding
from mirror.relay.locate.owners import Owners
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.wire.errors import ErrorCode
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import refuse
from tests.fakes.loop import some_turns, until
from tests.fakes.state import MemoryState
from tests.relay.durable.test_due import trims  # noqa: F401 - a fixture
from tests.relay.stage.flows import FLOW, Log, batch, batches, clusters, copies, mirroring, settings
from tests.relay.stage.noting import ledger

BEGAN_MS = 5_000
OWN_FILLER = 1 << 40
LATER_MS = 1 << 45
"""After any test."""


def here(*, first: int = 0, end: int = 30, since: int | None = None, size: int = 10) -> Any:
    """A source's log with batches of so many offsets. ``since``: what it answers for any time."""

    async def batch_at(offset: int) -> tuple[BatchHeader, bytes] | None:
        base = offset // size * size
        one = batch(base, size)
        return None if offset >= end else (BatchHeader.read(one), one)

    return SimpleNamespace(
        start=AsyncMock(return_value=first),
        visible_end=AsyncMock(return_value=end),
        first_since=AsyncMock(return_value=since),
        batch_at=batch_at,
        topic=SimpleNamespace(topic_id=b"\1" * 16),
        leader=SimpleNamespace(epoch=4),
        end_of_epoch=AsyncMock(return_value=None),
    )


def starts(log: Log | None = None, **changes: Any) -> Starts:
    state = MemoryState([])
    for name, at_ms in (("other", 1), (FLOW, BEGAN_MS + 1), (FLOW, BEGAN_MS)):
        state.ledger.put(FlowEntry(flow=name, source_cluster=f"{at_ms}", destination_cluster="", at_ms=at_ms))
    source: Any = SimpleNamespace(topics={"t": SimpleNamespace(topic_id=b"\1" * 16)}, name="west")
    return Starts(state, source=source, settings=settings(**changes), log=log or Log())


def partition(**terms: Any) -> Partition:
    found = Partition("t", 0)
    found.judge_by(Terms(**({"rewrites": True} | terms)))
    return found


async def chosen(log: Any, one: Partition | None = None, **changes: Any) -> tuple[int, int] | None:
    """(offset, base offset of its batch) that is decided upon."""
    found = await starts(**changes).find(one or partition(), log)
    return None if found is None else (found.offset, found.batch)


async def test_the_earliest_is_nothing_to_decide() -> None:
    at = here()
    assert await chosen(at) is None
    at.first_since.assert_not_awaited()


async def test_latest_is_when_the_flow_was_first_started() -> None:
    """Not when this worker asks: what was written since then is copied."""
    at = here(since=24)
    assert await chosen(at, start_from="latest") == (24, 20)
    at.first_since.assert_awaited_once_with(BEGAN_MS)
    assert await chosen(here(since=None), start_from="latest") == (30, 30)


async def test_a_flow_of_which_nothing_is_known_leaves_nothing_out() -> None:
    """The internal topic may have been lost. Only a plan takes it that the flow begins now."""
    found = starts(start_from="latest")
    found._state.ledger = MemoryState([]).ledger
    assert await found.find(partition(), here(since=24)) is None
    found.begin_now()
    assert await found.find(partition(), here(since=24)) is not None


@pytest.mark.parametrize(
    ("since", "expected"), [(0, None), (14, (14, 10)), (20, (20, 20)), (29, (29, 20)), (None, (30, 30)), (33, (30, 30))]
)
async def test_a_time(since: int | None, expected: tuple[int, int] | None) -> None:
    """The first record of that time, inside a batch or not; the log's end if there is none, and never behind it."""
    at = here(since=since)
    assert await chosen(at, start_from="2026-11-30T00:00:00Z", start_at_ms=1_795_996_800_000) == expected
    at.first_since.assert_awaited_once_with(1_795_996_800_000)


async def test_before_the_source_begins() -> None:
    assert await chosen(here(first=20, since=14), start_from="latest") is None


async def test_batches_that_may_not_be_opened_are_copied_whole() -> None:
    whole = partition(rewrites=False)
    assert await chosen(here(since=24), whole, start_from="latest") == (20, 20)
    assert await chosen(here(since=4), whole, start_from="latest") is None


async def test_messages_without_times_are_all_copied() -> None:
    at = here()
    at.first_since.side_effect = Refused("west: ListOffsets", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    log = Log()
    assert await starts(log, start_from="latest").find(partition(), at) is None
    assert "no timestamps" in log.of("copy_begins")[0]["detail"]


async def test_a_base_offset_that_does_not_fit_is_not_believed() -> None:
    """No checksum covers it: the batch before has to end there. In a compacted topic, there may be none before."""
    at = here(since=14)
    right = at.batch_at

    async def earlier(offset: int) -> tuple[BatchHeader, bytes] | None:
        found: tuple[BatchHeader, bytes] | None = await right(offset)
        if offset >= 10 and found is not None:
            one = batch(8, 12)
            return BatchHeader.read(one), one
        return found

    at.batch_at = earlier
    assert await chosen(at, start_from="latest") == (14, 14)

    async def gap(offset: int) -> Any:
        return await right(max(offset, 10))

    at.batch_at = gap
    assert await chosen(at, start_from="latest") == (14, 14)
    assert await chosen(at, partition(compacted=True), start_from="latest") == (14, 10)


@pytest.mark.parametrize(("committed", "expected"), [(17, (17, 10)), (40, (30, 30)), (None, None)])
async def test_where_a_group_stands(committed: int | None, expected: tuple[int, int] | None) -> None:
    """Asked once for all partitions; those of which it has committed nothing are copied whole."""
    found = starts(start_from="committed", start_group="old")
    offsets = {("other", 0): CommittedOffset(3)} | ({("t", 0): CommittedOffset(committed)} if committed else {})
    found._groups = AsyncMock(committed=AsyncMock(return_value={"old": offsets}))
    for _ in range(2):
        start = await found.find(partition(), here())
        assert (start and (start.offset, start.batch)) == expected
    found._groups.committed.assert_awaited_once_with(["old"])


@pytest.mark.parametrize("later", ["new", "made anew", "after a while", "at once"])
async def test_what_a_group_has_committed_since(later: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. The group is asked for the first topic. Later on, it has committed more.
    2. A topic that came since, or came anew, or is located long after that: the group is asked again. (It was copied
       from its first offset on without a word, or from where the group had been in the topic before it.)
    """
    found, now = starts(start_from="committed", start_group="old"), 0.0
    monkeypatch.setattr("mirror.relay.durable.starts.time.monotonic", lambda: now)
    answer = {("t", 0): CommittedOffset(17)}
    found._groups = AsyncMock(committed=AsyncMock(side_effect=lambda _: {"old": dict(answer)}))
    assert await found.find(partition(), here()) is not None
    answer |= {("t", 0): CommittedOffset(23), ("u", 0): CommittedOffset(23)}
    one, at = partition(), here()
    if later == "new":
        one = Partition("u", 0)
        one.judge_by(Terms(rewrites=True))
        found._source.topics["u"] = at.topic
    if later == "made anew":
        at.topic = found._source.topics["t"] = SimpleNamespace(topic_id=b"\2" * 16)  # type: ignore[assignment]
    if later == "after a while":
        now = LOOKED_UP_FOR_S
    start = await found.find(one, at)
    assert start is not None
    assert start.offset == (17 if later == "at once" else 23)


async def test_a_group_is_asked_once_at_a_time() -> None:
    """Many partitions are located at once, and its coordinator takes a while: they share a question, and its error."""
    found = starts(start_from="committed", start_group="old")
    answer: Any = Unreachable("west: no coordinator")
    asked: list[float] = []

    async def committed(_: list[str]) -> dict[str, Any]:
        asked.append(len(asking))
        asking.append(1)
        await some_turns()
        asking.pop()
        return {"old": answer}

    asking: list[int] = []
    found._groups = AsyncMock(committed=committed)
    for expected in (Unreachable, StartingOffset):
        twenty = [found.find(partition(), here()) for _ in range(20)]
        assert {type(one) for one in await asyncio.gather(*twenty, return_exceptions=True)} == {expected}
        answer = {("t", 0): CommittedOffset(17)}
    # One by the first of them, one by all that came while it was under way.
    assert asked == [0] * 4


async def test_a_group_that_has_committed_nothing() -> None:
    """Its name may be wrong. Another answer counts later."""
    found = starts(start_from="committed", start_group="old")
    found._groups = AsyncMock(committed=AsyncMock(return_value={"old": {}}))
    with pytest.raises(PartitionHalted) as caught:
        await found.find(partition(), here())
    assert caught.value.halted.reason == "start_unknown"
    found._groups.committed.return_value = {"old": Refused("west: OffsetFetch", ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    with pytest.raises(Refused):
        await found.find(partition(), here())


async def test_it_is_decided_once() -> None:
    found, at = starts(start_from="latest"), here(since=29)
    await found.decide(partition(), here(since=24))
    await found.decide(partition(), at)
    assert found.begins(partition()) == at.begins == 24


async def test_that_it_begins_with_its_source_is_decided_as_well() -> None:
    """The next worker would be answered with another offset, while the first batch of this one is under way."""
    log = Log()
    found = starts(log, start_from="latest")
    await found.decide(partition(), here(since=0))
    await found.decide(partition(), here(since=24))
    assert (found.begins(partition()), found.known(partition()) is None) == (0, False)
    assert not log.lines


async def test_two_workers_decide_at_the_same_time() -> None:
    """Neither has seen the other's decision before its own: the first that was written counts, for both."""
    log = Log()
    one, other = starts(log, start_from="latest"), starts(log, start_from="latest")
    rows = one._state.rows = other._state.rows = []  # type: ignore[attr-defined]
    one._state.ledger.put(FlowEntry(flow=FLOW, source_cluster="", destination_cluster="", at_ms=1))
    at, there = here(since=24), here(since=29)
    find = other.find

    async def meanwhile(*arguments: Any) -> StartingOffset | None:
        found = await find(*arguments)
        await one.decide(partition(), at)
        return found

    other.find = meanwhile  # type: ignore[method-assign, assignment]
    await other.decide(partition(), there)
    assert (at.begins, there.begins, len(rows)) == (24, 24, 2)
    assert len(log.of("copy_begins")) == 1
    third = starts(start_from="earliest")
    third._state.rows = rows  # type: ignore[attr-defined]
    await third._state.load()
    assert third.begins(partition()) == 24


@pytest.mark.parametrize(
    ("first", "producer", "start", "late"),
    [(0, 77, 0, True), (0, OWN_FILLER, 0, False), (24, 77, 24, False), (30, 77, 5, False), (None, 77, 5, False)],
)
async def test_a_decision_that_came_too_late(first: int | None, producer: int, start: int, late: bool) -> None:
    """Records before that offset show that the copy has begun elsewhere. Filler does not, nor does an empty log."""
    found = starts(start_from="latest")
    await found.decide(partition(), here(since=24))
    one = batch(first or 0, producer_id=producer)
    there: Any = SimpleNamespace(
        start=AsyncMock(return_value=start),
        batch_at=AsyncMock(return_value=None if first is None else (BatchHeader.read(one), one)),
    )
    assert await found.is_late(partition(), there, OWN_FILLER) is late
    assert found.begins(partition()) == (0 if late else 24)


@pytest.mark.parametrize(
    ("epoch", "ended", "ends", "halts"),
    [
        (5, 23, [40], "ends at 23 now: records"),
        (5, 24, [40], ""),
        (5, -1, [40], ""),
        (5, None, [40], ""),
        (4, 23, [40], ""),
        (3, 30, [40], "another topic"),
        (-1, 30, [40], ""),
        (4, None, [23, 23], "the source ends at 23 now"),
        (4, None, [23, 24], ""),
    ],
)
async def test_a_source_that_has_lost_what_was_before_it(
    epoch: int, ended: int | None, ends: list[int], halts: str
) -> None:
    """As long as nothing is copied. New records could not be told from those that were not to be copied."""
    at = here()
    at.leader.epoch = epoch
    at.end_of_epoch.return_value = ended if ended is None else EpochEnd(4, ended)
    at.true_end = AsyncMock(side_effect=ends)
    start = StartingOffset(
        subject=Subject("t", 0, "t"), writer="w", source_id=None, offset=24, batch=20, leader_epoch=4,
        start_from="latest",
    )  # fmt: skip
    await check_kept(partition(), at, None, 0)
    await check_kept(partition(), at, replace(start, offset=0, batch=0), 0)
    if not halts:
        await check_kept(partition(), at, start, 0)
        return
    with pytest.raises(PartitionHalted) as caught:
        await check_kept(partition(), at, start, 0)
    assert caught.value.halted.reason == "source_truncated"
    assert halts in caught.value.halted.detail


def stored(source: FakeCluster, first: int, number: int, at_ms: int) -> None:
    source.store("t", 0, *(batch(first + 3 * at, base_timestamp=at_ms, max_timestamp=at_ms) for at in range(number)))


@pytest.mark.parametrize("mapped", [False, True])
async def test_from_now_on(mapped: bool, trims: Any) -> None:  # noqa: F811 - the fixture
    """
    1. ``latest``: nothing that is there at the first start is copied, all that comes then.
    2. Another worker goes on there; what was decided stays, whatever the setting says by then.
    """
    async with clusters() as (source, destination):
        next(trims).append(destination)
        source.add_topic("t")
        destination.add_topic("t")
        stored(source, 0, 5, 1)
        async with mirroring(source, destination, mapped=mapped, start_from="latest") as flow:
            await until(lambda: flow.log.of("copy_begins"))
            stored(source, 15, 2, LATER_MS)
            await until(lambda: flow.copied_batches == 2)
        async with mirroring(source, destination, mapped=mapped, start_from="earliest") as flow:
            stored(source, 21, 1, LATER_MS)
            await until(lambda: flow.copied_batches == 1)
            assert not flow.log.of("copy_begins")
        there = destination.log("t")
        bases = [BatchHeader.read(one).base_offset for one in there.batches if not BatchHeader.read(one).is_control]
        if not mapped:
            assert (there.start, bases) == (15, [15, 18, 21])
        assert len(bases) == 3
        found = ledger(destination).starting(Subject("t", 0, "t"), None)
        assert found is not None
        assert found.offset == 15


@pytest.mark.parametrize("mapped", [False, True])
async def test_what_was_copied_is_not_decided_upon(mapped: bool) -> None:
    """A copy goes on where it stands, whatever ``start.from`` says later."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(3))
        async with mirroring(source, destination, mapped=mapped) as flow:
            await until(lambda: flow.copied_batches == 3)
        source.store("t", 0, *batches(2, first=9))
        async with mirroring(source, destination, mapped=mapped, start_from="latest") as flow:
            await until(lambda: flow.copied_batches == 2)
            assert not flow.log.of("copy_begins")


async def test_what_was_due_before_is_not_told_as_lost(trims: Any) -> None:  # noqa: F811 - the fixture
    """A partition that has halted before it was decided where it begins: what is before that was not due."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        source.add_topic("t")
        destination.add_topic("t", configs={"compression.type": "gzip"})
        stored(source, 0, 5, 1)
        async with mirroring(source, destination, start_from="latest", refresh_topics_interval_ms=20) as flow:
            assert await flow.halted() == "destination_rewrites"
            await until(lambda: ledger(destination).due(Subject("t", 0, "t")))
            destination.topics["t"].configs["compression.type"] = "producer"
            await until(lambda: flow.log.of("copy_begins"))
            stored(source, 15, 2, LATER_MS)
            await until(lambda: flow.copied_batches == 2)
            assert not flow.relay.stats.skipped


async def test_filler_that_comes_back_before_anything_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. ``latest``: the copy is empty, and nothing is written to the source for a while.
    2. A kill -9 of the destination's broker brings the filler back.
    3. The mirror deletes it again, and goes on.
    """
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        there = destination.log("t")
        filled: list[bytes] = []

        async def delete_before(_: PartitionLog, offset: int) -> None:
            filled[:] = there.batches
            there.delete_before(offset)

        monkeypatch.setattr(PartitionLog, "delete_before", delete_before)
        stored(source, 0, 5, 1)
        async with mirroring(source, destination, start_from="latest") as flow:
            await until(lambda: flow.partition().phase is Phase.ACTIVE)
            assert there.start == 15
            there.batches[:], there.start = filled, 0
            destination.next("Produce", refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            stored(source, 15, 1, LATER_MS)
            await until(lambda: flow.copied_batches == 1 or flow.log.of("halted"))
            assert not flow.log.of("halted")
            assert there.start == 15


async def test_what_a_predecessor_has_sent_arrives_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told to begin with the source. Nothing is decided while its first batch may be under way."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        stored(source, 0, 5, 1)
        (first,) = copies([batch(0, base_timestamp=1, max_timestamp=1)], cluster_id=source.cluster_id)
        settled = resync.standing_still

        async def arrives(*arguments: Any) -> int:
            if not destination.log("t").end:
                destination.log("t").produce(first)
            return await settled(*arguments)

        monkeypatch.setattr(position, "standing_still", arrives)
        async with mirroring(source, destination, start_from="latest") as flow:
            await until(lambda: flow.copied_batches == 4)
            assert not flow.log.of("copy_begins")
            assert [BatchHeader.read(one).base_offset for one in destination.log("t").batches] == [0, 3, 6, 9, 12]


async def test_others_have_decided_and_begun_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that had read the internal topic before finds an empty log that ends at 15. It looks again."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        stored(source, 0, 6, 1)
        taken = Owners.take_over
        decision = StartingOffset(
            subject=Subject("t", 0, "t"), writer="w", source_id=None, offset=15, batch=15, leader_epoch=0,
            start_from="latest",
        )  # fmt: skip

        async def meanwhile(self: Owners, one: Partition) -> Any:
            there = destination.log("t")
            if not there.end:
                here_id, there_id = (
                    id_text(each.topic_id.bytes) if each.topic_id is not None else None
                    for each in (source.topics["t"], destination.topics["t"])
                )
                pin = Pin(
                    subject=decision.subject,
                    source_id=here_id,
                    destination_id=there_id,
                    source_cluster=source.cluster_id,
                )
                destination.remembered += [(each.key(), each.value()) for each in (decision, pin)]
                there.start = there.end = 15
            return await taken(self, one)

        monkeypatch.setattr(Owners, "take_over", meanwhile)
        async with mirroring(source, destination, start_from="earliest") as flow:
            await until(lambda: flow.copied_batches == 1 or flow.log.of("halted"))
            assert not flow.log.of("halted")
            assert [BatchHeader.read(one).base_offset for one in destination.log("t").batches] == [15]


@pytest.mark.parametrize(("offset", "held", "expected"), [(24, 20, 20), (24, 24, NOT_INSIDE), (27, 20, NOT_INSIDE)])
async def test_a_leader_that_does_not_show_the_batch_yet(offset: int, held: int, expected: int) -> None:
    """It was looked at when the offset was decided upon."""
    start = StartingOffset(
        subject=Subject("t", 0, "t"), writer="w", source_id=None, offset=24, batch=held, leader_epoch=0,
        start_from="latest",
    )  # fmt: skip
    log: Any = SimpleNamespace(batch_at=AsyncMock(return_value=None), visible_end=AsyncMock(return_value=offset))
    terms = Terms(rewrites=True)
    assert await batch_holding(log, terms, offset, source_start=24, source_end=30, starting=start) == expected


async def test_a_leader_that_shows_less_than_was_copied() -> None:
    """A new one: it is asked again, since the copy may end inside the batch that it does not show."""
    log: Any = SimpleNamespace(batch_at=AsyncMock(return_value=None), visible_end=AsyncMock(return_value=26))
    with pytest.raises(Unreachable):
        await batch_holding(log, Terms(rewrites=True), 27, source_start=0, source_end=30)
    log.visible_end.return_value = 27
    assert await batch_holding(log, Terms(rewrites=True), 27, source_start=0, source_end=30) == NOT_INSIDE


async def test_a_source_that_deletes_while_it_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """``offsets: mapped``: both logs were looked at before. Everything is looked at again, from where the source begins
    by then; until that was done, offset 0 was taken for one that the source answers with nothing: ``corrupt``."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(5))
        asked = []

        async def chosen(*_: Any) -> None:
            asked.append(1)
            source.log("t").delete_before(15)

        monkeypatch.setattr(Starts, "_chosen", chosen)
        async with mirroring(source, destination, mapped=True, start_from="latest") as flow:
            await until(lambda: asked and flow.partition().phase.value == "active")
            source.store("t", 0, *batches(2, first=15))
            await until(lambda: flow.copied_batches == 2 or flow.log.of("halted"))
            assert not flow.log.of("halted")
