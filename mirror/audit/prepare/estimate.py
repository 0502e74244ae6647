"""Estimates from samples how many bytes a partition's audited offsets have, for the plan. It needs only the right to
read the topics.

A wrong estimate costs time, never correctness: every offset is in some range, whatever its size turns out to be.
"""

from collections import defaultdict
from collections.abc import Iterable

from mirror.audit.model.places import Bounds, TopicPartition
from mirror.audit.prepare.plan import ReadingEstimate
from mirror.audit.read.fetching import send_fetch
from mirror.net.buffers import OVERHEAD, FramePool
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.stream import SIZE_ONLY
from mirror.records.header import HEADER_SIZE, MAGIC, MAGIC_AT, PREFIX, PREFIX_SIZE, BatchHeader
from mirror.wire.fetch import read_fetch_response
from mirror.wire.primitives import MalformedFrame

SAMPLE_BYTES = 32 * 1024
SAMPLED_AT = (0.0, 0.5, 0.9)
"""Places of the samples, as fractions of the audited offsets."""
PARTITIONS_PER_REQUEST = 200
GUESS = 1_000.0
"""Bytes per offset if no sample could be read."""

Wanted = tuple[str, int, int]


def bytes_per_offset(record_set: memoryview) -> float | None:
    """Returns the bytes per offset of a record set, from the headers alone; None if that cannot be told. A batch that
    is cut off counts too, since its header has its size. The header of an old-format wrapper has only its last offset,
    so the number of its offsets follows from the entry before it."""
    at = size = offsets = 0
    before: int | None = None
    while at + MAGIC_AT < len(record_set):
        offset, length = PREFIX.unpack_from(record_set, at)
        if length <= 0:
            break
        if record_set[at + MAGIC_AT] != MAGIC:
            if before is not None and offset > before:
                size += PREFIX_SIZE + length
                offsets += offset - before
            before = offset
        elif at + HEADER_SIZE > len(record_set):
            break
        else:
            header = BatchHeader.read(record_set, at)
            if header.last_offset_delta < 0:
                break
            size += header.size
            offsets += header.last_offset_delta + 1
            before = header.last_offset
        at += PREFIX_SIZE + length
    return size / offsets if offsets else None


async def estimates(cluster: Cluster, client_id: str, bounds: Iterable[Bounds]) -> list[ReadingEstimate]:
    """Returns one estimate for each partition, in the same order."""
    bounds = list(bounds)
    found_of: dict[TopicPartition, list[float]] = defaultdict(list)
    for fraction in SAMPLED_AT:
        wanted = [
            (known.topic, known.partition, known.audited.start + int(known.audited.offsets * fraction))
            for known in bounds
            if known.audited.offsets
        ]
        for key, sample in await samples(cluster, client_id, wanted):
            found_of[key].append(sample)
    found = [(known, found_of.get(known.key) or [GUESS]) for known in bounds]
    return [
        ReadingEstimate(known.key, known.audited, int(known.audited.offsets * sum(rates) / len(rates)))
        for known, rates in found
    ]


async def samples(cluster: Cluster, client_id: str, wanted: list[Wanted]) -> list[tuple[TopicPartition, float]]:
    """Returns the bytes per offset at these places (topic, partition, offset), except places that cannot be read."""
    by_leader: dict[int, list[Wanted]] = defaultdict(list)
    for entry in wanted:
        if leader := cluster.leader(entry[0], entry[1]):
            by_leader[leader.node_id].append(entry)
    found: list[tuple[TopicPartition, float]] = []
    for node_id, entries in by_leader.items():
        try:
            for first in range(0, len(entries), PARTITIONS_PER_REQUEST):
                found += await _sample(cluster, client_id, node_id, entries[first : first + PARTITIONS_PER_REQUEST])
        except (NetworkError, MalformedFrame):
            continue  # the reader will meet the same broker, try again and report what is wrong
    return found


async def _sample(
    cluster: Cluster, client_id: str, node_id: int, wanted: list[Wanted]
) -> list[tuple[TopicPartition, float]]:
    size = len(wanted) * SAMPLE_BYTES
    pool = FramePool(budget=size + OVERHEAD, frame_size=size + OVERHEAD)
    connection = await cluster.dial(node_id, read_ahead=SIZE_ONLY, allocate=pool.take)
    try:
        sent = send_fetch(
            cluster, connection, wanted, client_id=client_id, partition_bytes=SAMPLE_BYTES, response_bytes=size
        )
        frame = await sent.future
        found = []
        for fetched in read_fetch_response(sent.version, frame.body).partitions:
            rate = bytes_per_offset(frame.body[fetched.start : fetched.end])
            if rate is not None and fetched.topic in sent.topics:
                found.append((TopicPartition(sent.topics[fetched.topic], fetched.partition), rate))
        frame.release()
        return found
    finally:
        connection.close()
