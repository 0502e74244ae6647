"""A topic is made anew while its position is sought: the partition halts, and for that reason."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.coordinator import Ownership
from mirror.net.errors import Unreachable
from mirror.reasons import HaltReason
from mirror.relay.halts import PartitionHalted, halt
from mirror.relay.locate.position import Locator
from mirror.relay.locate.rules import Rest
from mirror.relay.locate.seeking import Seeking
from mirror.relay.mapped.locate import MappedLocator
from mirror.relay.partition.location import Location
from mirror.relay.partition.partition import Partition
from tests.fakes.state import MemoryState
from tests.relay.stage.flows import batches, clusters, fill, mirroring, settings
from tests.relay.stage.noting import recreate
from tests.relay.stage.scenes import scene

_locate = Locator.locate
_refresh = Seeking._refresh


class Looks:
    """For a position: the first ends with what ``first`` returns, the others are the usual ones."""

    def __init__(self, first: Callable[[], PartitionHalted]) -> None:
        self.count = 0
        self._first = first

    def patched(self) -> Any:
        """While they are so."""

        async def locate(locator: Locator, partition: Partition, *, takeover: bool, rest: Rest) -> Location:
            self.count += 1
            if self.count > 1:
                return await _locate(locator, partition, takeover=takeover, rest=rest)
            raise self._first()

        return patch.object(Locator, "locate", locate)


async def test_the_reason_is_of_the_topics_of_now() -> None:
    """
    1. All was copied. While the next start looks, the source's topic is made anew, with fewer records.
    2. The end, which is asked for by name, is the new topic's: that looks like a source that was truncated.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()

        def first() -> PartitionHalted:
            recreate(source, *batches(3))
            return halt(HaltReason.SOURCE_TRUNCATED, "copied up to offset 60, and the source ends at 9")

        looks = Looks(first)

        with looks.patched():
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "recreated"
                assert looks.count == 2


async def test_a_verdict_on_the_same_topics_stands() -> None:
    async with clusters() as (source, destination):
        fill(source)

        async def locate(*_: Any, **__: Any) -> None:
            raise halt(HaltReason.SOURCE_TRUNCATED, "copied up to offset 70, and the source ends at 60")

        with patch.object(Locator, "locate", locate):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "source_truncated"


async def test_a_verdict_on_the_log_of_a_leader_that_was_deposed() -> None:
    """
    1. The source's leader has lost its office in an unclean election, and does not know it: it goes on showing a log
       that is the source's no more, and of which the destination has no copy.
    2. By the metadata of a moment later another one leads: it is looked again, at that one's log.
    """
    async with clusters() as (source, destination):
        fill(source)

        def first() -> PartitionHalted:
            source.log("t").epoch += 1
            return halt(HaltReason.SOURCE_TRUNCATED, "the source goes on with other records")

        looks = Looks(first)

        with looks.patched():
            async with mirroring(source, destination) as flow:
                await flow.copied()
                assert looks.count == 2


async def test_where_the_topics_of_now_are_not_to_be_known_it_is_looked_again() -> None:
    """
    1. All was copied, and the source's topic was made anew, with fewer records, just behind a look at the topics.
    2. They cannot be asked for once more before it halts. What was found may be the new topic's: it is looked again.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()

        def first() -> PartitionHalted:
            recreate(source, *batches(3))
            return halt(HaltReason.SOURCE_TRUNCATED, "copied up to offset 60, and the source ends at 9")

        looks = Looks(first)
        failed = 0

        async def refresh(self: Seeking, partition: Partition, since: float) -> None:
            nonlocal failed
            if looks.count == 1 and not failed:
                failed += 1
                raise Unreachable("no answer")
            await _refresh(self, partition, since)

        with looks.patched(), patch.object(Seeking, "_refresh", refresh):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "recreated"
                assert looks.count > 1
                assert failed == 1


async def test_halts_though_another_worker_had_it_meanwhile() -> None:
    """``offsets: mapped``: a partition that comes back is not its last owner's, and does not wait for that for ever."""
    async with scene() as at:
        await at.refresh()
        here, there = at.clusters
        locator = MappedLocator(
            state=MemoryState([]),
            write_soon=lambda: None,
            source=here,
            destination=there,
            settings=settings(),
            pins=at.pins,
            log=at.log,
        )
        at.partition.claim.source_id = bytes(16)
        at.partition.claim.ownership = Ownership(1000, 3)

        async def describe(_: str) -> Ownership:
            return Ownership(1000, 4)

        # As if this process had copied of it: what was never copied begins anew.
        locator._forget_topics = lambda _: None  # type: ignore[method-assign, assignment]
        with patch.object(locator.owners.coordinator, "describe", describe), pytest.raises(PartitionHalted) as stop:
            await locator.locate(at.partition, takeover=True)
        assert stop.value.halted.reason == "recreated"
