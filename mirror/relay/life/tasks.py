"""The tasks of a relay: none outlives it, and none works on a partition that another worker has."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from mirror.relay.partition.partition import Partition


class Tasks:
    """Runs tasks until ``close``.

    Attributes:
        failed: gets the exception when a task fails by a bug; the service ends with it, instead of limping on. None
            before ``open``.
    """

    def __init__(self) -> None:
        self._all: dict[asyncio.Task[None], None] = {}
        """In the order in which they began; and so those of a partition."""
        self._working: dict[Partition, dict[asyncio.Task[None], None]] = {}
        """Tasks that must not go on when another worker owns the partition: locating it, filling its holes."""
        self.failed: asyncio.Future[None] | None = None

    def open(self) -> None:
        """Tells failures from now on."""
        self.failed = asyncio.get_running_loop().create_future()

    def __len__(self) -> int:
        return len(self._all)

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs a task. An error that it does not handle is a bug."""
        task = asyncio.get_running_loop().create_task(work)
        self._all[task] = None
        task.add_done_callback(self._done)
        return task

    def work(self, partition: Partition, work: Coroutine[Any, Any, None]) -> None:
        """Runs a task on a partition, which ``cancel`` ends with all others on it."""
        task = self.spawn(work)
        self._working.setdefault(partition, {})[task] = None

        def ended(_: "asyncio.Task[None]") -> None:
            tasks = self._working.get(partition)
            if tasks is not None:
                tasks.pop(task, None)
                if not tasks:
                    del self._working[partition]

        task.add_done_callback(ended)

    def cancel(self, partition: Partition) -> None:
        """Cancels the tasks on a partition, but not the one that calls."""
        for task in list(self._working.get(partition, ())):
            if task is not asyncio.current_task():
                task.cancel()

    def cancel_all(self) -> list["asyncio.Task[None]"]:
        """Cancels all tasks but the one that calls. Returns them: they have ended once they were awaited."""
        tasks = [task for task in self._all if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        return tasks

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._all.pop(task, None)
        if task.cancelled() or (error := task.exception()) is None or self.failed is None:
            return
        if not self.failed.done():
            self.failed.set_exception(error)
