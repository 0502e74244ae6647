"""``producer.id.expiration.ms`` of the destination's brokers is another one while the mirror runs."""

from typing import Any
from unittest.mock import patch

import pytest

from mirror.relay.watch import expiry
from tests.fakes.loop import until
from tests.relay.flows import clusters, fill, mirroring

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
                assert f"is {now_ms} ms now" in flow.log.of("producer_memory_changed")[0]["detail"]
