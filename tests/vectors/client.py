"""A blocking connection to one broker, for the capture only: requests from ``mirror.wire``, answers kept raw."""

import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.scan import scan
from mirror.wire.fetch import READ_UNCOMMITTED, FetchPartition, TopicKey, fetch_request
from mirror.wire.header import SIZE, request_header
from mirror.wire.primitives import uvarint
from mirror.wire.produce import after_batch, head_for, pack_head, request_head, topic_head, topics_size
from mirror.wire.versions import (
    FETCH_FLEXIBLE,
    FETCH_KEY,
    FETCH_TOPIC_IDS,
    FETCH_VERSIONS,
    PRODUCE_FLEXIBLE,
    PRODUCE_KEY,
    PRODUCE_TOPIC_IDS,
    PRODUCE_VERSIONS,
    VersionRange,
    common_version,
)

TIMEOUT_S = 30
METADATA_VERSION = 10
"""The first with topic ids; every broker from 2.8 takes it."""
CLIENT_ID = "mirror-capture"


class Client:
    """One broker. Answers are the whole frame behind its size, as ``mirror.wire`` takes it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._correlation_id = 0
        answer = ApiVersionsResponse.decode(self._ask(ApiVersionsRequest[0]()), version=0, header=True)
        self._versions = {one.api_key: VersionRange(one.min_version, one.max_version) for one in answer.api_keys}
        self.topic_ids: dict[str, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fetch_versions(self) -> range:
        """Every Fetch version that the broker and we speak."""
        return _common(FETCH_VERSIONS, self._versions[FETCH_KEY])

    def produce_versions(self) -> range:
        """Every Produce version that the broker and we speak."""
        return _common(PRODUCE_VERSIONS, self._versions[PRODUCE_KEY])

    def learn(self, topics: Mapping[str, int]) -> None:
        """Wait until the broker knows a leader of every partition, name -> count; remember the topics' ids."""
        request = MetadataRequest[METADATA_VERSION](topics=None, allow_auto_topic_creation=False)
        deadline_at = time.monotonic() + TIMEOUT_S
        while True:
            answer = MetadataResponse.decode(self._ask(request), version=METADATA_VERSION, header=True)
            led = {topic.name: sum(one.leader_id >= 0 for one in topic.partitions) for topic in answer.topics}
            if all(led.get(name) == count for name, count in topics.items()):
                self.topic_ids = {topic.name: topic.topic_id.bytes for topic in answer.topics}
                return
            if time.monotonic() > deadline_at:
                raise TimeoutError(f"partitions without a leader after {TIMEOUT_S} s: {led}")
            time.sleep(0.1)

    def fetch(
        self, version: int, partitions: list[FetchPartition], *, isolation_level: int = READ_UNCOMMITTED
    ) -> memoryview:
        """The raw answer. Topics are given by name, whatever the version."""
        wanted = [one._replace(topic=self._key(one.topic, version >= FETCH_TOPIC_IDS)) for one in partitions]
        body = fetch_request(
            version, wanted, max_wait_ms=100, min_bytes=1, max_bytes=50 << 20, isolation_level=isolation_level
        )
        return self._exchange(FETCH_KEY, version, body, flexible=version >= FETCH_FLEXIBLE)

    def fetch_old(self, version: int, topic: str, max_bytes: int, partition: int = 0) -> bytes:
        """A partition's record set by a Fetch older than ours: brokers before 4.0 convert batches down for it."""
        return self.fetch_old_or_error(version, topic, max_bytes, partition)[1]

    def fetch_old_or_error(
        self, version: int, topic: str, max_bytes: int, partition: int = 0, offset: int = 0
    ) -> tuple[int, bytes]:
        """The error code, too."""
        topic_class = FetchRequest.FetchTopic
        wanted = topic_class.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest[version](
            max_wait_ms=100, min_bytes=1, max_bytes=50 << 20, topics=[topic_class(topic=topic, partitions=[wanted])]
        )
        answer = FetchResponse.decode(self._ask(request), version=version, header=True)
        (fetched,) = answer.responses[0].partitions
        return int(fetched.error_code), bytes(fetched.records or b"")

    def produce_old(self, version: int, topic: str, partition: int, message_set: bytes) -> tuple[int, int]:
        """The error code and the base offset for a message set, by a Produce older than ours."""
        topic_class = ProduceRequest.TopicProduceData
        data = topic_class.PartitionProduceData(index=partition, records=message_set)
        request = ProduceRequest[version](
            acks=-1, timeout_ms=TIMEOUT_S * 1_000, topic_data=[topic_class(name=topic, partition_data=[data])]
        )
        answer = ProduceResponse.decode(self._ask(request), version=version, header=True)
        (produced,) = answer.responses[0].partition_responses
        return int(produced.error_code), int(produced.base_offset)

    def produce(self, version: int, topics: dict[str, dict[int, bytes]]) -> memoryview:
        """The raw answer to record sets, by topic and partition; each single batch as the mirror writes it."""
        entries = {
            topic: [_entry(version, partition, record_set) for partition, record_set in record_sets.items()]
            for topic, record_sets in topics.items()
        }
        return self._produce(version, entries)

    def produce_raw(self, version: int, topic: str, *record_sets: tuple[int, bytes]) -> memoryview:
        """The raw answer to partitions and record sets that go bit for bit, whatever is in them."""
        return self._produce(version, {topic: [_raw_entry(version, *one) for one in record_sets]})

    def _produce(self, version: int, topics: Mapping[str, list[bytes]]) -> memoryview:
        out = [request_head(version, timeout_ms=TIMEOUT_S * 1_000), topics_size(version, len(topics))]
        for topic, entries in topics.items():
            key = self._key(topic, version >= PRODUCE_TOPIC_IDS)
            out += [topic_head(version, key), topics_size(version, len(entries))]
            for entry in entries:
                out += [entry, after_batch(version)]
            out.append(after_batch(version))
        out.append(after_batch(version))
        return self._exchange(PRODUCE_KEY, version, b"".join(out), flexible=version >= PRODUCE_FLEXIBLE)

    def _key(self, topic: TopicKey, by_id: bool) -> TopicKey:
        if by_id and isinstance(topic, str):
            return self.topic_ids.get(topic, b"no such topic id")
        return topic

    def _exchange(self, api_key: int, version: int, body: bytes, *, flexible: bool) -> memoryview:
        self._correlation_id += 1
        head = request_header(
            api_key=api_key,
            version=version,
            correlation_id=self._correlation_id,
            client_id=CLIENT_ID,
            flexible=flexible,
        )
        self._socket.sendall(SIZE.pack(len(head) + len(body)) + head + body)
        return self._receive()

    def _ask(self, request: Any) -> memoryview:
        self._correlation_id += 1
        request.with_header(self._correlation_id, CLIENT_ID)
        self._socket.sendall(request.encode(header=True, framed=True))
        return self._receive()

    def _receive(self) -> memoryview:
        (size,) = SIZE.unpack(self._exactly(SIZE.size))
        frame = memoryview(self._exactly(size))
        (answered,) = SIZE.unpack_from(frame)
        if answered != self._correlation_id:
            raise RuntimeError(f"answer to request {answered} instead of {self._correlation_id}")
        return frame

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                raise ConnectionError(f"the broker closed after {len(received)} of {size} bytes")
            received += chunk
        return bytes(received)


def _entry(version: int, partition: int, record_set: bytes) -> bytes:
    """A partition of a Produce request: as the mirror writes it, or, for what the mirror never sends, by hand."""
    header = BatchHeader.read(record_set)
    if header.size == len(record_set):
        return pack_head(head_for(version, header.length), partition, header) + record_set[HEADER_SIZE:]
    return _raw_entry(version, partition, record_set)


def _raw_entry(version: int, partition: int, record_set: bytes) -> bytes:
    size = uvarint(len(record_set) + 1) if version >= PRODUCE_FLEXIBLE else SIZE.pack(len(record_set))
    return SIZE.pack(partition) + size + record_set


def _common(ours: tuple[int, int], theirs: VersionRange) -> range:
    most = common_version(ours, theirs)
    if most is None:
        raise RuntimeError(f"no common version: {ours} and {theirs}")
    return range(max(ours[0], theirs.least), most + 1)


def batches_of(record_set: memoryview) -> list[tuple[BatchHeader, bytes]]:
    """The whole batches of a record set, each with its header."""
    return [(BatchHeader.read(record_set, at), bytes(record_set[at : at + size])) for at, size in scan(record_set)]
