"""TLS that breaks under a raw consumer: what another try heals is tried again, and what it does not is told of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.net.options import ConnectionOptions
from mirror.net.security.options import SecurityOptions, TlsOptions
from mirror.raw import RawConsumer, RawProducer, TopicPartition, errors
from mirror.raw.consume.fetching import Fetching
from mirror.raw.settings import ConsumerSettings
from tests import secured
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.net.stage.sockets import resetting
from tests.records.builders import raw_batch
from tests.secured import Files

AT = TopicPartition("t", 0)
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return secured.made(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def reading(files: Files) -> AsyncIterator[tuple[FakeCluster, Fetching]]:
    """Two brokers; the first leads the partition, and its first batch was read. The metadata go on naming it while it
    is away, as before its session ends."""
    async with FakeCluster(brokers=2, tls=secured.server_context(files)) as fake:
        fake.add_topic("t")
        fake.unnoticed = True
        fake.store("t", 0, raw_batch(b"p", base_offset=0, leader_epoch=0))
        security = SecurityOptions(tls=TlsOptions(ca_file=str(files.ca)))
        options = fake.options(connection=ConnectionOptions(client_id="test", security=security))
        async with await Cluster.open("here", options) as cluster:
            found = Fetching(cluster, ConsumerSettings(bootstrap_servers="a:1", fetch_max_wait_ms=50))  # type: ignore[arg-type]
            try:
                found.put({AT: 0})
                assert await _next(found) == [0]
                await fake.stop(1)
                yield fake, found
            finally:
                await found.close()


async def _next(fetching: Fetching) -> list[int]:
    """Base offsets of what comes next. Raises the error that comes in their place."""
    (chunk,) = await fetching.take(PATIENCE_S)
    if chunk.error is not None:
        raise chunk.error
    return [record.base_offset for record in chunk.records]


async def test_a_broker_goes_away_in_the_middle_of_a_handshake(files: Files) -> None:
    """
    1. The leader restarts: its connections are lost, and the next ones are reset in the middle of the handshake.
    2. The program hears nothing of that, and gets what is written once the leader is back.
    """
    async with reading(files) as (fake, fetching):
        async with resetting(fake.brokers[1].port) as seen:
            await until(lambda: len(seen) >= 3 or fetching._answers)
            assert not fetching._answers
            assert all(first.startswith(b"\x16\x03") for first in seen), "these are handshakes"
        await fake.start(1)
        fake.store("t", 0, raw_batch(b"p", base_offset=5, leader_epoch=0))
        assert await _next(fetching) == [5]


@pytest.mark.parametrize(
    ("hosts", "same", "told"),
    [
        (("127.0.0.1",), False, "ssl.ca.location has to name a file with the authority that issued it; check the ssl"),
        (("elsewhere.example",), True, "connect by a name that is in it, or set ssl.endpoint.identification.algorithm"),
    ],
    ids=["authority", "host"],
)
async def test_what_no_other_try_heals(
    files: Files, tmp_path: Path, hosts: tuple[str, ...], same: bool, told: str
) -> None:
    """The leader comes back with a certificate that is not accepted: the program is told at once, and why."""
    async with reading(files) as (fake, fetching):
        other = secured.made(tmp_path, hosts=hosts, authority=files.authority if same else None)
        fake.tls = secured.server_context(other)
        await fake.start(1)
        with pytest.raises(errors.NotAuthenticated, match=told):
            await _next(fetching)


@pytest.mark.parametrize("client", [RawConsumer, RawProducer])
async def test_a_cluster_that_is_not_trusted(files: Files, client: Any) -> None:
    """No broker at all is accepted when a client is made: that is no cluster that cannot be reached."""
    async with FakeCluster(brokers=2, tls=secured.server_context(files)) as fake:
        config = {
            "bootstrap.servers": fake.options().bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(files.other_ca),
        }
        with pytest.raises(errors.NotAuthenticated, match=r"ssl\.ca\.location has to name a file"):
            await asyncio.to_thread(client, config)
        await fake.stop(2)
        with pytest.raises(errors.Unavailable, match=r"ssl\.ca\.location has to name a file"):
            await asyncio.to_thread(client, config)


async def test_a_port_without_tls(files: Files) -> None:
    """It looks like a broker that stops, and is named for what it may be."""
    async with FakeCluster() as fake:
        await fake.stop(1)
        async with resetting(fake.brokers[1].port):
            config = {"bootstrap.servers": fake.options().bootstrap_servers, "security.protocol": "SSL"}
            with pytest.raises(errors.Unavailable, match="or this port does not speak TLS"):
                await asyncio.to_thread(RawConsumer, config)
