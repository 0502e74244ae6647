"""How a side is read to its ends: by a consumer that is slow, or stuck."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Message

from chaos.errors import ChaosError
from chaos.judging.reading import _drain
from tests.chaos.test_waiting import Clock, clock

__all__ = ["clock"]

NAME = ("orders", 0)


class SlowConsumer:
    """Gives a record with each call, which takes some time; nothing any more from an offset on."""

    def __init__(self, clock: Clock, *, end: int, seconds: float, stuck_at: int) -> None:
        self._clock = clock
        self._end = end
        self._seconds = seconds
        self._offsets: Iterator[int] = iter(range(stuck_at))

    def get_watermark_offsets(self, *_: Any) -> tuple[int, int]:
        return 0, self._end

    def consume(self, *_: Any) -> list[Any]:
        self._clock.sleep(self._seconds)
        offset = next(self._offsets, None)
        given = SimpleNamespace(
            topic=lambda: NAME[0], partition=lambda: NAME[1], error=lambda: None, offset=lambda: offset
        )
        return [] if offset is None else [given]


def content(_: Message) -> bytes:
    return b"a record"


def test_a_slow_consumer_is_waited_for(clock: Clock) -> None:
    """Five records, 100 s each: on a busy machine the whole takes longer than anything may stand still."""
    found: dict[tuple[str, int], dict[int, bytes]] = {NAME: {}}
    _drain(cast("Consumer", SlowConsumer(clock, end=5, seconds=100, stuck_at=5)), found, content)
    assert list(found[NAME]) == [0, 1, 2, 3, 4]


def test_a_consumer_that_is_stuck_fails_its_scenario(clock: Clock) -> None:
    slow = SlowConsumer(clock, end=5, seconds=100, stuck_at=3)
    with pytest.raises(ChaosError, match=r"did not reach the end of \[\('orders', 0\)\] in 500 s, 3 records"):
        _drain(cast("Consumer", slow), {NAME: {}}, content)
