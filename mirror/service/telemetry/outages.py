"""Detects clusters that stop answering and answer again: one change each, however many brokers and partitions are
affected. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from mirror.net.options import UP_FOR_S


class ClusterLost(NamedTuple):
    """The cluster no longer answers."""

    cluster: str


class ClusterBack(NamedTuple):
    """The cluster answers again."""

    cluster: str
    duration_s: float
    """Seconds for which it did not answer, accurate to about half a second."""


class Outages:
    """Remembers which clusters answered at the last look."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        """Clusters that have answered at least once."""
        self._lost: dict[str, float] = {}
        """Cluster that no longer answers -> since when."""

    def look(self, clusters: Mapping[str, bool], now: float) -> list[ClusterLost | ClusterBack]:
        """Returns what has changed since the last look.

        Args:
            clusters: cluster -> True if it answers (``Fleet.clusters``).
            now: seconds of any monotonic clock.
        """
        found: list[ClusterLost | ClusterBack] = []
        for cluster, up in clusters.items():
            if up:
                self._known.add(cluster)
                if cluster in self._lost:
                    found.append(ClusterBack(cluster, now - self._lost.pop(cluster)))
            elif cluster in self._known and cluster not in self._lost:
                self._lost[cluster] = now - UP_FOR_S
                found.append(ClusterLost(cluster))
        return found
