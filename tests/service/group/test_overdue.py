"""A worker that was stopped for a while has not waited for its seat in the group meanwhile."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from mirror.service.flows import run as run_module
from mirror.service.group.overdue import Overdue
from tests.fakes.loop import until
from tests.relay.stage.flows import clusters
from tests.service.stage.worker_here import Seat, config_for, running, scene

PATIENCE_S = 1.0


def test_it_adds_up_until_it_is_there() -> None:
    now = 100.0
    overdue = Overdue(lambda: now, most_step_s=2.0)
    for at, missing, seconds in ((100.5, True, 0.5), (101.5, True, 1.5), (102.0, False, 0.0), (103.0, True, 1.0)):
        now = at
        assert overdue.look(missing=missing) == pytest.approx(seconds)
    assert overdue.seconds == pytest.approx(1.0)


def test_time_in_which_nobody_looked() -> None:
    now = 0.0
    overdue = Overdue(lambda: now, most_step_s=2.0)
    now = 1_000.0
    assert overdue.look(missing=True) == pytest.approx(2.0)
    now = 1_000.5
    assert overdue.look(missing=True) == pytest.approx(2.5)


async def test_a_frozen_worker_has_not_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. The process is stopped for longer than a worker waits for a seat; when it wakes, its session is over.
    2. It joins again, and goes on.
    """
    monkeypatch.setattr(run_module, "WATCH_S", 0.02)
    monkeypatch.setattr(run_module, "MOST_WATCH_S", 0.1)
    monkeypatch.setattr("mirror.service.flows.run.FlowRun._join_patience_s", lambda _: PATIENCE_S)
    looks = 0
    subscribe = Seat.subscribe

    def looked(seat: Seat, topics: Iterable[str]) -> None:
        nonlocal looks
        looks += 1
        subscribe(seat, topics)

    monkeypatch.setattr(Seat, "subscribe", looked)
    async with clusters() as (source, destination):
        scene(source)
        async with running(config_for(source, destination, tmp_path)) as worker:
            await worker.message("joined")
            await until(lambda: looks > 1)
            before = looks
            worker.seats[0].joined = False
            time.sleep(2 * PATIENCE_S)  # noqa: ASYNC251 - the whole process stands still
            await until(lambda: looks > before or worker.task.done())
            worker.seats[0].joined = True
            assert await worker.stop() == 0
            assert not worker.of("failed")
