"""Moves partitions and leaders to other brokers, and creates topics and partitions while brokers come and go."""

from collections.abc import Sequence
from contextlib import suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic

from chaos.play.sides import Name, PartitionView, Side
from chaos.producers.topics import TopicPlan
from chaos.waiting import until
from lab.evidence import LED_ELSEWHERE

__all__ = ["lead_elsewhere", "make", "move", "widen"]

_PREFERRED = 0
_EVERY_S = 0.5
_TIMEOUT_S = 5.0


def move(side: Side, names: Sequence[Name]) -> None:
    """Reassigns partitions. Each leader loses its replica, and the brokers without a replica get one and come first."""
    views = until(lambda: _views(side, names), f"the replicas of {names} on the {side.name} cluster")
    everyone = {broker.node_id for broker in side.cluster.brokers}
    side.reassign({
        name: [*sorted(everyone - set(view.replicas)), *(one for one in view.replicas if one != view.leader)]
        for name, view in views.items()
    })  # fmt: skip


def lead_elsewhere(side: Side, name: Name) -> None:
    """Makes another replica the preferred leader of a partition, and requests its election (KIP-460)."""
    before = until(lambda: _views(side, [name]), f"the leader of {name} on the {side.name} cluster")[name]
    side.reassign({name: [*(one for one in before.replicas if one != before.leader), before.leader]})

    def elected() -> bool:
        side.elect(*name, kind=_PREFERRED)
        return _views(side, [name]).get(name, before).leader != before.leader

    until(elected, f"another leader of {name} on the {side.name} cluster", every_s=_EVERY_S)
    side.record.note(LED_ELSEWHERE)


def widen(side: Side, topic: str, partitions: int) -> None:
    """Adds partitions to a topic, and waits until all have leaders. Repeats the request until then. ``partitions``: the
    new number of partitions."""
    names = [(topic, index) for index in range(partitions)]

    def widened() -> bool:
        future = side.admin.create_partitions([NewPartitions(topic, partitions)])[topic]
        with suppress(KafkaException, TimeoutError):
            future.result(_TIMEOUT_S)
        return bool(_views(side, names))

    until(widened, f"{partitions} partitions of {topic} on the {side.name} cluster", every_s=_EVERY_S)


def make(side: Side, plan: TopicPlan) -> None:
    """Creates a topic, and waits until all its partitions have leaders. Repeats the request until then, since brokers
    may come and go."""
    names = [(plan.name, index) for index in range(plan.partitions)]
    new = NewTopic(
        plan.name, num_partitions=plan.partitions, replication_factor=plan.replicas, config=dict(plan.configs)
    )  # fmt: skip

    def made() -> bool:
        future = side.admin.create_topics([new])[plan.name]
        with suppress(KafkaException, TimeoutError):
            future.result(_TIMEOUT_S)
        return bool(_views(side, names))

    until(made, f"{plan.name} to be made on the {side.name} cluster", every_s=_EVERY_S)


def _views(side: Side, names: Sequence[Name]) -> dict[Name, PartitionView]:
    """Returns leader and replicas of these partitions; empty if one of them has no leader."""
    found = side.view(sorted({topic for topic, _ in names}))
    views = {name: found[name] for name in names if name in found and found[name].leader > 0}
    return views if len(views) == len(names) else {}
