"""The same requests to a broker and to the model of one: the same answers, and the same log at the end."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from mirror.net.cluster import Cluster
from mirror.net.errors import Refused
from mirror.net.logs.log import Marker, PartitionLog, Producer
from mirror.net.options import ClusterOptions
from mirror.records.header import SEQUENCES, BatchHeader
from tests.records.builders import Record, kafka_batch
from tests.simulation.model.broker import PartitionModel, Remembered

TOPIC = "differential"
PARTITIONS = 16
PRODUCERS = (1 << 62 | 5, 1 << 62 | 77, 4_000_000)
EPOCHS = 32_760
NOW_MS = round(time.time() * 1000)
"""Older records would be forgotten with their producers at the first restart (producer.id.expiration.ms)."""
BROKER_SIDE = ("leader_epoch", "crc", "base_timestamp", "max_timestamp")
"""Of a marker: the broker's own clock, and the leader epoch, which counts its restarts."""


def batch(count: int, producer_id: int, epoch: int, sequence: int, content: int) -> bytes:
    """A batch of ``count`` records that an encoder other than ours made; ``content`` tells it from all others."""
    records = [Record(at, NOW_MS + at, None, b"%d.%d" % (content, at)) for at in range(count)]
    return kafka_batch(
        records, leader_epoch=-1, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence % SEQUENCES
    )


async def answered(call: Awaitable[Any]) -> tuple[int, Any]:
    """(error code, result) of a request."""
    try:
        return 0, await call
    except Refused as error:
        return error.code, None


class Pair:
    """A partition of the real broker and its model, which get the same requests."""

    def __init__(self, seed: int, log: PartitionLog) -> None:
        self.chance = random.Random(seed)
        self.model = PartitionModel()
        self.log = log
        self.trace = [f"seed {seed}"]
        self.contents = 0

    # -- requests drawn so that they are mostly nearly right ---

    def _state(self, producer_id: int) -> tuple[int, list[Remembered]]:
        state = self.model.producers.get(producer_id)
        return (state.epoch, list(state.batches)) if state else (0, [])

    def draw_batch(self) -> bytes:
        """The next one, a repeat, or one that is wrong in some way."""
        chance = self.chance
        producer_id = chance.choice(PRODUCERS)
        epoch, known = self._state(producer_id)
        count = chance.randint(1, 4)
        due = known[-1].last_sequence + 1 if known else 0
        kind = chance.random()
        if kind < 0.45:
            sequence = due
        elif kind < 0.75 and known:
            again = chance.choice(known)
            sequence = again.first_sequence
            if chance.random() < 0.8:
                count = (again.last_sequence - again.first_sequence) % SEQUENCES + 1
        elif kind < 0.85:
            sequence = max(0, due + chance.choice([-7, -2, -1, 1, 2]))
        elif kind < 0.9 and producer_id not in self.model.producers:
            sequence = SEQUENCES - chance.randint(1, 6)
        elif kind < 0.95:
            epoch, sequence = min(EPOCHS, epoch + chance.choice([1, 2])), chance.choice([0, 0, 0, 3])
        else:
            epoch, sequence = max(0, epoch - 1), due
        self.contents += 1
        return batch(count, producer_id, epoch, sequence, self.contents)

    async def produce(self) -> None:
        sent = self.draw_batch()
        header = BatchHeader.read(sent)
        expected = self.model.produce(sent)
        self.model.replicate()
        self.note(f"produce {header[9:12]} x{header.record_count}", expected)
        code, base = await answered(self.log.produce(sent))
        assert code == expected.error, f"{code}, {self.told()}"
        assert code or base == expected.base_offset, f"{base}, {self.told()}"

    async def write_markers(self) -> None:
        producer_id = self.chance.choice(PRODUCERS)
        epoch = max(0, self._state(producer_id)[0] + self.chance.choice([-1, 0, 0, 1, 1, 2]))
        count = self.chance.choice([1, 1, 2, 5])
        marker = Marker(producer_id, epoch, self.chance.choice([0, 0, 1, 2]))
        errors = {self.model.write_marker(*marker) for _ in range(count)}
        self.model.replicate()
        self.note(f"{count} markers {marker}", errors)
        code, _ = await answered(self.log.write_markers(marker, count))
        assert errors == {code}, f"{code}, {self.told()}"

    async def look(self) -> None:
        model = self.model
        ends = await self.log.start(), await self.log.true_end(), await self.log.visible_end()
        assert ends == (model.start, model.end, model.visible_end), self.told()
        await self.same_producers()
        if model.end > model.start:
            offset = self.chance.randrange(model.start, model.end)
            found = await self.log.batch_at(offset)
            assert found is not None, self.told()
            assert found[0].base_offset == model.read(offset)[0].header.base_offset, self.told()

    async def same_producers(self) -> None:
        known = await self.log.producers()
        expected = [
            Producer(key, state.epoch, state.last_sequence, state.coordinator_epoch)
            for key, state in self.model.producers.items()
        ]
        assert sorted(known or []) == sorted(expected), self.told()

    async def delete(self) -> None:
        offset = self.chance.randint(self.model.start, self.model.end + 2)
        expected = self.model.delete_before(offset)
        self.note(f"delete before {offset}", expected)
        code, _ = await answered(self.log.delete_before(offset))
        assert code == expected, f"{code}, {self.told()}"

    async def step(self) -> None:
        kinds: list[Any] = [self.produce, self.write_markers, self.look, self.delete]
        await self.chance.choices(kinds, [70, 18, 10, 2])[0]()

    # -- the comparison ---

    async def same_log(self) -> None:
        """Batch for batch, as far as the log still has them."""
        model = self.model
        assert await self.log.true_end() == model.end, self.told()
        at = model.start
        stored = {one.header.base_offset: one for one in model.batches}
        while at < model.end:
            segment = await self.log.read(at, max_bytes=1 << 20)
            for header, data in segment.batches:
                mine = stored[header.base_offset]
                if header.is_control:
                    assert ours(header) == ours(mine.header), self.told()
                    assert bytes(data[61:]) == mine.payload, self.told()
                else:
                    assert header._replace(leader_epoch=0) == mine.header._replace(leader_epoch=0), self.told()
                    assert bytes(data[61:]) == mine.payload, self.told()
                at = header.next_offset

    def note(self, what: str, answer: object) -> None:
        self.trace.append(f"{what}: {answer}, end {self.model.end}")

    def told(self) -> str:
        """How it came to this."""
        return "\n".join(self.trace[-40:])


def ours(header: BatchHeader) -> BatchHeader:
    """A marker's header without what is the broker's."""
    return header._replace(**dict.fromkeys(BROKER_SIDE, 0))


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Cluster]:
    host, _, port = bootstrap.partition(":")
    async with await Cluster.open("real", ClusterOptions(bootstrap=((host, int(port)),))) as cluster:
        yield cluster


async def logs_of(cluster: Cluster) -> list[PartitionLog]:
    """All partitions, when each has its leader."""
    while True:
        await cluster.refresh([TOPIC])
        leaders = [cluster.leader(TOPIC, index) for index in range(PARTITIONS)]
        if all(leaders):
            return [
                PartitionLog(cluster, cluster.topics[TOPIC], index, leader)
                for index, leader in enumerate(leaders)
                if leader is not None
            ]
        await asyncio.sleep(0.05)


async def drive(bootstrap: str, pairs: list[Pair], steps: int) -> None:
    """So many requests to each partition and its model."""
    async with connected(bootstrap) as cluster:
        for pair, log in zip(pairs, await logs_of(cluster), strict=True):
            pair.log = log

        async def all_of(pair: Pair) -> None:
            for _ in range(steps):
                await pair.step()
            await pair.look()
            await pair.same_log()

        await asyncio.gather(*map(all_of, pairs))
