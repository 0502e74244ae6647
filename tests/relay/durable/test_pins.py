"""What outlives every process: topic ids, halts, what was copied last. Each test plays two lives of a mirror."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from mirror.net.errors import NetworkError
from mirror.offsetmap.entries.pins import LastCopied, Note, Pin
from mirror.offsetmap.internal.ledger import Ledger
from mirror.relay.durable import pins
from mirror.relay.partition.phases import Phase
from tests.fakes.loop import until
from tests.relay.stage.flows import batch, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, empty, last_copied, ledger, noted, recreate


async def test_what_a_partition_is_is_written_down_first() -> None:
    """Before the first batch; and not again at the next start. A clean stop notes what was copied last."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            here, there = source.topics["t"].topic_id, destination.topics["t"].topic_id
            assert here is not None
            assert there is not None
            assert (pin.source_id, pin.destination_id) == (here.hex, there.hex)
            assert pin.source_cluster == source.cluster_id
            assert await flow.relay.drain()
            copied = last_copied(destination)
            assert copied is not None
            assert (copied.offset, copied.digest_at) == (60, 60)
        written = len(destination.remembered)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert len(destination.remembered) == written


async def test_nothing_is_written_before_it_is_written_down() -> None:
    """The internal topic does not take it: the partition waits, and its log stays empty."""
    async with clusters() as (source, destination):
        fill(source)
        with patch.object(pins.Pins, "pin", _refuse):
            async with mirroring(source, destination) as flow:
                await until(lambda: flow.log.of("position_unknown"))
                assert destination.log("t").end == 0
                assert flow.partition().phase is Phase.LOCATING


async def _refuse(*_: Any, **__: Any) -> None:
    raise NetworkError("not now")


async def test_two_owners_at_once() -> None:
    """
    1. Two workers locate a partition that nobody had before. One of them copies and notes it; then what the other
       has to say comes late, its pin and a note of where it began, and one from an earlier leader.
    2. The destination's records expire. What was noted still counts: it goes on.
    """
    async with clusters() as (source, destination):
        fill(source)
        source.log("t").epoch = 1
        async with mirroring(source, destination) as flow:
            await noted(flow)
        pin = ledger(destination).pin(SIDE)
        assert pin is not None
        late = Note(
            subject=SIDE,
            writer="late",
            source_id=pin.source_id,
            destination_id=pin.destination_id,
            copied=LastCopied(0, 1),
        )
        earlier = replace(late, writer="earlier", copied=LastCopied(90, 0))
        destination.remembered += [(each.key(), each.value()) for each in (replace(pin, copied=None), late, earlier)]
        source.store("t", 0, *batches(5, first=60))
        empty(destination)
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 75)
            await flow.relay.durable.write_down()
        (note,) = ledger(destination).notes(SIDE)
        assert note.copied.offset == 75
        destination.remembered.append((pin.key(), replace(pin, copied=None).value()))
        empty(destination)
        with patch.object(Ledger, "notes", lambda *_: []):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "unproven", "the mutation: what counts is the pin that came last"


async def test_a_late_note_says_nothing_of_other_topics() -> None:
    """The operator has resumed over another topic: a note of the one before, from a worker that has lost the partition,
    neither takes that back nor counts as a note of this one."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        (before,) = ledger(destination).notes(SIDE)
        recreate(source, *batches(30))
        empty(destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "recreated"
            assert await flow.relay.resume(FIRST, accept_unproven=True) == ""
            await until(lambda: flow.partition().queue.acknowledged == 90)
        assert ledger(destination).notes(SIDE) == []
        destination.remembered.append((before.key(), before.value()))
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().phase is Phase.ACTIVE)
            pin = flow.partition().claim.pin
            assert pin is not None
            assert pin.copied is None


async def test_what_both_sides_lost_was_copied_again() -> None:
    """
    1. Source and destination lose their last batches in unclean elections. What the source has there since is copied.
    2. The destination's records expire. Of what this process remembers of the last offset, the newer batch counts.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            destination.log("t").truncate(57)
            source.log("t").truncate(57)
            source.store("t", 0, batch(57, 3, b"other" * 9, leader_epoch=1))
            flow.relay.doubt_now(flow.partition(), "test", "looked for again")
            await until(lambda: flow.partition().phase is Phase.ACTIVE)
            await flow.copied()
            assert [each.next_offset for each in flow.partition().cursor.marks][-2:] == [60]
            empty(destination)
            source.store("t", 0, batch(60, leader_epoch=1))
            flow.relay.doubt_now(flow.partition(), "test", "looked for again")
            await until(lambda: flow.partition().queue.acknowledged == 63 or flow.partition().halted)
            assert flow.partition().halted is None


# Halts.


def test_a_pin_of_another_version_is_passed_over() -> None:
    """What this program does not know does no harm."""
    found = Ledger()
    found.apply(b'{"kind":"something else","topic":"t","partition":0,"into":"t"}', b"{}")
    assert found.pin(SIDE) is None
    pin = Pin(subject=SIDE, source_id=None, destination_id=None)
    found.put(pin)
    assert found.pin(SIDE) == pin
