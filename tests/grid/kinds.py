"""The kinds of batches, and how real clients are made to write them."""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.legacy.logs import AS_0_9
from tests.vectors import load

RECORDS = 10
"""In a batch."""
BATCHES = 5
FLOOR = 14
"""The offset at which a source begins, where that is inside of a batch."""
LIMIT = "700"
"""``max.message.bytes`` where batches are over it. Each record fits."""


class Place(NamedTuple):
    """What is written where. ``old``: in the format of Kafka 0.10 (magic 1), or of 0.9 (magic 0)."""

    servers: str
    topic: str
    codec: str
    old: bool


class Kind(NamedTuple):
    """``needs_new``: there is no such thing in an old format. ``here``, ``there``: configs of the two topics."""

    name: str
    fill: Callable[[Place], None]
    here: Mapping[str, str] = {}
    there: Mapping[str, str] = {}
    needs_new: bool = False
    cleaned: bool = False
    """A cleaner works on the source, and may go on while it is copied."""


def dense(place: Place, **options: Any) -> None:
    """Batches with keys, null keys, null values and, where the format has them, headers."""
    producer = _producer(place, **options)
    for batch in range(BATCHES):
        for at in range(RECORDS):
            _send(producer, place, batch * RECORDS + at, key=None if at == 1 else b"key %d %d" % (batch, at))
        producer.flush(load.WAIT_S)


def magic_0(place: Place) -> None:
    """The same by a client that speaks as Kafka 0.9 did."""
    dense(place, **{key.replace("_", "."): value for key, value in AS_0_9.items()})


def holes(place: Place) -> None:
    """Keys come again, in another segment each: the cleaner takes records out of the middle of batches. The last batch
    it does not take."""
    chance = random.Random(place.topic)
    for batch in range(BATCHES):
        producer = _producer(place)
        for at in range(4 * RECORDS):
            key = at if batch == 0 else chance.randrange(3 * RECORDS)
            _send(producer, place, batch * 4 * RECORDS + at, key=b"key %d" % key, at_ms=round(time.time() * 1000) + at)
        producer.flush(load.WAIT_S)
        time.sleep(0.3)


def begins_inside(place: Place) -> None:
    """The log start is in the middle of a batch."""
    dense(place)
    admin = AdminClient({"bootstrap.servers": place.servers})
    for deleted in admin.delete_records([TopicPartition(place.topic, 0, FLOOR)]).values():
        deleted.result(load.WAIT_S)


def transactions(place: Place) -> None:
    """Committed and aborted, in turn."""
    producer = _producer(place, **{"transactional.id": place.topic})
    producer.init_transactions(load.WAIT_S)
    for batch in range(BATCHES):
        producer.begin_transaction()
        for at in range(RECORDS):
            _send(producer, place, batch * RECORDS + at, key=b"key %d" % at)
        producer.flush(load.WAIT_S)
        if batch % 2:
            producer.abort_transaction(load.WAIT_S)
        else:
            producer.commit_transaction(load.WAIT_S)


def _producer(place: Place, **options: Any) -> Producer:
    settings = {"bootstrap.servers": place.servers, "compression.type": place.codec, "linger.ms": 5_000, "log_level": 2}
    return Producer({**settings, **options})


def _send(producer: Producer, place: Place, number: int, *, key: bytes | None, at_ms: int | None = None) -> None:
    value = random.Random(number).randbytes(60).hex().encode()
    producer.produce(
        place.topic,
        key=key,
        value=None if number % RECORDS == 2 and key is not None else value,
        headers=[("number", b"%d" % number), ("empty", None)] if not place.old and number % 3 == 0 else None,
        partition=0,
        timestamp=load.START_MS + number if at_ms is None else at_ms,
    )


COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
NOT_CLEANED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
KINDS = (
    Kind("dense", dense),
    Kind("holes", holes, here=COMPACTED, there=NOT_CLEANED, cleaned=True),
    Kind("mid-batch start", begins_inside),
    Kind("LogAppendTime", dense, here={"message.timestamp.type": "LogAppendTime"}),
    Kind("oversize", dense, there={"max.message.bytes": LIMIT}),
    Kind("transactional", transactions, needs_new=True),
    Kind("magic 0", magic_0),
)
