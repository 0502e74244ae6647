"""Somebody else's record among the filler before a source's first record: it is not deleted together with that.

The log is a model, so that every moment can be played; ``test_leading`` has the same once on a real broker.
"""

from contextlib import asynccontextmanager
from typing import Any

import pytest

from mirror.net.errors import NetworkError
from mirror.net.logs.log import Producer
from mirror.records.filler import filler_batch, filler_id
from mirror.records.header import BatchHeader
from mirror.records.identity import producer_id
from mirror.relay.halts import PartitionHalted
from mirror.relay.leading import filler as leading
from mirror.relay.leading.filler import Begun, Lead, lead
from tests.fakes.log import FakeLog
from tests.records.builders import raw_batch
from tests.relay.stage.flows import Log

PARTS: dict[str, Any] = {"flow": "a->b", "cluster_id": "c", "topic": "t", "partition": 0}
FILLER = filler_id(**PARTS)
STRIDE = 1_000
RULES = Lead(name="t-0", owner=producer_id(**PARTS), filler=FILLER, most=10**9, most_bytes=2_000)
START = 3 * STRIDE + 500
"""The source's."""
STRANGER = 77


class Here:
    """A source's log that begins at ``START``."""

    async def start(self) -> int:
        return START

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        return None


class There:
    """The destination's log, at a broker that forgets producers at once, as it does those of old records.

    Attributes:
        intrudes: so many batches of filler are appended before somebody else's record.
    """

    name = "t-0 at destination"

    def __init__(self, intrudes: int = -1) -> None:
        self.log = FakeLog()
        self.intrudes = intrudes
        self.sent = 0

    async def start(self) -> int:
        return self.log.start

    async def true_end(self) -> int:
        return self.log.end

    visible_end = true_end

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        for batch in self.log.batches:
            header = BatchHeader.read(batch)
            if header.last_offset >= offset:
                return header, batch
        return None

    async def read(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("not needed")

    async def producers(self) -> list[Producer] | None:
        return []

    async def takes_zstd(self) -> bool:
        return True

    async def produce(self, batch: bytes) -> int:
        if self.sent == self.intrudes:
            self.intrude()
        self.sent += 1
        self.log.producers.clear()
        error, base = self.log.produce(batch)
        assert not error
        return base

    async def delete_before(self, offset: int) -> None:
        self.log.delete_before(offset)

    def intrude(self) -> None:
        """Somebody else appends a record."""
        self.log.store(raw_batch(b"of others", base_offset=self.log.end, leader_epoch=0, producer_id=STRANGER))

    def fill(self, offset: int, count: int = STRIDE, *, rotation: int = 0) -> None:
        """A predecessor's filler for ``offset``, wherever it lands."""
        self.log.producers.clear()
        batch = filler_batch(producer=FILLER + rotation, offset=offset, count=count, timestamp=0)
        assert not self.log.produce(batch)[0]

    @property
    def strangers(self) -> int:
        """Records of others that the log still has."""
        return sum(BatchHeader.read(batch).producer_id == STRANGER for batch in self.log.batches)


class Cleanup:
    """Of a topic that is not compacted."""

    @asynccontextmanager
    async def suspended(self) -> Any:
        yield

    async def finish(self) -> None:
        pass

    async def suspend_again(self) -> bool:
        return False


async def led(there: There) -> None:
    """Passes of one process after the other, until it is not in doubt."""

    async def owns() -> bool:
        return True

    for _ in range(10):
        try:
            await lead(
                Here(), there, RULES, Begun(), settled=there.true_end, owns=owns, cleanup=Cleanup(), log=Log(),
            )  # fmt: skip
            return
        except NetworkError:
            pass
    raise AssertionError("in doubt for ever")


async def test_nobody_else_writes() -> None:
    there = There()
    await led(there)
    assert (there.log.start, there.log.end, there.sent) == (START, START, 4)


@pytest.mark.parametrize("before", [1, 2, 3])
async def test_between_two_batches_of_filler(before: int) -> None:
    """It halts at the next look, also where our filler came to reach beyond the source's first record."""
    there = There(before)
    with pytest.raises(
        PartitionHalted, match=f"foreign_writer: .*offset {before * STRIDE} is of producer id 77"
    ) as stop:
        await led(there)
    assert stop.value.writer == STRANGER
    assert (there.log.start, there.strangers) == (0, 1)


async def test_before_all_filler() -> None:
    """A log that does not begin with filler is left alone: whoever looks for its position judges it."""
    there = There(0)
    await led(there)
    assert (there.log.start, there.strangers) == (0, 1)


@pytest.mark.parametrize("rest", [0, 1, 499])
async def test_a_predecessor_went_on_behind_it(rest: int) -> None:
    """
    1. Filler, a record of others, filler behind it, displaced or under the next rotation, up to the source's first
       record or short of it; then its process was killed.
    2. Whoever comes next halts.
    """
    for rotation, behind in ((0, STRIDE), (1, STRIDE + 1)):
        there = There()
        there.fill(0)
        there.intrude()
        there.fill(behind, rotation=rotation)
        there.fill(there.log.end, START - there.log.end - rest, rotation=1)
        assert there.log.end == START - rest
        with pytest.raises(PartitionHalted, match="foreign_writer"):
            await led(there)
        assert there.strangers == 1


async def test_filler_that_came_twice_is_filler() -> None:
    """A batch that the broker did not recognise as a repeat: displaced, and nobody else's. It goes on, and all is
    deleted."""
    there = There()
    there.fill(0)
    there.fill(0)
    await led(there)
    assert (there.log.start, there.log.end) == (START, START)


async def test_without_looking_it_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: others' record is deleted with the filler around it, and nobody hears of it."""

    async def unlooked(*_: object) -> None:
        pass

    monkeypatch.setattr(leading, "check_alone", unlooked)
    there = There(1)
    await led(there)
    assert (there.log.start, there.strangers) == (START, 0)
