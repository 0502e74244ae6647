"""Fills a topic with librdkafka, with batches of a chosen stored size. Runs as a separate process.

librdkafka closes a batch at ``batch.num.messages``, before it compresses the batch. So the number of records per batch
is estimated from samples of the same data. The real sizes are read from the source later (``stored``).
"""

import json
import math
import sys
import time
from typing import Any

import lz4.frame
import zstandard
from confluent_kafka import Producer

from bench.data import payload

__all__ = ["main", "records_per_batch", "stored_bytes"]

_HEADER_BYTES = 61
_RECORD_OVERHEAD_BYTES = 9  # lengths and deltas as varints, for records of 100 bytes to 8 KB
_SAMPLES = 20
_QUEUE_BYTES = 128_000_000
_QUEUE_RECORDS = 400_000
_SEED = 20_260_101


def stored_bytes(records: list[bytes], codec: str) -> int:
    """Returns the approximate size of a stored batch with these records, in bytes."""
    body = b"".join(record + bytes(_RECORD_OVERHEAD_BYTES) for record in records)
    if codec == "lz4":
        body = lz4.frame.compress(body, block_linked=False)  # as Kafka's clients do
    elif codec == "zstd":
        body = zstandard.compress(body, 3)
    return _HEADER_BYTES + len(body)


def records_per_batch(pool: list[bytes], *, codec: str, batch_bytes: int) -> int:
    """Returns the number of records of ``pool`` that make a stored batch of about ``batch_bytes``; at least 1."""
    count = max(1, batch_bytes // (len(pool[0]) + _RECORD_OVERHEAD_BYTES))
    for _ in range(6):  # the compression ratio grows slowly with the count, so this settles in 3 or 4 steps
        step = max(1, (len(pool) - count) // _SAMPLES)
        samples = [pool[at : at + count] for at in range(0, max(1, len(pool) - count), step)][:_SAMPLES]
        mean = sum(stored_bytes(sample, codec) for sample in samples) / len(samples)
        better = max(1, min(round(count * batch_bytes / mean), len(pool)))
        if better == count:
            break
        count = better
    return count


def main(arguments: dict[str, Any]) -> None:
    """Fills some partitions of a topic, waits until the broker has all records, and prints their number as JSON.

    Args:
        arguments: ``bootstrap_servers``, ``topic``, ``partitions`` (a list), ``codec``, ``batch_bytes``,
            ``record_bytes`` and ``total_bytes`` for these partitions together; optionally ``age_s``, the age of the
            records in seconds, and ``records_per_transaction``, for each partition.
    """
    pool = payload.pool(arguments["record_bytes"], seed=_SEED)
    per_batch = records_per_batch(pool, codec=arguments["codec"], batch_bytes=arguments["batch_bytes"])
    partitions: list[int] = arguments["partitions"]
    per_transaction = arguments.get("records_per_transaction", 0)
    rounds = math.ceil(arguments["total_bytes"] / arguments["batch_bytes"] / len(partitions))
    producer = Producer({
        "bootstrap.servers": arguments["bootstrap_servers"],
        "compression.type": arguments["codec"],
        "batch.num.messages": per_batch,
        "batch.size": 2_000_000_000,
        "message.max.bytes": 100_000_000,
        # A batch is sent when it is full. The flush at the end sends the rest.
        "linger.ms": 5 if per_transaction else 60_000,
        "queue.buffering.max.messages": 2 * _QUEUE_RECORDS + per_batch * len(partitions),
        "queue.buffering.max.kbytes": 1_000_000,
        "message.timeout.ms": 120_000,
        "log_level": 2,
        **(
            {"transactional.id": f"{arguments['topic']}-{partitions[0]}", "transaction.timeout.ms": 120_000}
            if per_transaction
            else {}
        ),
    })  # fmt: skip
    most_queued = max(per_batch * len(partitions), min(_QUEUE_RECORDS, _QUEUE_BYTES // arguments["record_bytes"]))
    written_at = {"timestamp": round((time.time() - arguments["age_s"]) * 1000)} if arguments.get("age_s") else {}
    messages: list[dict[str, Any]] = [{"value": value, **written_at} for value in pool]
    messages += messages[:per_batch]  # so that a batch may begin at any record of the pool
    topic, at = arguments["topic"], 0
    records = rounds * len(partitions) * per_batch
    if per_transaction:
        transactions = math.ceil(rounds * per_batch / per_transaction)
        _transactions(producer, topic, partitions, messages, per_transaction, transactions)
        rounds, records = 0, transactions * per_transaction * len(partitions)
    for _ in range(rounds):
        for partition in partitions:
            while len(producer) > most_queued:
                producer.poll(0.005)
            _produce(producer, topic, messages[at : at + per_batch], partition)
            at = (at + per_batch) % len(pool)
    deadline_at = time.monotonic() + 180
    while producer.flush(1.0) and time.monotonic() < deadline_at:
        pass
    print(json.dumps({"records": records, "per_batch": per_batch, "left": len(producer)}))


def _produce(producer: Producer, topic: str, messages: list[dict[str, Any]], partition: int) -> None:
    """Produces records in one call; or one by one if they have timestamps, which that call does not take."""
    if "timestamp" not in messages[0]:
        producer.produce_batch(topic, messages, partition)
        return
    for message in messages:
        producer.produce(topic, partition=partition, **message)


def _transactions(
    producer: Producer, topic: str, partitions: list[int], messages: list[dict[str, Any]], size: int, count: int
) -> None:
    """Writes ``count`` transactions, each with ``size`` records for each partition."""
    producer.init_transactions(60)
    for number in range(count):
        at = number * size % (len(messages) - size)
        producer.begin_transaction()
        for partition in partitions:
            _produce(producer, topic, messages[at : at + size], partition)
        producer.commit_transaction(60)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
