"""Writes a given number of records for a scenario: in batches of a known size, in a transaction or not."""

from confluent_kafka import Producer

from chaos.errors import ChaosError
from chaos.play.sides import Side
from chaos.producers.writers import Records
from chaos.waiting import PATIENCE_S

__all__ = ["BATCH_RECORDS", "add", "transaction", "transactional", "write"]

BATCH_RECORDS = 10


def write(side: Side, topic: str, count: int, *, index: int = 0, seed: int = 0) -> None:
    """Writes records in batches of ``BATCH_RECORDS`` with librdkafka, and waits until they are stored.

    Args:
        side: the cluster.
        topic: name of the topic.
        count: number of records.
        index: number of the partition.
        seed: see ``add``.

    Raises:
        ChaosError: the records were not stored in time.
    """
    producer = Producer({
        "bootstrap.servers": side.bootstrap_servers, "batch.num.messages": BATCH_RECORDS, "linger.ms": 50,
        "log_level": 0,
    })  # fmt: skip
    add(producer, topic, count, index=index, seed=seed)
    if producer.flush(PATIENCE_S):
        raise ChaosError(f"{topic}-{index} at {side.name}: records were not taken")


def add(producer: Producer, topic: str, count: int, *, index: int = 0, seed: int = 0) -> None:
    """Passes ``count`` records to a producer, for one partition. The same seed gives the same records."""
    records = Records(topic, seed=seed)
    for _ in range(count):
        record = records.next()
        producer.produce(topic, value=record.value, key=record.key, headers=list(record.headers), partition=index)


def transactional(side: Side, name: str) -> Producer:
    """Returns an initialized producer with a transactional id. Its transactions may stay open for minutes. ``name``:
    the transactional id."""
    producer = Producer({
        "bootstrap.servers": side.bootstrap_servers, "transactional.id": name, "linger.ms": 5, "log_level": 0,
        "transaction.timeout.ms": 300_000,
    })  # fmt: skip
    producer.init_transactions(PATIENCE_S)
    return producer


def transaction(producer: Producer, topic: str, count: int, *, seed: int = 0, abort: bool = False) -> None:
    """Writes a whole transaction into partition 0. Arguments: as ``add``; ``abort``: True to abort the transaction."""
    producer.begin_transaction()
    add(producer, topic, count, seed=seed)
    producer.flush(PATIENCE_S)  # an abort would drop queued records, so that they would not be in the log
    (producer.abort_transaction if abort else producer.commit_transaction)(PATIENCE_S)
