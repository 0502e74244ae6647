"""Faults: what a fake broker does to one request instead of answering it normally. ``FakeCluster.next`` scripts them.

The parts of a fault can be combined.
"""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class Fault:
    """What happens to one request. ``came`` is set when the request arrives. ``gate`` holds the response back until it
    is set."""

    error: int = 0
    """The error code for every partition, or for the one in ``only``."""
    only: tuple[str, int] | None = None
    effect: bool = False
    """With ``error``: True if the request does its work all the same, as with REQUEST_TIMED_OUT."""
    alter: Callable[[Any], None] | None = None
    """Changes the response before it is encoded."""
    spoil: Callable[[bytes], bytes] | None = None
    """Changes the response's frame, which begins with its size."""
    cut_after: int | None = None
    """The number of bytes of the frame that are sent before the connection closes."""
    silent: bool = False
    gate: asyncio.Event | None = None
    when: Callable[[Any], bool] | None = None
    """The fault waits for a request for which this returns True."""
    late_s: float = 0.0
    """The time for which the request waits at the broker before it is done, even if its connection ends meanwhile."""
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self) -> None:
        """Releases the response that was held back."""
        assert self.gate is not None
        self.gate.set()


def refuse(code: int, only: tuple[str, int] | None = None) -> Fault:
    """The request fails with an error code, and is not done."""
    return Fault(error=code, only=only)


def doubtful(code: int) -> Fault:
    """The request fails with an error code, although it was done."""
    return Fault(error=code, effect=True)


def disconnect(after_bytes: int = 0) -> Fault:
    """The request is done, and the connection breaks within the response."""
    return Fault(cut_after=after_bytes)


def silence() -> Fault:
    """The request is done and never answered."""
    return Fault(silent=True)


def held() -> Fault:
    """The request is answered once ``Fault.open`` is called."""
    return Fault(gate=asyncio.Event())


def late(seconds: float) -> Fault:
    """The request is done late, as if its sender were slow or dead."""
    return Fault(late_s=seconds)


def alter(change: Callable[[Any], None]) -> Fault:
    """The response has other content."""
    return Fault(alter=change)


def nothing() -> Fault:
    """A Fetch returns no records."""

    def change(answer: Any) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                partition.records = b""

    return Fault(alter=change)


def throttle(ms: int) -> Fault:
    """The response has this throttle_time_ms."""

    def change(answer: Any) -> None:
        answer.throttle_time_ms = ms

    return Fault(alter=change)


def wrong_correlation_id() -> Fault:
    """The response seems to be to another request."""
    return Fault(spoil=lambda frame: frame[:4] + struct.pack(">i", 0x5EED) + frame[8:])


def malformed(body: bytes) -> Fault:
    """The response has the right correlation id, and this body."""
    return Fault(spoil=lambda frame: struct.pack(">i", 4 + len(body)) + frame[4:8] + body)


def raw(frame: bytes) -> Fault:
    """This frame, including its size, is sent instead of the response."""
    return Fault(spoil=lambda _: frame)
