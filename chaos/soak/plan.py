"""The plan of a soak, and the configurations that it puts into effect. Pure."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from chaos.play.mirrors import FLOW
from chaos.producers.topics import USUAL, TopicPlan

__all__ = ["BESIDE", "BESIDE_TOPIC", "CYCLE", "TOPICS", "Change", "Plan", "beginning", "changed"]

BESIDE = "source->beside"
"""Name of a second flow, which is removed and added again. It leads into the same destination cluster, under another
alias."""
BESIDE_TOPIC = "beside"
TOPICS = (*USUAL, TopicPlan(name=BESIDE_TOPIC, writing="idempotent", codec="lz4"))

CYCLE = ("removed", "limited", "restarted", "limited", "added", "limited")
"""The changes of one minute. Both flows run at its end. ``restarted`` makes every worker end its part of the flow
(connections, group membership, buffers) and begin it again in the same process."""

_LIMIT = 500_000_000
"""Bytes per second. The limit is far above the load, which has to stay steady."""
_REFRESH_MS = 60_000
_GRANULARITIES = ("topic", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a soak does.

    Attributes:
        minutes: number of times that the cycle of changes is done and a worker is restarted.
        reload_s: time between two changes.
        rate: rate of the load; see ``Scenario.rate``.
    """

    minutes: int = 60
    reload_s: float = 10.0
    rate: float = 10.0

    @property
    def reloads(self) -> int:
        """Number of changes of the configuration."""
        return self.minutes * len(CYCLE)


class Change(NamedTuple):
    """The effect that a changed configuration has to have.

    Attributes:
        kind: the list in the answer of ``mirror reload`` that has to contain the flow.
        flow: name of the flow.
        granularity: the new ``metrics.granularity``, which the metrics have to show.
    """

    kind: str
    flow: str
    granularity: str


def beginning(servers: Mapping[str, str], topics: Sequence[str], beside: str, group: str) -> dict[str, Any]:
    """Returns the keys ``clusters`` and ``flows`` of the first configuration.

    Args:
        servers: "source" and "destination" -> bootstrap servers.
        topics: topics of the first flow.
        beside: topic of the second flow.
        group: group of the first flow; that of the second one begins with it.
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
    """Returns the next configuration, and the effect that it has to have.

    Args:
        config: the configuration in effect.
        number: number of the change, from 0.
        first: the first configuration of the soak, which has both flows.
    """
    new = copy.deepcopy(dict(config))
    kind, granularity = CYCLE[number % len(CYCLE)], _GRANULARITIES[number % 2]
    flow = BESIDE if kind in ("removed", "added") else FLOW
    # Changed each time, in addition: it takes effect by a reload alone, and the metrics show it.
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
