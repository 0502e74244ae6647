"""Who a batch says it comes from: a producer id, epoch and sequence that are computed, never allocated.

A restarted worker, a zombie's late request and a second worker all send the same three for the same batch, so the
destination broker recognises a repeat and answers with the old offset instead of appending (design, section 4).
"""

import hashlib
from dataclasses import dataclass

from mirror.records.header import SEQUENCES

MIRROR_BIT = 1 << 62
"""Brokers allocate ids from 0 upwards; these collide with none of them."""
ROTATIONS = 1 << 8
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


def producer_id(*, flow: str, cluster_id: str, topic: str, partition: int, rotation: int = 0) -> int:
    """P = 2^62 | hash(flow, source cluster id, topic, partition) << 8 | rotation (design, section 4).

    The hash has 54 bits; the parts are joined by a byte that occurs in none of their names, so no two lists of parts
    hash alike by their joints.
    """
    if not 0 <= rotation < ROTATIONS:
        raise ValueError(f"rotation {rotation} is not in 0..{ROTATIONS - 1}")
    parts = "\0".join((flow, cluster_id, topic, str(partition))).encode()
    digest = hashlib.blake2b(parts, digest_size=8).digest()
    return MIRROR_BIT | (int.from_bytes(digest) >> 10) << 8 | rotation


def same_owner(producer: int, other: int) -> bool:
    """Both ids belong to one flow and partition, whatever their rotations."""
    return producer | (ROTATIONS - 1) == other | (ROTATIONS - 1)
