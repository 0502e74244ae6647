"""What a look at both clusters' topics leaves for others to compare with."""

from tests.relay.stage.flows import clusters, fill, mirroring


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
