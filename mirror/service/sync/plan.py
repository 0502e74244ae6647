"""Decides which offsets to commit for a group at the destination. Pure.

Offsets never move backwards, and nothing is committed for a group that has members there. If several source partitions
are copied into one, the lowest of their translated offsets is used, and the group must have an offset in each of them:
otherwise it is not known from where it reads that topic, and the other offsets may lie behind its records.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from mirror.net.admin.groups import SHARE, CommittedOffset
from mirror.service.sync.copies import DestinationPlace
from mirror.service.texts import some

NO_GROUP = (
    "no group of the source has offsets of mirrored topics, or none is selected (groups, groups.exclude), or the "
    "mirror's principal may not see it (it needs Describe on the group)"
)
Key = tuple[str, int]


class GroupState(Enum):
    """The state of a group after a look: that of its worst partition. The order is from worst to best."""

    FAILED = "failed"
    """A cluster refused or did not answer; the next look tries again."""
    UNSUPPORTED = "unsupported"
    """A kind of group whose offsets the brokers of one side do not tell."""
    ACTIVE = "active"
    """The group has members at the destination, and is left alone."""
    HELD = "held"
    """No offset is carried over for some partition: it is not copied, is not a copy any more, or the translated offset
    is not known."""
    BEHIND = "behind"
    """The copy has not reached the group's offset yet: the group is at the end of the copy."""
    AHEAD = "ahead"
    """The group has read further at the destination, and is left alone."""
    IN_STEP = "in_step"
    """The group's offsets at the destination correspond to those at the source."""


class WantedOffset(NamedTuple):
    """A group's offset in a source partition, and the corresponding place at the destination. ``into``: the destination
    topic; ``spot``: the offset there."""

    topic: str
    partition: int
    offset: int
    into: str
    spot: DestinationPlace
    metadata: str = ""


class Move(NamedTuple):
    """An offset for a destination partition. ``now``: the group's offset there now; -1: none. ``of``: number of source
    partitions that are copied into it."""

    topic: str
    partition: int
    to: CommittedOffset
    now: int
    of: int = 1

    @property
    def is_due(self) -> bool:
        """True if the offset moves forward."""
        return self.to.offset > self.now


@dataclass(slots=True, kw_only=True)
class GroupPlan:
    """The plan for one group. ``why``, ``remedy``: the reason for its state, and what to do, for people. ``carried``:
    number of offsets that were carried over."""

    group: str
    kind: str = ""
    rows: list[WantedOffset] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    state: GroupState = GroupState.IN_STEP
    why: str = ""
    remedy: str = ""
    carried: int = 0

    @property
    def is_share(self) -> bool:
        """True for a share group."""
        return self.kind == SHARE

    def stop(self, state: GroupState, why: str, remedy: str = "") -> None:
        """Sets the group's state, with a reason and a remedy."""
        self.state, self.why, self.remedy = state, why, remedy

    @property
    def due(self) -> list[Move]:
        """The offsets to commit."""
        return [move for move in self.moves if move.is_due]


@dataclass(slots=True, kw_only=True)
class GroupsPlan:
    """The result of a look at the groups of a flow.

    Attributes:
        groups: those that have offsets of mirrored topics, or of which that is not known.
        failed: why groups may be missing that a broker should have listed; empty: none should.
        remedy: what to do about it.
        absent: group that is meant by name and has nothing to carry over -> why.
        unseen: why there may be groups that no broker lists, and what to do about it; empty: there are none.
    """

    groups: list[GroupPlan]
    failed: str = ""
    remedy: str = ""
    absent: dict[str, str] = field(default_factory=dict)
    unseen: str = ""

    @property
    def notes(self) -> list[str]:
        """What is to be told of ``absent`` and ``unseen`` groups: lines of text."""
        return [*(f"group {name}: {why}" for name, why in self.absent.items()), *filter(None, [self.unseen])]


def decide(plan: GroupPlan, now: Mapping[Key, CommittedOffset], sources: Mapping[Key, Collection[Key]]) -> None:
    """Sets the moves and the state of a plan that has its rows.

    Args:
        plan: the group's plan.
        now: the offsets that the group has committed at the destination.
        sources: destination partition -> its source partitions, for those with several.
    """
    into: dict[Key, list[WantedOffset]] = {}
    for row in plan.rows:
        into.setdefault((row.into, row.partition), []).append(row)
    held: list[str] = []
    failed: list[str] = []
    for key, rows in sorted(into.items()):
        missing = sorted(set(sources.get(key, ())) - {(row.topic, row.partition) for row in rows})
        stuck = [row for row in rows if row.spot.offset < 0]
        if missing:
            held.append(f"no offset of {_names(missing)}, which goes into the same partition")
        for row in stuck:
            (failed if row.spot.failed else held).append(f"{row.topic}-{row.partition}: {row.spot.why}")
        if missing or stuck:
            continue
        least = min(rows, key=lambda row: row.spot.offset)
        metadata = least.metadata if least.spot.exact and len(rows) == 1 else ""
        there = now[key].offset if key in now else -1
        plan.moves.append(Move(*key, CommittedOffset(least.spot.offset, metadata), there, len(rows)))
    if failed:
        plan.stop(GroupState.FAILED, some(failed, NAMED, between="; "))
    elif held:
        plan.stop(GroupState.HELD, some(held, NAMED, between="; "))
    elif any(row.spot.behind for row in plan.rows):
        plan.stop(GroupState.BEHIND, "not all that it has read is copied yet")
    elif any(move.to.offset < move.now for move in plan.moves):
        plan.stop(GroupState.AHEAD, "it has read further at the destination")
    else:
        plan.stop(GroupState.IN_STEP, "")


NAMED = 3
"""Most partitions that a message names."""


def _names(keys: Iterable[Key]) -> str:
    return some([f"{topic}-{partition}" for topic, partition in keys], NAMED, between="; ")
