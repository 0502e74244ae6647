"""A few lines where thousands of partitions have the same to tell, and one for a cluster that is away."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirror.net.options import UP_FOR_S
from mirror.service.log import digest
from mirror.service.log.digest import FREE, WINDOW_MOST_S, Digest
from mirror.service.telemetry.outages import ClusterBack, ClusterLost, Outages
from tests.fakes.loop import until
from tests.service.stage.workers import Workers


class Timer:
    """A call at a time to come."""

    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Lines:
    """A logger that keeps what it is told."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.lines = lines
        self.now = 0.0

    def _keep(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.lines.append({"event": event, "level": level, "at": self.now, **fields})

    def info(self, event: str, **fields: object) -> None:
        self._keep("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._keep("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._keep("error", event, fields)


class Scene(Lines):
    """A digest on a clock that is a number, and what it wrote."""

    def __init__(self) -> None:
        super().__init__([])
        self.timers: list[Timer] = []
        self.digest = Digest(self, call_later=self.call_later)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + delay_s, call))
        return self.timers[-1]

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [each for each in self.timers if each.at <= until and not each.cancelled]:
            first = min(due, key=lambda each: each.at)
            self.timers.remove(first)
            self.now = first.at
            first.call()
        self.now = until

    def doubts(self, partitions: int, cause: str = "connection_lost") -> None:
        for index in range(partitions):
            self.digest.info("resync", topic=f"t{index % 2}", partition=index // 2, cause=cause, detail=f"d{index}")


def test_a_few_are_told_as_they_are() -> None:
    scene = Scene()
    scene.doubts(FREE)
    scene.pass_time(100)
    assert [(line["topic"], line["partition"]) for line in scene.lines] == [
        (f"t{index % 2}", index // 2) for index in range(FREE)
    ]
    assert not scene.timers


def test_many_are_told_as_their_number() -> None:
    """The first few as they are; the others as one line a second later, with which they are and the last detail."""
    scene = Scene()
    scene.doubts(2_000)
    assert len(scene.lines) == FREE
    scene.pass_time(1.0)
    assert len(scene.lines) == FREE + 1
    line = scene.lines[-1]
    assert (line["event"], line["level"], line["cause"], line["at"]) == ("resync", "info", "connection_lost", 1.0)
    assert (line["lines"], line["count"]) == (2_000 - FREE, 2_000 - FREE)
    assert line["detail"] == "1995 more, of 1,995 partitions; the last: d1999"
    assert line["partitions"]["t1"] == list(range(2, 1_000))
    assert "topic" not in line


def test_kinds_are_told_apart() -> None:
    """Other causes, events and levels have windows of their own."""
    scene = Scene()
    scene.doubts(FREE + 1)
    scene.doubts(FREE + 1, cause="request_timed_out")
    for _ in range(FREE + 2):
        scene.digest.warning("topics_not_refreshed", detail="x")
        scene.digest.error("topics_not_refreshed", detail="x")
    assert len(scene.lines) == 4 * FREE
    scene.pass_time(1.0)
    held = scene.lines[4 * FREE :]
    assert [(line["level"], line["event"], line.get("cause"), line["lines"]) for line in held] == [
        ("info", "resync", "connection_lost", 1),
        ("info", "resync", "request_timed_out", 1),
        ("warning", "topics_not_refreshed", None, 2),
        ("error", "topics_not_refreshed", None, 2),
    ]
    assert held[2]["detail"] == "2 more; the last: x"


def test_a_long_outage() -> None:
    """200 partitions that look again every half a second for five minutes: a dozen lines. Then all begins anew."""
    scene = Scene()
    for _ in range(600):
        scene.doubts(200)
        scene.pass_time(0.5)
    told = len(scene.lines)
    assert told <= FREE + 12
    gaps = [later["at"] - line["at"] for line, later in zip(scene.lines[FREE:], scene.lines[FREE + 1 :], strict=False)]
    assert gaps == sorted(gaps)
    assert max(gaps) <= WINDOW_MOST_S
    scene.pass_time(3 * WINDOW_MOST_S)
    scene.doubts(1)
    assert scene.lines[-1]["topic"] == "t0"
    assert sum(int(line.get("lines", 1)) for line in scene.lines) == 600 * 200 + 1


def test_what_somebody_has_to_act_on_is_never_held_back() -> None:
    scene = Scene()
    for index in range(100):
        scene.digest.warning("halted", topic="t", partition=index, reason="r", remedy="m")
    assert len(scene.lines) == 100
    assert not scene.timers


def test_the_end_tells_the_rest() -> None:
    scene = Scene()
    scene.doubts(FREE + 3)
    scene.digest.close()
    assert scene.lines[-1]["lines"] == 3
    scene.pass_time(100)
    assert len(scene.lines) == FREE + 1


@pytest.mark.parametrize("level", ["info", "debug"])
async def test_what_workers_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """
    1. Eight workers with 250 partitions each have lost their connections: a few lines for all of them together.
    2. Without the rule, which is what debug does: a line for each.
    """
    workers = Workers(tmp_path, monkeypatch, workers=8, top={"log.level": level})
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(workers.flow, "log", Lines(lines))
    workers.supervisor.digest()
    for number in range(1, 9):
        for index in range(250):
            fields = {"topic": "t", "partition": 250 * number + index, "cause": "connection_lost", "detail": "gone"}
            workers.say(number, "log", level="info", event="resync", fields=fields)
    if level == "debug":
        assert len(lines) == 2_000
        return
    await until(lambda: len(lines) == FREE + 1)
    assert lines[0]["worker"] == 1
    assert lines[-1]["workers"] == list(range(1, 9))
    assert lines[-1]["count"] == 2_000 - FREE


def test_a_window_that_never_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule taken away: the same long outage is a line a second."""
    monkeypatch.setattr(digest, "WINDOW_MOST_S", digest.WINDOW_S)
    scene = Scene()
    for _ in range(600):
        scene.doubts(200)
        scene.pass_time(0.5)
    assert len(scene.lines) > 200


# Clusters.


def test_a_cluster_that_goes_and_comes() -> None:
    """
    1. One that was never there is not lost: what waits for it says so.
    2. One line when it goes, one when it comes back, with how long it was away.
    """
    outages = Outages()
    assert outages.look({"a": False, "b": False}, 0.0) == []
    assert outages.look({"a": True, "b": False}, 1.0) == []
    assert outages.look({"a": True, "b": True}, 2.0) == []
    assert outages.look({"a": True, "b": False}, 10.0) == [ClusterLost("b")]
    for second in range(11, 100):
        assert outages.look({"a": True, "b": False}, second) == []
    assert outages.look({"a": False, "b": True}, 100.0) == [ClusterLost("a"), ClusterBack("b", 90.0 + UP_FOR_S)]
    assert outages.look({"a": True, "b": True}, 101.0) == [ClusterBack("a", 1.0 + UP_FOR_S)]
