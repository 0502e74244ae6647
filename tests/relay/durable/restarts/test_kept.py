"""Copies whose last batches equal the source's, although the source has lost some of what was copied: the leader epoch
under which it was read ends before that. Most tests play two lives of a mirror, or one that goes on."""

from typing import Any
from unittest.mock import patch

import pytest

from mirror.records.header import TRANSACTIONAL
from mirror.relay.durable import notes
from mirror.relay.locate import evidence
from tests.fakes import answers
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batch, clusters, fill, mirroring
from tests.simulation.model.broker import COMMIT, marker_batch

END = 12


async def _nothing(*_: object) -> None:
    """In place of ``notes.check_kept``: whatever compares as equal is taken to be what was copied."""


def elect(source: FakeCluster) -> None:
    """An unclean election loses what stands at 6 and 9. Another record takes offset 6. The producer of 9 has no answer
    yet and sends its batch again: the same bytes, at the same offset, in the next leader epoch."""
    log = source.log("t")
    log.truncate(6)
    source.store(
        "t",
        0,
        batch(6, payload=b"what nobody copies", leader_epoch=log.epoch),
        batch(9, leader_epoch=log.epoch),
        batch(END, leader_epoch=log.epoch),
    )


async def end(flow: Flow, upto: int) -> None:
    await until(lambda: flow.partition().queue.acknowledged == upto)


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("running", [True, False])
async def test_a_batch_that_was_sent_again(running: bool, mapped: bool, asked: bool) -> None:
    """
    1. The source loses its end while the mirror runs, or while it is stopped, and its last batch comes again: halt,
       also for whoever comes next. A window of one batch sees no other; a wider one sees the record before, too.
    2. Without the question for the epoch, a record is never copied, and nobody says so.
    """
    async with clusters() as (source, destination):
        fill(source, count=4)
        with patch.object(notes, "check_kept", evidence.check_kept if asked else _nothing):
            async with mirroring(source, destination, mapped=mapped, max_in_flight=1) as flow:
                await end(flow, END)
                if running:
                    elect(source)
                    if asked:
                        assert await flow.halted() == "source_truncated"
                    else:
                        await end(flow, END + 3)
                assert await flow.relay.drain()
                await flow.relay.durable.write_down()
            if not running:
                elect(source)
            async with mirroring(source, destination, mapped=mapped, max_in_flight=1) as flow:
                if asked:
                    assert await flow.halted() == "source_truncated"
                    assert destination.log("t").end == END
                else:
                    await end(flow, END + 3)
                    assert source.log("t").batches[2] != destination.log("t").batches[2]


@pytest.mark.parametrize("mapped", [True, False])
async def test_a_leader_that_has_lost_nothing(mapped: bool) -> None:
    """A clean election, and one more while the mirror is stopped: it goes on each time."""
    async with clusters() as (source, destination):
        fill(source, count=2)
        upto = 6
        for _ in range(2):
            async with mirroring(source, destination, mapped=mapped) as flow:
                await end(flow, upto)
                source.log("t").epoch += 1
                source.store("t", 0, batch(upto, leader_epoch=source.log("t").epoch))
                upto += 3
                await end(flow, upto)
                assert await flow.relay.drain()
                assert not flow.log.of("halted")
            source.log("t").epoch += 1


def list_aborted(monkeypatch: pytest.MonkeyPatch, producer_id: int, first_offset: int) -> list[bool]:
    """The source says of this transaction that it was aborted, once the list it returns holds something."""
    elected: list[bool] = []
    usual = answers._fetched_partition

    def with_aborted(cluster: Any, broker: Any, topic: Any, asked: Any, request: Any, **more: Any) -> Any:
        answer = usual(cluster, broker, topic, asked, request, **more)
        if elected and request.isolation_level == 1 and cluster.name == "source":
            kind = type(answer).AbortedTransaction
            answer.aborted_transactions = [kind(producer_id=producer_id, first_offset=first_offset)]
        return answer

    monkeypatch.setattr(answers, "_fetched_partition", with_aborted)
    return elected


@pytest.mark.parametrize("running", [True, False])
async def test_a_commit_marker_that_was_lost(running: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction and its COMMIT at 9 are copied. An unclean election loses the COMMIT. The producer's next batch is
    aborted, and so the leader of now says that all since 6 is: halt, since what was copied counts there as aborted."""
    elected = list_aborted(monkeypatch, producer_id=77, first_offset=6)
    txn: dict[str, Any] = {"attributes": TRANSACTIONAL, "producer_id": 77, "producer_epoch": 0}
    async with clusters() as (source, destination):
        fill(source, count=2)

        def elect_without_commit() -> None:
            source.log("t").truncate(9)
            elected.append(True)
            source.store(
                "t",
                0,
                batch(9, 1, base_sequence=3, leader_epoch=1, **txn),
                marker_batch(10, 77, 0, leader_epoch=1),
                batch(11, leader_epoch=1),
            )

        async with mirroring(source, destination) as flow:
            source.store("t", 0, batch(6, base_sequence=0, **txn), marker_batch(9, 77, 0, kind=COMMIT))
            await end(flow, 10)
            await flow.relay.durable.write_down()
            if running:
                elect_without_commit()
                assert await flow.halted() == "source_truncated"
        if not running:
            elect_without_commit()
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "source_truncated"


async def test_an_operator_accepts_it() -> None:
    """Resumed with their word, it goes on, also after the next start, and what was taken on trust is written down."""
    async with clusters() as (source, destination):
        fill(source, count=4)
        async with mirroring(source, destination, max_in_flight=1) as flow:
            await end(flow, END)
            elect(source)
            assert await flow.halted() == "source_truncated"
            assert await flow.relay.resume(("t", 0), accept_unproven=True) == ""
            await end(flow, END + 3)
            assert [each[:5] for each in flow.relay.stats.skipped] == [("t", 0, 0, END, "unproven")]
            assert await flow.relay.drain()
        async with mirroring(source, destination, max_in_flight=1) as flow:
            await end(flow, END + 3)
            assert not flow.log.of("halted")


@pytest.mark.parametrize("noted", [True, False])
async def test_both_sides_lost_their_end(noted: bool) -> None:
    """
    1. All is copied. The source and the destination lose the same records, others take their place at the source under
       its next leader, and are copied. The worker is killed before it notes that: the next one goes on.
    2. Unless the first of them has written down where the copy ended then: what it had noted before seems lost.
    """
    async with clusters() as (source, destination):
        fill(source, count=4)
        async with mirroring(source, destination) as flow:
            await end(flow, END)
            await flow.relay.durable.write_down()
        destination.log("t").truncate(6)
        source.log("t").truncate(6)
        source.store("t", 0, *(batch(at, payload=b"other", leader_epoch=1) for at in (6, 9)))
        with patch.object(notes.Notes, "write_anew", notes.Notes.write_anew if noted else _nothing):
            async with mirroring(source, destination) as flow:
                await end(flow, END)
        async with mirroring(source, destination) as flow:
            if noted:
                await end(flow, END)
                assert not flow.log.of("halted")
            else:
                assert await flow.halted() == "source_truncated"


@pytest.mark.parametrize("rule", [True, False])
async def test_a_leader_that_is_behind_what_was_copied(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. It was copied under epoch 6, in which nothing was written. The brokers that a new worker asks name the leader of
       epoch 5, which was deposed and does not know it: nothing is concluded, and it goes on once they know better.
    2. Taken at its word, it has lost what was copied.
    """
    if not rule:
        monkeypatch.setattr(notes, "MOST_STALE", 0)
    async with clusters() as (source, destination):
        fill(source, count=4)
        source.log("t").epoch = 6
        async with mirroring(source, destination) as flow:
            await end(flow, END)
            assert await flow.relay.drain()
        source.log("t").epoch = 5
        async with mirroring(source, destination) as flow:
            if not rule:
                assert await flow.halted() == "source_truncated"
                return
            await until(lambda: "epoch 6" in str(flow.log.of("position_unknown")))
            source.log("t").epoch = 7
            await end(flow, END)
            assert not flow.log.of("halted")


@pytest.mark.parametrize("rule", [True, False])
async def test_topics_without_ids_that_were_made_anew(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters before 2.8. Both topics are deleted and made again, as a remedy says. Their epochs begin again; notes
    of the former topics count for nothing. (Unless that is written down, they do once the epochs are the same again.)
    """
    if not rule:
        monkeypatch.setattr(notes.Notes, "write_anew", _nothing)
    async with clusters() as (source, destination):
        fill(source, count=4)
        destination.add_topic("t")
        for cluster in (source, destination):
            cluster.topics["t"].topic_id = None
        source.log("t").epoch = 3
        async with mirroring(source, destination) as flow:
            await end(flow, END)
            assert flow.partition().claim.source_id is None
            source.store("t", 0, batch(END, leader_epoch=3))
            await end(flow, END + 3)
            assert await flow.relay.drain()
        for cluster in (source, destination):
            log = cluster.log("t")
            log.truncate(0)
            log.producers.clear()
        log = source.log("t")
        log.epoch = 0
        source.store("t", 0, *(batch(at, payload=b"of the next topic") for at in (0, 3)))
        for epoch in (0, 5, 6):
            log.epoch = epoch
            async with mirroring(source, destination) as flow:
                if epoch == 6 and not rule:
                    assert await flow.halted() == "source_truncated"
                    return
                await end(flow, log.end)
                flow.relay.doubt_now(flow.partition(), "test", "looked for again")
                source.store("t", 0, batch(log.end, leader_epoch=epoch))
                await end(flow, log.end)
                assert not flow.log.of("halted")
