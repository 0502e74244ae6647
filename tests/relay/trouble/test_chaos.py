"""Everything that can go wrong, at random and at once: the destination is a prefix of the source at every moment.

Each seed is another order of events; the same seed draws the same events (how they interleave with the copying is the
event loop's). ``CHAOS_SEEDS`` asks for more of them.
"""

import asyncio
import os
import random
from contextlib import suppress
from typing import Any

import pytest

from mirror.net.errors import NetworkError
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.relay.partition.phases import Phase
from mirror.relay.relay import NothingToMirror
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog, ProducerState
from tests.relay.stage.flows import Flow, batch, clusters, mirroring

SEEDS = int(os.environ.get("CHAOS_SEEDS", "12"))
PARTITIONS = 5
EVENTS = 60
PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
]


class Chaos:
    """What happens, drawn from a seed."""

    def __init__(self, seed: int, source: FakeCluster, destination: FakeCluster) -> None:
        self.random = random.Random(seed)
        self.source, self.destination = source, destination
        self.written = dict.fromkeys(range(PARTITIONS), 0)
        self.done: list[str] = []

    # -- the source -------------------------------------------------------------------------------------------------

    def write(self, most: int = 12) -> None:
        """Some more at the source."""
        for index in range(PARTITIONS):
            for _ in range(self.random.randrange(most)):
                count = self.random.randint(1, 5)
                base = self.written[index]
                payload = self.random.randbytes(self.random.choice([20, 200, 3_000, 9_000]))
                epoch = self.source.log("t", index).epoch
                self.source.store("t", index, batch(base, count, payload, leader_epoch=epoch))
                self.written[index] += count

    # -- what goes wrong --------------------------------------------------------------------------------------------

    def _fault(self) -> faults.Fault:
        draw = self.random
        base_offset = draw.randint(-1, 500)

        def elsewhere(answer: Any) -> None:
            for topic in getattr(answer, "responses", ()):
                for one in getattr(topic, "partition_responses", ()):
                    one.base_offset = base_offset

        return draw.choice(
            [
                lambda: faults.refuse(draw.choice(PASSING)),
                lambda: faults.refuse(draw.choice(PASSING), only=("t", draw.randrange(PARTITIONS))),
                lambda: faults.disconnect(draw.choice([0, 3, 4, 11, 60, 5_000])),
                faults.wrong_correlation_id,
                lambda: faults.malformed(draw.randbytes(draw.choice([0, 5, 90]))),
                lambda: faults.throttle(draw.randint(1, 4)),
                lambda: faults.late(draw.random() * 0.004),
                lambda: faults.alter(elsewhere),
                faults.silence,
            ]
        )()

    def fault(self) -> None:
        """A request of some kind is not answered as it should be."""
        kinds = ["Produce"] * 6 + ["Fetch"] * 4 + ["ListOffsets", "Metadata", "DescribeProducers"]
        kind = self.random.choice(kinds)
        side = self.destination if kind == "Produce" else self.random.choice([self.source, self.destination])
        side.next(kind, self._fault())
        self.done.append(f"{side.name} {kind}")

    def doubtful(self) -> None:
        """Appended, and answered with an error."""
        self.destination.next("Produce", faults.doubtful(ErrorCode.REQUEST_TIMED_OUT))

    def drop(self) -> None:
        """A broker's connections break."""
        self.random.choice([self.source, self.destination]).drop(self.random.choice([1, 2]))

    def lead(self) -> None:
        """A partition gets another leader."""
        side = self.random.choice([self.source, self.destination])
        index = self.random.randrange(PARTITIONS)
        side.lead("t", index, 3 - side.log("t", index).leader)

    def forget(self) -> None:
        """A broker restarts: of each producer it remembers the last batch, or none."""
        if "t" not in self.destination.topics:
            return
        for index in range(PARTITIONS):
            producers = self.destination.log("t", index).producers
            for producer, state in list(producers.items()):
                producers[producer] = ProducerState(state.epoch)
                producers[producer].batches.append(state.batches[-1])
            if self.random.random() < 0.3:
                producers.clear()

    async def restart(self) -> None:
        """A broker goes and comes back."""
        side, node_id = self.random.choice([self.source, self.destination]), self.random.choice([1, 2])
        await side.stop(node_id)
        await asyncio.sleep(self.random.random() * 0.02)
        await side.start(node_id)

    async def not_replicated(self) -> None:
        """For a moment the destination's last offsets are above the high watermark."""
        if "t" not in self.destination.topics:
            return
        log = self.destination.log("t", self.random.randrange(PARTITIONS))
        log.hidden = min(3, log.end - log.start)
        await asyncio.sleep(self.random.random() * 0.02)
        log.hidden = 0

    async def event(self) -> None:
        """One of them, or nothing at all for a moment."""
        draw = self.random
        happening = draw.choice(
            [self.fault] * 8
            + [self.doubtful, self.drop, self.lead, self.forget, self.write, self.write]
            + [self.restart, self.not_replicated]
        )
        self.done.append(happening.__name__)
        outcome = happening()
        if outcome is not None:
            await outcome
        await asyncio.sleep(draw.choice([0, 0, 0.001, 0.004, 0.01]))


def assert_prefix(source: FakeLog, destination: FakeLog) -> None:
    """Every batch of the destination is the source's at its offset: nothing lost, twice or elsewhere."""
    for one, other in zip(source.batches, destination.batches, strict=False):
        mine, theirs = BatchHeader.read(one), BatchHeader.read(other)
        assert (theirs.base_offset, theirs.last_offset_delta) == (mine.base_offset, mine.last_offset_delta)
        assert one[HEADER_SIZE:] == other[HEADER_SIZE:]
    assert destination.end <= source.end


def assert_prefixes(source: FakeCluster, destination: FakeCluster) -> None:
    if "t" in destination.topics:
        for index in range(PARTITIONS):
            assert_prefix(source.log("t", index), destination.log("t", index))


async def _until_it_is_over(flow: Flow, chaos: Chaos) -> None:
    """All faults are spent or taken back; what is left to do is done."""
    for side in (chaos.source, chaos.destination):
        side.forgive()
    await flow.copied(*(("t", index) for index in range(PARTITIONS)))


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_chaos(seed: int) -> None:
    """
    1. Events of all kinds, at random, while the mirror copies and the source is written; four times in between the
       mirror is ended at once, with whatever it has under way, and another one takes over.
    2. At every moment the destination is a prefix of the source.
    3. When it is over, both sides are the same, and nothing has halted.
    """
    async with clusters(brokers=2) as (source, destination):
        source.add_topic("t", partitions=PARTITIONS)
        chaos = Chaos(seed, source, destination)
        chaos.write(30)
        draw = random.Random(seed)
        changes: dict[str, Any] = {
            "max_in_flight": draw.choice([1, 2, 5, 5]),
            "connections_per_broker": draw.choice([1, 2, 3]),
            "fetch_max_bytes": draw.choice([2_048, 16_384, 262_144]),
            "max_request_size": draw.choice([1_024, 16_384, 1 << 20]),
            "settle_ms": 15,
            "fetch_max_wait_ms": 10,
            "request_timeout_s": 0.15,
            "request_timeout_ms": -4_850,  # and a margin of 5 s: the answers' deadline is 0.15 s
        }
        try:
            for last in (False, False, False, False, True):
                while True:
                    # A start may fail, as it may in life: whoever runs the mirror starts it again.
                    with suppress(StartFailed):
                        await _one_life(chaos, changes, last=last)
                        break
        except BaseException as error:
            error.add_note(f"seed {seed}, {changes}, events: {chaos.done[-40:]}")
            raise


class StartFailed(Exception):
    """The faults kept the relay from starting."""


async def _one_life(chaos: Chaos, changes: dict[str, Any], *, last: bool) -> None:
    started = False
    try:
        async with mirroring(chaos.source, chaos.destination, start=False, **changes) as flow:
            await flow.relay.start()
            started = True
            for _ in range(EVENTS // 5):
                await chaos.event()
                assert_prefixes(chaos.source, chaos.destination)
            if last:
                await _until_it_is_over(flow, chaos)
            halted = [partition.halted for partition in flow.relay.partitions.values() if partition.halted]
            assert not halted
            assert all(partition.phase is not Phase.STOPPED for partition in flow.relay.partitions.values())
    except (NetworkError, NothingToMirror) as error:
        if started:
            raise
        raise StartFailed from error
    assert_prefixes(chaos.source, chaos.destination)
