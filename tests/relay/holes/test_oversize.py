"""Records that fit into no batch that the destination takes (``oversize.record``): passed over, each with a trace."""

import asyncio
from typing import Any

import pytest

from mirror.net.errors import Unreachable
from mirror.net.logs.log import Marker, PartitionLog
from mirror.offsetmap.entries.passed import DEAD_LETTER, DROPPED
from mirror.records.content.opening import opened
from mirror.records.content.raw import placed_records
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from mirror.relay.durable.passed import PassedOverRecords
from mirror.relay.topics.verdicts import Verdicts
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.fakes.state import MemoryState
from tests.records.builders import Record, kafka_batch, sealed
from tests.relay.stage.flows import Flow, clusters, mirroring
from tests.relay.stage.noting import SIDE, ledger
from tests.simulation.model.broker import marker_batch

LIMIT = 1_000
TIME = 1_700_000_000_000
OVER = (1, 5, 8)
END = 12
DROP: dict[str, Any] = {"rewrites": True, "oversize_record": "drop"}
LETTERS: dict[str, Any] = {"rewrites": True, "oversize_record": "deadletter", "dead_letter_topic": "letters"}


def records(base: int, count: int, *, epoch: int = 0, over: tuple[int, ...] = OVER) -> bytes:
    """A batch whose records have 150 bytes, or 3,000 where they are too large."""
    return kafka_batch(
        [
            Record(
                at, TIME + at, b"k%d" % (base + at), b"%06d" % (base + at) * (500 if base + at in over else 25),
                [("own", b"header")],
            )
            for at in range(count)
        ],
        base_offset=base,
        leader_epoch=epoch,
    )  # fmt: skip


def begin(source: FakeCluster, destination: FakeCluster, *stored: bytes, limit: int = LIMIT) -> None:
    """Offsets 0 to 11; too large are one in the first batch, one in the middle of the second, and the third alone."""
    source.add_topic("t")
    source.store("t", 0, *(stored or (records(0, 3), records(3, 5), records(8, 1), records(9, 3))))
    destination.add_topic("t", configs={"max.message.bytes": str(limit)})
    destination.log("t").max_batch_size = limit


def add_letters(destination: FakeCluster, partitions: int = 1) -> None:
    destination.add_topic("letters", partitions=partitions)


def there(cluster: FakeCluster, topic: str = "t") -> dict[int, bytes]:
    """Offset -> the record's content, or nothing for a marker."""
    found: dict[int, bytes] = {}
    for batch in cluster.log(topic).batches:
        header = BatchHeader.read(batch)
        if header.is_control:
            found[header.base_offset] = b""
        else:
            found |= {one.offset: one.content for one in placed_records(header, batch[HEADER_SIZE:])}
    return found


def assert_passed(source: FakeCluster, destination: FakeCluster, over: tuple[int, ...] = OVER) -> None:
    """Each record is in its place, but for those, in whose place there is a marker."""
    wanted = {offset: b"" if offset in over else content for offset, content in there(source).items()}
    assert there(destination) == wanted


async def over(flow: Flow) -> None:
    await until(
        lambda: flow.partition().queue.acknowledged == flow.source.log("t").end, what=f"the end; {flow.log.lines[-9:]}"
    )


def passed(destination: FakeCluster) -> dict[int, str]:
    return {offset: each.cause for each in ledger(destination).passed(SIDE) for offset in each.offsets}


async def test_by_default_it_halts() -> None:
    """What stands before it is copied; nothing is passed over, nothing written down."""
    async with clusters() as (source, destination):
        begin(source, destination)
        async with mirroring(source, destination, rewrites=True) as flow:
            assert await flow.halted() == "too_large"
            assert "the record at offset 1 makes a batch of" in flow.log.of("halted")[0]["detail"]
            assert "Raise it: `kafka-configs" in flow.log.of("halted")[0]["remedy"]
            assert destination.log("t").end == 1
            assert not passed(destination)


async def test_dropped() -> None:
    async with clusters() as (source, destination):
        begin(source, destination)
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
            assert_passed(source, destination)
            assert passed(destination) == dict.fromkeys(OVER, DROPPED)
            lines = flow.log.of("oversize_record")
            assert [(one["topic"], one["partition"], one["offset"], one["limit"]) for one in lines] == [
                ("t", 0, offset, LIMIT) for offset in OVER
            ]
            assert all(3_000 < one["size"] < 3_200 and "dropped" in one["detail"] for one in lines)
            assert [(one.first, one.next, one.reason, one.offsets) for one in flow.relay.stats.skipped] == [
                (1, 9, "oversize", 3)
            ]
            assert flow.relay.stats.filled_here == 3
            assert not flow.log.of("resync")


async def test_dead_letters() -> None:
    """Each is written, and acknowledged, before its offset is passed over; as it was, with where it comes from."""
    async with clusters() as (source, destination):
        begin(source, destination)
        add_letters(destination, partitions=3)
        async with mirroring(source, destination, **LETTERS) as flow:
            await over(flow)
            assert_passed(source, destination)
            assert passed(destination) == dict.fromkeys(OVER, DEAD_LETTER)
            assert "dead letter in letters-0 at offset 2" in flow.log.of("oversize_record")[2]["detail"]
            assert flow.relay.stats.skipped[0].reason == "dead_letter"
            letters = [
                one
                for batch in destination.log("letters").batches
                for one in opened(BatchHeader.read(batch), batch[HEADER_SIZE:])
            ]
            assert [(one.offset, one.key, one.value, one.timestamp) for one in letters] == [
                (0, b"k1", b"000001" * 500, TIME + 1),
                (1, b"k5", b"000005" * 500, TIME + 2),
                (2, b"k8", b"000008" * 500, TIME),
            ]
            own, *added = letters[1].headers
            assert own == ("own", b"header")
            told = dict(added)
            assert told.pop("__mirror.errors.message", b"").startswith(b"the record makes a batch of 3")  # type: ignore[union-attr]
            assert told == {
                "__mirror.errors.topic": b"t", "__mirror.errors.partition": b"0", "__mirror.errors.offset": b"5",
                "__mirror.errors.flow": b"source->destination", "__mirror.errors.reason": b"oversize",
            }  # fmt: skip


async def test_append_times_are_those_that_consumers_see() -> None:
    batch = records(0, 3)
    header = BatchHeader.read(batch)
    appended = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=TIME + 99)
    async with clusters() as (source, destination):
        begin(source, destination, sealed(appended.pack() + batch[HEADER_SIZE:]))
        add_letters(destination)
        async with mirroring(source, destination, **LETTERS) as flow:
            await over(flow)
        (letter,) = destination.log("letters").batches
        assert [one.timestamp for one in opened(BatchHeader.read(letter), letter[HEADER_SIZE:])] == [TIME + 99]


class Killed:
    """Something that never comes back from where a process is killed."""

    def __init__(self) -> None:
        self.reached = False

    async def stop(self) -> None:
        self.reached = True
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("killed", "letters"),
    [("before it is written down", 4), ("before the marker", 3), ("behind the marker", 3)],
)
async def test_killed_while_it_is_passed_over(killed: str, letters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. The process is killed while the record at offset 5 is passed over: nothing is filled that is not written down.
    2. The next one goes on: every record is there once. A dead letter may be there twice, but only if it was not
       written down that it is there.
    """
    async with clusters() as (source, destination):
        begin(source, destination)
        add_letters(destination)
        kill = Killed()
        save, write_markers = MemoryState.save, PartitionLog.write_markers

        async def saved(self: MemoryState, entries: Any, **how: Any) -> None:
            entries = list(entries)
            if any(getattr(each, "offsets", (0,))[-1] == 5 for each in entries) and "written down" in killed:
                await kill.stop()
            await save(self, entries, **how)

        async def written(self: PartitionLog, marker: Marker, count: int) -> None:
            if destination.log("t").end != 5 or "marker" not in killed:
                await write_markers(self, marker, count)
                return
            if "behind" in killed:
                destination.log("t").store(marker_batch(5, marker.producer_id, marker.epoch))
            await kill.stop()

        with monkeypatch.context() as patches:
            patches.setattr(MemoryState, "save", saved)
            patches.setattr(PartitionLog, "write_markers", written)
            async with mirroring(source, destination, **LETTERS) as flow:
                await until(lambda: kill.reached)
                assert flow.log.of("oversize_record")[-1]["offset"] == 5
        assert (5 in passed(destination)) == ("written down" not in killed)
        assert destination.log("t").end == 5 + ("behind" in killed)
        async with mirroring(source, destination, **LETTERS) as flow:
            await over(flow)
            assert_passed(source, destination)
            assert passed(destination) == dict.fromkeys(OVER, DEAD_LETTER)
            assert len(destination.log("letters").batches) == letters
            assert sum(one.offsets for one in flow.relay.stats.skipped) == 3
            assert not flow.log.of("halted")


@pytest.mark.parametrize("now", [DROP, LETTERS, {"rewrites": True}, {}], ids=["drop", "deadletter", "halt", "shallow"])
async def test_found_again_right_behind_a_marker(now: dict[str, Any]) -> None:
    """The destination ends with the marker of a record that was passed over, whatever the setting is by now."""
    async with clusters() as (source, destination):
        begin(source, destination, records(0, 3, over=()), records(3, 1, over=(3,)))
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
        source.store("t", 0, records(4, 2, over=()))
        async with mirroring(source, destination, **now) as flow:
            await over(flow)
            assert_passed(source, destination, (3,))
            assert not flow.log.of("halted")


@pytest.mark.parametrize("rule", ["it is written down", "of this leader epoch", "of this topic"])
async def test_a_marker_without_that_proof_halts(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with clusters() as (source, destination):
        begin(source, destination, records(0, 3, over=()), records(3, 1, over=(3,)))
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
        if rule == "it is written down":
            monkeypatch.setattr(PassedOverRecords, "_of", lambda *_: [])
        elif rule == "of this topic":
            monkeypatch.setattr("mirror.relay.durable.passed._ids", lambda _: ("00" * 16, None))
        else:
            source.log("t").truncate(3)
            source.store("t", 0, records(3, 1, epoch=1, over=()))
        async with mirroring(source, destination, **DROP) as flow:
            assert await flow.halted() in ("overfilled", "source_truncated")


async def test_what_another_owner_has_just_written_down_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that had read the internal topic before reads it again when it meets such a marker."""
    async with clusters() as (source, destination):
        begin(source, destination, records(0, 3, over=()), records(3, 1, over=(3,)))
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
        late = [row for row in destination.remembered if b'"passed"' in row[0]]
        destination.remembered[:] = [row for row in destination.remembered if row not in late]
        take_over = "mirror.relay.locate.owners.Owners.take_over"

        async def meanwhile(*_: object) -> None:
            destination.remembered += late

        monkeypatch.setattr(take_over, meanwhile)
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
            assert not flow.log.of("halted")


async def test_a_limit_that_was_raised_meanwhile() -> None:
    """Known is the old limit. It is asked for before a record is given up, and the record is copied."""
    async with clusters() as (source, destination):
        begin(source, destination, records(0, 1))
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
            destination.topics["t"].configs["max.message.bytes"] = "5000"
            destination.log("t").max_batch_size = 5_000
            source.store("t", 0, records(1, 1))
            await flow.copied()
            assert not flow.log.of("oversize_record")
            assert flow.log.of("resync")[0]["cause"] == "configs_changed"


async def test_without_asking_it_would_be_lost() -> None:
    """The mutation of the test before."""

    async def as_known(_: object, partition: Any) -> object:
        return partition.terms

    async with clusters() as (source, destination):
        begin(source, destination, records(0, 1))
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(Verdicts, "renewed", as_known)
            async with mirroring(source, destination, **DROP) as flow:
                await over(flow)
                destination.topics["t"].configs["max.message.bytes"] = "5000"
                source.store("t", 0, records(1, 1))
                await over(flow)
                assert_passed(source, destination, (1,))


async def test_a_limit_that_falls_meanwhile() -> None:
    """The broker refuses what was thought to fit: the limit is asked for, and the record passed over by it."""
    async with clusters() as (source, destination):
        begin(source, destination, records(0, 1), limit=5_000)
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
            destination.topics["t"].configs["max.message.bytes"] = str(LIMIT)
            destination.log("t").max_batch_size = LIMIT
            source.store("t", 0, records(1, 3))
            await over(flow)
            assert_passed(source, destination, (1,))


@pytest.mark.parametrize("described", [True, False])
async def test_no_record_is_given_up_by_a_limit_that_nobody_describes(described: bool) -> None:
    """The broker refuses what the topic's limit allows, or nobody may know the limit: it halts, and says why."""
    async with clusters() as (source, destination):
        begin(source, destination, limit=100_000)
        destination.log("t").max_batch_size = LIMIT
        if not described:
            destination.undescribed.add("max.message.bytes")
        async with mirroring(source, destination, **DROP) as flow:
            assert await flow.halted() == "too_large"
            why = "it fits by max.message.bytes=100000 of t" if described else "it takes DescribeConfigs"
            assert (
                f"not passed over, since {'' if described else 'max.message.bytes is not known: '}{why}"
                in (flow.log.of("halted")[0]["detail"])
            )
            assert destination.log("t").end == 1
            assert not passed(destination)


async def test_a_limit_that_was_learned_cuts_and_the_described_one_passes_over() -> None:
    """A broker refuses less than its topic's limit says. What is over that limit is passed over all the same."""
    async with clusters() as (source, destination):
        begin(source, destination, records(0, 8, over=(5,)), records(8, 3), limit=2_000)
        destination.log("t").max_batch_size = LIMIT
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
            assert_passed(source, destination, (5, 8))
            assert max(map(len, destination.log("t").batches)) <= LIMIT
            assert {one["limit"] for one in flow.log.of("oversize_record")} == {2_000}


@pytest.mark.parametrize("what", ["missing", "too large"])
async def test_a_dead_letter_topic_that_does_not_take_it(what: str) -> None:
    """The partition halts in front of the record. Once the topic is as it has to be, it goes on when it is resumed."""
    async with clusters() as (source, destination):
        begin(source, destination)
        if what == "too large":
            add_letters(destination)
            destination.log("letters").max_batch_size = 2_000
        async with mirroring(source, destination, **LETTERS) as flow:
            assert await flow.halted() == "dead_letter_refused"
            detail = flow.log.of("halted")[0]["detail"]
            assert ("has no topic letters" if what == "missing" else "MESSAGE_TOO_LARGE (10)") in detail
            assert destination.log("t").end == 1
            assert not passed(destination)
            if what == "missing":
                add_letters(destination)
            else:
                destination.log("letters").max_batch_size = 20_000
            assert await flow.relay.resume(("t", 0)) == ""
            await over(flow)
            assert_passed(source, destination)
            assert len(destination.log("letters").batches) == 3


async def test_a_right_that_is_missing() -> None:
    async with clusters() as (source, destination):
        begin(source, destination)
        add_letters(destination)
        destination.next("Produce", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, only=("letters", 0)))
        async with mirroring(source, destination, **LETTERS) as flow:
            assert await flow.halted() == "authorization"
            assert "Write on topic letters of cluster destination" in flow.log.of("halted")[0]["detail"]


async def test_a_dead_letter_whose_answer_was_lost() -> None:
    """It is written again: there twice, and the copy is as it has to be."""
    async with clusters() as (source, destination):
        begin(source, destination)
        add_letters(destination)
        produce = PartitionLog.produce

        async def lost(self: PartitionLog, batch: bytes) -> int:
            offset = await produce(self, batch)
            if self.topic.name == "letters" and offset == 1:
                raise Unreachable("the answer was lost")
            return offset

        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(PartitionLog, "produce", lost)
            async with mirroring(source, destination, **LETTERS) as flow:
                await over(flow)
        assert_passed(source, destination)
        assert len(destination.log("letters").batches) == 4


async def test_a_later_dead_letter_of_a_record_that_was_to_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written down as dropped, and not filled yet: under the new setting, the letter is written all the same."""
    async with clusters() as (source, destination):
        begin(source, destination, records(0, 1, over=(0,)))
        add_letters(destination)
        kill = Killed()

        async def stopped(*_: object) -> None:
            await kill.stop()

        with monkeypatch.context() as patches:
            patches.setattr(PartitionLog, "write_markers", stopped)
            async with mirroring(source, destination, **DROP):
                await until(lambda: kill.reached)
        assert passed(destination) == {0: DROPPED}
        async with mirroring(source, destination, **LETTERS) as flow:
            await over(flow)
        assert len(destination.log("letters").batches) == 1
        assert {each.cause for each in ledger(destination).passed()} == {DROPPED, DEAD_LETTER}


async def test_a_doubt_while_it_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hole is not next any more when that is done: nothing is filled, and the next position goes on with it."""
    async with clusters() as (source, destination):
        begin(source, destination)
        write, reached, goes_on = PassedOverRecords.write, asyncio.Event(), asyncio.Event()

        async def slowly(self: PassedOverRecords, *what: Any) -> Any:
            reached.set()
            await goes_on.wait()
            return await write(self, *what)

        monkeypatch.setattr(PassedOverRecords, "write", slowly)
        async with mirroring(source, destination, **DROP) as flow:
            await asyncio.wait_for(reached.wait(), 60)
            flow.relay.doubt_now(flow.partition(), "a_test", "says so")
            goes_on.set()
            await over(flow)
            assert_passed(source, destination)
            assert sum(one.offsets for one in flow.relay.stats.skipped) == 3


async def test_a_dead_letter_topic_whose_leader_moves() -> None:
    """The next try asks who leads it."""
    async with clusters(brokers=2) as (source, destination):
        begin(source, destination)
        add_letters(destination)
        destination.lead("letters", 0, 1)
        async with mirroring(source, destination, **LETTERS) as flow:
            await over(flow)
            destination.lead("letters", 0, 2)
            source.store("t", 0, records(END, 1, over=(END,)))
            await over(flow)
            assert_passed(source, destination, (*OVER, END))
            assert len(destination.log("letters").batches) == 4


async def test_what_the_destination_has_deleted_is_forgotten() -> None:
    """So what is written down does not grow for ever."""
    async with clusters() as (source, destination):
        begin(source, destination)
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
        for cluster in (source, destination):
            cluster.log("t").delete_before(9)
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
            await until(lambda: not passed(destination))


async def test_many_in_one_entry() -> None:
    """Records that are too large, one behind the other, in batches with others: one entry of the internal topic."""
    many = tuple(range(0, 60, 2))
    async with clusters() as (source, destination):
        begin(source, destination, *(records(base, 6, over=many) for base in range(0, 60, 6)))
        async with mirroring(source, destination, **DROP) as flow:
            await over(flow)
            assert_passed(source, destination, many)
        (entry,) = ledger(destination).passed()
        assert entry.offsets == many
