"""The state of one attempt to run a flow in a worker. The next attempt gets a new one."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from mirror.net.cluster import Cluster
from mirror.relay.assignment import Key
from mirror.relay.relay import Relay
from mirror.service.sync.keeper import SyncKeeper
from mirror.service.telemetry.snapshot import Snapshots
from mirror.service.telemetry.watching import Watching


class Member(Protocol):
    """A membership of the group (``service.group.member.Membership``)."""

    committed: dict[Key, int]
    counters: dict[str, float]
    joined: bool
    failed: BaseException | None
    on_joined: Callable[[str], None]
    on_unknown_topic: Callable[[], None]

    @property
    def ended(self) -> bool:
        """True once its thread has ended."""

    def start(self, topics: Any) -> None:
        """Joins the group."""

    def subscribe(self, topics: Any) -> None:
        """Subscribes to these topics instead."""

    def commit(self, positions: Any) -> None:
        """Commits these positions soon."""

    async def stop(self) -> None:
        """Leaves the group."""


class Attempt:
    """The state of one attempt. Only ``flows.run`` assigns its fields."""

    def __init__(self, snapshots: Snapshots) -> None:
        """``snapshots``: a new object, for this attempt only."""
        self.ready_at: float | None = None
        """When the attempt became ready (the event loop's time): both clusters were reached, and there is something to
        copy."""
        self.bug: BaseException | None = None
        """The first exception of a task or callback that nothing awaits."""
        self.running: asyncio.Task[Any] | None = None
        """The task to cancel if the flow has to stop; None: it has to drain instead, or nothing is running."""
        self.relay: Relay | None = None
        self.source: Cluster | None = None
        self.member: Member | None = None
        self.sync: SyncKeeper | None = None
        self.watching = Watching()
        self.snapshots = snapshots
        self.drained = True
        """False if batches were left without an answer; ``pending`` is their number."""
        self.pending = 0
