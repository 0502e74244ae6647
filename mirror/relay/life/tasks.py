"""The tasks of a relay. None outlives the relay, and none works on a partition that another worker has."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from mirror.relay.partition.partition import Partition


class Tasks:
    """Runs tasks until ``cancel_all``.

    Attributes:
        failed: gets the exception if a task fails because of a bug. The service ends with it. None before ``open``.
    """

    def __init__(self) -> None:
        self._all: dict[asyncio.Task[None], None] = {}
        """In the order in which they began; so are those of a partition."""
        self._working: dict[Partition, dict[asyncio.Task[None], None]] = {}
        """Tasks that must not go on when another worker owns the partition, such as locating it or filling its
        holes."""
        self.failed: asyncio.Future[None] | None = None

    def open(self) -> None:
        """Creates ``failed``. To be called in the event loop."""
        self.failed = asyncio.get_running_loop().create_future()

    def __len__(self) -> int:
        return len(self._all)

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs a task. An exception that it does not handle is a bug."""
        task = asyncio.get_running_loop().create_task(work)
        self._all[task] = None
        task.add_done_callback(self._done)
        return task

    def work(self, partition: Partition, work: Coroutine[Any, Any, None]) -> None:
        """Runs a task on a partition. ``cancel`` cancels it together with the partition's other tasks."""
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
        """Cancels the tasks on a partition, except for the calling one."""
        for task in list(self._working.get(partition, ())):
            if task is not asyncio.current_task():
                task.cancel()

    def cancel_all(self) -> list["asyncio.Task[None]"]:
        """Cancels all tasks except for the calling one. Returns them; the caller has to await them."""
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
