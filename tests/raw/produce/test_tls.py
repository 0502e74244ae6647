"""TLS that breaks under a raw producer: what another try heals is tried again, and what it does not is told of."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mirror.net.cluster import Cluster
from mirror.net.options import ConnectionOptions
from mirror.net.security.options import SecurityOptions, TlsOptions
from mirror.raw import TopicPartition
from mirror.raw.errors import NotDelivered
from mirror.raw.leaders import Leaders
from mirror.raw.model import RecordMetadata
from mirror.raw.produce.requests import Item
from mirror.raw.produce.sending import Sending
from mirror.records.header import BatchHeader
from mirror.records.identity import Identity
from tests import secured
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.net.stage.sockets import resetting
from tests.records.builders import kafka_batch
from tests.secured import Files

AT = TopicPartition("t", 0)
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return secured.made(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def writing(files: Files, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[FakeCluster, Sending]]:
    """Two brokers; the first leads the partition. The metadata go on naming it while it is away."""

    async def identity(_: Sending, __: float) -> Identity:
        return Identity(4_711, 0, 0)

    monkeypatch.setattr(Sending, "_new_identity", identity)
    async with FakeCluster(brokers=2, tls=secured.server_context(files)) as fake:
        fake.add_topic("t")
        fake.unnoticed = True
        security = SecurityOptions(tls=TlsOptions(ca_file=str(files.ca)))
        options = fake.options(connection=ConnectionOptions(client_id="test", security=security))
        async with await Cluster.open("here", options) as cluster:
            sending = Sending(cluster, Leaders(cluster), max_request_size=1 << 20)
            await cluster.refresh(["t"])
            await fake.stop(1)
            try:
                yield fake, sending
            finally:
                await sending.close()


def _put(sending: Sending) -> "asyncio.Future[RecordMetadata]":
    batch = kafka_batch()
    future: Future[RecordMetadata] = Future()
    item = Item(BatchHeader.read(batch), batch, future, asyncio.get_running_loop().time() + PATIENCE_S)
    sending.put(AT, item)
    return asyncio.wrap_future(future)


async def test_a_broker_goes_away_in_the_middle_of_a_handshake(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is sent once the leader is back, and stands in its log once."""
    async with writing(files, monkeypatch) as (fake, sending):
        async with resetting(fake.brokers[1].port) as seen:
            landing = _put(sending)
            await until(lambda: len(seen) >= 3 or landing.done())
            assert not landing.done()
        await fake.start(1)
        assert (await landing).base_offset == 0
        assert len(fake.seen("Produce")) == 1


async def test_a_certificate_that_is_not_accepted(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other try heals it: the sender is told at once, and why."""
    async with writing(files, monkeypatch) as (fake, sending):
        fake.tls = secured.server_context(secured.made(tmp_path))
        await fake.start(1)
        with pytest.raises(NotDelivered, match=r"ssl\.ca\.location has to name a file with the authority"):
            await _put(sending)
        assert not fake.seen("Produce")
