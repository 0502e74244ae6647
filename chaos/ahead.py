"""The next stage is made ready while the one before it is compared: most of both is waiting.

Only what comes before an act is done ahead, and not before the fault of the stage before is over and healed: two acts
never meet.
"""

from concurrent.futures import Future, ThreadPoolExecutor, wait

from chaos.scenario import Scenario
from chaos.stage import Stage

__all__ = ["Ahead"]


class Ahead:
    """At most one stage that is made ready, in a thread of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead")
        self._coming: tuple[Stage, Future[None]] | None = None

    def prepare(self, stage: Stage) -> None:
        """Begin with this one; how that ends is told by its ``play``."""
        self.drop()
        self._coming = stage, self._threads.submit(stage.prepare)

    def take(self, scenario: Scenario) -> Stage | None:
        """The stage, when it is ready, if it is this scenario's; the caller ends it."""
        if self._coming is None or self._coming[0].scenario is not scenario:
            self.drop()
            return None
        (stage, prepared), self._coming = self._coming, None
        prepared.result()
        return stage

    def drop(self) -> None:
        """End what was made ready and nobody took."""
        if self._coming is None:
            return
        (stage, prepared), self._coming = self._coming, None
        stage.close()  # whatever it waits for will not come any more
        wait([prepared])
        stage.close()  # what it began in between
