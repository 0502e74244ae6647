"""One Fetch, and questions that are asked again, at a scripted cluster."""

import asyncio

import pytest

from mirror.net.errors import AuthenticationFailed, ConnectionLost, NetworkError, Refused, Unreachable
from mirror.raw.errors import NotAuthenticated, Unavailable
from mirror.raw.model import TopicPartition
from mirror.spark.read.fetching import Fetcher, asked
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import Fault
from tests.spark.read.stage import batches, of, scripted

AT = TopicPartition("t", 0)
LATER = 1e9


async def fetched(fake: FakeCluster) -> bytes | None:
    """The records of one Fetch."""
    async with await Fetcher.open(of(fake).settings) as fetcher:
        answer = await fetcher.receive(await fetcher.send(AT, 0, until=LATER, committed=False), AT)
        if answer is None:
            return None
        assert fetcher.topic_id("t")
        assert not fetcher.topic_id("u")
        records = bytes(answer.frame.body[answer.fetched.start : answer.fetched.end])
        answer.frame.release()
        return records


async def test_one_fetch() -> None:
    stored = batches(0, 5)
    async with scripted(*stored) as fake:
        assert await fetched(fake) == b"".join(stored)
        fake.next("Fetch", faults.throttle(50))
        assert await fetched(fake) in (None, b"".join(stored))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER), Refused),
        (faults.malformed(b"x"), ConnectionLost),
        (faults.disconnect(), ConnectionLost),
        (faults.alter(lambda answer: answer.responses.clear()), ConnectionLost),
    ],
)
async def test_what_goes_wrong(fault: Fault, kind: type[NetworkError]) -> None:
    async with scripted(*batches(0)) as fake:
        fake.next("Fetch", fault)
        with pytest.raises(kind):
            await fetched(fake)


async def test_nothing_is_sent_ahead_where_it_would_have_to_wait() -> None:
    async with scripted(*batches(0)) as fake, await Fetcher.open(of(fake).settings) as fetcher:
        assert fetcher.send_ahead(AT, 0, committed=False) is None
        answer = await fetcher.receive(await fetcher.send(AT, 0, until=LATER, committed=False), AT)
        assert answer is not None
        answer.frame.release()
        ahead = fetcher.send_ahead(AT, 0, committed=True)
        assert ahead is not None
        answer = await fetcher.receive(ahead, AT)
        assert answer is not None
        answer.frame.release()
        assert [seen.request.isolation_level for seen in fake.seen("Fetch")] == [0, 1]


async def test_questions_that_are_asked_again() -> None:
    async with scripted() as fake, await Fetcher.open(of(fake).settings) as fetcher:
        cluster, tries = fetcher.cluster, 0

        async def ask(*failures: NetworkError) -> int:
            nonlocal tries
            tries += 1
            if tries <= len(failures):
                raise failures[tries - 1]
            return tries

        until = asyncio.get_running_loop().time() + LATER
        assert await asked(cluster, lambda: ask(ConnectionLost("a"), Unreachable("b")), until=until) == 3
        tries = 0
        with pytest.raises(NotAuthenticated):
            await asked(cluster, lambda: ask(AuthenticationFailed("it")), until=until)
        tries = 0
        with pytest.raises(Unavailable, match="in vain"):
            await asked(cluster, lambda: ask(Unreachable("in vain")), until=0)
        tries = 0
        with pytest.raises(NotAuthenticated, match="check the ssl and sasl settings"):
            await asked(cluster, lambda: ask(Unreachable("all refuse us", refused=True)), until=until)
        tries = 0
        assert await asked(cluster, lambda: ask(Unreachable("some are down")), until=until) == 2
