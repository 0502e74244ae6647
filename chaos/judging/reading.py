"""Reads partitions like a plain consumer: with librdkafka, from the beginning to the end, at either isolation level."""

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from chaos.errors import ChaosError
from chaos.play.sides import Name, Offsets
from chaos.waiting import Patience, until

__all__ = ["Isolation", "Reading", "digest", "read", "read_together"]

Isolation = Literal["read_committed", "read_uncommitted"]

Reading = dict[Name, dict[int, bytes]]
"""partition -> offset -> digest of the record (key, value, headers and timestamp)."""

_AT_A_TIME = 1_000
_ASKED_S = 10.0
_AWAITED_S = 0.05
"""Timeout of ``consume`` in seconds. It returns sooner only if it has as many messages as were requested."""


def digest(message: Message) -> bytes:
    """Returns 12 bytes that identify a record by its key, value, headers and timestamp."""
    parts = (message.key(), message.value(), message.headers(), message.timestamp())
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).digest()


def read_together(
    views: Iterable[tuple[str, Isolation]], names: Iterable[Name], *, by: Callable[[Message], bytes] = digest
) -> list[Reading]:
    """Runs ``read`` with several consumers in parallel.

    Args:
        views: bootstrap servers and isolation level of each consumer.
        names: the partitions that each of them reads.
        by: see ``read``.

    Returns:
        The reading of each consumer.

    Raises:
        ChaosError: as ``read``.
    """
    asked, wanted = list(views), list(names)
    with ThreadPoolExecutor(max_workers=max(1, len(asked))) as threads:
        return list(threads.map(lambda view: read(view[0], wanted, view[1], by=by), asked))


def read(
    bootstrap_servers: str, names: Iterable[Name], isolation: Isolation, *, since: Offsets | None = None,
    by: Callable[[Message], bytes] = digest,
) -> Reading:  # fmt: skip
    """Returns everything that a consumer gets up to the present end of each partition, and some of the records that are
    written meanwhile.

    Args:
        bootstrap_servers: ``bootstrap.servers`` of the cluster.
        names: the partitions.
        isolation: the consumer's isolation level.
        since: partition -> offset from which to read; None, or a missing partition: from the beginning.
        by: returns what is kept of a record.

    Raises:
        ChaosError: the cluster has failed, an end was not reached, or a consumer got an offset twice.
    """
    found: Reading = {name: {} for name in names}
    if not found:
        return found
    consumer = Consumer({
        "bootstrap.servers": bootstrap_servers,
        "group.id": "chaos-reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        # The end of a partition is reported once a fetch from there has returned nothing.
        "fetch.wait.max.ms": 20,
        "log_level": 0,
    })  # fmt: skip
    try:
        starts = since or {}
        consumer.assign([TopicPartition(*name, starts.get(name, OFFSET_BEGINNING)) for name in found])
        _drain(consumer, found, by)
    finally:
        consumer.close()
    return found


def _end(consumer: Consumer, name: Name) -> int:
    """Returns the end offset of a partition. Asks again while there is no leader.

    Raises:
        ChaosError: there was no leader for too long.
    """

    def told() -> tuple[int] | None:
        try:
            return (consumer.get_watermark_offsets(TopicPartition(*name), _ASKED_S)[1],)
        except KafkaException:
            return None

    (end,) = until(told, f"the end of {name}") or (0,)
    return end


def _drain(consumer: Consumer, found: Reading, by: Callable[[Message], bytes]) -> None:
    # If a partition is written to all the time, its end is never reported to the consumer. So ask for the ends first.
    ends = {name: _end(consumer, name) for name in found}
    waiting = set(found)
    patience = Patience()
    while waiting:
        if patience.over:
            count = sum(map(len, found.values()))
            raise ChaosError(
                f"a consumer did not reach the end of {sorted(waiting)} in {patience.waited_s:.0f} s, {count} records"
            )
        messages = consumer.consume(_AT_A_TIME, _AWAITED_S)
        if any(message.error() is None for message in messages):
            patience.moved()
        for message in messages:
            name = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                offset = message.offset()
                assert offset is not None
                if offset in found[name]:
                    raise ChaosError(f"a consumer was given offset {offset} of {name} twice")
                found[name][offset] = by(message)
                if offset >= ends[name] - 1:
                    waiting.discard(name)
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(name)
            elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise ChaosError(f"a consumer of {name} failed: {error}")
