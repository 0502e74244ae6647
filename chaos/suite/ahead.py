"""Prepares the next stage while the stage before it is compared, since both mostly wait.

Only the part before an act is done ahead, and only after the fault of the stage before has ended and is healed. So two
acts never overlap.
"""

from concurrent.futures import Future, ThreadPoolExecutor, wait

from chaos.play.stage import Stage
from chaos.scenario import Scenario

__all__ = ["Ahead"]


class Ahead:
    """Prepares at most one stage, in a separate thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead")
        self._coming: tuple[Stage, Future[None]] | None = None

    def prepare(self, stage: Stage) -> None:
        """Begins to prepare a stage. If that fails, the stage's ``play`` reports it."""
        self.drop()
        self._coming = stage, self._threads.submit(stage.prepare)

    def take(self, scenario: Scenario) -> Stage | None:
        """Waits for the prepared stage and returns it, if it is one of this scenario; the caller closes it. Otherwise
        drops it, and returns None."""
        if self._coming is None or self._coming[0].scenario is not scenario:
            self.drop()
            return None
        (stage, prepared), self._coming = self._coming, None
        prepared.result()
        return stage

    def drop(self) -> None:
        """Ends a prepared stage that was not taken."""
        if self._coming is None:
            return
        (stage, prepared), self._coming = self._coming, None
        stage.close()  # ends the processes for which the preparation waits
        wait([prepared])
        stage.close()  # ends the processes that were started in between
