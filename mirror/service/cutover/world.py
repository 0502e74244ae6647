"""What a cutover sees and does: both clusters, the mirror that runs here, the audit. Tests replace it."""

from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from mirror.net.admin.groups import Groups, groups_tool
from mirror.service.commands import Commands
from mirror.service.cutover.certificate import Audit
from mirror.service.cutover.obstacles import Obstacle, kept, shown, together
from mirror.service.cutover.state import Subject
from mirror.service.offsets.ends import FlowEnds, Missing, PartitionEnds
from mirror.service.offsets.sides import FlowSides
from mirror.service.offsets.translate import Translator
from mirror.service.selection import Selection
from mirror.service.sync.look import Sync
from mirror.service.sync.plan import GroupsPlan
from mirror.service.sync.settings import SyncSettings

SUFFIX = "-cutover"
"""Suffix of the client ids of a cutover's connections."""


class NotRunning(Exception):
    """No mirror that runs the flow answers; the message says at which address it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One look at a flow.

    Attributes:
        rows: the flow's partitions.
        missing: topics that the flow has to mirror and of which the source shows no partition.
        not_covered: topics of the source that the flow does not mirror.
        obstacles: partitions that are not copied until somebody acts.
        running: why no mirror that runs the flow answers here; empty: one does.
    """

    rows: list[PartitionEnds]
    missing: list[Missing]
    not_covered: list[str]
    obstacles: list[Obstacle]
    running: str


class World(Protocol):
    """What a cutover sees and does. Every coroutine may raise NetworkError.

    Attributes:
        subject: the flow.
        exact: True if offsets are the same on both sides.
    """

    subject: Subject
    exact: bool
    tools: tuple[str, str]
    """Command lines of Kafka's own tool for groups, for the source and for the destination (``groups_tool``)."""

    async def look(self) -> Found:
        """Returns the partitions of the flow as they are now."""

    async def groups(self, *, apply: bool) -> GroupsPlan:
        """Returns the groups with their offsets. ``apply``: True to commit the offsets at the destination."""

    async def members(self, groups: Collection[str]) -> list[str]:
        """Returns the names of those groups that have members at the source."""

    def audit(self, out: Path) -> Audit:
        """Runs the audit and returns its result. ``out``: folder for its result files."""


class RealWorld:
    """The two real clusters of a flow. An async context manager that connects to both."""

    def __init__(
        self,
        flow: FlowSides,
        settings: SyncSettings,
        commands: Commands,
        *,
        status: Callable[[], dict[str, Any]],
        audit: Callable[[Path], Audit],
    ) -> None:
        """
        Args:
            flow: both clusters, and which topics are mirrored.
            settings: the settings that select the groups.
            commands: the mirror's commands as they are typed here.
            status: returns the status of the mirror that runs here, or raises ``NotRunning``.
            audit: runs the audit; see ``World.audit``.
        """
        self._flow = flow.under(SUFFIX)
        self._settings = replace(settings, offsets=True, acls=False)
        self._commands = commands.towards(flow.destination, flow.selection)
        self._status = status
        self._audit = audit
        self._stack = AsyncExitStack()
        self.exact = flow.exact
        self.tools = groups_tool(flow.source), groups_tool(flow.destination)

    async def __aenter__(self) -> Self:
        async with self._stack as stack:
            self.translator = await stack.enter_async_context(Translator(self._flow, lazy=True))
            self._ends = FlowEnds(self._flow.selection, self.translator)
            self._stack = stack.pop_all()
        self.subject = Subject(
            flow=self._flow.name,
            flow_id=self._flow.id,
            source_cluster=self.translator.source.cluster_id,
            destination_cluster=self.translator.destination.cluster_id,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def selection(self) -> Selection:
        """The topics that the flow mirrors."""
        return self._flow.selection

    async def look(self) -> Found:
        """See ``World.look``."""
        rows = await self._ends.look()
        running, seen = "", list[Obstacle]()
        try:
            seen = shown(self._status(), self._commands)
        except NotRunning as error:
            running = str(error)
        written = kept(rows, self.translator.state.ledger, self._commands)
        return Found(
            rows=rows,
            missing=self._ends.missing,
            not_covered=self._ends.not_covered(),
            obstacles=together(seen, written),
            running=running,
        )

    async def groups(self, *, apply: bool) -> GroupsPlan:
        """See ``World.groups``."""
        async with Sync(self._flow, self._settings) as sync:
            return await sync.groups(apply=apply)

    async def members(self, groups: Collection[str]) -> list[str]:
        """See ``World.members``."""
        return sorted(await Groups(self.translator.source).in_use(groups))

    def audit(self, out: Path) -> Audit:
        """See ``World.audit``."""
        return self._audit(out)
