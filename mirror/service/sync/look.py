"""One look at group offsets and ACLs, over separate connections."""

from contextlib import AsyncExitStack
from typing import Self

from mirror.service.offsets.sides import FlowSides
from mirror.service.offsets.translate import Translator
from mirror.service.sync.acls import AclsPlan, sync_acls
from mirror.service.sync.offsets import OffsetsSync
from mirror.service.sync.plan import GroupsPlan
from mirror.service.sync.settings import SyncSettings

SUFFIX = "-sync"
"""Suffix of the client ids of these connections."""


class Sync:
    """Looks at groups and ACLs, and carries them over. It is an async context manager that opens both clusters."""

    def __init__(self, flow: FlowSides, settings: SyncSettings) -> None:
        self._flow = flow.under(SUFFIX)
        self._settings = settings
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._translator = await self._stack.enter_async_context(Translator(self._flow, lazy=True))
        self._offsets = OffsetsSync(self._flow, self._settings, self._translator)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def groups(self, *, apply: bool) -> GroupsPlan:
        """Looks at the groups; see ``OffsetsSync.look``."""
        return await self._offsets.look(apply=apply)

    async def acls(self, *, apply: bool) -> AclsPlan:
        """Looks at the ACLs; see ``sync_acls``."""
        state = self._translator.state
        known = state.ledger if await state.open(create=False) else None
        return await sync_acls(self._flow, self._translator.source, self._translator.destination, known, apply=apply)


async def look_once(
    flow: FlowSides, settings: SyncSettings, *, dry_run: bool
) -> tuple[GroupsPlan | None, AclsPlan | None]:
    """Looks once, and carries over what ``settings`` say. With ``dry_run``, it changes nothing, and looks at both
    groups and ACLs.

    Returns:
        The results for groups and for ACLs; None for a part that was not looked at.

    Raises:
        NetworkError: a cluster does not answer.
    """
    async with Sync(flow, settings) as sync:
        groups = await sync.groups(apply=not dry_run) if dry_run or settings.offsets else None
        acls = await sync.acls(apply=not dry_run) if dry_run or settings.acls else None
    return groups, acls
