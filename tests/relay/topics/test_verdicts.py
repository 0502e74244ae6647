"""Topic configs that change while a topic is copied: seen before a verdict that rests on them halts a partition."""

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from mirror.reasons import HaltReason
from mirror.relay.halts import Halted
from mirror.relay.partition.phases import Phase
from mirror.relay.topics import verdicts
from mirror.relay.topics.limits import AFTER
from mirror.relay.topics.verdicts import Verdicts
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.fakes.loop import some_turns, until
from tests.records.builders import Record, kafka_batch
from tests.relay.stage.flows import Flow, batch, batches, clusters, mirroring

LARGE = 2_000_000


async def copying(flow: Flow, source: FakeCluster) -> None:
    """Some batches are copied, so that the partition runs with the terms of its start."""
    source.store("t", 0, *batches(5))
    await flow.copied()


def set_config(cluster: FakeCluster, name: str, value: str) -> None:
    cluster.topics["t"].configs[name] = value
    if name == "max.message.bytes":
        cluster.log("t").max_batch_size = int(value)


def add(source: FakeCluster, destination: FakeCluster) -> None:
    source.add_topic("t", configs={"max.message.bytes": str(LARGE)})
    destination.add_topic("t")


async def test_a_limit_that_was_raised_meanwhile() -> None:
    """
    1. The destination's max.message.bytes is raised while the mirror runs, and then a batch comes that needs it.
    2. What is known says too_large; what is asked says that it is not, and the batch is copied.
    """
    async with clusters() as (source, destination):
        add(source, destination)
        async with mirroring(source, destination) as flow:
            await copying(flow, source)
            set_config(destination, "max.message.bytes", str(LARGE))
            source.store("t", 0, batch(15, payload=bytes(1_500_000)))
            await flow.copied()
            assert flow.log.of("configs_changed")[0]["detail"].startswith("judged again: too_large, ")
            assert not flow.log.of("halted")


async def test_without_asking_it_halts_with_a_false_number() -> None:
    """The mutation: what was known at the start decides."""
    async with clusters() as (source, destination):
        add(source, destination)
        with patch.object(Verdicts, "suspect", lambda *_: False):
            async with mirroring(source, destination) as flow:
                await copying(flow, source)
                set_config(destination, "max.message.bytes", str(LARGE))
                source.store("t", 0, batch(15, payload=bytes(1_500_000)))
                assert await flow.halted() == "too_large"
                assert "takes 1048588" in flow.log.of("halted")[0]["detail"]


async def test_a_limit_that_was_lowered_meanwhile() -> None:
    """The broker refuses what was thought to fit: it halts with the number of now; raised again, it goes on."""
    async with clusters() as (source, destination):
        add(source, destination)
        async with mirroring(source, destination, refresh_topics_interval_ms=20) as flow:
            await copying(flow, source)
            set_config(destination, "max.message.bytes", "1000")
            source.store("t", 0, batch(15, payload=bytes(5_000)))
            assert await flow.halted() == "too_large"
            (line,) = flow.log.of("halted")
            assert "the destination takes 1000" in line["detail"]
            size = len(batch(15, payload=bytes(5_000)))
            assert line["remedy"].startswith(f"the batch has {size} bytes, and the source takes up to {LARGE}; ")
            assert line["remedy"].endswith(f" --entity-name t --add-config max.message.bytes={LARGE}`")
            set_config(destination, "max.message.bytes", str(LARGE))
            await flow.copied()
            assert flow.log.of("healed")


async def test_a_batch_that_is_not_sent_names_the_value_to_set() -> None:
    """The source's own limit was lowered since: what the batch needs is more."""
    async with clusters() as (source, destination):
        source.add_topic("t", configs={"max.message.bytes": "1000"})
        destination.add_topic("t", configs={"max.message.bytes": "1000"})
        async with mirroring(source, destination) as flow:
            stored = batch(0, payload=bytes(5_000))
            source.store("t", 0, stored)
            assert await flow.halted() == "too_large"
            (line,) = flow.log.of("halted")
            assert line["detail"] == f"{len(stored)} bytes, offsets 0 to 2; the destination takes 1000"
            ((host, port),) = flow.relay.destination.options.bootstrap
            assert line["remedy"] == (
                f"the batch has {len(stored)} bytes; max.message.bytes of t at destination is 1000. Raise it: "
                f"`kafka-configs --bootstrap-server {host}:{port} --alter --entity-type topics --entity-name t "
                f"--add-config max.message.bytes={len(stored)}`"
            )


async def test_a_broker_that_has_not_heard_of_the_new_limit() -> None:
    """It refuses once more what the config allows: tried again."""
    async with clusters() as (source, destination):
        add(source, destination)
        async with mirroring(source, destination) as flow:
            await copying(flow, source)
            destination.next("Produce", faults.refuse(ErrorCode.MESSAGE_TOO_LARGE, only=("t", 0)))
            source.store("t", 0, *batches(3, first=15))
            await flow.copied()
            assert not flow.log.of("halted")


@pytest.mark.parametrize("described", [True, False])
async def test_a_limit_that_nobody_describes_is_learned(described: bool) -> None:
    """
    1. A broker refuses batches that the described limit allows, or no limit is described; batches may be rewritten.
    2. They are cut smaller, until it takes them; later ones at once.
    3. A single record that it refuses halts.
    """
    async with clusters() as (source, destination):
        add(source, destination)
        if not described:
            destination.undescribed.add("max.message.bytes")
        destination.log("t").max_batch_size = 1_000
        async with mirroring(source, destination, rewrites=True) as flow:
            records = [Record(at, 1_700_000_000_000, b"k%d" % at, b"%d" % at * 150) for at in range(16)]
            source.store("t", 0, kafka_batch(records, leader_epoch=0))
            await until(lambda: destination.log("t").end == 16)
            assert not flow.log.of("halted")
            assert max(map(len, destination.log("t").batches)) <= 1_000
            refused = flow.relay.destination.errors["Produce", "message_too_large"]
            source.store("t", 0, kafka_batch(records, base_offset=16, leader_epoch=0))
            await until(lambda: destination.log("t").end == 32)
            assert flow.relay.destination.errors["Produce", "message_too_large"] == refused
            large = [Record(0, 1_700_000_000_000, b"k", bytes(3_000))]
            source.store("t", 0, kafka_batch(large, base_offset=32, leader_epoch=0))
            assert await flow.halted() == "too_large"


async def test_a_verdict_while_it_drains() -> None:
    """Nothing halts for good what the topics' configs may explain: the next start looks at them."""
    async with clusters() as (source, destination):
        add(source, destination)
        async with mirroring(source, destination) as flow:
            await copying(flow, source)
            held = destination.next("Produce", faults.held())
            source.store("t", 0, *batches(2, first=15))
            await held.came.wait()
            drained = asyncio.create_task(flow.relay.drain())
            await some_turns()
            flow.relay.halt(flow.partition(), Halted.of(HaltReason.NOT_A_COPY, "the destination has it in other bytes"))
            assert flow.partition().phase is Phase.DOUBT
            held.open()
            await drained
            assert not flow.log.of("halted")


def _ends_at(cluster: FakeCluster, offset: int) -> bool:
    return cluster.log("t").end == offset


@pytest.mark.parametrize("how", ["time", "described"])
async def test_a_learned_limit_is_forgotten(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker had not heard yet of a limit that was raised. Larger batches are tried again after a while, or when
    another limit is described: they are not cut for ever."""
    async with clusters() as (source, destination):
        add(source, destination)
        async with mirroring(source, destination, rewrites=True, refresh_topics_interval_ms=20) as flow:
            await copying(flow, source)
            destination.next("Produce", faults.refuse(ErrorCode.MESSAGE_TOO_LARGE, only=("t", 0)))
            for cut in (1, 1, 0):
                if not cut:
                    if how == "time":
                        monkeypatch.setattr(verdicts, "LEARNED_FOR_S", 0.0)
                    else:
                        set_config(destination, "max.message.bytes", str(LARGE))
                    await until(lambda: not flow.relay.verdicts._learned)
                end, pieces = source.log("t").end, len(destination.log("t").batches)
                records = [Record(at, 1_700_000_000_000, b"k%d" % at, b"%d" % at * 150) for at in range(16)]
                source.store("t", 0, kafka_batch(records, base_offset=end, leader_epoch=0))
                await until(partial(_ends_at, destination, end + 16))
                assert (len(destination.log("t").batches) - pieces > 1) == bool(cut)


@pytest.mark.parametrize("described", [True, False])
async def test_a_single_record_that_is_refused_once(described: bool) -> None:
    """What is learned from a refusal says too much if it was the broker that was wrong: it is asked again before a
    record that cannot be cut halts its partition."""
    async with clusters() as (source, destination):
        add(source, destination)
        if not described:
            destination.undescribed.add("max.message.bytes")
        async with mirroring(source, destination, rewrites=True) as flow:
            await copying(flow, source)
            for times in (1, 2):
                for _ in range(times):
                    destination.next("Produce", faults.refuse(ErrorCode.MESSAGE_TOO_LARGE, only=("t", 0)))
                source.store("t", 0, kafka_batch([RECORD], base_offset=source.log("t").end, leader_epoch=0))
                await flow.copied()
            assert not flow.log.of("halted")


async def test_a_record_of_a_larger_batch_that_is_refused() -> None:
    """Sent as they are, the batches before it arrive, and the halt names its own."""
    usual = FakeLog._check

    def picky(log: FakeLog, records: bytes) -> int:
        return ErrorCode.INVALID_RECORD if b"wrong" in records else usual(log, records)

    async with clusters() as (source, destination):
        add(source, destination)
        records = [RECORD._replace(value=b"wrong" if at == 6 else b"right") for at in range(9)]
        source.store("t", 0, *(kafka_batch([one], base_offset=at) for at, one in enumerate(records)))
        with patch.object(FakeLog, "_check", picky):
            async with mirroring(source, destination, rewrites=True, rebatches=1_000) as flow:
                assert await flow.halted() == "refused"
                assert destination.log("t").end == 6
                assert "at offset 6" in flow.log.of("halted")[0]["detail"]
                assert flow.relay.rewriter.opened["rebatched"] > 0


async def test_timestamps_that_are_refused_and_then_are_not() -> None:
    """
    1. The destination refuses a timestamp, and its config has not changed: it halts.
    2. The config is raised: it goes on by itself.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", configs={AFTER: "7200000"})
        destination.add_topic("t", configs={AFTER: "3600000"})
        async with mirroring(source, destination, refresh_topics_interval_ms=20) as flow:
            await copying(flow, source)
            destination.next("Produce", faults.refuse(ErrorCode.INVALID_TIMESTAMP, only=("t", 0)))
            source.store("t", 0, *batches(3, first=15))
            assert await flow.halted() == "invalid_timestamp"
            set_config(destination, AFTER, "7200000")
            await flow.copied()


async def test_a_destination_that_rewrites_from_now_on() -> None:
    """
    1. The destination topic is given LogAppendTime while it is copied. The next answer has a time in it: the configs
       are looked at, and the partition halts, long before the next look for topics.
    2. An answer with a time where the topic is as it was: a repeat, which is no reason to halt.
    """
    for changed in (True, False):
        async with clusters() as (source, destination):
            add(source, destination)
            async with mirroring(source, destination) as flow:
                await copying(flow, source)
                if changed:
                    set_config(destination, "message.timestamp.type", "LogAppendTime")
                described = len(destination.seen("DescribeConfigs"))
                destination.next("Produce", faults.alter(_with_a_time))
                source.store("t", 0, *batches(3, first=15))
                if changed:
                    assert await flow.halted() == "destination_rewrites"
                else:
                    await flow.copied()
                    await until(partial(looked, destination, described))
                    assert not flow.log.of("halted")


RECORD = Record(0, 1_700_000_000_000, b"key", b"value" * 20)


def looked(cluster: FakeCluster, before: int) -> bool:
    """Whether configs were asked for since."""
    return len(cluster.seen("DescribeConfigs")) > before


def _with_a_time(answer: Any) -> None:
    answer.responses[0].partition_responses[0].log_append_time_ms = 1_700_000_000_000


async def test_a_refresh_hands_over_what_it_finds() -> None:
    """A compression type that rewrites halts what runs at the next look for topics; other terms are handed over."""
    async with clusters() as (source, destination):
        add(source, destination)
        async with mirroring(source, destination, refresh_topics_interval_ms=20) as flow:
            await copying(flow, source)
            set_config(destination, "max.message.bytes", "1500000")
            await until(lambda: flow.partition().terms.max_batch_size == 1_500_000)
            set_config(destination, "compression.type", "zstd")
            assert await flow.halted() == "destination_rewrites"
            set_config(destination, "compression.type", "producer")
            source.store("t", 0, *batches(3, first=15))
            await flow.copied()


async def test_a_source_that_is_compacted_from_now_on() -> None:
    """The source topic is given cleanup.policy=compact while it is copied, and records go: a hole, and no damage."""
    for asked in (True, False):
        async with clusters() as (source, destination):
            source.add_topic("t", configs={"cleanup.policy": "delete"})
            destination.add_topic("t", configs={"cleanup.policy": "delete"})
            with ExitStack() as patched:
                if not asked:  # mutation: what was known at the start decides
                    patched.enter_context(patch.object(Verdicts, "suspect", lambda *_: False))
                async with mirroring(source, destination) as flow:
                    await copying(flow, source)
                    set_config(source, "cleanup.policy", "compact")
                    source.store("t", 0, *batches(2, first=21))
                    if not asked:
                        assert await flow.halted() == "unexplained_gap"
                        continue
                    await until(lambda: flow.partition().queue.acknowledged == 27)
                    assert destination.log("t").end == 27
                    (line,) = flow.log.of("configs_changed")
                    assert line["detail"].startswith("judged again: unexplained_gap, ")
                    assert not flow.log.of("halted")
