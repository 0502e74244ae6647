"""Nemeses of the data: partitions are added, the source deletes records, both sides are compacted, and a topic is
deleted at the source and created again.

Each nemesis has a separate topic. Meanwhile, other nemeses strike the other topics, the brokers and the mirrors.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from chaos.errors import ChaosError
from chaos.judging.reading import read
from chaos.nemeses.places import GROUP, MIRRORS
from chaos.nemeses.processes import up
from chaos.nemeses.schedule import Strike, nemesis
from chaos.play.placing import make, widen
from chaos.play.sides import Name, Side
from chaos.producers.raw import batches
from chaos.producers.writing import write
from chaos.waiting import until
from chaos.witness.probes import topic_id
from lab.evidence import COMPACTED_BOTH, OVERTAKEN, PARTITION_ADDED, RECREATED, RETAINED, TRIMMED_BEHIND

if TYPE_CHECKING:
    from chaos.play.stage import Stage

DATA_S = 60.0
"""Longest wait in seconds for evidence in the data, while brokers may be down."""
AHEAD = 20
"""The source deletes records only if more than this many are copied, or are due."""
OLD_ONES, NEW_ONES = 200, 300
"""Number of records of a topic that is deleted, and of the topic that is created in its place."""


@nemesis("partition-added", places=("widened",), struck=PARTITION_ADDED)
def partition_added(stage: "Stage", strike: Strike) -> Iterator[None]:
    """Adds a partition at the source, and at the destination before or after that. The mirror itself adds none here."""
    topic = stage.topic(strike.place)
    partitions = sum(name == topic for name, _ in stage.names) + 1
    stage.halts.pass_over((topic, partitions - 1), "fewer_partitions")
    if strike.chance % 2:
        widen(stage.destination, topic, partitions)
    name = stage.widen(topic)
    yield
    stage.await_that(lambda: stage.source.ends([name]).get(name, 0) > 0, PARTITION_ADDED, DATA_S)
    if not strike.chance % 2:
        widen(stage.destination, topic, partitions)


@nemesis("records-deleted", places=("trimmed",), struck=TRIMMED_BEHIND)
def records_deleted(stage: "Stage", strike: Strike) -> Iterator[None]:
    """Deletes copied records at the source (DeleteRecords), possibly all of them."""
    name = (stage.topic(strike.place), 0)
    until(lambda: _copied(stage, name) > AHEAD, lambda: f"some records of {name} to be copied; {stage.told()}")
    copied = _copied(stage, name)
    before = copied - strike.pick((0, 1, copied // 2))
    stage.trimmed.append(name)
    _delete(stage, name, before)
    start = stage.source.starts([name])
    stage.seen(TRIMMED_BEHIND, int(bool(start) and 0 < start[name] <= copied))
    yield


@nemesis("overtaken", places=("overtaken",), also=(*MIRRORS, *GROUP), struck=OVERTAKEN)
def overtaken(stage: "Stage", strike: Strike) -> Iterator[None]:
    """Deletes records at the source that are not copied yet (DeleteRecords), while both mirrors are down."""
    name = (stage.topic(strike.place), 0)
    for mirror in stage.mirrors[: len(MIRRORS)]:
        if strike.chance % 2:
            mirror.kill()
        else:
            up(mirror)
            mirror.stop()
    copied = _copied(stage, name)
    until(lambda: stage.source.ends([name]).get(name, 0) > copied + AHEAD, f"records of {name} that are due")
    before = copied + strike.pick((1, AHEAD // 2, AHEAD))
    stage.trimmed.append(name)
    stage.gaps[name] = copied, before
    _delete(stage, name, before)
    start = stage.source.starts([name])
    # A request of a killed mirror may still arrive at the destination: its records count as copied.
    stage.seen(OVERTAKEN, int(bool(start) and start[name] > _copied(stage, name)))
    yield
    for mirror in stage.mirrors[: len(MIRRORS)]:
        mirror.start()


def before_it_is_remade(stage: "Stage") -> None:
    """Writes the first records of the topic for ``topic_remade``, and waits until they are copied. To be called before
    the nemeses begin."""
    topic = stage.topic("remade")
    write(stage.source, topic, OLD_ONES)
    stage.caught_up([(topic, 0)])


@nemesis("topic-remade", places=("remade",), struck=RECREATED)
def topic_remade(stage: "Stage", strike: Strike) -> Iterator[None]:
    """Deletes the source topic while more of it is being copied, and creates it again with other records, at the
    beginning of the strike or at its end.

    The copy must stay as it is, whichever worker takes the partition over.
    """
    topic = stage.topic(strike.place)
    (plan,) = (plan for plan in stage.topics if plan.name == topic)
    copied, before = stage.holds(topic), until(lambda: topic_id(stage.source, topic), f"the id of {topic}")
    write(stage.source, topic, OLD_ONES, seed=1)  # some, all or none of these are copied before the topic is deleted
    right = stage.holds(topic)
    for reason in ("topic_missing", "recreated"):
        stage.halts.announce(topic, reason, ends=(_length(stage, copied), _length(stage, right)), right=right)
    stage.halts.may_be_alone()
    _delete_topic(stage, topic)
    if not strike.chance % 2:
        yield
    make(stage.source, plan)
    if strike.chance % 2:
        yield
    write(stage.source, topic, NEW_ONES, seed=2)
    stage.await_that(lambda: topic_id(stage.source, topic) not in ("", before), RECREATED, DATA_S)


@nemesis("retention", places=("retained",), struck=RETAINED)
def retention(stage: "Stage", strike: Strike) -> Iterator[None]:
    """Makes the source delete records after a moment (``retention.ms``), copied or not."""
    topic = stage.topic(strike.place)
    name = (topic, 0)
    stage.trimmed.append(name)
    before = until(lambda: stage.source.starts([name]), "the source's log start")[name]
    _alter(stage.source, topic, retention_ms="1500", segment_ms="500")
    yield
    stage.await_that(lambda: stage.source.starts([name]).get(name, 0) > before, RETAINED, DATA_S)
    _alter(stage.source, topic, retention_ms="-1", segment_ms="604800000")
    end = until(lambda: stage.source.ends([name]), "the source's end")[name]
    stage.gaps[name] = 0, end  # brokers go on deleting for a while, but only records that were written before this


@nemesis("compaction", places=("compacted",), struck=COMPACTED_BOTH)
def compaction(stage: "Stage", strike: Strike) -> Iterator[None]:
    """Makes the log cleaner run at both sides at the same time. It removes records whether they were copied or not."""
    topic = stage.topic(strike.place)
    # The first time, nothing was cleaned before. So do not ask: a frozen broker would not answer until it is resumed.
    again = (topic, 0) in stage.survivors
    before = [_lacking(side, topic) if again else 0 for side in stage.pair.sides]
    stage.survivors.append((topic, 0))
    _clean(stage, topic, min_compaction_lag_ms="0", min_cleanable_dirty_ratio="0.01", segment_ms="500")
    yield

    def cleaned() -> bool:
        return all(_lacking(side, topic) > count for side, count in zip(stage.pair.sides, before, strict=True))

    stage.await_that(cleaned, COMPACTED_BOTH, DATA_S)
    _clean(stage, topic, min_compaction_lag_ms="86400000", min_cleanable_dirty_ratio="1.0", segment_ms="604800000")


def _clean(stage: "Stage", topic: str, **configs: str) -> None:
    for side in stage.pair.sides:
        _alter(side, topic, **configs)


def _alter(side: Side, topic: str, **configs: str) -> None:
    """Sets configs of a topic, with underscores for dots. Tries again while brokers come and go."""

    def altered() -> bool:
        with suppress(KafkaException, TimeoutError):
            side.alter(topic, **configs)
            return True
        return False

    until(altered, f"{configs} of {topic} at {side.name}")


def _lacking(side: Side, topic: str) -> int:
    """Returns the number of offsets of partition 0 below its end that are in no batch; 0 if its leader does not
    answer."""
    try:
        found = batches(side, topic)
    except (OSError, ChaosError):
        return 0
    return found[-1].header.next_offset - sum(one.header.last_offset_delta + 1 for one in found) if found else 0


def _copied(stage: "Stage", name: Name) -> int:
    """Returns the source offset up to which a partition is copied. The partition must hold a record at every offset
    from 0 on."""
    if stage.scenario.exact:
        return until(lambda: stage.destination.ends([name]), f"the end of {name} at the destination")[name]
    return len(read(stage.destination.bootstrap_servers, [name], "read_uncommitted")[name])


def _delete(stage: "Stage", name: Name, before: int) -> None:
    """Deletes the source's records before an offset. Tries again while brokers come and go."""

    def deleted() -> bool:
        try:
            stage.source.delete_before({name: before})
        except (ChaosError, TimeoutError):
            return stage.source.starts([name]).get(name, 0) >= before
        return True

    until(deleted, f"the records of {name} before {before} to be deleted")


def _length(stage: "Stage", records: Mapping[int, bytes]) -> int:
    """Returns the end offset that a copy of these records has. If offsets are not exact, returns the number of records.
    ``records``: offset -> digest."""
    return max(records) + 1 if stage.scenario.exact else len(records)


def _delete_topic(stage: "Stage", topic: str) -> None:
    """Deletes a source topic. Tries again while brokers come and go."""

    def deleted() -> bool:
        with suppress(KafkaException, TimeoutError):
            stage.source.delete([topic])
            return topic not in stage.source.topics()
        return False

    until(deleted, f"{topic} to be deleted at {stage.source.name}")
