"""A flow of which tests decide everything that a cutover sees."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from mirror.net.admin.groups import CommittedOffset
from mirror.service.cutover.certificate import Audit
from mirror.service.cutover.obstacles import Obstacle
from mirror.service.cutover.state import Subject
from mirror.service.cutover.world import Found
from mirror.service.offsets.ends import Missing, PartitionEnds
from mirror.service.sync.copies import DestinationPlace
from mirror.service.sync.plan import GroupPlan, GroupsPlan, GroupState, Move, WantedOffset

SUBJECT = Subject(flow="west->east", flow_id="west->east", source_cluster="WEST", destination_cluster="EAST")


def row(partition: int = 0, end: int = 10, copied: int | None = None, **more: object) -> PartitionEnds:
    """A partition whose source ends at ``end``, copied up to ``copied``: by default, to the end."""
    copied = end if copied is None else copied
    ends = PartitionEnds(
        topic="orders",
        partition=partition,
        into="orders",
        source_id="a" * 32,
        destination_id="b" * 32,
        source_start=0,
        source_end=end,
        source_stable=end,
        destination_start=0,
        destination_end=copied,
        copied_to=copied,
        source_epoch=3,
        destination_epoch=4,
    )
    return replace(ends, **more)  # type: ignore[arg-type]


def group(name: str = "billing", state: GroupState = GroupState.IN_STEP, why: str = "", now: int = -1) -> GroupPlan:
    """A group that has read 7 records."""
    rows = [WantedOffset("orders", 0, 7, "orders", DestinationPlace(7))]
    moves = [Move("orders", 0, CommittedOffset(7), now)]
    return GroupPlan(group=name, rows=rows, moves=moves, state=state, why=why)


@dataclass
class Fake:
    """See ``World``. Each look takes the next of ``looks``, and the last one again and again."""

    looks: list[list[PartitionEnds]] = field(default_factory=lambda: [[row()]])
    subject: Subject = SUBJECT
    exact: bool = True
    missing: list[Missing] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    running: str = ""
    plans: list[GroupPlan] = field(default_factory=lambda: [group()])
    unlisted: str = ""
    absent: dict[str, str] = field(default_factory=dict)
    unseen: str = ""
    tools: tuple[str, str] = ("kafka-consumer-groups.sh WEST", "kafka-consumer-groups.sh EAST")
    at_source: list[str] = field(default_factory=list)
    verdict: Audit = field(default_factory=lambda: Audit("identical", 0))
    did: list[str] = field(default_factory=list)

    async def look(self) -> Found:
        rows = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return Found(
            rows=rows,
            missing=self.missing,
            not_covered=self.not_covered,
            obstacles=self.obstacles,
            running=self.running,
        )

    async def groups(self, *, apply: bool) -> GroupsPlan:
        self.did += ["commit"] if apply else []
        for plan in self.plans:
            plan.carried = len(plan.due) if apply else 0
        return GroupsPlan(
            groups=self.plans, failed=self.unlisted, remedy="start it" if self.unlisted else "", absent=self.absent,
            unseen=self.unseen,
        )  # fmt: skip

    async def members(self, groups: Collection[str]) -> list[str]:
        return [name for name in self.at_source if name in groups]

    def audit(self, out: Path) -> Audit:
        self.did.append("audit")
        return self.verdict
