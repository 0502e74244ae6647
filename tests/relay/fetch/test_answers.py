"""What each kind of answer of the source leads to, and each kind of silence."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.backoff import Backoff
from mirror.net.buffers import FramePool
from mirror.relay.fetch.answers import Answers, Given
from mirror.relay.fetch.limits import Limits
from mirror.relay.fetch.link import Asked
from mirror.relay.hot.deep import Rewriter
from mirror.relay.hot.plain import InnerLoop
from mirror.relay.locate import seeking
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.wire.errors import ErrorCode, error_slug
from mirror.wire.fetch import NO_REPLICA, Fetched, FetchResponse
from tests.fakes import faults
from tests.fakes.broker import FakeCluster, Seen
from tests.fakes.loop import some_turns, until
from tests.relay.fetch.test_backlog import backlog, for_backlog
from tests.relay.stage.flows import Flow, batch, batches, clusters, fill, mirroring, settings


def fetches(source: FakeCluster) -> list[Seen]:
    """Those of the data path: the locator asks for one byte."""
    return [seen for seen in source.seen("Fetch") if seen.request.max_bytes > 1]


# Answers that do not count.


async def test_an_answer_from_before_a_doubt() -> None:
    """
    1. A fetch is under way; meanwhile the partition falls into doubt and gets a new position.
    2. The answer belongs to the old one: it is dropped, nothing is sent twice or out of order.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2, count=2)
        async with mirroring(source, destination, fetch_max_wait_ms=60_000) as flow:
            await flow.copied()
            held = source.next("Fetch", faults.held())
            source.store("t", 1, *batches(1, first=6))
            await held.came.wait()
            await flow.copied()
            partition = flow.partition()
            generation = partition.cursor.generation
            flow.relay.doubt(partition, "test", "")
            flow.relay.emptied(partition)
            source.store("t", 0, *batches(3, first=6))
            await until(lambda: partition.phase is Phase.ACTIVE)
            assert partition.cursor.generation > generation
            held.open()
            await flow.copied()
            assert flow.relay.stats.resyncs == {"test": 1}
            assert flow.copied_batches == 4 + 1 + 3


async def test_an_error_from_before_a_doubt() -> None:
    """
    1. A fetch is under way; meanwhile the partition falls into doubt and gets a new position.
    2. The answer has an error code for it, which says nothing about the new position: no other doubt.
    """
    async with clusters() as (source, destination):
        fill(source)
        held = faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        held.gate, held.when = asyncio.Event(), for_backlog
        source.next("Fetch", held)
        async with mirroring(source, destination) as flow:
            await held.came.wait()
            partition = flow.partition()
            generation = partition.cursor.generation
            flow.relay.doubt_now(partition, "test", "")
            await until(lambda: partition.phase is Phase.ACTIVE)
            assert partition.cursor.generation > generation
            held.open()
            await flow.copied()
            assert flow.relay.stats.resyncs == {"test": 1}


@pytest.mark.parametrize(
    ("change", "whole", "act"),
    [
        pytest.param({}, 0, None, id="data"),
        pytest.param({"end": 0}, 0, "looked", id="nothing"),
        pytest.param({"error": ErrorCode.NOT_LEADER_OR_FOLLOWER}, 0, "doubted", id="doubt"),
        pytest.param({"error": ErrorCode.TOPIC_AUTHORIZATION_FAILED}, 0, "halted", id="halt"),
        pytest.param({}, ErrorCode.UNKNOWN_SERVER_ERROR, "doubted", id="the whole request"),
        pytest.param(None, ErrorCode.UNKNOWN_SERVER_ERROR, "doubted", id="the whole request, bare"),
        pytest.param({"diverging": (0, 3)}, 0, "diverged", id="diverging"),
        pytest.param({"preferred_replica": 2}, 0, "preferred", id="another replica"),
    ],
)
def test_an_answer_for_an_older_position(change: dict[str, Any] | None, whole: int, act: str | None) -> None:
    """
    1. An answer of whatever kind, for the position before this one: nothing is put into the queue, nothing is heard,
       and the partition is neither doubted nor halted.
    2. The same answer for the position as it is now counts.
    """
    acts: list[str] = []

    def note(what: str) -> Any:
        return lambda *_: acts.append(what)

    owner: Any = SimpleNamespace(
        settings=settings(),
        source=SimpleNamespace(name="source", failed=lambda *_: None),
        pool=FramePool(budget=1 << 20, frame_size=1 << 12),
        inner_loop=InnerLoop(9),
        rewriter=Rewriter(),
        forgets_before_ms=lambda: 0.0,
        limits=Limits(0, None),
        replicas=SimpleNamespace(prefer=note("preferred")),
        look=note("looked"),
        doubt_now=note("doubted"),
        halt=note("halted"),
        diverged=note("diverged"),
    )
    partition = Partition("t", 0)
    partition.phase, partition.queue.confirmed_at = Phase.ACTIVE, float("inf")
    partition.queue.lane = SimpleNamespace(offer=lambda _: None, detach=lambda _: None)
    cursor, queue = partition.cursor, partition.queue
    cursor.heard(50, 7.0)
    stored = batch(0)
    fetched = Fetched("t", 0, 0, 60, 60, 0, [], None, None, NO_REPLICA, 0, len(stored))
    answer = FetchResponse(
        throttle_ms=0, error=whole, partitions=[] if change is None else [fetched._replace(**change)]
    )
    answers = Answers(owner, 1)

    def take(generation: int) -> Given:
        frame = owner.pool.take(len(stored))
        frame.body[:] = stored
        given = answers.take(frame, answer, {("t", 0): Asked(partition, generation)}, short=True)
        frame.release()
        return given

    older = cursor.generation
    cursor.disown()
    for _ in range(4):  # one empty answer is not yet looked into
        assert take(older) == ([], [])
    assert not acts
    assert (cursor.due, cursor.high_watermark, cursor.heard_at, cursor.empties) == (0, 50, 7.0, 0)
    assert not queue.outbox
    assert owner.pool.used == 0
    for _ in range(4 if act == "looked" else 1):
        given = take(cursor.generation)
    assert acts == ([] if act is None else [act])
    assert (given.gave, len(queue.outbox), cursor.due) == (([partition], 1, 3) if act is None else ([], 0, 0))


async def test_an_answer_with_partitions_that_were_not_asked_for() -> None:
    """Ignored; the others of the answer count."""

    def change(answer: Any) -> None:
        extra = answer.responses[0].partitions[0]
        answer.responses[0].partitions = [type(extra)(**{**extra.to_dict(), "partition_index": 77}), extra]

    async with clusters() as (source, destination):
        fill(source, partitions=1)
        source.next("Fetch", faults.alter(change))
        async with mirroring(source, destination) as flow:
            await flow.copied()


# Errors.

DOUBTFUL = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    4_711,
]


async def until_quiet(flow: Flow) -> None:
    """All copied, and a fetch is waiting for more."""
    await flow.copied()
    fetchers = flow.relay.brokers.fetchers.values()
    await until(lambda: sum(fetcher.quiet for fetcher in fetchers) == flow.relay.states.get("active"))


@pytest.mark.parametrize("code", DOUBTFUL)
async def test_doubt(code: int) -> None:
    """One partition is refused: its position is sought, the others go on meanwhile."""
    async with clusters() as (source, destination):
        fill(source, partitions=3)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            source.next("Fetch", faults.refuse(code, only=("t", 1)))
            await until(lambda: flow.relay.stats.resyncs.get(error_slug(code)))
            for index in range(3):
                source.store("t", index, *batches(3, first=60))
            await flow.copied()
            assert {line["partition"] for line in flow.log.of("resync")} == {1}


async def test_authorization() -> None:
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            source.next("Fetch", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, only=("t", 1)))
            assert await flow.halted("t", 1) == "authorization"
            assert "source, fetch at 60" in flow.log.of("halted")[0]["detail"]


async def test_the_whole_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. An error for the whole answer, with partitions or without any: all are in doubt.
    2. It is not asked again without a pause, one for each doubt, and all is well when the broker answers.
    """
    pause, doubts = seeking._pause, list[int]()

    async def paused(partition: Partition, backoff: Backoff) -> None:
        doubts.append(partition.claim.doubts)
        await pause(partition, backoff)

    monkeypatch.setattr(seeking, "_pause", paused)

    def bare(answer: Any) -> None:
        answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        answer.responses = []

    def with_partitions(answer: Any) -> None:
        answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR

    async with clusters() as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination) as flow:
            for number, change in enumerate((bare, with_partitions), start=1):
                await until_quiet(flow)
                source.next("Fetch", faults.alter(change))
                await until(lambda: flow.relay.stats.resyncs.get("unknown_server_error", 0) == 2 * number)  # noqa: B023
            for index in range(2):
                source.store("t", index, *batches(3, first=60))
            await flow.copied()
            assert doubts == [1, 1, 2, 2]


async def test_a_pause_is_longer_with_each_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows from the least to the most; a thousand doubts take no thousand steps."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(seeking, "asyncio", SimpleNamespace(sleep=sleep))
    partition = Partition("t", 0)
    for doubts in (1, 2, 3, 4, 1_000):
        partition.claim.doubts = doubts
        backoff = Backoff(least_ms=100, most_ms=10_000)
        await seeking._pause(partition, backoff)
        assert backoff.tries <= seeking.MOST_STEPS + 1
    assert pauses == [pytest.approx(wanted, rel=0.21) for wanted in (0.1, 0.2, 0.4, 0.8, 10.0)]
    assert pauses == sorted(pauses)


async def test_truncated_at_the_source() -> None:
    """An unclean election lost what was copied already: told by the epochs (KIP-320), and the partition halts."""
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            source.log("t").truncate(30)
            source.store("t", 0, *batches(20, first=30, count=3))
            source.log("t").batches[10:] = [batch(30 + 3 * n, leader_epoch=1, payload=b"other") for n in range(20)]
            reason = await flow.halted()
            assert reason in ("source_truncated", "not_a_copy")
            assert destination.log("t").end == 60


async def test_diverging_epoch() -> None:
    """
    1. The answer itself says where the log that was read ends.
    2. It says so of a batch that is still there: then that batch's leader epoch is damaged. It is told, and copied on.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2, count=4)

        def change(answer: Any) -> None:
            one = answer.responses[0].partitions[0]
            one.records = b""
            one.diverging_epoch = type(one).EpochEndOffset(epoch=0, end_offset=6)

        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            altered = source.next("Fetch", faults.alter(change))
            await altered.came.wait()
            for index in range(2):
                source.store("t", index, *batches(1, first=12))
            await until(lambda: flow.log.of("leader_epoch_damaged"))
            assert not flow.relay.halted
            await flow.copied()
            log = source.log("t", 0)
            log.batches = [one[:12] + (1).to_bytes(4) + one[16:] for one in log.batches]
            source.brokers[1].sessions.kept.clear()  # else nothing is named that has not changed
            await until(lambda: flow.relay.halted)
            (partition,) = flow.relay.halted
            assert partition.halted is not None
            assert partition.halted.reason == "source_truncated"
            assert "offset 15 is due, the source's log of epoch -1 ends at 0" in partition.halted.detail


async def test_retention_overtakes() -> None:
    """What is due was deleted at the source while the destination was slow: halt, nothing is skipped."""
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            held = destination.next("Produce", faults.held())
            held.error = ErrorCode.NOT_ENOUGH_REPLICAS
            source.store("t", 0, *batches(10, first=6))
            await held.came.wait()
            source.log("t").delete_before(30)
            held.open()
            assert await flow.halted() == "retention_overtook"
            assert destination.log("t").end == 6


async def test_the_leader_moves() -> None:
    """
    1. Another broker of the source leads: the old one says so and names the new one (KIP-951).
    2. It is fetched from there, in the new epoch.
    """
    async with clusters(brokers=2) as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            source.lead("t", 0, 2)
            source.store("t", 0, *batches(3, first=60))
            await flow.copied()
            last = fetches(source)[-1]
            assert {seen.node_id for seen in fetches(source)[-4:]} & {2}
            assert last.request.topics
            assert flow.partition().cursor.leader_epoch == 1


async def test_throttle() -> None:
    """
    1. The broker asks for a pause: what it sent counts, and the next fetch waits.
    2. When the pause is over, it goes on; the pauses add up.
    """
    async with clusters() as (source, destination):
        fill(source, count=100, size=2_000)
        for ms in (60_000, 30, 30):
            throttled = faults.throttle(ms)
            throttled.when = for_backlog
            source.next("Fetch", throttled)
        async with mirroring(source, destination, fetch_max_bytes=8_192) as flow:
            await until(lambda: flow.copied_batches)
            (fetcher,) = flow.relay.brokers.fetchers.values()
            (link,) = fetcher._backlog
            assert link._connection is not None
            assert link._connection.throttled_s > 0
            fetcher.pump()
            await some_turns(50)
            assert not link.under_way
            assert len(backlog(source)) == 1
            link._connection.throttled_until = 0.0
            fetcher.pump()
            await flow.copied()
            assert flow.relay.stats.throttled_s == {"source": pytest.approx(60.06)}


# Connections.


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda: faults.disconnect(0), id="closed"),
        pytest.param(lambda: faults.disconnect(2), id="cut in the size"),
        pytest.param(lambda: faults.disconnect(4), id="cut behind the size"),
        pytest.param(lambda: faults.disconnect(500), id="cut in the records"),
        pytest.param(faults.wrong_correlation_id, id="correlation id"),
        pytest.param(lambda: faults.malformed(b""), id="empty"),
        pytest.param(lambda: faults.malformed(bytes(3)), id="short"),
        pytest.param(lambda: faults.malformed(b"\x00" * 11 + b"\xff\xff\xff\xff\x0f"), id="absurd count"),
        pytest.param(lambda: faults.malformed(b"\xff" * 200), id="garbage"),
        pytest.param(lambda: faults.raw(b"\x80\x00\x00\x00"), id="negative size"),
        pytest.param(lambda: faults.raw(b"\x7f\xff\xff\xff"), id="absurd size"),
        pytest.param(lambda: faults.raw(b"\x00\x00\x00\x02ab"), id="tiny size"),
    ],
)
async def test_a_connection_that_breaks(fault: Any) -> None:
    """Nothing was lost: asked again on a new connection, from the same offsets. No frame is lost either."""
    async with clusters() as (source, destination):
        fill(source, partitions=2, count=30, size=500)
        for _ in range(2):
            source.next("Fetch", fault())
        async with mirroring(source, destination, fetch_max_bytes=8_192, buffer_memory=80_000) as flow:
            await flow.copied()
            assert flow.log.of("source_connection_lost")
            assert not flow.relay.stats.resyncs


async def test_no_answer() -> None:
    async with clusters() as (source, destination):
        fill(source)
        source.next("Fetch", faults.silence())
        async with mirroring(source, destination, request_timeout_s=2) as flow:
            await flow.copied()
            assert "no answer within" in flow.log.of("source_connection_lost")[0]["detail"]


async def test_the_source_is_down_for_a_while() -> None:
    """
    1. Its connections break and nobody answers: its partitions look for their leader, again and again.
    2. It comes back: copying goes on.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            await source.stop(1)
            await until(lambda: len(flow.log.of("position_unknown")) > 5)
            await source.start(1)
            for index in range(2):
                source.store("t", index, *batches(3, first=60))
            await flow.copied()


async def test_one_of_two_brokers_is_down() -> None:
    async with clusters(brokers=2) as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            await source.stop(2)
            for index in range(2):
                source.store("t", index, *batches(3, first=60))
            await flow.copied(("t", 0))
            await source.start(2)
            await flow.copied()
