"""Reports the progress of an audit."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.25


class JobProgress:
    """Is notified of an audit's progress. This base class does nothing."""

    def stage(self, text: str, size: int = 0) -> None:
        """Announces the stage that begins now. ``size``: about how many bytes it has to read; 0: not known."""

    def advance(self, done: int, total: int) -> None:
        """Reports how many of the stage's Spark tasks are done. It may be called from another thread."""


@contextmanager
def watched(spark: "SparkSession", progress: JobProgress) -> Iterator[None]:
    """Reports the tasks that Spark runs within this context."""
    if type(progress) is JobProgress:
        yield
        return
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}

    def look() -> None:
        for stage_id in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage_id)
            if info is not None:
                seen[stage_id] = info.numCompletedTasks, info.numTasks
        # A stage that is no longer active has ended between two polls.
        active = set(tracker.getActiveStageIds())
        done = sum(count if stage_id in active else total for stage_id, (count, total) in seen.items())
        progress.advance(done, sum(total for _, total in seen.values()))

    def poll() -> None:
        # If the JVM is gone, py4j may raise anything. The code that waits for Spark's answer reports it.
        with suppress(Exception):
            while not ended.wait(POLL_S):
                look()

    thread = threading.Thread(target=poll, name="audit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
