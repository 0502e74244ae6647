"""The identities of batches that the sink appends with ``offsets=mapped``. A batch's source offset can be read from
them.

The sink knows only from the destination's log what it has written. So a batch carries its source offset in its producer
fields. A *run* is a sequence of batches without a gap between their source offsets; it ends at the latest with a
*block* of 2^30 offsets. In a run that begins at offset s, a batch at offset b has

    producer id  = hash(flow, source cluster, topic, partition, s >> 30) | (s >> 14) & 0xFFFF
    epoch        = s & 0x3FFF
    sequence     = b - s

Every attempt of a task sends the same three for the same batch, and the broker answers a repeat with the old offset
instead of appending it. Sequences have no gaps within a run, as brokers require, and a later run of the same producer
id has a higher epoch, so that brokers refuse late batches of the earlier one.
"""

from typing import NamedTuple

from mirror.records.header import BatchHeader
from mirror.records.identity import ROTATIONS, Identity, producer_id, same_owner

BLOCK = 1 << 30
"""Offsets in a block: the product of the next two."""
EPOCHS = 1 << 14
NEAR = 64
"""The flow's batches are recognised up to this many blocks before and behind a row: 68 billion offsets."""
assert BLOCK == EPOCHS * ROTATIONS


class Place(NamedTuple):
    """The source offset of a batch and the beginning of its run, as its identity says."""

    run: int
    """The offset at which its run began."""
    offset: int


class Runs:
    """The identities of one source partition.

    Args:
        flow: the flow's name.
        cluster_id: id of the source cluster; may be empty.
        topic, partition: the source partition.
    """

    def __init__(self, *, flow: str, cluster_id: str, topic: str, partition: int) -> None:
        self._flow = f"{flow}\0spark"
        self._cluster_id = cluster_id
        self._topic = topic
        self._partition = partition
        self._blocks: dict[int, int] = {}
        """Producer id with rotation 0 -> block."""
        self._ids: dict[int, int] = {}
        """Block -> producer id with rotation 0."""
        self._near = -1
        """The block around which all blocks' ids are in ``_blocks``."""

    def identity(self, place: Place) -> Identity:
        """Returns the identity of a batch. Its run has to begin in the same block (``goes_on``)."""
        block, inside = divmod(place.run, BLOCK)
        rotation, epoch = divmod(inside, EPOCHS)
        return Identity(self._id(block) | rotation, epoch, place.offset - place.run)

    @staticmethod
    def goes_on(run: int, offset: int) -> bool:
        """Returns True if a run may hold a batch at this offset: both are in one block."""
        return run // BLOCK == offset // BLOCK

    def place(self, header: BatchHeader, *, near: int) -> Place | None:
        """Returns the source offset of a batch at the destination; None if it is not a batch of this partition's runs.

        Args:
            header: header of the batch.
            near: a source offset; identities far from it are not recognised (``NEAR``).
        """
        if header.is_control or header.producer_id < 0:
            return None
        here = near // BLOCK
        if here != self._near:
            self._near = here
            for block in range(max(0, here - NEAR), here + NEAR + 1):
                self._id(block)
        block_of = self._blocks.get(header.producer_id & ~(ROTATIONS - 1))
        if block_of is None or header.producer_epoch >= EPOCHS:
            return None
        run = block_of * BLOCK + header.producer_id % ROTATIONS * EPOCHS + header.producer_epoch
        return Place(run, run + header.base_sequence)

    def _id(self, block: int) -> int:
        known = self._ids.get(block)
        if known is None:
            known = self._ids[block] = producer_id(
                flow=f"{self._flow}\0{block}",
                cluster_id=self._cluster_id,
                topic=self._topic,
                partition=self._partition,
            )
            self._blocks[known] = block
        return known


assert same_owner(ROTATIONS, ROTATIONS | 1)
