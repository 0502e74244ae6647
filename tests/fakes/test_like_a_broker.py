"""Compares the fake broker with the model, which test_broker_real (tests.simulation) compares with a real broker."""

from typing import Any

import pytest

from mirror.wire.errors import ErrorCode
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.simulation.model.differential import PARTITIONS, TOPIC, Pair, drive

STEPS = 60


async def played(first_seed: int) -> None:
    """Sends ``STEPS`` requests for each partition to a fake broker and to its model."""
    async with FakeCluster() as cluster:
        cluster.add_topic(TOPIC, partitions=PARTITIONS)
        unused: Any = None
        pairs = [Pair(first_seed + index, unused) for index in range(PARTITIONS)]
        await drive(f"127.0.0.1:{cluster.brokers[1].port}", pairs, STEPS)


@pytest.mark.parametrize("first_seed", [0, 1_000, 2_000])
async def test_the_same_answers_and_the_same_log(first_seed: int) -> None:
    """Valid and invalid data and markers, looks and deletions: the requests that the model and a real broker get as
    well."""
    await played(first_seed)


def _never_fenced(log: FakeLog, producer_id: int, epoch: int, coordinator_epoch: int) -> int:
    return _written(log, producer_id, epoch, 1 << 20)


def _any_epoch(log: FakeLog, producer_id: int, epoch: int, coordinator_epoch: int) -> int:
    state = log.producers.get(producer_id)
    return _written(log, producer_id, max(epoch, state.epoch if state else 0), coordinator_epoch)


def _not_there(log: FakeLog, producer_id: int, epoch: int, coordinator_epoch: int) -> int:
    return ErrorCode.NONE


_written = FakeLog.write_marker


@pytest.mark.parametrize("wrong", [_never_fenced, _any_epoch, _not_there], ids=lambda wrong: wrong.__name__)
async def test_another_answer_is_seen(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison finds a fake broker that handles markers in another way."""
    monkeypatch.setattr(FakeLog, "write_marker", wrong)
    with pytest.raises(AssertionError):
        await played(0)
