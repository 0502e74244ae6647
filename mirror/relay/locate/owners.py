"""Determines who owns a partition: the worker that took over its transactional id last, according to the coordinator.

A worker takes a partition over before it looks at the logs. From then on, a predecessor that asks for the owner learns
that it must let go.
"""

import asyncio

from mirror.net.cluster import Cluster
from mirror.net.coordinator import NOBODY, Coordinator, Ownership
from mirror.net.errors import Refused, Unsupported
from mirror.relay.events import EventLog
from mirror.relay.holes.markers import NOT_PERMITTED
from mirror.relay.outcome import NotOurs
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.wire.errors import ErrorCode

FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Error codes that mean that another worker owns the id, or has written after us."""


def transactional_id(flow: str, partition: Partition) -> str:
    """Returns the transactional id whose owner may fill the partition's holes. A dot in the flow's id is written
    ``%2E``. Otherwise flow "a.b" with topic "c" would have the id of flow "a" with topic "b.c"."""
    return f"{_prefix(flow)}{partition.topic}.{partition.index}"


def former_transactional_id(flow: str, partition: Partition) -> str:
    """Returns the transactional id that earlier versions used; empty if it is the same as today's."""
    return f"mirror.{flow}.{partition.topic}.{partition.index}" if "." in flow else ""


def _prefix(flow: str) -> str:
    """Returns the prefix of all transactional ids of this flow, and of no other flow's."""
    return f"mirror.{flow.replace('.', '%2E')}."


class Owners:
    """Asks the destination's coordinators. What they granted for a partition is in its ``Claim.ownership``."""

    def __init__(self, destination: Cluster, *, flow: str, log: EventLog) -> None:
        self.coordinator = Coordinator(destination)
        self._destination = destination
        self._flow = flow
        self._log = log
        self._told_no_owner = False
        self._renewed: Partition | None = None
        self._renewing = asyncio.Event()

    def name_of(self, partition: Partition) -> str:
        """Returns the partition's transactional id."""
        return transactional_id(self._flow, partition)

    async def take_over(self, partition: Partition) -> Ownership | None:
        """Takes the partition over. Returns its ownership from now on; None if transactional ids are not available. In
        that case, only the log's end is checked before a hole is filled.

        Raises:
            NetworkError: it is not certain that the partition was taken over.
        """
        partition.claim.own(await self._taken(partition))
        return partition.claim.ownership

    async def _taken(self, partition: Partition) -> Ownership | None:
        former = former_transactional_id(self._flow, partition)
        try:
            if former and await self.coordinator.describe(former) != NOBODY:
                # A worker of an earlier version must see that it is no longer the owner.
                await self.coordinator.init_producer_id(former)
            return await self.coordinator.init_producer_id(self.name_of(partition))
        except (Unsupported, Refused) as error:
            if isinstance(error, Refused) and error.code not in NOT_PERMITTED:
                raise
            if not self._told_no_owner:
                self._told_no_owner = True
                self._log.warning(
                    "no_ownership",
                    detail=f"{self._destination.name}: {error}; two workers that fill one hole at the same moment "
                    "cannot tell",
                    remedy="grant the mirror's principal Write and Describe on transactional ids beginning with "
                    f"{_prefix(self._flow)} of cluster {self._destination.name}; a partition is owned again once it is "
                    "taken over (by a restart, or another worker)",
                )
            return None

    async def owns(self, partition: Partition) -> bool:
        """Returns True if nobody else has taken the partition over since we did, or if the coordinator cannot tell. If
        it has forgotten our id (``transactional.id.expiration.ms``), the result is False.

        Raises:
            NetworkError: the coordinator cannot be asked now.
        """
        if partition.claim.ownership is None:
            return True
        owner, ours = await self._described(partition)
        # An id that the coordinator has forgotten belongs to nobody. The fence that it stands for may be forgotten,
        # too.
        partition.claim.described(unowned=owner == NOBODY)
        return owner is None or owner == ours

    async def may_tell(self, partition: Partition) -> bool:
        """Returns True if what is known of a halted partition may still be written down, because nobody else has taken
        it over. If the partition was let go, that must be certain: the coordinator must name us. If it is still ours,
        the coordinator may have forgotten the id, since nothing uses the id of a halted partition.

        Raises:
            NetworkError: the coordinator cannot be asked now.
        """
        if partition.phase is not Phase.STOPPED:
            return await self.owns(partition) or partition.claim.unowned
        if partition.claim.ownership is None:
            return False
        owner, ours = await self._described(partition)
        return owner == ours

    async def _described(self, partition: Partition) -> tuple[Ownership | None, Ownership | None]:
        """Returns the owner that the coordinator names, and our ownership at that time. ``renew`` uses another
        connection and changes our ownership meanwhile. So if the two ran at the same time, one value might be from
        before that and the other from after it; then the coordinator is asked again."""
        while True:
            if partition is self._renewed:
                await self._renewing.wait()
            ours = partition.claim.ownership
            owner = await self.coordinator.describe(self.name_of(partition))
            if partition is not self._renewed and partition.claim.ownership == ours:
                return owner, ours

    async def renew(self, partition: Partition) -> None:
        """Uses the partition's transactional id, so that it is not forgotten. Must be called for one partition at a
        time.

        Raises:
            NotOurs: another worker has taken the partition over, or the coordinator had forgotten the id.
            Unsupported: the coordinator is older than Kafka 2.5.
            NetworkError: it is not certain that the id was used.
        """
        before = partition.claim.ownership
        if before is None:
            return
        self._renewed = partition
        self._renewing.clear()
        try:
            after = await self.coordinator.renew(self.name_of(partition), before)
            partition.claim.renew(before, after)
        except Refused as error:
            if error.code in FENCED:
                raise NotOurs(partition.name) from error
            raise
        finally:
            self._renewed = None
            self._renewing.set()
        if after.producer_id != before.producer_id:
            raise NotOurs(partition.name)
