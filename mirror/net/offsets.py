"""Single batches and the ends of logs, by plain functions; ``mirror.net.log.PartitionLog`` has the same as methods."""

from mirror.net.cluster import Cluster, Leader
from mirror.net.questions import EARLIEST, LATEST, TRUE_END, Producer, describe_producers, list_offset
from mirror.net.reading import read_segment
from mirror.records.header import BatchHeader

__all__ = ["EARLIEST", "LATEST", "TRUE_END", "Producer", "describe_producers", "list_offset", "read_batch"]


async def read_batch(
    cluster: Cluster, topic: str, topic_id: bytes | None, partition: int, leader: Leader, offset: int
) -> tuple[BatchHeader, bytes] | None:
    """The batch that contains ``offset`` (or the first behind it), whole; None if there is none.

    Raises:
        Refused, NetworkError: as ``read_segment``.
    """
    segment = await read_segment(cluster, topic, topic_id, partition, leader, offset)
    return (segment.batches[0][0], bytes(segment.batches[0][1])) if segment.batches else None
