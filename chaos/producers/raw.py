"""Reads batches as they are stored, and writes batches and markers as no client would. Uses plain requests."""

import struct
from typing import Any, NamedTuple

from crc32c import crc32c
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest, WriteTxnMarkersRequest

from chaos.errors import ChaosError
from chaos.play.sides import Side
from chaos.waiting import until
from chaos.witness.ask import ask
from mirror.records.header import CRC_AT, CRC_FROM, HEADER_SIZE, PRODUCER_ID_AT, TRANSACTIONAL, BatchHeader
from mirror.records.identity import Identity

__all__ = ["Answer", "Stored", "answer_at", "batches", "plant", "write_marker"]

_FETCH_VERSION = 11
_PRODUCE_VERSION = 9
_ATTRIBUTES = struct.Struct(">h")
_METADATA_VERSION = 12
_IDENTITY = struct.Struct(">qhi")
_NOT_YET = (3, 5, 6, 78)


class Stored(NamedTuple):
    """A batch as it is stored. ``data``: all its bytes, header included."""

    header: BatchHeader
    data: bytes


class Answer(NamedTuple):
    """A leader's answer to a Fetch of one partition. ``error``: the error code."""

    error: int
    records: bytes


def answer_at(side: Side, topic: str, index: int, offset: int) -> Answer:
    """Returns the leader's answer to a consumer that fetches from this offset, also if it is an error."""
    found = _ask(side, topic, index, offset)
    return Answer(found.error_code, bytes(found.records or b""))


def batches(side: Side, topic: str, index: int = 0, *, offset: int = 0, most: int = 1 << 30) -> list[Stored]:
    """Returns the batches of a partition as they are stored.

    Args:
        side: the cluster.
        topic: name of the topic.
        index: number of the partition.
        offset: the first batch is the one that has this offset, or the next one.
        most: maximum number of batches. They end at the high watermark.

    Raises:
        ChaosError: the leader answers with an error, or without a whole batch.
    """
    (end,) = until(lambda: list(side.ends([(topic, index)]).values()), f"the end of {topic}-{index}")
    found: list[Stored] = []
    while offset < end and len(found) < most:
        data = _fetch(side, topic, index, offset)
        at, before = 0, offset
        while at + HEADER_SIZE <= len(data) and len(found) < most:
            header = BatchHeader.read(memoryview(data), at)
            if at + header.size > len(data):
                break
            if header.last_offset >= offset:
                found.append(Stored(header, data[at : at + header.size]))
                offset = header.last_offset + 1
            at += header.size
        if offset == before:
            raise ChaosError(f"{topic}-{index} at {side.name}: nothing whole at {offset}")
    return found


def _ask(side: Side, topic: str, index: int, offset: int) -> Any:
    wanted = FetchRequest.FetchTopic
    one = wanted.FetchPartition(
        partition=index, current_leader_epoch=-1, fetch_offset=offset, log_start_offset=-1, partition_max_bytes=4 << 20
    )
    request = FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=16 << 20, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[wanted(topic=topic, partitions=[one])], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip

    def answer() -> Any:
        found = ask(side.leader(topic, index).address, request, _FETCH_VERSION).responses[0].partitions[0]
        return None if found.error_code in _NOT_YET else found

    return until(answer, f"an answer of the leader of {topic}-{index} at {side.name}")


def _fetch(side: Side, topic: str, index: int, offset: int) -> bytes:
    found = _ask(side, topic, index, offset)
    if found.error_code:
        raise ChaosError(f"Fetch of {topic}-{index} at {side.name}: error {found.error_code}")
    return bytes(found.records or b"")


def plant(side: Side, topic: str, index: int, batch: bytes, identity: Identity) -> int:
    """Appends a batch to a partition: under another identity, not as part of a transaction, and with a new checksum.

    Returns:
        The base offset that the batch has got.

    Raises:
        ChaosError: the broker has refused the batch.
    """
    data = bytearray(batch)
    struct.pack_into(">q", data, 0, 0)
    (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_FROM)
    _ATTRIBUTES.pack_into(data, CRC_FROM, attributes & ~TRANSACTIONAL)
    _IDENTITY.pack_into(data, PRODUCER_ID_AT, identity.producer_id, identity.epoch, identity.sequence)
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[CRC_FROM:])))
    topic_data = ProduceRequest.TopicProduceData
    one = topic_data.PartitionProduceData(index=index, records=bytes(data))
    request = ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=20_000, topic_data=[topic_data(name=topic, partition_data=[one])]
    )
    answer = ask(side.leader(topic, index).address, request, _PRODUCE_VERSION).responses[0].partition_responses[0]
    if answer.error_code:
        raise ChaosError(f"Produce to {topic}-{index} at {side.name}: error {answer.error_code}")
    return int(answer.base_offset)


def write_marker(side: Side, topic: str, index: int, *, producer_id: int, epoch: int, count: int = 1) -> None:
    """Writes ABORT markers into a partition (WriteTxnMarkers). Each takes one offset.

    Args:
        side: the cluster.
        topic: name of the topic.
        index: number of the partition.
        producer_id: producer id of the markers.
        epoch: producer epoch of the markers.
        count: number of markers.

    Raises:
        ChaosError: the broker has refused a marker.
    """
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    where = marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
    one = marker(
        producer_id=producer_id, producer_epoch=epoch, transaction_result=False, topics=[where], coordinator_epoch=0
    )
    answer = ask(side.leader(topic, index).address, WriteTxnMarkersRequest(markers=[one] * count), 1)
    for marked in answer.markers:
        code = marked.topics[0].partitions[0].error_code
        if code:
            raise ChaosError(f"a marker into {topic}-{index} at {side.name}: error {code}")
