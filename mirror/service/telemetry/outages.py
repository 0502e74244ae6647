"""Clusters that go away and come back: one line each, whatever it means for brokers and partitions. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from mirror.net.options import UP_FOR_S


class Lost(NamedTuple):
    """The cluster answers no more."""

    cluster: str


class Back(NamedTuple):
    """The cluster answers again."""

    cluster: str
    duration_s: float
    """From its last sign of life, to about half a second."""


class Outages:
    """What was seen of the clusters so far."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        """Those that have answered."""
        self._lost: dict[str, float] = {}
        """Those that do not any more, since when."""

    def look(self, clusters: Mapping[str, bool], now: float) -> list[Lost | Back]:
        """What has changed.

        Args:
            clusters: whether each answers (``Fleet.clusters``).
            now: in seconds, of any clock that never goes back.
        """
        found: list[Lost | Back] = []
        for cluster, up in clusters.items():
            if up:
                self._known.add(cluster)
                if cluster in self._lost:
                    found.append(Back(cluster, now - self._lost.pop(cluster)))
            elif cluster in self._known and cluster not in self._lost:
                self._lost[cluster] = now - UP_FOR_S
                found.append(Lost(cluster))
        return found
