"""A piece of a partition's log, read off the data path: one Fetch, whole batches, copied."""

from typing import NamedTuple

from mirror.net.cluster import Cluster, Leader
from mirror.net.errors import ConnectionLost, Refused
from mirror.records.header import MAGIC, MAGIC_AT, BatchHeader, CorruptBatch
from mirror.records.scan import measure
from mirror.wire.errors import ErrorCode, error_slug
from mirror.wire.fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Fetched,
    FetchPartition,
    TopicKey,
    fetch_request,
    read_fetch_response,
)
from mirror.wire.primitives import MalformedFrame
from mirror.wire.versions import FETCH_FLEXIBLE, FETCH_KEY, FETCH_TOPIC_IDS, FETCH_VERSIONS

ONE_BATCH = 1
"""A Fetch brings its first batch whole whatever the limit (KIP-74), so one byte asks for exactly one batch."""
_WAIT_MS = 100
_OLD_FORMAT = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class Segment(NamedTuple):
    """A piece of a log as it was read. The batches lie in one buffer of their own, which nobody else uses."""

    batches: list[tuple[BatchHeader, memoryview]]
    """Whole batches, header included, from the one that holds the offset asked for (or the first behind it)."""
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of each aborted transaction in reach; empty unless read committed."""
    high_watermark: int
    last_stable_offset: int
    log_start: int
    """-1 where the broker does not say (before Kafka 1.0)."""


async def read_segment(
    cluster: Cluster,
    topic: str,
    topic_id: bytes | None,
    partition: int,
    leader: Leader,
    offset: int,
    *,
    max_bytes: int = ONE_BATCH,
    committed: bool = False,
) -> Segment:
    """The log from the batch that holds ``offset``, up to ``max_bytes`` of it but one whole batch at least; nothing
    above the high watermark, or with ``committed`` above the last stable offset.

    Raises:
        Refused: an error code from the broker; UNSUPPORTED_FOR_MESSAGE_FORMAT if the log has magic 0 or 1 there.
        NetworkError: it did not answer, or not with batches.
    """
    connection = await cluster.control(leader.node_id)
    most = FETCH_VERSIONS[1] if topic_id else FETCH_TOPIC_IDS - 1
    version = connection.version_of(FETCH_KEY, (FETCH_VERSIONS[0], most), "Fetch")
    key: TopicKey = topic_id if topic_id and version >= FETCH_TOPIC_IDS else topic
    body = fetch_request(
        version,
        [FetchPartition(key, partition, offset, max_bytes, leader.epoch)],
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
    )
    frame = memoryview(await connection.ask(FETCH_KEY, version, body, flexible=version >= FETCH_FLEXIBLE))
    what = f"{topic}-{partition}"
    try:
        fetched = read_fetch_response(version, frame)
        if len(fetched.partitions) != 1:
            count = len(fetched.partitions)
            raise ConnectionLost(f"{cluster.name} Fetch of {what}: {count} partitions in the answer, asked for 1")
        found = fetched.partitions[0]
        if found.error or fetched.error:
            cluster.failed("Fetch", error_slug(found.error or fetched.error))
            raise Refused(f"{cluster.name}: Fetch of {what} at {offset}", found.error or fetched.error)
        batches = _batches(frame, found, offset, f"{cluster.name}: {what} at {offset}")
    except (MalformedFrame, CorruptBatch) as error:
        raise ConnectionLost(f"{connection.name}: {what} at {offset}: {error}") from error
    return Segment(batches, found.aborted, found.high_watermark, found.last_stable_offset, found.log_start_offset)


def _batches(frame: memoryview, found: Fetched, offset: int, what: str) -> list[tuple[BatchHeader, memoryview]]:
    """The whole batches from the one that holds ``offset``; a broker may answer with some before it."""
    batches: list[tuple[BatchHeader, memoryview]] = []
    at = found.start
    while isinstance(size := measure(frame, at, found.end), int):
        if frame[at + MAGIC_AT] != MAGIC:
            if batches:
                break
            raise Refused(what, _OLD_FORMAT, "magic 0 or 1")
        header = BatchHeader.read(frame, at)
        if header.last_offset >= offset:
            batches.append((header, frame[at : at + size]))
        at += size
    return batches
