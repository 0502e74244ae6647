"""How fast the source is read: one stretch of each broker, bounded."""

import asyncio
from typing import Any

from mirror.net.errors import Unreachable
from mirror.net.logs.log import Segment
from mirror.net.metadata import Leader
from mirror.service.plan.ask.samples import MOST_AT_ONCE
from mirror.service.plan.ask.speed import Stretch, measured
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook
from tests.service.plan.ask.test_samples import batch


class Log:
    """Answers with batches of ``size`` bytes and ten offsets, at this pace."""

    def __init__(self, node_id: int, size: int = 1 << 19, *, fails: bool = False) -> None:
        self.leader = Leader(node_id, 0)
        self.size = size
        self.fails = fails
        self.read_n = 0

    async def read(self, offset: int, *, max_bytes: int) -> Segment:
        assert max_bytes <= MOST_AT_ONCE
        if self.fails:
            raise Unreachable("no")
        self.read_n += 1
        await asyncio.sleep(0.001)
        header, raw = batch(offset)
        found = [(header._replace(length=self.size - 12), raw)]
        return Segment(found, [], high_watermark=1 << 40, last_stable_offset=1 << 40, log_start=0)


def stretch(log: Log, length: int = 1_000_000) -> Any:
    return Stretch(log, 0, length)  # type: ignore[arg-type]


async def test_it_is_bounded() -> None:
    """So many bytes of all brokers together; of each broker the longest stretch."""
    one, short, other = Log(1), Log(1), Log(2)
    rate = await measured([stretch(one), stretch(short, 10), stretch(other)], 8 << 20)
    assert (one.read_n, short.read_n, other.read_n) == (8, 0, 8)
    assert rate > 0


async def test_too_little_tells_nothing() -> None:
    assert await measured([], 1 << 20) == 0.0
    assert await measured([stretch(Log(1, size=100), 10)], 1 << 20) == 0.0


async def test_a_broker_that_does_not_answer() -> None:
    """The others count."""
    assert await measured([stretch(Log(1, fails=True)), stretch(Log(2))], 8 << 20) > 0
    assert await measured([stretch(Log(1, fails=True))], 8 << 20) == 0.0
