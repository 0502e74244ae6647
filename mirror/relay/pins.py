"""What a partition is and why it halted, kept in the internal topic and held against what is there now.

Topic ids, halts and what was copied last are written down, so that they outlive every process and every owner:
``recall`` before a partition is taken over, ``pin`` before anything is written into its log.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.state import Memory
from mirror.records.pins import Flow, Halt, LastCopied, Pin, halt_key, header_digest
from mirror.records.state import Entry
from mirror.relay.assignment import committable
from mirror.relay.evidence import Asked, Known, Unseen, vouch
from mirror.relay.halts import GAPS, Halted, PartitionHalted, Trouble, halt, is_durable
from mirror.relay.partition import Partition
from mirror.relay.settings import RelaySettings


class Pins:
    """Of all partitions of a process."""

    def __init__(self, state: Memory, *, source: Cluster, destination: Cluster, settings: RelaySettings) -> None:
        self._state = state
        self._source = source
        self._destination = destination
        self._settings = settings

    # -- what is written down ------------------------------------------------------------------------------------------

    async def recall(self, partition: Partition) -> None:
        """What was written down of the partition by whoever had it before.

        Raises:
            PartitionHalted: it halted then, and its topics are still the same; or its source is another cluster.
            NetworkError: the internal topic cannot be read now.
        """
        await self._state.load()
        ledger, side = self._state.ledger, partition.side
        halted = ledger.halt(side)
        if halted is not None and self._applies(halted, partition):
            raise PartitionHalted(Halted(halted.reason, halted.detail, halted.remedy, halted.at_ms))
        partition.pin = pin = ledger.pin(side)
        if pin is None:
            return
        cluster_id = self._source.cluster_id
        if pin.source_cluster and cluster_id and pin.source_cluster != cluster_id:
            raise halt(
                Trouble.RECREATED,
                f"{partition.name} was copied from cluster {pin.source_cluster}; {self._source.name} is {cluster_id}",
            )
        partition.source_id = bytes.fromhex(pin.source_id) if pin.source_id else None
        partition.destination_id = bytes.fromhex(pin.destination_id) if pin.destination_id else None

    def _applies(self, halted: Halt, partition: Partition) -> bool:
        """Whether it is of these topics, and nothing has been set since that goes over it."""
        if halted.reason in GAPS and self._settings.accept_gaps:
            return False
        return (halted.source_id, halted.destination_id) == self._ids(partition)

    async def pin(self, partition: Partition, *, end: int = 0) -> None:
        """Writes down what the partition is, unless that is known; before anything is written into its log.

        Args:
            partition: whose topics are looked up.
            end: of the destination's log; with ``accept_unproven``, all before it is accepted.

        Raises:
            NetworkError: not certain that it is there.
        """
        known = partition.pin
        source_id = partition.source_id.hex() if partition.source_id else None
        destination_id = partition.destination_id.hex() if partition.destination_id else None
        same = known is not None and (known.source_id, known.destination_id) == (source_id, destination_id)
        accepted = end if partition.accept_unproven else known.accepted if known is not None and same else 0
        if known is not None and same and accepted <= known.accepted:
            return
        pin = Pin(
            side=partition.side,
            source_id=source_id,
            destination_id=destination_id,
            source_cluster=self._source.cluster_id,
            copied=known.copied if known is not None and same and not partition.accept_unproven else None,
            accepted=accepted,
            at_ms=_now_ms(),
        )
        await self._state.put(pin)
        partition.pin = pin

    async def vouch(self, partition: Partition, here: Asked, unseen: Unseen) -> int:
        """See ``relay.evidence``: with what was written down of this partition, by whomever."""
        if partition.accept_unproven:
            return -1
        if partition.pin is None:
            # Who had it when this one recalled it may have written it down since, and then copied.
            await self.recall(partition)
        pin, committed = partition.pin, partition.committed
        source_id = partition.source_id.hex() if partition.source_id else ""
        of_these = committed is not None and committed.topic_id == source_id
        if pin is None and committed is not None and committed.topic_id and source_id and not of_these:
            raise halt(
                Trouble.RECREATED,
                f"source topic of {partition.name}: id {source_id}, when it was copied {committed.topic_id}",
            )
        copied = [
            LastCopied(each.next_offset, each.leader_epoch, header_digest(each.header), each.next_offset)
            for each in partition.marks
            if each.next_offset <= unseen.end
        ]
        if pin is not None and pin.copied is not None:
            copied.append(pin.copied)
        if committed is not None and of_these and committed.digest:
            copied.append(
                LastCopied(committed.offset, committed.leader_epoch, committed.digest, committed.digest_at)
                if committed.leader_epoch >= 0
                else LastCopied(committed.digest_at, committed.epoch, committed.digest, committed.digest_at)
            )
        known = Known(
            name=partition.name,
            pinned=pin is not None or bool(source_id and of_these),
            has_ids=bool(source_id),
            copied=tuple(copied),
            accepted=pin.accepted if pin is not None else 0,
            compacted=partition.terms.compacted,
        )
        return await vouch(here, known, unseen)

    async def note(self, partitions: Iterable[Partition]) -> None:
        """Writes down what was copied last of these, where that has changed.

        Raises:
            NetworkError: not certain that it is there; the next time has it all.
        """
        changed = [(each, pin) for each in partitions if (pin := _noted(each)) is not None]
        if changed:
            await self._state.save([pin for _, pin in changed])
            for partition, pin in changed:
                partition.pin = pin

    async def introduce(self) -> None:
        """Writes down who the flow is, unless that is known.

        Raises:
            NetworkError: not certain that it is there.
        """
        flow = Flow(
            flow=self._settings.flow,
            source_cluster=self._source.cluster_id,
            destination_cluster=self._destination.cluster_id,
            at_ms=_now_ms(),
        )
        if all(one.key() != flow.key() for one in self._state.ledger.flows):
            await self._state.put(flow)

    # -- halts ---------------------------------------------------------------------------------------------------------

    async def halted(self, partition: Partition, halted: Halted) -> None:
        """Writes down that the partition has stopped, however long it takes: whoever takes it over has to know. Reasons
        that heal by themselves are not written down."""
        if not is_durable(halted.reason):
            return
        source_id, destination_id = self._ids(partition)
        entry = Halt(
            side=partition.side,
            reason=halted.reason,
            detail=halted.detail,
            remedy=halted.remedy,
            at_ms=_now_ms(),
            source_id=source_id,
            destination_id=destination_id,
        )
        backoff = Backoff(least_ms=self._settings.backoff_ms, most_ms=self._settings.backoff_max_ms)
        while partition.halted is halted:
            try:
                await self._state.put(entry)
                return
            except NetworkError:
                await asyncio.sleep(backoff.next_s())

    async def resumed(self, partitions: Iterable[Partition]) -> None:
        """An operator says that these may go on, with the topics as they are now: halts are forgotten, and what the
        partitions are is written down anew.

        Raises:
            NetworkError: not certain that it is there.
        """
        entries: list[Entry] = []
        forget = []
        for partition in partitions:
            forget.append(halt_key(partition.side))
            pin = self._state.ledger.pin(partition.side)
            source_id, destination_id = self._ids(partition)
            if pin is not None and (pin.source_id, pin.destination_id, pin.source_cluster) != (
                source_id,
                destination_id,
                self._source.cluster_id,
            ):
                entries.append(
                    Pin(
                        side=partition.side,
                        source_id=source_id,
                        destination_id=destination_id,
                        source_cluster=self._source.cluster_id,
                        at_ms=_now_ms(),
                    )
                )
        await self._state.save(entries, forget=forget)

    def _ids(self, partition: Partition) -> tuple[str | None, str | None]:
        """Of source and destination topic, as of now."""
        here = self._source.topics.get(partition.topic)
        there = self._destination.topics.get(partition.destination)
        return (
            here.topic_id.hex() if here is not None and here.topic_id else None,
            there.topic_id.hex() if there is not None and there.topic_id else None,
        )


def _noted(partition: Partition) -> Pin | None:
    """The partition's pin with what was copied last; None if that is what it has."""
    found = committable(partition)
    if partition.pin is None or found is None:
        return None
    copied = LastCopied(found.offset, found.leader_epoch, found.digest, found.digest_at)
    if copied == partition.pin.copied:
        return None
    return replace(partition.pin, copied=copied, at_ms=_now_ms())


def was_copied(partition: Partition) -> bool:
    """Whether a record of these topics is known to have been copied, by the pin's or the group's word."""
    pin, committed = partition.pin, partition.committed
    if pin is not None and pin.copied is not None and pin.copied.digest:
        return True
    source_id = partition.source_id.hex() if partition.source_id else ""
    return committed is not None and bool(committed.digest) and committed.topic_id == source_id


def _now_ms() -> int:
    return round(time.time() * 1000)
