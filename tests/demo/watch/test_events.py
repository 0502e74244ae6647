"""What `mirror run` says, read line by line as it grows."""

import json
from pathlib import Path
from typing import Any

import pytest

from mirror.demo.watch import events
from mirror.demo.watch.events import Follower

PROGRESS: dict[str, Any] = {
    "event": "progress", "level": "info", "timestamp": "2026-01-01T00:00:00Z", "flow": "source->destination",
    "lag_records": 12, "lag_unknown_partitions": 1, "bytes": 1_000, "bytes_per_s": 500,
    "batches_forwarded": 3, "batches_opened": 0, "partitions": {"active": 2, "locating": 1},
    "cpu_s": 0.25, "rss_bytes": 40_000_000, "resyncs": {"start": 3},
}  # fmt: skip
HALTED: dict[str, Any] = {
    "event": "halted", "level": "error", "topic": "orders", "partition": 3, "reason": "not_a_copy",
    "detail": "the destination holds other records", "remedy": "give it an empty topic",
}  # fmt: skip


def test_progress_is_taken_whole_and_what_is_new_is_left() -> None:
    read = events.progress(PROGRESS)
    assert read is not None
    assert (read.lag_records, read.lag_unknown, read.bytes, read.bytes_per_s) == (12, 1, 1_000, 500)
    assert (read.batches_forwarded, read.batches_opened) == (3, 0)
    assert read.partitions == {"active": 2, "locating": 1}
    assert (read.cpu_s, read.rss_bytes) == (0.25, 40_000_000)
    assert events.progress(HALTED) is None


def test_a_halt_says_where_why_and_what_to_do() -> None:
    halt = events.halt(HALTED)
    assert str(halt) == (
        "orders-3 halted, not_a_copy: the destination holds other records\n    remedy: give it an empty topic"
    )
    assert events.halt(PROGRESS) is None
    assert events.halt({"event": "halted"}) is None


@pytest.mark.parametrize(
    "line", ["", "Traceback (most recent call last):", "[1]", "{}", '{"event": 3}', '"event"', "{"]
)
def test_what_is_no_event_is_told_apart(line: str) -> None:
    assert events.read_event(line) is None


def test_an_event() -> None:
    assert events.read_event(json.dumps(PROGRESS)) == PROGRESS


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (PROGRESS, None),
        (HALTED, "halted orders-3: not_a_copy, the destination holds other records"),
        ({"event": "failed", "level": "error", "reason": "SameCluster", "detail": "both"}, "failed: SameCluster, both"),
        ({"event": "killed", "level": "warning"}, "killed"),
        ({"event": "repeats_suppressed", "level": "warning", "suppressed": 2}, None),
    ],
)
def test_warnings_are_told_in_a_line(event: dict[str, Any], text: str | None) -> None:
    assert events.warning(event) == text


def test_follower_gives_each_line_once_when_it_is_whole(tmp_path: Path) -> None:
    """1. No file yet. 2. A line and a half. 3. The other half, cut inside a character. 4. Nothing new."""
    path = tmp_path / "log"
    follower = Follower(path)
    assert list(follower.lines()) == []
    whole = "first\nsecönd\n".encode()
    cut = whole.index("ö".encode()) + 1
    path.write_bytes(whole[:cut])
    assert list(follower.lines()) == ["first"]
    with path.open("ab") as file:
        file.write(whole[cut:])
    assert list(follower.lines()) == ["secönd"]
    assert list(follower.lines()) == []
