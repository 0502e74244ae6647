"""The producer id, epoch and sequence that the mirror's batches carry: they are computed, never allocated.

The id follows from the flow and the partition. Epoch and sequence go on behind what the destination's log shows
(``relay.locate.rules.continued``), and from batch to batch by ``Identity.after``.

A restarted worker, a zombie's late request and a second worker all send the same three for the same batch. So the
destination broker recognises a repeat and answers with the old offset instead of appending (docs/DESIGN.md#1-the-idea).
"""

import hashlib
from dataclasses import dataclass

from mirror.records.header import SEQUENCES

MIRROR_BIT = 1 << 62
"""Set in every producer id of the mirror. Brokers allocate ids from 0 upwards and never reach it."""
_ROTATION_BITS = 16
ROTATIONS = 1 << _ROTATION_BITS
"""Number of producer ids of one partition. Each lasts for 16,380 holes, all of them for about a billion. By the time
that the first is used again, brokers have long forgotten it (producer.id.expiration.ms, a day)."""
MAX_EPOCH = 32_760
"""Highest epoch that is used before the next rotation. Data carry even epochs, markers odd ones."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The producer fields that the next batch carries. ``sequence`` is that of its first record."""

    producer_id: int
    epoch: int
    sequence: int

    def after(self, records: int) -> "Identity":
        """Returns the identity of the next batch, after one of ``records`` offsets: sequences advance by
        lastOffsetDelta + 1 and wrap."""
        return Identity(self.producer_id, self.epoch, (self.sequence + records) % SEQUENCES)

    @property
    def marker(self) -> "Identity":
        """The identity of the markers in a hole behind data of this identity. From then on, brokers refuse late data
        (47)."""
        return Identity(self.producer_id, self.epoch | 1, 0)

    def behind_markers(self) -> "Identity":
        """Returns the identity of the data behind a hole. ``self`` may be the identity of the data before the hole or
        of its markers. From then on, brokers refuse late markers.

        Past the last epoch, the partition's next producer id begins, with data: the markers have to be of the previous
        id, or brokers would not refuse that id's late data. Late markers are then refused by their coordinator epoch
        only.
        """
        epoch = (self.epoch | 1) + 1
        if epoch <= MAX_EPOCH:
            return Identity(self.producer_id, epoch, 0)
        rotation = (self.producer_id + 1) % ROTATIONS
        return Identity(self.producer_id & ~(ROTATIONS - 1) | rotation, 0, 0)

    def is_before(self, other: "Identity") -> bool:
        """Returns True if ``other``, of the same partition, began later: a later producer id, or a higher epoch of the
        same one."""
        if self.producer_id == other.producer_id:
            return self.epoch < other.epoch
        return (other.producer_id - self.producer_id) % ROTATIONS < ROTATIONS // 2


def producer_id(*, flow: str, cluster_id: str, topic: str, partition: int, rotation: int = 0) -> int:
    """Returns 2^62 | hash(flow, source cluster id, topic, partition) << 16 | rotation (docs/DESIGN.md#1-the-idea).

    46 bits are enough for the hash: ids matter within one partition only, which a few flows write at most. The parts
    are joined by a byte that occurs in none of them, so that no two lists of parts join to the same bytes.
    """
    if not 0 <= rotation < ROTATIONS:
        raise ValueError(f"rotation {rotation} is not in 0..{ROTATIONS - 1}")
    parts = "\0".join((flow, cluster_id, topic, str(partition))).encode()
    digest = hashlib.blake2b(parts, digest_size=8).digest()
    return MIRROR_BIT | (int.from_bytes(digest) >> 2 + _ROTATION_BITS) << _ROTATION_BITS | rotation


def same_owner(producer: int, other: int) -> bool:
    """Returns True if both ids belong to the same flow and partition, whatever their rotations."""
    return producer | (ROTATIONS - 1) == other | (ROTATIONS - 1)
