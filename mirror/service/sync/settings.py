"""The settings for keeping group offsets and ACLs in step. They are plain data, because they are sent to another
process."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from mirror.service.selection import is_topic_name, topic_pattern

GROUPS, ACLS = "group_offsets", "topic_acls"
"""The two parts, as counters name them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSettings:
    """The settings for one flow.

    Attributes:
        offsets: True if consumer groups' offsets are kept in step.
        acls: True if topics' ACLs are kept in step.
        offsets_interval_ms, acls_interval_ms: time between two looks.
        groups: names of groups, or regular expressions for whole names.
        groups_exclude: groups to leave out, in the same notation; wins over ``groups``.
        own_group: the flow's own group at the source, which is never carried over.
        names: groups that are meant by name, so that something is wrong if one is not there; None: the entries of
            ``groups`` that are names.
    """

    offsets: bool = False
    acls: bool = False
    offsets_interval_ms: int = 60_000
    acls_interval_ms: int = 600_000
    groups: tuple[str, ...] = (".*",)
    groups_exclude: tuple[str, ...] = ()
    own_group: str = ""
    names: tuple[str, ...] | None = None

    @property
    def anything(self) -> bool:
        """True if offsets or ACLs are kept in step."""
        return self.offsets or self.acls

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that are kept in step: of ``GROUPS`` and ``ACLS``."""
        return (*([GROUPS] if self.offsets else []), *([ACLS] if self.acls else []))

    @property
    def named(self) -> list[str]:
        """The groups that are meant by name, in order."""
        names = self.names if self.names is not None else filter(is_topic_name, self.groups)
        return sorted({name for name in names if self.selects(name)})

    def selects(self, group: str) -> bool:
        """Returns True if this group's offsets are carried over."""
        return (
            group != self.own_group
            and any(topic_pattern(entry).fullmatch(group) for entry in self.groups)
            and not any(topic_pattern(entry).fullmatch(group) for entry in self.groups_exclude)
        )

    def pack(self) -> dict[str, Any]:
        """Returns the settings as plain data, for JSON."""
        return asdict(self)

    @classmethod
    def unpack(cls, data: Mapping[str, Any]) -> Self:
        """Restores what ``pack`` returned, also through JSON, which has lists but no tuples."""
        plain: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in data.items()}
        return cls(**plain)
