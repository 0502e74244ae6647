"""Who a batch says it comes from: a producer id, epoch and sequence that are computed, never allocated.

A restarted worker, a zombie's late request and a second worker all send the same three for the same batch, so the
destination broker recognises a repeat and answers with the old offset instead of appending (docs/DESIGN.md#the-idea).
"""

import hashlib
from dataclasses import dataclass

from mirror.records.header import SEQUENCES

MIRROR_BIT = 1 << 62
"""Brokers allocate ids from 0 upwards; these collide with none of them."""
_ROTATION_BITS = 16
ROTATIONS = 1 << _ROTATION_BITS
"""Producer ids of one partition. Each is good for 16,380 holes, all of them for a thousand million: by the time that
the first comes round again, brokers have long forgotten it (producer.id.expiration.ms, a day)."""
MAX_EPOCH = 32_760
"""Highest epoch used before the next rotation; data carry even epochs, markers odd ones."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the next batch carries. ``sequence`` is its first record's."""

    producer_id: int
    epoch: int
    sequence: int

    def after(self, records: int) -> "Identity":
        """The identity behind a batch of so many offsets: sequences advance by lastOffsetDelta + 1 and wrap."""
        return Identity(self.producer_id, self.epoch, (self.sequence + records) % SEQUENCES)

    @property
    def marker(self) -> "Identity":
        """Of the markers in a hole behind data of this identity: late data is refused from then on (47)."""
        return Identity(self.producer_id, self.epoch | 1, 0)

    def behind_markers(self) -> "Identity":
        """The identity of the data behind a hole, after data of this identity or after the markers: late markers are
        refused from then on.

        Past the last epoch, the partition's next producer id begins, with data: the markers have to be of the id
        before, or they would not have its late data refused. Late markers are then refused by their coordinator epoch
        only.
        """
        epoch = (self.epoch | 1) + 1
        if epoch <= MAX_EPOCH:
            return Identity(self.producer_id, epoch, 0)
        rotation = (self.producer_id + 1) % ROTATIONS
        return Identity(self.producer_id & ~(ROTATIONS - 1) | rotation, 0, 0)

    def is_before(self, other: "Identity") -> bool:
        """Whether ``other``, of the same partition, began later: a later producer id, or a higher epoch of this one."""
        if self.producer_id == other.producer_id:
            return self.epoch < other.epoch
        return (other.producer_id - self.producer_id) % ROTATIONS < ROTATIONS // 2


def producer_id(*, flow: str, cluster_id: str, topic: str, partition: int, rotation: int = 0) -> int:
    """P = 2^62 | hash(flow, source cluster id, topic, partition) << 16 | rotation (docs/DESIGN.md#the-idea).

    The hash has 46 bits: ids matter within one partition only, where a few flows write at most. The parts are joined by
    a byte that occurs in none of their names, so no two lists of parts hash alike by their joints.
    """
    if not 0 <= rotation < ROTATIONS:
        raise ValueError(f"rotation {rotation} is not in 0..{ROTATIONS - 1}")
    parts = "\0".join((flow, cluster_id, topic, str(partition))).encode()
    digest = hashlib.blake2b(parts, digest_size=8).digest()
    return MIRROR_BIT | (int.from_bytes(digest) >> 2 + _ROTATION_BITS) << _ROTATION_BITS | rotation


def same_owner(producer: int, other: int) -> bool:
    """Both ids belong to one flow and partition, whatever their rotations."""
    return producer | (ROTATIONS - 1) == other | (ROTATIONS - 1)
