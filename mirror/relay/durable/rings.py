"""The graph of the flows that feed a partition: which flows can reach it, and on which way records come back.

This module is pure.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from mirror.offsetmap.entries.pins import MOST_HOPS, Edge, Hop


class ClusterTopic(NamedTuple):
    """A topic in a cluster."""

    cluster: str
    """Cluster id."""
    topic: str


def begin_of(edge: Edge) -> ClusterTopic:
    """Returns where the flow reads."""
    return ClusterTopic(edge.source_cluster, edge.topic)


def end_of(edge: Edge) -> ClusterTopic:
    """Returns where the flow writes."""
    return ClusterTopic(edge.destination_cluster, edge.into)


def newest(hops: Iterable[Hop]) -> list[Hop]:
    """Returns one hop for each edge: the one whose digest was first seen latest."""
    found: dict[Edge, Hop] = {}
    for hop in hops:
        known = found.get(hop.edge)
        if known is None or (known.at_ms, known.digest) < (hop.at_ms, hop.digest):
            found[hop.edge] = hop
    return list(found.values())


def feeding(hops: Iterable[Hop], here: ClusterTopic) -> list[Hop]:
    """Returns the hops on which records come to ``here``, the nearest first."""
    into: dict[ClusterTopic, list[Hop]] = {}
    for hop in hops:
        into.setdefault(end_of(hop.edge), []).append(hop)
    found, seen, waiting = [], {here}, deque([here])
    while waiting:
        for hop in sorted(into.get(waiting.popleft(), ())):
            found.append(hop)
            begin = begin_of(hop.edge)
            if begin not in seen:
                seen.add(begin)
                waiting.append(begin)
    return found


def nearest(hops: Iterable[Hop], here: ClusterTopic) -> tuple[Hop, ...]:
    """Returns the first ``MOST_HOPS`` of ``feeding``."""
    return tuple(feeding(hops, here)[:MOST_HOPS])


def way(hops: Collection[Hop], begin: ClusterTopic, end: ClusterTopic) -> list[Hop]:
    """Returns the shortest way of records from ``begin`` to ``end``, in the order in which they pass it; empty if there
    is none."""
    onward: dict[ClusterTopic, Hop] = {}
    for hop in feeding(hops, end):
        onward.setdefault(begin_of(hop.edge), hop)
    return list(_walk(onward, begin, end)) if begin in onward else []


def _walk(onward: dict[ClusterTopic, Hop], begin: ClusterTopic, end: ClusterTopic) -> Iterator[Hop]:
    """Yields the hops from ``begin`` on. Each one is nearer to ``end`` than the one before."""
    place = begin
    while True:
        hop = onward[place]
        yield hop
        place = end_of(hop.edge)
        if place == end:
            return


def on_the_way(hops: Collection[Hop], begin: ClusterTopic, end: ClusterTopic) -> list[Hop]:
    """Returns all hops on which records can come from ``begin`` to ``end``."""
    reached, grown = {begin}, True
    coming = feeding(hops, end)
    while grown:
        further = {end_of(hop.edge) for hop in coming if begin_of(hop.edge) in reached}
        grown = not further <= reached
        reached |= further
    return [hop for hop in coming if begin_of(hop.edge) in reached]
