"""The model against a real broker: the same requests to both, the same answers, and the same log at the end.

What the simulation shows is worth as much as this test: the rules that it plays by are the broker's.
"""

import asyncio
from typing import Any

import pytest

from mirror.net.coordinator import Coordinator
from mirror.net.errors import NetworkError
from mirror.sandbox import SandboxCluster
from tests.patience import KEEPING
from tests.service.stage.kafka_side import create_topic
from tests.simulation.model.broker import CoordinatorModel
from tests.simulation.model.differential import PARTITIONS, TOPIC, Pair, connected, drive, logs_of

STEPS = 50

pytestmark = pytest.mark.broker


async def ownership(bootstrap: str) -> None:
    """The coordinator gives an id to who asks last, with the next epoch, and tells who that is."""
    model = CoordinatorModel()
    async with connected(bootstrap) as cluster:
        coordinator = Coordinator(cluster)
        ids = [f"mirror.a->b.t.{index}" for index in range(3)]
        assert [await coordinator.describe(one) for one in ids] == [model.describe(one) for one in ids]
        real: dict[str, int] = {}
        for one in [*ids, *ids, ids[0]]:
            given, expected = await coordinator.init_producer_id(one), model.init_producer_id(one)
            assert real.setdefault(one, given.producer_id) == given.producer_id
            assert given.epoch == expected.epoch
            assert await coordinator.describe(one) == given


async def until_up(bootstrap: str) -> None:
    """A broker that has just come back takes a moment to lead again."""
    while True:
        try:
            async with connected(bootstrap) as cluster:
                for log in await logs_of(cluster):
                    await log.visible_end()
            return
        except NetworkError:
            await asyncio.sleep(0.1)


def test_the_model_answers_as_a_real_broker_does() -> None:
    """
    1. Fifty requests each to sixteen partitions: data and markers, right and wrong, looks, deletions.
    2. A clean stop and start: of each producer the last batch alone is remembered.
    3. A kill and start: everything is read from the log again.
    """
    settings = {
        **KEEPING,
        "auto.create.topics.enable": "false",
        "log.flush.start.offset.checkpoint.interval.ms": "3600000",
        "log.initial.task.delay.ms": "3600000",  # whatever the interval, the first checkpoint comes after this
    }
    with SandboxCluster("differential", brokers=1, properties=settings, quick=True) as sandbox:
        bootstrap = sandbox.bootstrap_servers
        create_topic(bootstrap, TOPIC, PARTITIONS)
        unused: Any = None
        pairs = [Pair(seed, unused) for seed in range(PARTITIONS)]
        asyncio.run(ownership(bootstrap))
        asyncio.run(drive(bootstrap, pairs, STEPS))
        for clean in (True, False):
            broker = sandbox.brokers[0]
            broker.stop() if clean else broker.kill()
            broker.start()
            for pair in pairs:
                pair.model.restart(clean=clean)
                pair.note("clean restart" if clean else "kill and restart", "")
            asyncio.run(until_up(bootstrap))
            asyncio.run(drive(bootstrap, pairs, STEPS // 3))
