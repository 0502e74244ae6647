"""Copies that begin inside a batch that has to be opened for another reason as well, or stands among such."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import AsyncMock

import pytest

from mirror.records.content.opening import Record as Opened
from mirror.records.content.opening import opened
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Codec
from mirror.relay.durable.starts import Starts
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.fakes.loop import until
from tests.records.builders import Record, kafka_batch, sealed
from tests.relay.durable.test_due import trims  # noqa: F401 - a fixture
from tests.relay.stage.flows import clusters, mirroring

BATCH, BATCHES = 6, 4
END = BATCH * BATCHES
TIME_MS = 1_700_000_000_000


class Shape(NamedTuple):
    """What the source's batches are, and what the flow makes of them."""

    codec: int = Codec.GZIP
    append_time: bool = False
    holes: tuple[int, ...] = ()
    """Offsets in each batch that the cleaner has taken."""
    value: bytes = b"value"
    topic: Mapping[str, str] = MappingProxyType({})
    destination: Mapping[str, str] = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})


SHAPES = {
    "dense": Shape(),
    "append times": Shape(append_time=True, topic={"message.timestamp.type": "LogAppendTime"}),
    "holes": Shape(holes=(1, 3), topic={"cleanup.policy": "compact"}),
    "larger ones": Shape(settings={"rebatches": 64 << 10}),
    "another codec": Shape(settings={"compression": "zstd"}),
    "too large": Shape(codec=Codec.NONE, value=b"v" * 400, destination={"max.message.bytes": "1200"}),
}


def stored(shape: Shape, number: int) -> bytes:
    """A batch of the source as its broker has it."""
    records = [
        Record(at, TIME_MS + at, b"%d" % (BATCH * number + at), shape.value)
        for at in range(BATCH)
        if at not in shape.holes
    ]
    built = bytearray(kafka_batch(records, codec=shape.codec, base_offset=BATCH * number))
    header = BatchHeader.read(bytes(built))
    attributes = header.attributes | (LOG_APPEND_TIME if shape.append_time else 0)
    header = header._replace(last_offset_delta=BATCH - 1, attributes=attributes)
    return sealed(header.pack() + bytes(built[HEADER_SIZE:]))


def records_of(log: FakeLog) -> Iterator[Opened]:
    """What a consumer reads."""
    for batch in log.batches:
        header = BatchHeader.read(batch)
        if not header.is_control:
            yield from opened(header, batch[HEADER_SIZE:])


def with_keys(log: FakeLog) -> list[Opened]:
    """Without filler, whose records have none."""
    return [one for one in records_of(log) if one.key is not None]


def topics(shape: Shape, source: FakeCluster, destination: FakeCluster) -> None:
    source.add_topic("t", configs=dict(shape.topic))
    destination.add_topic("t", configs=dict(shape.destination))
    source.store("t", 0, *(stored(shape, number) for number in range(BATCHES)))


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("offset", [1, 3, 9, 12, 22])
@pytest.mark.parametrize("name", SHAPES)
async def test_every_record_from_there_on(
    name: str,
    offset: int,
    mapped: bool,
    trims: Any,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once, as it was, at its offset if these are exact, and none before it; also by a worker that takes over."""
    shape = SHAPES[name]
    if mapped and name == "larger ones":
        return  # only with exact offsets
    monkeypatch.setattr(Starts, "_chosen", AsyncMock(return_value=offset))
    settings: dict[str, Any] = {"mapped": mapped, "rewrites": True, "start_from": "latest", **shape.settings}
    async with clusters() as (source, destination):
        next(trims).append(destination)
        topics(shape, source, destination)
        due = [one for one in records_of(source.log("t")) if one.offset >= offset]
        there = destination.log("t")
        for some in (1, len(due)):
            async with mirroring(source, destination, **settings) as flow:
                await until(lambda: len(with_keys(there)) >= some or flow.log.of("halted"))  # noqa: B023
                assert not flow.log.of("halted")
        found = [*records_of(there)]
        assert [one[1:] for one in found] == [one[1:] for one in due]
        if not mapped:
            assert [one.offset for one in found] == [one.offset for one in due]
            assert there.start == offset
