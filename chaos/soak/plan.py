"""What a soak does, and the configurations that it puts into effect. Pure."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from chaos.play.mirrors import FLOW
from chaos.producers.topics import USUAL, TopicPlan

__all__ = ["BESIDE", "BESIDE_TOPIC", "CYCLE", "TOPICS", "Change", "Plan", "beginning", "changed"]

BESIDE = "source->beside"
"""A second flow, which is removed and added again. Its cluster is the destination, under another alias."""
BESIDE_TOPIC = "beside"
TOPICS = (*USUAL, TopicPlan(name=BESIDE_TOPIC, writing="idempotent", codec="lz4"))

CYCLE = ("removed", "limited", "restarted", "limited", "added", "limited")
"""The changes of one minute. At its end, both flows run. ``restarted`` has every worker end its part of the flow (its
connections, its member of the group, its buffers) and begin anew, within the same process."""

_LIMIT = 500_000_000
"""Far above the load, which is to stay steady: bytes per second."""
_REFRESH_MS = 60_000
_GRANULARITIES = ("topic", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is done.

    Attributes:
        minutes: how often a worker is restarted, and the cycle of changes done.
        reload_s: the time between two changes.
        rate: of the load, as ``Scenario.rate``.
    """

    minutes: int = 60
    reload_s: float = 10.0
    rate: float = 10.0

    @property
    def reloads(self) -> int:
        """How often the configuration is changed."""
        return self.minutes * len(CYCLE)


class Change(NamedTuple):
    """What a changed configuration has to bring about.

    Attributes:
        kind: the list in the answer to ``mirror reload`` that has the flow.
        flow: its name.
        granularity: ``metrics.granularity`` from then on, which the metrics show.
    """

    kind: str
    flow: str
    granularity: str


def beginning(servers: Mapping[str, str], topics: Sequence[str], beside: str, group: str) -> dict[str, Any]:
    """Returns the keys ``clusters`` and ``flows`` of the first configuration.

    Args:
        servers: bootstrap servers of ``source`` and ``destination``.
        topics: of that flow.
        beside: the topic of the second flow.
        group: the first part of the names of the flows' groups.
    """
    aliases = {**servers, "beside": servers["destination"]}
    return {
        "clusters": {alias: {"bootstrap.servers": at} for alias, at in aliases.items()},
        "flows": {
            FLOW: {"topics": list(topics), "group.id": group},
            BESIDE: {"topics": [beside], "group.id": f"{group}-beside"},
        },
    }


def changed(config: Mapping[str, Any], number: int, first: Mapping[str, Any]) -> tuple[dict[str, Any], Change]:
    """Returns the configuration that follows this one, and what it has to bring about.

    Args:
        config: in effect.
        number: of the change, from 0.
        first: the configuration that the soak began with, which has both flows.
    """
    new = copy.deepcopy(dict(config))
    kind, granularity = CYCLE[number % len(CYCLE)], _GRANULARITIES[number % 2]
    flow = BESIDE if kind in ("removed", "added") else FLOW
    # Changed each time, whatever else is: it takes effect by a reload alone, and everybody can see it.
    new["metrics.granularity"] = granularity
    if kind == "removed":
        del new["flows"][flow]
    elif kind == "added":
        new["flows"][flow] = first["flows"][flow]
    elif kind == "limited":
        new["flows"][flow]["max.bytes.per.second"] = _LIMIT + number
    else:
        new["flows"][flow]["refresh.topics.interval.ms"] = _REFRESH_MS + number
    return new, Change(kind, flow, granularity)
