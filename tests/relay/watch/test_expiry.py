"""``producer.id.expiration.ms`` of the destination's brokers is another one while the mirror runs."""

import time
from typing import Any
from unittest.mock import patch

import pytest

from mirror.relay.watch import expiry
from tests.fakes.loop import until
from tests.relay.stage.flows import clusters, fill, mirroring

DAY_MS = 86_400_000


@pytest.mark.parametrize("now_ms", [5_000, 2 * DAY_MS])
async def test_what_brokers_remember_is_asked_again_and_again(now_ms: int) -> None:
    """It is told, and what may be forgotten goes by the new one."""
    async with clusters() as (source, destination):
        fill(source)
        destination.producer_id_expiration_ms = DAY_MS
        only_t: dict[str, Any] = {"selects": lambda name: name == "t"}
        with patch.object(expiry, "ASK_EVERY_S", 0.01):
            async with mirroring(source, destination, **only_t) as flow:
                await flow.copied(("t", 0))
                before_ms = flow.relay.expiry.ms
                destination.producer_id_expiration_ms = now_ms
                await until(lambda: flow.relay.expiry.ms != before_ms)
                assert flow.relay.expiry.ms == max(now_ms - expiry.EXPIRATION_MARGIN_MS, now_ms / 2)
                due_ms = time.time() * 1000 - flow.relay.expiry.ms
                assert flow.relay.forgets_before_ms() == pytest.approx(due_ms, abs=now_ms / 10)
                assert f"is {now_ms} ms now" in flow.log.of("producer_memory_changed")[0]["detail"]


async def test_the_right_to_ask_is_withdrawn() -> None:
    """It is told once, the value that was known counts on; and told again when it was there meanwhile."""
    async with clusters() as (source, destination):
        fill(source)
        destination.producer_id_expiration_ms = DAY_MS
        only_t: dict[str, Any] = {"selects": lambda name: name == "t"}
        answers: list[dict[str, str]] = [{}]

        async def denied(*_: object) -> list[dict[str, str]]:
            return answers

        async with mirroring(source, destination, **only_t) as flow:
            await flow.copied(("t", 0))
            before_ms, watch = flow.relay.expiry.ms, flow.relay.expiry
            for times in (1, 2):
                with patch.object(expiry, "describe_brokers", denied):
                    await watch.ask()
                    await watch.ask()
                assert watch.ms == before_ms
                told = flow.log.of("producer_memory_assumed")
                assert len(told) == times
                assert told[-1]["remedy"] == "grant the mirror's principal DescribeConfigs on cluster destination"
                await watch.ask()
            answers.clear()  # nobody answers: that is no lack of a right, and is told elsewhere
            with patch.object(expiry, "describe_brokers", denied):
                await watch.ask()
            assert len(flow.log.of("producer_memory_assumed")) == 2
