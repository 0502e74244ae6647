"""Passes over a record that fits into no batch that the destination takes (``oversize.record: drop | deadletter``).

The offset becomes a hole like any other. Before a marker takes it, this is done, in this order:

1. The limit and the record are looked at once more.
2. With ``deadletter``, the record is written to the dead letter topic and acknowledged there.
3. It is logged.
4. It is written down, as the proof for every later owner and for the audit.

A worker that dies in between leaves an offset that is not filled, and the next owner begins again. So nothing is lost
without a trace, and only a dead letter may be written twice.
"""

import asyncio
from typing import NamedTuple

from mirror.offsetmap.entries.passed import DEAD_LETTER, DROPPED
from mirror.reasons import HaltReason
from mirror.records.admit import Terms, damaged
from mirror.records.content.deadletter import dead_letter
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.raw import RawRecord, raw_records, record_digest
from mirror.records.content.rewriting import alone
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.intact import is_intact
from mirror.relay.halts import PartitionHalted, halt, halted_by_batch
from mirror.relay.holes.deadletters import DeadLetters
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.outcome import Moved
from mirror.relay.partition.partition import Partition
from mirror.relay.settings import DEADLETTER

CONFIGS_CHANGED = "configs_changed"
SOURCE_CHANGED = "source_changed"


class OversizeRecord(NamedTuple):
    """The record at the source. ``size``: bytes of a batch with only this record."""

    header: BatchHeader
    record: RawRecord
    size: int


class OversizeRecords:
    """Passes over such records, for all partitions of a process."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._opening = asyncio.Lock()
        """Held while a batch is open, so that memory is bounded."""
        self._letters = DeadLetters(relay.destination, relay.settings.dead_letter_topic)

    async def pass_over(self, partition: Partition) -> None:
        """Does all that has to be done before a marker may take the place of the record that is due. Nothing of the
        partition may be in flight.

        Raises:
            Moved: the record is not to be passed over any more, because the limit or the source has changed.
            PartitionHalted: its batch is damaged or cannot be opened, or the dead letter topic does not take it.
            NetworkError: it was not done. The next resync leads to another try.
        """
        relay, offset = self._relay, partition.queue.acknowledged
        terms = await relay.verdicts.renewed(partition)
        async with self._opening:
            found = await self._find(partition, offset, terms.codec)
            most = _limit(partition, offset, found.size, terms)
            epoch = found.header.leader_epoch
            digest = record_digest(found.header, found.record) if found.header.is_stand_in else ""
            known = relay.pins.passed.known(partition, offset, epoch, digest)
            told = f"makes a batch of {found.size} bytes by itself, and {partition.destination} takes {most}"
            if relay.settings.oversize_record != DEADLETTER:
                done, cause = "it is dropped", known.cause if known is not None else DROPPED
            elif known is not None and known.cause == DEAD_LETTER:
                done, cause = "it is in the dead letter topic already", DEAD_LETTER
            else:
                where = await self._letters.write(partition.index, self._letter(partition, found, told))
                done, cause = f"it is a dead letter in {where}", DEAD_LETTER
        relay.log.warning(
            "oversize_record",
            topic=partition.topic,
            partition=partition.index,
            offset=offset,
            size=found.size,
            limit=most,
            detail=f"the record at offset {offset} {told}: {done}",
        )
        if known is None or known.cause != cause:
            known = await relay.pins.passed.write(partition, offset, epoch, cause, digest)
        relay.stats.pass_over(known)

    async def _find(self, partition: Partition, offset: int, codec: int | None) -> OversizeRecord:
        """Reads the record from the source once more, because the data path keeps nothing of it.

        Args:
            partition: its partition.
            offset: its offset.
            codec: the codec that it would have at the destination; None: its own.

        Raises:
            Moved: the source has no such record any more.
            PartitionHalted: its batch is damaged or cannot be opened.
            NetworkError: it cannot be read now.
        """
        here, _ = self._relay.locator.logs(partition)
        here.floor = partition.cursor.floor
        found = await here.batch_at(offset)
        if found is None or not found[0].base_offset <= offset <= found[0].last_offset:
            raise Moved(SOURCE_CHANGED, f"{here.name} had a record at offset {offset}, and has none now")
        header, batch = found
        if not is_intact(batch):
            raise PartitionHalted(halted_by_batch(damaged(header)))
        try:
            for record in raw_records(header, batch[HEADER_SIZE:]):
                if header.base_offset + record.offset_delta == offset:
                    return OversizeRecord(header, record, alone(header, record, codec=codec).header.size)
        except NotOpened as error:
            raise halt(HaltReason.NOT_OPENED, f"{here.name}: {error}") from error
        raise Moved(SOURCE_CHANGED, f"{here.name} had a record at offset {offset}, and has none now")

    def _letter(self, partition: Partition, found: OversizeRecord, told: str) -> bytes:
        offset = found.header.base_offset + found.record.offset_delta
        return dead_letter(
            found.header,
            found.record,
            {
                "topic": partition.topic,
                "partition": str(partition.index),
                "offset": str(offset),
                "flow": self._relay.settings.flow,
                "reason": DROPPED,
                "message": f"the record {told}",
            },
        )


def _limit(partition: Partition, offset: int, size: int, terms: Terms) -> int:
    """Returns the limit that the record exceeds, according to the current configs.

    Raises:
        Moved: it does not exceed the limit, or the limit is not known.
    """
    if terms.passes_over is None or size <= terms.passes_over:
        most = "any, as far as is known," if terms.passes_over is None else terms.passes_over
        raise Moved(
            CONFIGS_CHANGED,
            f"{partition.name}: the record at offset {offset} makes a batch of {size} bytes by itself; "
            f"{partition.destination} takes {most} now",
        )
    return terms.passes_over
