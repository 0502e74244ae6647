"""Scenarios, and the register of all scenarios.

A scenario is a function that causes the fault:

    @scenario("worker-kill", group="Processes", full=50, per_stage=10, struck=(WORKER_KILLED,),
              does="kill -9 of a worker at a random moment")
    def worker_kill(stage: Stage) -> None:
        for _ in stage.repeat():
            stage.moment()
            stage.mirror.kill_worker()
            stage.recovered()

When it is called, the stream and the mirror run, and records are being copied (unless the stage is ``bare``). When it
returns, the harness ends the stream, waits until the mirror has caught up, stops it, and compares both sides.

``struck`` is the evidence that each repetition needs (``lab.evidence``). A repetition that lacks some of it does not
count, and is made again, at most ``TRIES`` times. A scenario without evidence is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from chaos.errors import ChaosError
from chaos.producers.topics import USUAL, TopicPlan
from lab.evidence import Evidence

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["SCENARIOS", "TRIES", "Act", "Scenario", "Shape", "scenario"]

Act = Callable[["Stage"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The pair of clusters that a scenario needs. Scenarios of equal shape share a pair.

    Attributes:
        brokers: number of brokers of each side.
        source, destination: broker properties in addition to the harness's own, as sorted pairs (hashable).
        version: version of Kafka; empty: the sandbox's default.
        destination_version: version of the destination; empty: that of the source.
        proxied: True if the mirror connects to both sides through proxies that fail on demand.
        authorized: True if both sides use Kafka's own authorizer, for which the mirror comes from another host than all
            other clients (``chaos.play.rights``). Requires ``proxied``.
    """

    brokers: int = 3
    source: tuple[tuple[str, str], ...] = ()
    destination: tuple[tuple[str, str], ...] = ()
    version: str = ""
    destination_version: str = ""
    proxied: bool = False
    authorized: bool = False

    def joined(self, other: "Shape") -> "Shape":
        """Returns a shape that suits the scenarios of both shapes: it has the properties of both, and a proxy if one of
        them has. Scenarios of the other shape bypass the proxy.

        If that is not possible (other versions or numbers of brokers, or a property with two values), returns
        ``other``.
        """
        source, destination = {*self.source, *other.source}, {*self.destination, *other.destination}
        same = ("brokers", "version", "destination_version")
        alike = all(getattr(self, one) == getattr(other, one) for one in same)
        if not alike or any(len(dict(both)) < len(both) for both in (source, destination)):
            return other
        return replace(
            other, source=tuple(sorted(source)), destination=tuple(sorted(destination)),
            proxied=self.proxied or other.proxied, authorized=self.authorized or other.authorized,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario; one row of the report's table.

    Attributes:
        name: short, unique and stable name, for CHAOS_ONLY and the results.
        group: heading in the report, for example Processes, Brokers, Network or Data.
        does: what happens, for the report.
        act: the function that causes the fault.
        struck: the evidence that each repetition needs.
        full, quick: number of repetitions of the fault in a full and in a quick run.
        per_stage: number of repetitions on one stage (one set of topics, one mirror) before both sides are compared.
        shape: the clusters.
        topics: the topics, each with the producer that writes into it.
        flow, cluster, top: configuration keys of the mirror's flow, of both its clusters, and of the top level.
        workers: number of workers of the mirror.
        rate: records per second and topic; for transactional topics, transactions per second.
        bare: True if the act itself creates the topics and starts the stream and the mirror.
        damages: True if the clusters cannot be used afterwards: a broker may not start again with its data.
        exact: True if equal offsets are expected; False: the same records in the same order.
        acknowledged: True if both sides also have to hold all records that were acknowledged to the writers.
    """

    name: str
    group: str
    does: str
    act: Act
    struck: tuple[Evidence, ...]
    full: int = 1
    quick: int = 1
    per_stage: int = 1
    shape: Shape = Shape()
    topics: tuple[TopicPlan, ...] = USUAL
    flow: Mapping[str, object] = field(default_factory=dict)
    cluster: Mapping[str, object] = field(default_factory=dict)
    top: Mapping[str, object] = field(default_factory=dict)
    workers: int = 1
    rate: float = 10.0
    bare: bool = False
    damages: bool = False
    exact: bool = True
    acknowledged: bool = False

    def __post_init__(self) -> None:
        if not self.struck:
            raise ChaosError(f"scenario {self.name} names no evidence of its fault", "give struck=(...)")

    @property
    def anew(self) -> bool:
        """True if a repetition that did not strike is made again on a new stage, since the act can be done only once on
        a stage."""
        return self.per_stage == 1


TRIES = 5
"""Maximum number of tries of one repetition. If the fault strikes in none of them, the scenario fails."""

SCENARIOS: dict[str, Scenario] = {}
"""All registered scenarios, in the order of the table."""


def scenario(
    name: str, *, group: str, does: str, struck: tuple[Evidence, ...], **more: object
) -> Callable[[Act], Act]:  # fmt: skip
    """Registers the decorated function as a scenario. Arguments: fields of ``Scenario``."""

    def register(act: Act) -> Act:
        assert name not in SCENARIOS, name
        SCENARIOS[name] = Scenario(name=name, group=group, does=does, act=act, struck=struck, **more)  # type: ignore[arg-type]
        return act

    return register
