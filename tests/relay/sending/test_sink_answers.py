"""What each kind of answer of the destination leads to, and each kind of silence.

Through the whole relay. What the destination holds at the end is compared with the source, batch for batch.
"""

from typing import Any

import pytest

from mirror.relay.locate.compare import Comparison
from mirror.relay.locate.resync import Resync
from mirror.relay.partition.phases import Phase
from mirror.relay.sink import Lane
from mirror.relay.topics.verdicts import TRIES
from mirror.wire.errors import HALTING, ErrorCode, error_slug
from tests.fakes import faults
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batch, batches, clusters, copies, fill, mirroring

DATA = 20
"""Batches of three records in most tests."""


async def resynced(flow: Flow, cause: str) -> None:
    """Waits until a doubt of this cause was counted."""
    await until(lambda: flow.relay.stats.resyncs.get(cause), what=f"{cause}; {flow.relay.stats.resyncs}")


# Answers with error codes.

DOUBTFUL = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    4_711,
]


@pytest.mark.parametrize("code", DOUBTFUL)
async def test_doubt(code: int) -> None:
    """
    1. One batch in the middle is refused with this code; those behind it in the pipeline are refused as out of order.
    2. The position is looked up and copying goes on: nothing is lost, nothing twice.
    """
    async with clusters() as (source, destination):
        fill(source)
        for _ in range(4):
            destination.next("Produce", faults.Fault())
        destination.next("Produce", faults.refuse(code))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert flow.relay.stats.resyncs == {error_slug(code): 1}
            assert flow.partition().claim.doubts == 0
            assert not flow.log.of("halted")


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
async def test_an_error_after_the_append(code: int) -> None:
    """The batch is in the log and the answer is an error: it is found there, and not sent again."""
    async with clusters() as (source, destination):
        fill(source)
        destination.next("Produce", faults.Fault())
        destination.next("Produce", faults.doubtful(code))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert flow.relay.stats.resyncs == {error_slug(code): 1}


async def test_a_destination_that_takes_only_its_own_producer_ids() -> None:
    """It refuses the first batch of the producer, each time: no broker of Kafka does, and no other look helps."""
    async with clusters() as (source, destination):
        fill(source)
        for _ in range(TRIES):
            destination.next("Produce", faults.refuse(ErrorCode.UNKNOWN_PRODUCER_ID))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "producer_ids_refused"
            assert flow.relay.stats.resyncs.keys() == {"unknown_producer_id"}
            assert not destination.log("t").batches


async def test_doubt_is_one_partition_s() -> None:
    """The other partitions of the request are acknowledged as ever."""
    async with clusters() as (source, destination):
        fill(source, partitions=4)
        destination.next("Produce", faults.refuse(ErrorCode.NOT_ENOUGH_REPLICAS, only=("t", 2)))
        async with mirroring(source, destination, connections_per_broker=1) as flow:
            await flow.copied()
            assert flow.relay.stats.resyncs == {"not_enough_replicas": 1}
            assert {line["partition"] for line in flow.log.of("resync")} == {2}
            assert flow.copied_batches == 4 * DATA


async def test_doubt_upon_doubt() -> None:
    """Ten failures in a row: each is looked into, and in the end all is well."""
    async with clusters() as (source, destination):
        fill(source)
        for _ in range(10):
            destination.next("Produce", faults.refuse(ErrorCode.NOT_ENOUGH_REPLICAS))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert flow.relay.stats.resyncs == {"not_enough_replicas": 10}


@pytest.mark.parametrize("code", sorted(HALTING.keys() - {ErrorCode.CORRUPT_MESSAGE}))
async def test_halt(code: int) -> None:
    """
    1. A batch in the middle is refused for good: the partition halts with the table's reason, place and remedy.
    2. What was before it is at the destination, nothing behind it; the other partition is copied.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2, count=2)
        async with mirroring(source, destination, connections_per_broker=1) as flow:
            await flow.copied()
            # A size that the topic's config allows is tried again for a while: brokers hear of a new value one by one.
            # What is scripted also goes by with requests of the other partition alone.
            for _ in range(8 * TRIES if HALTING[code].slug == "too_large" else 40):
                destination.next("Produce", faults.refuse(code, only=("t", 0)))
            for partition in range(2):
                source.store("t", partition, *batches(18, first=6))
            assert await flow.halted() == HALTING[code].slug
            halted = flow.partition().halted
            assert halted is not None
            assert halted.remedy.startswith(HALTING[code].meaning)
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                assert halted.remedy.endswith("Grant the mirror's principal Write on topic t of cluster destination")
            else:
                assert halted.remedy.startswith(HALTING[code].told)
            assert f"destination refused the batch at offset {destination.log('t').end}: " in halted.detail
            assert "as scripted" in halted.detail or destination.seen("Produce")[0].version < 8
            await flow.copied(("t", 1))
            assert destination.log("t").end == 6
            await until(lambda: not flow.partition().queue.in_flight)


async def test_the_leader_moves() -> None:
    """
    1. Another broker of the destination leads; the old one says so and names the new one (KIP-951).
    2. The partition is sought and goes on there, also if the metadata are still behind.
    """
    async with clusters(brokers=2) as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            destination.lead("t", 0, 2)
            source.store("t", 0, *batches(5, first=3 * DATA))
            await flow.copied()
            assert flow.relay.stats.resyncs == {"not_leader_or_follower": 1}
            assert {seen.node_id for seen in destination.seen("Produce")[-2:]} == {2}


async def test_brokers_without_hints() -> None:
    """Before KIP-951 the new leader is found in the metadata."""
    async with clusters(brokers=2, versions={"Produce": (3, 9), "Fetch": (4, 15)}) as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            for cluster in (source, destination):
                cluster.lead("t", 0, 2)
            source.store("t", 0, *batches(5, first=3 * DATA))
            await flow.copied()


# Answers that are wrong.


async def test_another_base_offset() -> None:
    """
    1. The answer has a base offset that was not expected.
    2. It is doubt: the log is looked at, which says where to go on.
    """

    def elsewhere(answer: Any) -> None:
        answer.responses[0].partition_responses[0].base_offset += 1_000

    async with clusters() as (source, destination):
        fill(source)
        destination.next("Produce", faults.Fault())
        destination.next("Produce", faults.alter(elsewhere))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert flow.relay.stats.resyncs == {"base_offset": 1}
            assert "expected 3" in flow.log.of("resync")[0]["detail"]


async def test_a_base_offset_that_is_none() -> None:
    """-1 with no error, as some brokers answer to a repeat that they no longer know: doubt, not an acknowledgement."""

    def nowhere(answer: Any) -> None:
        answer.responses[0].partition_responses[0].base_offset = -1

    async with clusters() as (source, destination):
        fill(source)
        for _ in range(3):
            destination.next("Produce", faults.alter(nowhere))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert flow.relay.stats.resyncs["base_offset"] >= 1


async def test_somebody_else_writes() -> None:
    """Another producer's batch lands in front of ours: what was under way lands behind it, and the partition halts."""
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert destination.log("t").produce(batch(0, producer_id=5, producer_epoch=0, base_sequence=0))[0] == 0
            source.store("t", 0, *batches(5, first=3 * DATA))
            assert await flow.halted() == "foreign_writer"
            source.store("t", 1, *batches(5, first=3 * DATA))
            await flow.copied(("t", 1))


@pytest.mark.parametrize("rule", [None, (Lane, "_is_unread_repeat"), (Comparison, "prove_unread")])
async def test_a_repeat_of_a_batch_with_other_records(
    monkeypatch: pytest.MonkeyPatch, rule: tuple[type, str] | None
) -> None:
    """
    1. A worker that has lost the partition still has records of a log that the source has lost since, and sends some.
    2. The owner's batch has the same sequences: the broker takes it for a repeat, and appends those behind it.
    3. The partition halts. (Without either part of the rule, and if looks compare only the last batch, the owner goes
       on, and nothing shows that the copy is wrong.)
    """
    if rule is not None:
        monkeypatch.setattr(*rule, _is_not if rule[0] is Lane else _is_as_it_was_sent)
        monkeypatch.setattr(Resync, "_prove_window", _is_as_it_was_sent)
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            lost = batch(6, payload=b"of a log that the source has lost")
            destination.log("t").produce(*copies([lost], cluster_id=source.cluster_id, sequence=6))
            destination.changed()
            held = destination.next("Produce", faults.held())
            source.store("t", 0, *batches(3, first=6))
            await held.came.wait()
            await until(lambda: flow.partition().queue.is_drained or len(flow.partition().queue.in_flight) == 3)
            held.open()
            if rule is not None:
                await until(lambda: flow.partition().queue.position == 15)
                return
            assert await flow.halted() == "not_a_copy"
            assert flow.relay.stats.resyncs == {"repeated": 1}


def _is_not(*_: Any) -> bool:
    return False


async def _is_as_it_was_sent(*_: Any) -> bool:
    return True


async def test_a_repeat_of_the_same_batch() -> None:
    """Two workers send the same: that is doubt, and nothing else."""
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            destination.log("t").produce(*copies(batches(1, first=6), cluster_id=source.cluster_id, sequence=6))
            destination.changed()
            source.store("t", 0, *batches(3, first=6))
            await flow.copied()
            assert flow.relay.stats.resyncs == {"repeated": 1}
            assert flow.partition().claim.unread == -1


def _twice(answer: Any) -> None:
    rows = answer.responses[0].partition_responses
    rows[-1] = rows[0]


def _left_out(answer: Any) -> None:
    answer.responses[0].partition_responses.pop()


def _too_many(answer: Any) -> None:
    rows = answer.responses[0].partition_responses
    answer.responses[0].partition_responses = [*rows, rows[0]]


def _another_partition(answer: Any) -> None:
    answer.responses[0].partition_responses[-1].index = 99


def _another_topic(answer: Any) -> None:
    answer.responses[0].name = "x"
    answer.responses[0].topic_id = None


def _nothing(answer: Any) -> None:
    answer.responses = []


def _with_error(change: Any) -> Any:
    """The same in an answer that is not plain."""

    def changed(answer: Any) -> None:
        answer.responses[0].partition_responses[0].error_code = ErrorCode.NOT_ENOUGH_REPLICAS
        change(answer)

    return changed


def _once_for_several(change: Any) -> Any:
    """Of the answers to come, the first that is for several partitions."""
    done = False

    def changed(answer: Any) -> None:
        nonlocal done
        if not done and len(answer.responses[0].partition_responses) > 1:
            done = True
            change(answer)

    return changed


SPOILT = [_twice, _left_out, _too_many, _another_partition, _another_topic, _nothing]


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("change", SPOILT)
@pytest.mark.parametrize("version", [8, 13])
async def test_an_answer_for_other_partitions(change: Any, plain: bool, version: int) -> None:
    """
    1. In the middle of a pipeline an answer has a partition twice, or lacks one, or has one that was not asked for.
    2. Nothing of it is believed: the connection is given up, all of its partitions are sought, and all is well.
    """
    async with clusters(versions={"Produce": (3, version)}) as (source, destination):
        fill(source, partitions=3)
        change = _once_for_several(change if plain else _with_error(change))
        for _ in range(3):
            destination.next("Produce", faults.Fault())
        for _ in range(DATA):
            destination.next("Produce", faults.alter(change))
        async with mirroring(source, destination, connections_per_broker=1) as flow:
            await flow.copied()
            assert flow.relay.stats.resyncs.keys() <= {"connection_lost", "not_enough_replicas"}
            assert "malformed produce response" in flow.log.of("resync")[0]["detail"]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda: faults.disconnect(0), id="closed"),
        pytest.param(lambda: faults.disconnect(3), id="cut in the size"),
        pytest.param(lambda: faults.disconnect(20), id="cut in the body"),
        pytest.param(faults.wrong_correlation_id, id="correlation id"),
        pytest.param(lambda: faults.malformed(b""), id="empty"),
        pytest.param(lambda: faults.malformed(b"\x00\x02\xff\xff\xff\xff" * 9), id="garbage"),
        pytest.param(lambda: faults.malformed(b"\x00\xff\xff\xff\xff\x0f"), id="absurd count"),
        pytest.param(lambda: faults.raw(b"\x80\x00\x00\x00"), id="negative size"),
        pytest.param(lambda: faults.raw(b"\x7f\xff\xff\xff"), id="absurd size"),
    ],
)
@pytest.mark.parametrize("before", [0, 3])
async def test_a_connection_that_breaks(fault: Any, before: int) -> None:
    """
    1. The request was done, and its answer is lost or no answer: nobody knows what became of it, nor of those behind.
    2. The log knows. Nothing is lost, nothing twice.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=3)
        for _ in range(before):
            destination.next("Produce", faults.Fault())
        destination.next("Produce", fault())
        async with mirroring(source, destination, connections_per_broker=1) as flow:
            await flow.copied()
            assert flow.relay.stats.resyncs.keys() == {"connection_lost"}
            assert not flow.log.of("halted")


async def test_no_answer() -> None:
    """Deadline over: the connection is given up, the position looked up."""
    async with clusters() as (source, destination):
        fill(source)
        destination.next("Produce", faults.Fault())
        destination.next("Produce", faults.silence())
        async with mirroring(source, destination, request_timeout_ms=-4_950) as flow:
            # The answer's deadline is request.timeout.ms and a margin of 5 s for the broker's own answer.
            await flow.copied()
            assert "request_timed_out" in flow.relay.stats.resyncs


async def test_throttle() -> None:
    """The broker asks for a pause: acknowledged all the same, counted, and nothing is sent until it is over."""
    async with clusters() as (source, destination):
        fill(source)
        for _ in range(3):
            destination.next("Produce", faults.throttle(40))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert flow.relay.stats.throttled_s == {"destination": pytest.approx(0.12)}
            assert flow.copied_batches == DATA
            assert not flow.relay.stats.resyncs


# Brokers that come and go.


async def test_the_destination_is_down_for_a_while() -> None:
    """
    1. The broker goes, with a pipeline under way, and stays away for some tries.
    2. It comes back with what it had acknowledged and with what it had not: copying goes on.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=3, count=200)
        async with mirroring(source, destination, fetch_max_bytes=4_096) as flow:
            await until(lambda: flow.copied_batches > 20)
            await destination.stop(1)
            await until(lambda: len(flow.log.of("position_unknown")) > 10)
            assert set(flow.relay.states) <= {"locating"}
            await destination.start(1)
            await flow.copied()


async def test_connections_that_break_all_the_time() -> None:
    """However often the connections of both sides break: nothing is lost, nothing twice."""
    async with clusters() as (source, destination):
        fill(source, partitions=4, count=300)
        async with mirroring(source, destination, fetch_max_bytes=2_048) as flow:
            for turn in range(12):
                before = flow.copied_batches
                await until(lambda: flow.copied_batches > before)  # noqa: B023
                (destination if turn % 3 else source).drop(1)
            await flow.copied()


async def test_one_of_two_brokers_is_down() -> None:
    """The partitions that the other one leads go on."""
    async with clusters(brokers=2) as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            await destination.stop(2)
            source.store("t", 0, *batches(5, first=3 * DATA))
            source.store("t", 1, *batches(5, first=3 * DATA))
            await flow.copied(("t", 0))
            assert flow.partition("t", 1).phase is not Phase.HALTED
            await destination.start(2)
            await flow.copied()


async def test_a_broker_of_another_version() -> None:
    """During a rolling upgrade a broker may not speak the version that was chosen: told, tried again, nothing leaks."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, start=False) as flow:
            await flow.relay.start()
            destination.versions["Produce"] = (3, 5)
            await resynced(flow, "unsupported")
            destination.versions["Produce"] = (3, 13)
            await flow.copied()
