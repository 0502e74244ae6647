"""Reads as plain consumers do: with librdkafka, from the beginning to the end, at either isolation level."""

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
"""Per partition: offset -> digest of key, value, headers and timestamp."""

_AT_A_TIME = 1_000
_ASKED_S = 10.0
_AWAITED_S = 0.05
"""``consume`` returns at once only if it has as many as it was asked for; otherwise with what it has after this."""


def digest(message: Message) -> bytes:
    """Returns 12 bytes that are equal for equal records: key, value, headers and timestamp."""
    parts = (message.key(), message.value(), message.headers(), message.timestamp())
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).digest()


def read_together(
    views: Iterable[tuple[str, Isolation]], names: Iterable[Name], *, by: Callable[[Message], bytes] = digest
) -> list[Reading]:
    """Run ``read`` with several consumers at the same time, one for each pair of bootstrap servers and isolation level.

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
    """Returns everything that a consumer of this isolation level gets, from the beginning (or ``since`` an offset) to
    each partition's present end, and some of what is written meanwhile; ``by`` makes what is kept of each record.

    Raises:
        ChaosError: the cluster failed, or an end was not reached.
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
        # The end of a partition is reported when a fetch from there has come back empty.
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
    """Returns a partition's end offset; retries while its leader is away.

    Raises:
        ChaosError: the leader does not come back.
    """

    def told() -> tuple[int] | None:
        try:
            return (consumer.get_watermark_offsets(TopicPartition(*name), _ASKED_S)[1],)
        except KafkaException:
            return None

    (end,) = until(told, f"the end of {name}") or (0,)
    return end


def _drain(consumer: Consumer, found: Reading, by: Callable[[Message], bytes]) -> None:
    # A consumer is never told the end of a partition that is written to all the time.
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
