"""Writes records at a steady rate until it is ended. Runs as a separate process."""

import json
import sys
import time
from typing import Any

from confluent_kafka import Producer

from bench.data import payload

__all__ = ["RECORD_BYTES", "main"]

RECORD_BYTES = 1_000
_TICK_S = 0.005
_POOL_BYTES = 4_000_000
_SEED = 7


def main(arguments: dict[str, Any]) -> None:
    """Writes until the process is ended.

    Args:
        arguments: ``bootstrap_servers``, ``topic``, ``partitions`` (their number), ``bytes_per_s``.
    """
    pool = payload.pool(RECORD_BYTES, seed=_SEED, total_bytes=_POOL_BYTES)
    producer = Producer({
        "bootstrap.servers": arguments["bootstrap_servers"], "linger.ms": 5, "compression.type": "none", "log_level": 2
    })  # fmt: skip
    topic, partitions = arguments["topic"], arguments["partitions"]
    per_second = arguments["bytes_per_s"] / RECORD_BYTES
    began_at, written = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began_at) * per_second)
        for number in range(written, due):
            producer.produce(topic, pool[number % len(pool)], partition=number % partitions)
        written = due
        producer.poll(0)
        time.sleep(_TICK_S)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
