"""Prepares the next stage while the one before it is compared: most of both is waiting.

Only the part before an act is done ahead, and not until the fault of the stage before is over and healed: two acts
never overlap.
"""

from concurrent.futures import Future, ThreadPoolExecutor, wait

from chaos.play.stage import Stage
from chaos.scenario import Scenario

__all__ = ["Ahead"]


class Ahead:
    """Prepares at most one stage, in a thread of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead")
        self._coming: tuple[Stage, Future[None]] | None = None

    def prepare(self, stage: Stage) -> None:
        """Begin to prepare this stage; its ``play`` reports a failure."""
        self.drop()
        self._coming = stage, self._threads.submit(stage.prepare)

    def take(self, scenario: Scenario) -> Stage | None:
        """Returns the stage, once it is ready, if it is this scenario's; the caller ends it."""
        if self._coming is None or self._coming[0].scenario is not scenario:
            self.drop()
            return None
        (stage, prepared), self._coming = self._coming, None
        prepared.result()
        return stage

    def drop(self) -> None:
        """End a prepared stage that nobody took."""
        if self._coming is None:
            return
        (stage, prepared), self._coming = self._coming, None
        stage.close()  # what it waits for will not come any more
        wait([prepared])
        stage.close()  # what it started in between
