"""Partitions that are halted or paused, according to the mirror that runs here and to the flow's internal topic, in
which every worker writes halts and pauses down."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.fields import same_ids
from mirror.offsetmap.internal.ledger import Ledger
from mirror.reasons import PAUSED
from mirror.service.commands import Commands
from mirror.service.offsets.ends import PartitionEnds


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """A partition that is not copied until somebody acts.

    Attributes:
        topic, partition: the partition at the source.
        reason: the halt's reason, or ``paused``.
        detail, remedy: texts for people, with commands as they are typed here.
    """

    topic: str
    partition: int
    reason: str
    detail: str = ""
    remedy: str = ""

    @property
    def is_paused(self) -> bool:
        """True if an operator has paused the partition; False if it has halted."""
        return self.reason == PAUSED

    def told(self) -> str:
        """Returns the obstacle in words."""
        name = f"{self.topic}-{self.partition}"
        if self.is_paused:
            return f"{name} is paused: {self.remedy}"
        return f"{name} has halted: {self.reason}: {self.detail}" + (f"\n    {self.remedy}" if self.remedy else "")


def shown(status: Mapping[str, Any], commands: Commands) -> list[Obstacle]:
    """Returns the obstacles that a running mirror shows. ``status``: its answer to ``/api/v1/status``."""
    found = [
        Obstacle(
            topic=row["topic"],
            partition=row["partition"],
            reason=row["reason"],
            detail=row["detail"] or "",
            remedy=row["remedy"] or "",
        )
        for row in (*status["partitions"], *status["left_halted"])
        if row["reason"]
    ]
    paused = [row for row in status["partitions"] if row["state"] == PAUSED]
    return found + [_paused(row["topic"], row["partition"], commands) for row in paused]


def kept(rows: Iterable[PartitionEnds], ledger: Ledger, commands: Commands) -> list[Obstacle]:
    """Returns the obstacles that are written down in the internal topic, whichever host copies the partitions. Halts
    and pauses of topics with other ids do not count.

    Args:
        rows: the flow's partitions.
        ledger: the content of the internal topic.
        commands: the mirror's commands as they are typed here.
    """
    found = []
    for row in rows:
        halt = ledger.halt(Subject(row.topic, row.partition, row.into))
        if halt is None or not same_ids((halt.source_id, halt.destination_id), (row.source_id, row.destination_id)):
            continue
        if halt.reason == PAUSED:
            found.append(_paused(row.topic, row.partition, commands))
            continue
        found.append(
            Obstacle(
                topic=row.topic,
                partition=row.partition,
                reason=halt.reason,
                detail=commands.rendered(halt.detail, row.topic, row.partition),
                remedy=commands.remedy(halt.remedy, halt.reason, row.topic, row.partition),
            )
        )
    return found


def together(*parts: Iterable[Obstacle]) -> list[Obstacle]:
    """Returns one obstacle for each partition, sorted. If several are given, the first one counts."""
    found: dict[tuple[str, int], Obstacle] = {}
    for part in parts:
        for each in part:
            found.setdefault((each.topic, each.partition), each)
    return [found[key] for key in sorted(found)]


def _paused(topic: str, partition: int, commands: Commands) -> Obstacle:
    remedy = commands.rendered("`mirror resume TOPIC PARTITION`", topic, partition)
    return Obstacle(topic=topic, partition=partition, reason=PAUSED, remedy=remedy)
