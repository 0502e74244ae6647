"""``mirror audit explain`` at a scripted cluster: whatever it answers, there is a batch, a note, or an error that says
what to do."""

import asyncio
from collections.abc import Callable

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.explain import looking
from mirror.audit.explain.looking import Looked, look
from mirror.audit.model.request import AuditRequest, Endpoint
from mirror.audit.prepare import patience
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.records.builders import raw_batch
from tests.spark.read.stage import batches, scripted

MANY = 40


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_WAIT_S", 0.01)
    monkeypatch.setattr(patience, "TRIES", 2)


async def looked(fake: FakeCluster, offset: int) -> tuple[Looked, Looked]:
    """Both sides are the same cluster."""
    ours, theirs = (Endpoint(alias=alias, bootstrap=fake.options().bootstrap, client_id="x") for alias in "ab")
    request = AuditRequest(
        flow="a->b", source=ours, destination=theirs, topics=("t",), selects=lambda _: True, digest="sha256"
    )
    return await asyncio.to_thread(look, request, "t", 0, offset, offset)


async def test_a_batch_larger_than_any_fetch() -> None:
    large = raw_batch(b"x" * (3 * looking.FETCH_BYTES))
    async with scripted(large) as fake:
        assert [side.batch for side in await looked(fake, 1_003)] == [large, large]


@pytest.mark.parametrize(
    "fault",
    [
        lambda: faults.malformed(b"\x00\x01"),
        faults.nothing,
        faults.disconnect,
        lambda: faults.throttle(10),
        lambda: faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=["malformed", "nothing", "disconnect", "throttle", "not leader"],
)
async def test_an_answer_that_is_better_the_next_time(fault: Callable[[], faults.Fault]) -> None:
    """A leader that was just elected shows nothing for a moment: no difference may be made of that."""
    stored = batches(0, 5)
    async with scripted(*stored) as fake:
        fake.next("Fetch", fault())
        assert [side.batch for side in await looked(fake, 7)] == [stored[1], stored[1]]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lambda: faults.malformed(b"\x00\x01"), "malformed fetch response"),
        (faults.disconnect, "cannot be read"),
        (lambda: faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "may not be read; grant"),
        (lambda: faults.refuse(ErrorCode.CORRUPT_MESSAGE), "CORRUPT_MESSAGE"),
        (lambda: faults.raw(b"\x7f\xff\xff\xff" + bytes(20)), "response size"),
    ],
    ids=["malformed", "disconnect", "no right", "damaged", "endless"],
)
async def test_an_answer_that_stays_as_it_is(fault: Callable[[], faults.Fault], told: str) -> None:
    async with scripted(*batches(0, 5)) as fake:
        for _ in range(MANY):
            fake.next("Fetch", fault())
        with pytest.raises(AuditError, match=told):
            await looked(fake, 7)


async def test_nothing_at_all() -> None:
    """A log cleaner has taken it, or the broker cannot find it: there is no batch, and that is all that is said."""
    async with scripted(*batches(0, 5)) as fake:
        for _ in range(MANY):
            fake.next("Fetch", faults.nothing())
        assert [(side.batch, side.behind) for side in await looked(fake, 7)] == [(None, None)] * 2
