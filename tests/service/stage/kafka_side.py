"""Both ends of a copy by other code than the mirror's: librdkafka writes, and a blunt client reads the logs."""

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest

HEADER = struct.Struct(">qiibIhiqqqhii")
IDENTITY = (2, 4, 9, 10, 11)
"""Fields that a copy has of its own: leader epoch, checksum, and the producer's id, epoch and sequence."""
BASE, LENGTH, MAGIC, CRC = 0, 1, 3, 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 120.0
NOT_YET = (3, 5, 6, 78)
"""What a broker that has just started says of its partitions."""


# Writing.


def create_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    """Makes a topic and waits until it is there; underscores stand for dots in ``configs``."""
    config = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    for future in admin.create_topics([topic]).values():
        future.result(PATIENCE_S)
    _wait_for_topic(admin, name, partitions)


def delete_topic(bootstrap: str, name: str) -> None:
    """Deletes a topic and waits until it is gone."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([name]).values():
        future.result(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while name in admin.list_topics(timeout=PATIENCE_S).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _wait_for_topic(admin: AdminClient, name: str, partitions: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = admin.list_topics(timeout=PATIENCE_S).topics.get(name)
        if found and len(found.partitions) == partitions and all(one.leader >= 0 for one in found.partitions.values()):
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def produce(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partitions: int = 1,
    codec: str = "none",
    size: int = 200,
    least: int = 0,
    seed: int = 0,
    keyed: bool = False,
) -> None:
    """So many records by librdkafka, spread over the partitions: keys (of each, if ``keyed``), headers and null values
    among them. Values have ``least`` to ``size`` bytes."""
    chance = random.Random(f"{topic}{codec}{seed}")
    settings = {
        "bootstrap.servers": bootstrap,
        "compression.codec": codec,
        "linger.ms": 5,
        "batch.num.messages": 50,
        "queue.buffering.max.messages": 1_000_000,
        "message.max.bytes": 2_000_000,
        "log_level": 0,
    }
    producer = Producer(settings)
    for number in range(count):
        value = None if number % 17 == 0 else chance.randbytes(chance.randrange(least, size) // 2).hex().encode()
        producer.produce(
            topic,
            value=value,
            key=None if number % 3 and not keyed else b"key-%d" % number,
            headers=[("trace", b"%d" % number), ("empty", None)] if number % 5 == 0 else None,
            partition=number % partitions,
        )
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


@contextmanager
def repeated(step: Callable[[int], None], *, pause_s: float = 0.0) -> Iterator[None]:
    """Runs ``step`` in a thread again and again, with 0, 1, 2, and so on, until the block is left."""
    stop = threading.Event()

    def run() -> None:
        number = 0
        while not stop.wait(pause_s):
            step(number)
            number += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def writing(bootstrap: str, topic: str, partitions: int) -> Iterator[None]:
    """A producer that writes all the time, in one codec after the other, until the block is left."""

    def write(number: int) -> None:
        seed = number + 1
        produce(bootstrap, topic, 300, partitions=partitions, codec=CODECS[seed % 5], size=2_000, seed=seed)

    with repeated(write):
        yield


# Reading.


@contextmanager
def _client(bootstrap: str) -> Iterator[Any]:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S) as sock:

        def exactly(size: int) -> bytes:
            out = bytearray()
            while len(out) < size:
                chunk = sock.recv(size - len(out))
                assert chunk, "the broker closed the connection"
                out += chunk
            return bytes(out)

        def ask(request: Any, version: int) -> Any:
            request.API_VERSION = version
            request.with_header(correlation_id=1, client_id="test")
            sock.sendall(bytes(request.encode(header=True, framed=True)))
            (size,) = struct.unpack(">i", exactly(4))
            return request.header.get_response_class().decode(exactly(size), version=version, header=True)

        yield ask


def _offset(ask: Any, topic: str, partition: int, timestamp: int) -> int:
    wanted = ListOffsetsRequest.ListOffsetsTopic
    one = wanted.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[wanted(name=topic, partitions=[one])])
    deadline = time.monotonic() + PATIENCE_S
    while (answer := ask(request, 5).topics[0].partitions[0]).error_code in NOT_YET:
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    assert answer.error_code == 0, answer
    offset: int = answer.offset
    return offset


def start_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Where the log begins."""
    with _client(bootstrap) as ask:
        return _offset(ask, topic, partition, -2)


def end_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Where the log ends."""
    with _client(bootstrap) as ask:
        return _offset(ask, topic, partition, -1)


def read_log(bootstrap: str, topic: str, partition: int = 0) -> list[bytes]:
    """Every batch of a partition of a single-broker cluster, as it is stored: cut by length, checksums recomputed."""
    batches: list[bytes] = []
    with _client(bootstrap) as ask:
        offset, end = _offset(ask, topic, partition, -2), _offset(ask, topic, partition, -1)
        while offset < end:
            records = _fetch(ask, topic, partition, offset)
            at = 0
            while at + HEADER.size <= len(records):
                header = HEADER.unpack_from(records, at)
                stop = at + 12 + header[LENGTH]
                if stop > len(records):
                    break
                batch = records[at:stop]
                assert header[MAGIC] == 2
                assert header[CRC] == crc32c(batch[21:]), f"{topic}-{partition}: checksum at {header[BASE]}"
                at = stop
                if header[BASE] + header[6] >= offset:
                    batches.append(batch)
                    offset = header[BASE] + header[6] + 1
            assert at, f"{topic}-{partition}: nothing whole at {offset}"
    return batches


def _fetch(ask: Any, topic: str, partition: int, offset: int) -> bytes:
    wanted = FetchRequest.FetchTopic
    one = wanted.FetchPartition(
        partition=partition, current_leader_epoch=-1, fetch_offset=offset, log_start_offset=-1,
        partition_max_bytes=4 << 20,
    )  # fmt: skip
    request = FetchRequest(
        replica_id=-1, max_wait_ms=1_000, min_bytes=1, max_bytes=16 << 20, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[wanted(topic=topic, partitions=[one])], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    answer = ask(request, 11).responses[0].partitions[0]
    assert answer.error_code == 0, answer.error_code
    return bytes(answer.records or b"")


def fetched(bootstrap: str, topic: str, offset: int, partition: int = 0) -> bytes:
    """What one Fetch brings from there, which may be nothing."""
    with _client(bootstrap) as ask:
        return _fetch(ask, topic, partition, offset)


def payload_of(batch: bytes) -> tuple[Any, ...]:
    """What makes a batch the same batch on both sides: all of it but who wrote it."""
    fields = HEADER.unpack_from(batch)
    return (*(value for at, value in enumerate(fields) if at not in IDENTITY), batch[HEADER.size :])


def assert_identical(source: str, destination: str, topics: Sequence[str], partitions: int = 1) -> int:
    """Compares both sides batch by batch: same offsets, same bytes, nothing lost, nothing twice. Batches compared."""
    compared = 0
    for topic in topics:
        for partition in range(partitions):
            here, there = read_log(source, topic, partition), read_log(destination, topic, partition)
            assert [HEADER.unpack_from(batch)[BASE] for batch in there] == [
                HEADER.unpack_from(batch)[BASE] for batch in here
            ], f"{topic}-{partition}: other offsets"
            for one, other in zip(here, there, strict=True):
                assert payload_of(one) == payload_of(other), (
                    f"{topic}-{partition}: differs at {HEADER.unpack_from(one)[BASE]}"
                )
            compared += len(here)
    return compared
