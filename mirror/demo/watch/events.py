"""The JSON lines that `mirror run` writes, read as they are written. Parsing is pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Follower", "HaltEvent", "ProgressEvent", "halt", "progress", "read_event", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressEvent:
    """One progress event, as `mirror run` writes it.

    Attributes:
        lag_records: records at the source that the destination has not acknowledged yet, in partitions whose lag is
            known; None if none is known.
        lag_unknown: number of partitions whose lag is not known; they are not in ``lag_records``.
        bytes: bytes forwarded so far.
        bytes_per_s: bytes forwarded per second since the previous event.
        batches_forwarded: number copied as they were.
        batches_opened: number copied on the deep path.
        partitions: state -> number of partitions.
        cpu_s: user and system time of the workers, since their start.
        rss_bytes: resident memory of the workers.
    """

    lag_records: int | None
    lag_unknown: int
    bytes: int
    bytes_per_s: int
    batches_forwarded: int
    batches_opened: int
    partitions: Mapping[str, int]
    cpu_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltEvent:
    """A partition that stopped, with its reason."""

    topic: str
    partition: int
    reason: str
    detail: str
    remedy: str
    at: str = ""
    """Time of the event: ISO 8601, UTC."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} halted, {self.reason}: {self.detail}\n    remedy: {self.remedy}"


def read_event(line: str) -> dict[str, Any] | None:
    """Returns the event of a line; None if the line is no event (a warning of the interpreter, a traceback)."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def progress(event: Mapping[str, Any]) -> ProgressEvent | None:
    """Returns the progress that an event reports; None if it is another event."""
    if event["event"] != "progress":
        return None
    return ProgressEvent(
        lag_records=event["lag_records"],
        lag_unknown=int(event["lag_unknown_partitions"]),
        bytes=int(event["bytes"]),
        bytes_per_s=int(event["bytes_per_s"]),
        batches_forwarded=int(event["batches_forwarded"]),
        batches_opened=int(event["batches_opened"]),
        partitions={str(state): int(count) for state, count in event["partitions"].items()},
        cpu_s=float(event["cpu_s"]),
        rss_bytes=int(event["rss_bytes"]),
    )


def halt(event: Mapping[str, Any]) -> HaltEvent | None:
    """Returns the halt that an event reports; None if it is another event."""
    if event["event"] != "halted" or "topic" not in event:
        return None
    return HaltEvent(
        topic=str(event["topic"]),
        partition=int(event["partition"]),
        reason=str(event.get("reason", "")),
        detail=str(event.get("detail", "")),
        remedy=str(event.get("remedy", "")),
        at=str(event.get("timestamp", "")),
    )


def warning(event: Mapping[str, Any]) -> str | None:
    """Returns a warning or an error as one readable line; None for other events, and for ``repeats_suppressed``, which
    has no news."""
    if event.get("level") not in ("warning", "error", "critical") or event["event"] == "repeats_suppressed":
        return None
    where = f" {event['topic']}-{event['partition']}" if "topic" in event and "partition" in event else ""
    why = ", ".join(str(event[key]) for key in ("reason", "detail") if event.get(key))
    return f"{event['event']}{where}: {why}".removesuffix(": ")


class Follower:
    """Reads a growing file line by line, whole lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def lines(self) -> Iterator[str]:
        """Yields the lines that were completed since the last call; none if the file does not exist yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                grown = file.read()
        except FileNotFoundError:
            return
        whole = grown[: grown.rfind(b"\n") + 1]
        self._at += len(whole)
        yield from whole.decode(errors="replace").splitlines()
