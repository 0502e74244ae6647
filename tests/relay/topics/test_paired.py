"""What a look at both clusters' topics leaves for others to compare with."""

from unittest.mock import AsyncMock, patch

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import Unreachable
from tests.relay.stage.flows import batches, clusters, fill, mirroring


async def test_retention_is_another_dict_only_when_it_changed() -> None:
    """Workers send it to their supervisor only then."""
    async with clusters() as (source, destination):
        fill(source)
        source.topics["t"].configs["retention.ms"] = "90000"
        async with mirroring(source, destination) as flow:
            await flow.copied()
            topics = flow.relay.topics
            seen = topics.retention_s
            assert seen == {"t": 90.0}
            await topics.look()
            assert topics.retention_s is seen
            source.topics["t"].configs["retention.ms"] = "120000"
            await topics.look()
            assert topics.retention_s == {"t": 120.0}
            assert seen == {"t": 90.0}


async def test_a_topic_that_is_gone_is_told_at_the_next_look_if_not_at_this_one() -> None:
    """The source is asked by name whether the topic is only hidden, and does not answer."""
    async with clusters() as (source, destination):
        fill(source)
        source.add_topic("u")
        source.store("u", 0, *batches(2))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            del source.topics["u"]
            topics = flow.relay.topics
            with (
                patch.object(Cluster, "check_denied", AsyncMock(side_effect=Unreachable("no answer"))),
                pytest.raises(Unreachable),
            ):
                await topics.look()
            assert not flow.log.of("topic_gone")
            for _ in range(2):
                await topics.look()
            assert [line["topic"] for line in flow.log.of("topic_gone")] == ["u"]
