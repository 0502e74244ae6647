"""Asks which groups have offsets that would be carried over, and what the principal may do with these groups."""

from typing import NamedTuple

from mirror.net.admin.groups import Groups
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.service.plan.ask.clusters import groups_rights
from mirror.service.plan.model import GroupFacts, Rights
from mirror.service.sync.settings import SyncSettings

MOST = 200
"""Maximum number of groups whose rights are asked for."""


class GroupsAsked(NamedTuple):
    """Groups whose offsets would be carried over.

    Attributes:
        groups: the groups, with the rights on them.
        more: number of further groups whose rights were not asked for.
        unknown: why it is not known which groups there are; empty: it is known, as far as brokers list them.
    """

    groups: tuple[GroupFacts, ...] = ()
    more: int = 0
    unknown: str = ""


async def groups_asked(source: Cluster, destination: Cluster, settings: SyncSettings) -> GroupsAsked:
    """Returns the groups whose offsets would be carried over: those that the source lists, and those that the settings
    name. A group that may not be described is in no list."""
    if not settings.offsets:
        return GroupsAsked()
    try:
        listed = (await Groups(source).listed()).groups.values()
        selected = {
            each.group_id for each in listed if settings.selects(each.group_id) and (each.has_offsets or each.is_share)
        }
        names = sorted(selected | set(settings.named))
        some = names[:MOST]
        if not some:
            return GroupsAsked()
        here, there = await groups_rights(source, some), await groups_rights(destination, some)
    except NetworkError as error:
        return GroupsAsked(unknown=f"groups of {source.name}: {error}")
    found = tuple(GroupFacts(name, _rights(*here[name]), _rights(*there[name])) for name in some)
    return GroupsAsked(found, len(names) - len(some))


def _rights(told: Rights | None, forbidden: bool) -> Rights | None:
    """Returns the operations on a group; none at all if even describing it is forbidden."""
    return frozenset() if forbidden else told
