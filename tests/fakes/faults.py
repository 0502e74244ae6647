"""What a fake broker does to one request instead of answering it plainly: ``FakeCluster.next`` scripts one.

The parts of a fault combine.
"""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class Fault:
    """``came`` is set when the request arrives, ``gate`` holds the answer back until it is set."""

    error: int = 0
    """Every partition (that ``only`` names) is answered with this code."""
    only: tuple[str, int] | None = None
    effect: bool = False
    """With ``error``: whether the request does its work all the same, as with REQUEST_TIMED_OUT."""
    alter: Callable[[Any], None] | None = None
    """Changes the answer before it is encoded."""
    spoil: Callable[[bytes], bytes] | None = None
    """Changes the answer's frame, its size in front."""
    cut_after: int | None = None
    """So many bytes of the frame are sent, then the connection closes."""
    silent: bool = False
    gate: asyncio.Event | None = None
    when: Callable[[Any], bool] | None = None
    """It waits for a request of which this is true."""
    late_s: float = 0.0
    """The request waits so long at the broker before it is done, whatever becomes of its connection meanwhile."""
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self) -> None:
        """Lets the answer go that was held back."""
        assert self.gate is not None
        self.gate.set()


def refuse(code: int, only: tuple[str, int] | None = None) -> Fault:
    """An error code; nothing is done."""
    return Fault(error=code, only=only)


def doubtful(code: int) -> Fault:
    """An error code, and the request was done."""
    return Fault(error=code, effect=True)


def disconnect(after_bytes: int = 0) -> Fault:
    """The request is done, and the answer breaks off."""
    return Fault(cut_after=after_bytes)


def silence() -> Fault:
    """The request is done and never answered."""
    return Fault(silent=True)


def held() -> Fault:
    """Answered when it is opened."""
    return Fault(gate=asyncio.Event())


def late(seconds: float) -> Fault:
    """The bytes of a slow or dead sender arrive in the end."""
    return Fault(late_s=seconds)


def alter(change: Callable[[Any], None]) -> Fault:
    """An answer with other content."""
    return Fault(alter=change)


def nothing() -> Fault:
    """A Fetch that brings no records."""

    def change(answer: Any) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                partition.records = b""

    return Fault(alter=change)


def throttle(ms: int) -> Fault:
    """throttle_time_ms in the answer."""

    def change(answer: Any) -> None:
        answer.throttle_time_ms = ms

    return Fault(alter=change)


def wrong_correlation_id() -> Fault:
    """The answer to another request, so it seems."""
    return Fault(spoil=lambda frame: frame[:4] + struct.pack(">i", 0x5EED) + frame[8:])


def malformed(body: bytes) -> Fault:
    """An answer of these bytes behind the right correlation id."""
    return Fault(spoil=lambda frame: struct.pack(">i", 4 + len(body)) + frame[4:8] + body)


def raw(frame: bytes) -> Fault:
    """These bytes instead of the answer's frame, size and all."""
    return Fault(spoil=lambda _: frame)
