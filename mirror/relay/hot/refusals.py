"""Decides what the destination's refusal of a batch means: the partition halts, or it is located again and tries
again."""

from typing import Any

from mirror.net.rights import TOPIC, WRITE, Right
from mirror.reasons import HaltReason
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.intact import is_intact
from mirror.relay.halts import Halted, halted_by_error
from mirror.relay.partition.queue import Batch, Queue, SentPayload
from mirror.wire.errors import ErrorCode, Reaction, error_name, outcome_of
from mirror.wire.produce import Produced

TRIES = 3
"""Consecutive doubts after which it is certain that the destination will never take the batch: because of a sequence
that is not ours (``identity: strict``); because of a producer that it does not know although the batch begins an epoch;
or because of a checksum that is right here."""
SEQUENCE_ERRORS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH})


def why_halt(queue: Queue, answer: Produced, destination: str) -> Halted | None:
    """Returns the halt if locating the partition again cannot help, else None.

    Args:
        queue: the partition's queue. The batch in question is the oldest one in flight.
        answer: the broker's answer for the partition, with an error code.
        destination: the cluster's name.
    """
    partition = queue.partition
    code, again = answer.error, partition.claim.doubts < TRIES
    where = f"{destination} refused the batch at offset {queue.acknowledged}"
    if partition.terms.strict and code in SEQUENCE_ERRORS and not again:
        return Halted.of(
            HaltReason.STRICT_REFUSED, f"{partition.name} at offset {queue.acknowledged}: {error_name(code)}"
        )
    if code == ErrorCode.UNKNOWN_PRODUCER_ID and not again and _begins_epoch(queue):
        return Halted.of(HaltReason.PRODUCER_IDS, f"{where}, {error_name(code)}: the first of its producer's epoch")
    if outcome_of(code) is not Reaction.HALT and code != ErrorCode.UNKNOWN_SERVER_ERROR:
        return None
    if queue.in_flight and isinstance(queue.in_flight[0][1], SentPayload):
        return None  # its records are not here any more: the batch is fetched again, and judged then
    if queue.in_flight and not is_intact(_stored(queue.in_flight[0])):
        # Whatever error code the broker uses for it.
        return Halted.of(HaltReason.CORRUPT, f"{where}, {error_name(code)}: it came with a wrong checksum")
    if code == ErrorCode.CORRUPT_MESSAGE:
        # It is intact here, so it was damaged on the way. That may not happen again.
        detail = f"{where}, {error_name(code)}: its checksum is right here"
        return None if again else Halted.of(HaltReason.DAMAGED_IN_TRANSIT, detail)
    if outcome_of(code) is not Reaction.HALT:
        return None
    needs = Right(WRITE, TOPIC, partition.destination, destination)
    return halted_by_error(code, where, answer.message, needs=needs)


def _begins_epoch(queue: Queue) -> bool:
    """Returns True if the refused batch is its producer's first in its epoch. A broker need not know the producer for
    such a batch."""
    batch = queue.in_flight[0] if queue.in_flight else None
    if batch is None or isinstance(batch[1], SentPayload):
        return False
    return BatchHeader.read(_stored(batch)).base_sequence == 0


def _stored(batch: Batch | tuple[Any, ...]) -> bytes:
    """Returns the batch as the destination would store it, except for the base offset."""
    return bytes(batch[0][-HEADER_SIZE:]) + bytes(batch[1])
