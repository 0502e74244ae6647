"""The control socket: what it tells, whom it hears, and what becomes of those who are connected."""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mirror.service.flows.flow import RunningFlow
from mirror.service.http.server import ListenFailed
from mirror.service.instance.asking import Asked
from mirror.service.instance.control import Control
from mirror.service.instance.place import Place
from mirror.service.telemetry.fleet import Fleet
from tests.fakes.loop import until
from tests.service.telemetry.stage.showing import flow_of


class Served:
    """A supervisor of one flow."""

    def __init__(self) -> None:
        self.address = "127.0.0.1:9464"
        self.fleet = Fleet("west->east")
        self.flows: dict[str, RunningFlow] = {"west->east": flow_of(self.fleet)}
        self.stops: list[str] = []

    def stop(self, asked: str) -> None:
        self.stops.append(asked)


@asynccontextmanager
async def controlled(folder: Path) -> AsyncIterator[tuple[Control, Served, Place]]:
    place, served = Place(folder / "west.yaml", folder), Served()
    found = Control(place)
    await found.open(served)
    try:
        yield found, served, place
    finally:
        await found.close()


async def next_of(asked: Asked) -> dict[str, Any] | None:
    return await asyncio.to_thread(asked.state, 30.0)


async def test_what_is_told(tmp_path: Path) -> None:
    """
    1. Whoever connects gets the state, and again when it changes: starting, waiting, ready, stopping.
    2. The last line says how it ended; then the connection is closed.
    """
    async with controlled(tmp_path) as (control, served, place):
        assert stat.S_IMODE((tmp_path / "control").stat().st_mode) == 0o600
        asked = Asked.of(place)
        assert asked is not None
        with asked:
            assert asked.pid == os.getpid()
            asked.ask("watch")
            first = await next_of(asked)
            assert first is not None
            assert (first["phase"], first["settled"], first["address"]) == ("starting", False, "127.0.0.1:9464")
            worker = served.fleet.started(1, 7)
            worker.waits = "Unreachable: cluster west"
            control.ready()
            while not (now := await next_of(asked) or {})["settled"]:
                pass
            assert (now["phase"], now["ready"]) == ("running", False)
            assert now["status"].startswith("not ready: Unreachable: cluster west")
            control.stopping(40.0)
            stopping = await next_of(asked)
            assert stopping is not None
            assert (stopping["phase"], stopping["within_s"]) == ("stopping", 40.0)
            control.ended({"drained": True})
            closing = asyncio.ensure_future(control.close())
            assert await next_of(asked) == {"ended": {"drained": True}}
            assert await next_of(asked) is None
            await closing


async def test_one_that_goes_away(tmp_path: Path) -> None:
    """Nobody is waited for, and others are served."""
    async with controlled(tmp_path) as (control, _, place):
        for _ in range(2):
            asked = Asked.of(place)
            assert asked is not None
            asked.close()
        await until(lambda: not control._clients)
        asked = Asked.of(place)
        assert asked is not None
        with asked:
            asked.ask("watch")
            assert await next_of(asked)


async def test_a_stop_that_nobody_waits_for(tmp_path: Path) -> None:
    """It holds, also if whoever asked was gone before it was read."""
    async with controlled(tmp_path) as (control, served, place):
        for _ in range(2):
            asked = Asked.of(place)
            assert asked is not None
            asked.ask("stop")
            asked.close()
        await until(lambda: served.stops == ["mirror stop"] * 2)
        await until(lambda: not control._clients)


async def test_what_a_predecessor_has_left(tmp_path: Path) -> None:
    """Its socket takes no connection, and is replaced."""
    place = Place(tmp_path / "west.yaml", tmp_path)
    assert Asked.of(place) is None
    async with controlled(tmp_path):
        pass
    assert (tmp_path / "control").exists()
    assert Asked.of(place) is None
    async with controlled(tmp_path):
        asked = Asked.of(place)
        assert asked is not None
        asked.close()


async def test_garbage(tmp_path: Path) -> None:
    """What is no request is none."""
    async with controlled(tmp_path) as (_, served, place):
        with place.control() as path:
            reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"stop it\n\xff\x00\n" + b"x" * 100_000)
        assert await reader.read() == b"", "the connection is closed"
        writer.close()
        assert served.stops == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
async def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """It says which folder that is, why, and what to do. No socket stays open."""

    def bind(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("mirror.service.instance.control.socket.socket.bind", bind)
    control = Control(Place(tmp_path / "west.yaml", tmp_path))
    with pytest.raises(ListenFailed) as caught:
        await control.open(Served())
    await control.close()
    told = str(caught.value)
    assert told.startswith(f"{tmp_path} cannot be used: {os.strerror(error)}; ")
    assert "set $XDG_STATE_HOME to " in told
