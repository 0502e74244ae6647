"""The garbage collector's runs and pauses: plain numbers, counted in the collector's own callbacks.

No metrics library is used there: recording a metric inside such a callback can deadlock.
"""

import gc
import time

from mirror.net.health.histogram import Histogram

BOUNDS_S = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
"""Upper bounds of the buckets for pauses, in seconds; longer pauses have a bucket of their own."""
GENERATIONS = 3


class Pauses:
    """The collector's pauses in this process, from ``watch`` on."""

    def __init__(self) -> None:
        self._began_at = 0.0
        self.pauses = [Histogram(BOUNDS_S) for _ in range(GENERATIONS)]
        """Durations of the pauses in seconds, by generation."""

    def watch(self) -> None:
        """Starts to count."""
        gc.callbacks.append(self._note)

    def end(self) -> None:
        """Stops counting."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._began_at = now
            return
        self.pauses[info["generation"]].note(now - self._began_at)

    def counters(self) -> dict[str, float]:
        """Returns the counters by name, for ``service.telemetry.snapshot``."""
        found: dict[str, float] = {}
        for generation, stats in enumerate(gc.get_stats()):
            found[f"gc_collections/{generation}"] = stats["collections"]
            found[f"gc_collected/{generation}"] = stats["collected"]
            found[f"gc_uncollectable/{generation}"] = stats["uncollectable"]
            found |= self.pauses[generation].counters(f"gc_pauses/{generation}")
        return found
