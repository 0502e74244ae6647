"""Tasks end with their relay, with their partition, or with an error that ends the service."""

import asyncio

import pytest

from mirror.relay.life.tasks import Tasks
from mirror.relay.partition.partition import Partition


async def _forever(seen: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append(name)
        raise


async def test_the_tasks_on_one_partition_are_cancelled_and_no_others() -> None:
    tasks, seen = Tasks(), list[str]()
    tasks.open()
    ours, other = Partition("t", 0, "t"), Partition("t", 1, "t")
    tasks.work(ours, _forever(seen, "locating"))
    tasks.work(ours, _forever(seen, "filling"))
    tasks.work(other, _forever(seen, "other"))
    tasks.spawn(_forever(seen, "keeping"))
    await asyncio.sleep(0)
    tasks.cancel(ours)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sorted(seen) == ["filling", "locating"]
    assert len(tasks) == 2
    await asyncio.gather(*tasks.cancel_all(), return_exceptions=True)
    assert sorted(seen) == ["filling", "keeping", "locating", "other"]
    assert len(tasks) == 0


async def test_a_task_that_has_ended_is_not_cancelled_with_its_partition() -> None:
    tasks = Tasks()
    tasks.open()
    ours = Partition("t", 0, "t")

    async def soon() -> None:
        return

    tasks.work(ours, soon())
    tasks.work(ours, _forever([], "filling"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(tasks) == 1
    assert len(tasks._working[ours]) == 1, "what has ended is not kept"
    tasks.cancel(ours)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert tasks._working == {}


async def test_the_task_that_ends_all_others_goes_on() -> None:
    tasks, seen = Tasks(), list[str]()
    tasks.open()
    tasks.spawn(_forever(seen, "other"))

    async def closing() -> None:
        await asyncio.gather(*tasks.cancel_all(), return_exceptions=True)
        seen.append("closed")

    await tasks.spawn(closing())
    assert seen == ["other", "closed"]


async def test_the_first_error_is_the_one_that_ends_the_service() -> None:
    tasks = Tasks()
    tasks.open()

    async def fail(how: Exception) -> None:
        raise how

    tasks.spawn(fail(ZeroDivisionError()))
    tasks.spawn(fail(KeyError()))
    assert tasks.failed is not None
    with pytest.raises(ZeroDivisionError):
        await tasks.failed
