"""Requests on a connection: in which version, when they may be sent, and what is done with an answer."""

import asyncio
from dataclasses import replace

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from mirror.net.connection import Connection
from mirror.net.errors import ConnectionLost, Unsupported
from mirror.net.security.options import SaslOptions, Secret, SecurityOptions
from mirror.wire.versions import VersionRange
from tests.fakes.loop import some_turns, until
from tests.net.stage.sockets import Waiter, connected, response

METADATA = MetadataRequest.API_KEY
REQUEST_SIZE = 4


def speaks(connection: Connection, least: int, most: int) -> None:
    connection.api_versions = {METADATA: VersionRange(least, most)}


async def test_no_common_version() -> None:
    """What both sides speak is in the message; nothing is sent."""
    async with connected() as (connection, _):
        with pytest.raises(Unsupported, match="broker 1: the broker has no version of Metadata, and the mirror needs"):
            await connection.call(MetadataRequest())
        speaks(connection, 5, 9)
        with pytest.raises(Unsupported, match="has versions 5 to 9 of Metadata, and the mirror needs one of 0 to 4"):
            connection.version_of(METADATA, (0, 4), "Metadata")
        assert connection.version_of(METADATA, (0, 7), "Metadata") == 7
        assert connection.in_flight == 0


async def test_a_request_that_is_not_permitted() -> None:
    """It is a bug of the caller, found before anything is sent."""
    async with connected() as (connection, _):
        speaks(connection, 0, 1)
        connection.permits = lambda api_key, request: api_key != METADATA
        with pytest.raises(AssertionError, match="broker 1: a request with API key 3 would change something"):
            await connection.call(MetadataRequest())
        with pytest.raises(AssertionError, match="API key 3"):
            await connection.ask(METADATA, 1, b"", flexible=False)
        assert connection.in_flight == 0


async def test_held() -> None:
    """
    1. While the session is renewed, a request waits, and the data path is told to ask again in a moment.
    2. ``exchange``, by which it is renewed, goes out at once.
    3. Then the request follows, and the data path is called.
    """
    async with connected() as (connection, peer):
        speaks(connection, 0, 1)
        woken: list[bool] = []
        connection.after_receive = lambda: woken.append(True)
        connection.hold()
        assert connection.throttled_s > 0
        waiting = asyncio.create_task(connection.call(MetadataRequest()))
        renewing = asyncio.create_task(connection.exchange(ApiVersionsRequest(), 0))
        await some_turns()
        assert connection.in_flight == 1
        first = await peer.read(REQUEST_SIZE + 2)
        assert first[REQUEST_SIZE:] == ApiVersionsRequest.API_KEY.to_bytes(2, "big")
        connection.go_on()
        assert woken == [True]
        assert connection.throttled_s == 0
        await some_turns()
        assert connection.in_flight == 2
        connection.close()
        for task in (waiting, renewing):
            with pytest.raises(ConnectionLost):
                await task


async def test_an_answer_that_cannot_be_read() -> None:
    """It ends the connection: nobody knows what else is wrong. The failure is counted."""
    async with connected() as (connection, peer):
        speaks(connection, 0, 1)
        counted: list[tuple[str, str]] = []
        connection.on_error = lambda api, error: counted.append((api, error))
        asking = asyncio.create_task(connection.call(MetadataRequest()))
        await some_turns()
        assert [asked.what for asked in connection.asked.values()] == ["Metadata"]
        await peer.send(response(1, b"no metadata"))
        with pytest.raises(ConnectionLost, match="broker 1: malformed Metadata"):
            await asking
        assert connection.closed
        assert connection.asked == {}
        assert [api for api, _ in counted] == ["Metadata"]


@pytest.mark.parametrize("greeted", [True, False])
@pytest.mark.parametrize("answered", [True, False])
async def test_a_broker_that_hangs_up_at_the_first_request(greeted: bool, answered: bool) -> None:
    """It may have been stopped just then, and the port may need authentication: nobody can tell, so both are named. Not
    before its versions are known, and not once it has answered anything else."""
    async with connected() as (connection, peer):
        speaks(connection, 0, 1)
        await peer.send(response(1, b"the versions"))
        connection.expect(connection.next_correlation_id(), Waiter())
        await until(lambda: not connection.in_flight)
        if greeted:
            connection.greeted_at = connection.bytes_received
        if answered:
            await peer.send(response(2, b"an answer"))
            connection.expect(connection.next_correlation_id(), Waiter())
            await until(lambda: not connection.in_flight)
        peer.close()
        await until(lambda: connection.closed)
        hint = (
            " at the first request: it has just stopped, or this port needs authentication (then set security.protocol "
            "to SASL_PLAINTEXT or SASL_SSL)"
        )
        expected = "broker 1: the broker closed the connection" + (hint if greeted and not answered else "")
        assert str(connection.closed) == expected


async def test_who_authenticates_needs_no_hint() -> None:
    async with connected() as (connection, peer):
        sasl = SaslOptions(mechanism="PLAIN", username="u", password=Secret("p"))
        connection.options = replace(connection.options, security=SecurityOptions(sasl=sasl))
        await peer.send(response(1, b"the versions"))
        connection.expect(connection.next_correlation_id(), Waiter())
        await until(lambda: not connection.in_flight)
        connection.greeted_at = connection.bytes_received
        peer.close()
        await until(lambda: connection.closed)
        assert str(connection.closed) == "broker 1: the broker closed the connection"


async def test_throttle() -> None:
    """The longest pause that was asked for counts."""
    async with connected() as (connection, _):
        assert connection.throttled_s == 0
        connection.throttle(0)
        assert connection.throttled_s == 0
        connection.throttle(60_000)
        connection.throttle(1)
        assert 50 < connection.throttled_s <= 60
