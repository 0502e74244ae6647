"""Reads a piece of a partition's log off the data path: one Fetch, whole batches, copied.

Checksums are verified here, and offsets as far as possible, so that callers need not do it.
"""

from typing import NamedTuple

from mirror.legacy import stand_ins
from mirror.legacy.entries import first_offset_at
from mirror.net.cluster import Cluster
from mirror.net.errors import ConnectionLost, Damaged, Refused, StorageUnavailable, StoredInOldFormat, Unreadable
from mirror.net.logs import leader_requests
from mirror.net.logs.leader_requests import LATEST, TRUE_END, in_tiered_storage
from mirror.net.metadata import Leader
from mirror.net.rights import READ, TOPIC, Right
from mirror.records.content.decompressing import NotOpened
from mirror.records.header import MAGIC, MAGIC_AT, BatchHeader, CorruptBatch
from mirror.records.intact import is_intact
from mirror.records.scan import NOT_SEEN, Remainder, base_offset_at, measure
from mirror.wire.errors import UNREADABLE, ErrorCode, error_name, error_slug
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
_STORAGE_WAIT_MS = 2_000
"""How long a second Fetch waits for an offset in tiered storage, if the first one (``_WAIT_MS``) brought nothing."""


class Segment(NamedTuple):
    """A piece of a log as it was read. The batches are views of a buffer that nothing else uses."""

    batches: list[tuple[BatchHeader, memoryview]]
    """Whole batches with their headers, from the one that holds the offset asked for (or the first behind it)."""
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of each aborted transaction that the broker lists; empty unless read committed."""
    high_watermark: int
    last_stable_offset: int
    log_start: int
    """The log start offset; -1 if the broker does not tell it (before Kafka 1.0)."""
    next_base: int = NOT_SEEN
    """Base offset of the batch behind the last one, which was cut off; -1 if nothing of it was received."""


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
    converts: bool = False,
) -> Segment:
    """Reads the log from the batch that holds ``offset``: up to ``max_bytes``, but at least one whole batch. It ends at
    the high watermark, or with ``committed`` at the last stable offset. ``topic_id``: None if it is not known.
    ``converts``: see ``verified``.

    Raises:
        Refused: an error code from the broker.
        StoredInOldFormat: the log has magic 0 or 1 there, and not ``converts``.
        Unreadable: the broker fails to read its own log there.
        StorageUnavailable: the offset is in tiered storage, which does not deliver it now.
        Damaged: a checksum is wrong, or offsets are impossible.
        NetworkError: the broker did not answer.
    """
    what = f"{topic}-{partition} at {offset}"
    # Before Kafka 3.8, brokers answer without data if reading from tiered storage takes longer than the request waits.
    for wait_ms in (_WAIT_MS, _STORAGE_WAIT_MS):
        frame, found = await _fetch_one(
            cluster,
            topic,
            topic_id,
            partition,
            leader,
            offset,
            wait_ms=wait_ms,
            max_bytes=max_bytes,
            committed=committed,
        )
        try:
            batches, next_base = verified(frame[found.start : found.end], offset, converts=converts)
        except OldFormat as error:
            raise StoredInOldFormat(cluster.name, what, str(error)) from error
        except CorruptBatch as error:
            raise Damaged(cluster.name, f"{what}: {error}") from error
        away = not batches and offset < found.high_watermark
        if not away or not await in_tiered_storage(cluster, topic, partition, leader, offset):
            break
    else:
        raise _unavailable(cluster, f"{what} is answered with nothing")
    await check_end(
        cluster, topic, partition, leader, batches, found.last_stable_offset if committed else found.high_watermark
    )
    return Segment(
        batches, found.aborted, found.high_watermark, found.last_stable_offset, found.log_start_offset, next_base
    )


async def _fetch_one(
    cluster: Cluster,
    topic: str,
    topic_id: bytes | None,
    partition: int,
    leader: Leader,
    offset: int,
    *,
    wait_ms: int,
    max_bytes: int,
    committed: bool,
) -> tuple[memoryview, Fetched]:
    """Returns the response frame of one Fetch, and its only partition. Raises as ``read_segment``."""
    connection = await cluster.control(leader.node_id)
    most = FETCH_VERSIONS[1] if topic_id else FETCH_TOPIC_IDS - 1
    version = connection.version_of(FETCH_KEY, (FETCH_VERSIONS[0], most), "Fetch")
    key: TopicKey = topic_id if topic_id and version >= FETCH_TOPIC_IDS else topic
    body = fetch_request(
        version,
        [FetchPartition(key, partition, offset, max_bytes, leader.epoch)],
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
    )
    what = f"{topic}-{partition} at {offset}"
    while True:
        frame = memoryview(await connection.ask(FETCH_KEY, version, body, flexible=version >= FETCH_FLEXIBLE))
        try:
            fetched = read_fetch_response(version, frame)
        except MalformedFrame as error:
            raise ConnectionLost(f"{connection.name}: {what}: {error}") from error
        connection.throttle(fetched.throttle_ms)
        if fetched.partitions or fetched.error or not fetched.throttle_ms:
            break  # otherwise a quota applies: the answer has no partitions, and the next ``ask`` waits first
    if len(fetched.partitions) != 1:
        count = len(fetched.partitions)
        raise ConnectionLost(f"{cluster.name}: Fetch of {what}: {count} partitions in the answer, asked for 1")
    found = fetched.partitions[0]
    code = found.error or fetched.error
    if not code:
        return frame, found
    cluster.failed("Fetch", error_slug(code))
    if code == ErrorCode.UNKNOWN_SERVER_ERROR and await in_tiered_storage(cluster, topic, partition, leader, offset):
        raise _unavailable(cluster, f"{what}: {error_name(code)}")
    if code in UNREADABLE:
        raise Unreadable(cluster.name, f"{cluster.name}: Fetch of {what}", code)
    raise Refused(f"{cluster.name}: Fetch of {what}", code, needs=Right(READ, TOPIC, topic, cluster.name))


def _unavailable(cluster: Cluster, said: str) -> StorageUnavailable:
    """Counts and returns the error for a Fetch that failed because of tiered storage. If the storage is down, brokers
    answer with an error; if it is slow, or over its quota (KIP-956), without data."""
    cluster.failed("Fetch", StorageUnavailable.slug)
    return StorageUnavailable(f"{cluster.name}: {said}; the offset is in tiered storage")


async def check_end(
    cluster: Cluster,
    topic: str,
    partition: int,
    leader: Leader,
    batches: list[tuple[BatchHeader, memoryview]],
    visible_end: int,
) -> None:
    """Checks that the last of the batches lies within the log: no checksum covers its base offset.

    Args:
        cluster: the cluster from which the batches were fetched.
        topic: the topic's name.
        partition: the partition's number.
        leader: the partition's leader.
        batches: whole batches with their headers, in order (``verified``).
        visible_end: the high watermark or last stable offset in the Fetch response. Brokers take it before they read
            the log, so batches may go past it; only then the leader is asked for its true end.

    Raises:
        Damaged: the batches go past the end of the log.
        NetworkError: the leader does not answer.
    """
    if not batches or batches[-1][0].next_offset <= visible_end:
        return
    header = batches[-1][0]
    end = await leader_requests.list_offset(cluster, topic, partition, leader, LATEST, replica_id=TRUE_END)
    if header.next_offset > end:
        what = f"{topic}-{partition}"
        raise Damaged(cluster.name, f"{what}: a batch ends at offset {header.last_offset}, the log at {end}")


class OldFormat(Exception):
    """The log has messages of magic 0 or 1 at the offset, and they are not converted."""


class OutOfOrder(CorruptBatch):
    """A base offset is not above the offsets of the previous batch: one of the two is wrong."""


class Intact(NamedTuple):
    """The batches of a piece of a log, as far as it is intact."""

    batches: list[tuple[BatchHeader, memoryview]]
    next_base: int
    """Base offset of the batch behind them, which is cut off; -1 if there is none, or its base offset is cut off,
    too."""
    wrong: CorruptBatch | None
    """The error of the batch behind them; None if there is no error."""


def verified(
    record_set: memoryview, offset: int, *, converts: bool = False
) -> tuple[list[tuple[BatchHeader, memoryview]], int]:
    """As ``intact``, but raises the error. Returns ``Intact.batches`` and ``Intact.next_base``.

    Raises:
        CorruptBatch: a batch is not intact, or is out of order; with ``converts``, the first one that is due is an old
            message that cannot be opened.
        OldFormat: the first batch is not of magic 2, and not ``converts``.
    """
    found = intact(record_set, offset, converts=converts)
    if found.wrong is not None:
        raise found.wrong
    return found.batches, found.next_base


def intact(record_set: memoryview, offset: int, *, converts: bool = False) -> Intact:
    """Returns the whole batches from the one that holds ``offset``, up to the end or to the first that is wrong.

    A broker may answer with batches before ``offset``; they are verified, too, and left out. ``converts``: each message
    of magic 0 or 1 is returned as a stand-in (``legacy.stand_ins``); otherwise the batches end before the first one.

    Of two batches that are out of order, either may have the wrong base offset: neither is returned.

    Raises:
        OldFormat: the first batch is not of magic 2, and not ``converts``.
    """
    batches: list[tuple[BatchHeader, memoryview]] = []
    try:
        return Intact(batches, _gather(batches, record_set, offset, converts=converts), None)
    except OutOfOrder as error:
        return Intact(batches[:-1], NOT_SEEN, error)
    except CorruptBatch as error:
        return Intact(batches, NOT_SEEN, error)


def _gather(
    batches: list[tuple[BatchHeader, memoryview]], record_set: memoryview, offset: int, *, converts: bool
) -> int:
    """Appends the batches to ``batches``; returns ``next_base``. Raises CorruptBatch where one is wrong."""
    at = reached = 0
    end = len(record_set)
    old = False
    while isinstance(size := measure(record_set, at, end), int):
        batch = record_set[at : at + size]
        if not is_intact(batch):
            kind = OutOfOrder if base_offset_at(record_set, at, end) < reached else CorruptBatch
            raise kind(f"the batch of {size} bytes at byte {at} does not match its checksum")
        old = batch[MAGIC_AT] != MAGIC
        if old and converts:
            made = stand_ins(record_set, at, end, due=offset, gathered_records=1)
            for each in made.batches:
                header = BatchHeader.read(each)
                _check_order(header.base_offset, reached)
                reached = header.next_offset
                batches.append((header, memoryview(each)))
            at = made.stop
            if isinstance(made.wrong, NotOpened) and batches:
                return NOT_SEEN
            if made.wrong is not None:
                raise CorruptBatch(str(made.wrong))
            continue
        if old:
            if batches:
                return NOT_SEEN
            raise OldFormat("magic 0 or 1")
        header = BatchHeader.read(batch)
        _check_order(header.base_offset, reached)
        reached = header.next_offset
        if header.last_offset >= offset:
            batches.append((header, batch))
        at += size
    if size is Remainder.PARTIAL and at == 0:
        # A Fetch brings its first batch whole (KIP-74). One that does not come whole has an impossible length.
        raise CorruptBatch(f"{end} bytes hold no whole batch")
    behind = base_offset_at(record_set, at, end)
    if behind != NOT_SEEN:
        # For a wrapper, this is its last offset, which must not lie before the batches here, either.
        _check_order(behind, reached)
    return first_offset_at(record_set, at, end, old=old)


def _check_order(base_offset: int, reached: int) -> None:
    """Raises OutOfOrder if offsets do not ascend. Checksums do not cover base offsets, but in a log they ascend."""
    if base_offset < reached:
        raise OutOfOrder(f"base offset {base_offset} behind a batch that ends at {reached - 1}")
