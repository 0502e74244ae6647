"""A worker's view of its surroundings, for monitoring: whether the clusters answer, and how many partitions have no
owner."""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from mirror.net.cluster import Cluster
from mirror.net.connection import PendingRequest
from mirror.net.errors import NetworkError
from mirror.net.health.histogram import RequestDurations
from mirror.net.health.pulse import Pulse
from mirror.net.health.unreached import Unreached
from mirror.relay.assignment import Key
from mirror.relay.events import EventLog
from mirror.relay.relay import Relay
from mirror.service.group.holders import holders
from mirror.service.worker_settings import GroupSettings

ASK_GROUP_EVERY_S = 5.0
"""A worker asks the group at this interval, or every N seconds if the group has N members and that is longer. So the
members of a large group together ask about once a second."""
SILENT_S = 3.0
"""A broker that has not answered a request for this long is reported."""
FRESH_FOR = 3
"""An answer of the group is valid for so many of these intervals."""


class Watching:
    """One worker's view of clusters and group."""

    def __init__(self) -> None:
        self._errors: dict[str, Counter[tuple[str, str]]] = {}
        self._durations: dict[str, RequestDurations] = {}
        self.asked: dict[object, PendingRequest] = {}
        """Unanswered requests to either cluster, except those of the data path."""
        self.unreached = Unreached()
        """Brokers of either cluster to which this worker cannot connect."""
        self._reached: dict[str, bool] = {}
        self._pulses: dict[str, tuple[Pulse, asyncio.Task[None]]] = {}
        self._unassigned: int | None = None
        self._unassigned_until = 0.0
        self._held: Collection[Key] = ()
        """The partitions that this worker has: the relay's own collection, so it is always up to date."""
        self._held_then = 0
        """Number of this worker's partitions when the group was last asked."""

    def errors_of(self, cluster: str) -> "Counter[tuple[str, str]]":
        """Returns the counter of the cluster's failed requests. It stays the same object when the cluster is opened
        again."""
        return self._errors.setdefault(cluster, Counter())

    def durations_of(self, cluster: str) -> RequestDurations:
        """Returns the durations of the cluster's requests. It stays the same object when the cluster is opened
        again."""
        return self._durations.setdefault(cluster, RequestDurations())

    def reached(self, name: str, cluster: Cluster | None) -> None:
        """Notes an attempt to open a cluster. ``cluster``: None if it failed."""
        self._reached[name] = cluster is not None
        if cluster is not None:
            pulse = Pulse(cluster)
            self._pulses[name] = pulse, asyncio.get_running_loop().create_task(pulse.keep())

    def close(self) -> None:
        """Stops watching the clusters, which have been closed. Their last state stays valid until they are opened
        again."""
        for name, (pulse, task) in self._pulses.items():
            self._reached[name] = pulse.up
            task.cancel()
        self._pulses.clear()

    async def ask_group(self, relay: Relay, source: Cluster, settings: GroupSettings, log: EventLog) -> None:
        """Regularly asks the group which of the flow's partitions have no owner, until cancelled. While this worker has
        all of them, no request is needed."""
        told: tuple[str, ...] = ()
        while True:
            every_s, now = ASK_GROUP_EVERY_S, time.monotonic()
            held = len(relay.partitions)
            missing = [key for key in relay.keys if key not in relay.partitions]
            if not missing:
                self._heard(0, now + FRESH_FOR * every_s, relay, held)
            elif settings.protocol == "classic":
                with suppress(NetworkError):
                    found = await holders(source, settings.group_id, missing, mark=settings.mark)
                    if found.strangers and found.strangers != told:
                        _tell_strangers(found.strangers, settings, log)
                    told = found.strangers
                    every_s = max(every_s, found.members)
                    self._heard(found.unassigned, now + FRESH_FOR * every_s, relay, held)
            await asyncio.sleep(every_s)

    def _heard(self, unassigned: int | None, until: float, relay: Relay, held_then: int) -> None:
        self._unassigned, self._unassigned_until = unassigned, until
        self._held, self._held_then = relay.partitions, held_then

    @property
    def unassigned(self) -> int | None:
        """Number of the flow's partitions without an owner; None: not known. An answer is dropped if this worker has
        lost partitions since. (Mostly it has lost its session, and then it cannot ask the group.)"""
        holds = len(self._held) >= self._held_then
        return self._unassigned if holds and time.monotonic() < self._unassigned_until else None

    @property
    def clusters(self) -> dict[str, bool]:
        """Cluster -> True if it answers. Clusters that were not tried yet are missing."""
        return self._reached | {name: pulse.up for name, (pulse, _) in self._pulses.items()}

    @property
    def silent(self) -> list[tuple[str, str, float]]:
        """Brokers that have not answered for ``SILENT_S`` or longer: (broker, oldest request, seconds)."""
        now = time.monotonic()
        oldest: dict[str, PendingRequest] = {}
        for asked in self.asked.values():
            if now - asked.at_s >= SILENT_S and asked.at_s < oldest.setdefault(asked.broker, asked).at_s:
                oldest[asked.broker] = asked
        return [(name, asked.what, now - asked.at_s) for name, asked in sorted(oldest.items())]

    @property
    def counters(self) -> dict[str, Any]:
        """The counters "request_errors/cluster/api/error" of failed requests, and "request_s/cluster/api/<index>" and
        ".../sum" of the durations of answered ones (``net.health.histogram``)."""
        found: dict[str, Any] = {
            f"request_errors/{cluster}/{api}/{error}": count
            for cluster, errors in self._errors.items()
            for (api, error), count in errors.items()
        }
        for cluster, durations in self._durations.items():
            found |= durations.counters(f"request_s/{cluster}")
        return found


def _tell_strangers(strangers: Iterable[str], settings: GroupSettings, log: EventLog) -> None:
    log.warning(
        "group_shared",
        detail=f"group {settings.group_id} has members that are not mirrors of flow {settings.flow}, and hold "
        f"partitions of it: {', '.join(strangers)}; nobody copies these partitions",
        remedy="stop them, or give them another group.id",
    )
