"""Scenarios of the limits of the mirror's own numbers: sequences wrap, and epochs are used up, so that another producer
id follows."""

from collections.abc import Callable
from itertools import pairwise

from chaos.errors import ChaosError
from chaos.play.stage import Stage
from chaos.producers.raw import batches, plant
from chaos.producers.topics import TopicPlan
from chaos.producers.writing import BATCH_RECORDS, transaction, transactional, write
from chaos.scenario import scenario
from chaos.scenarios.data import FRESH, GROUP, QUIET, SHAPE, identity_of
from chaos.waiting import Patience, until
from lab.evidence import WORKER_KILLED
from mirror.records.header import SEQUENCES, BatchHeader
from mirror.records.identity import MAX_EPOCH, ROTATIONS, Identity

DENSE = TopicPlan(name="txn-none", writing="transactional")
PRODUCERS = 4
"""Number of producers for the one partition. A single one would mostly wait for its coordinator."""
ROTATED, ROTATED_QUICK = 2, 1
LEFT_QUICK = 200
"""Number of holes before the first rotation in a quick run."""
RESTARTS = 4
"""Number of restarts of a worker in a row. Its supervisor waits longer before each of them, so the mirror is restarted
then."""
TAIL = 200
"""Number of offsets at the end of a log that are sure to include a batch of data."""


def _planted(stage: Stage, topic: str, change: Callable[[Identity, int], Identity]) -> None:
    """Writes some batches to the source, and the first of them to the destination under an identity that is nearly used
    up. ``change``: returns that identity for the mirror's first identity and the number of the batch's offsets."""
    stage.create_topics()
    stage.destination.create(stage.topics)
    write(stage.source, topic, 3 * BATCH_RECORDS)
    (first,) = batches(stage.source, topic, most=1)
    count = first.header.last_offset_delta + 1
    base = plant(stage.destination, topic, 0, first.data, change(identity_of(stage, topic, 0), count))
    if base:
        raise ChaosError(f"{topic}-0 at the destination did not begin at 0")


@scenario("data-sequence-wrap", group=GROUP, full=3, quick=1, shape=SHAPE, topics=(QUIET, FRESH), bare=True,
          struck=(WORKER_KILLED.times(5),),
          does="sequences wrap after 2^31 - 1; the worker is killed before, while and after")  # fmt: skip
def sequence_wrap(stage: Stage) -> None:
    topic = stage.topic("quiet")
    _planted(
        stage, topic, lambda first, count: Identity(first.producer_id, 0, SEQUENCES - count - 4 * BATCH_RECORDS - 5)
    )
    stage.start_stream()
    stage.start_mirror()
    for _ in stage.repeat():
        for seed in range(1, 6):
            stage.caught_up()
            stage.mirror.kill_worker()
            write(stage.source, topic, 2 * BATCH_RECORDS, seed=seed)
            stage.recovered()
        sequences = [one.header.base_sequence for one in batches(stage.destination, topic)]
        if not any(later < earlier for earlier, later in pairwise(sequences)):
            raise ChaosError(f"no sequence wrapped in {topic} at the destination, which ends with {sequences[-3:]}")


@scenario("data-epoch-rollover", group=GROUP, full=3, quick=1, shape=SHAPE, topics=(QUIET, FRESH), bare=True,
          struck=(WORKER_KILLED.times(8),),
          does=f"epochs end at {MAX_EPOCH:,}, another producer id follows; the worker is killed at holes")  # fmt: skip
def epoch_rollover(stage: Stage) -> None:
    topic = stage.topic("quiet")
    _planted(stage, topic, lambda first, _: Identity(first.producer_id, MAX_EPOCH - 4, 0))
    stage.start_stream()
    stage.start_mirror()
    producer = transactional(stage.source, f"roll-{topic}")
    kills = 0
    for _ in stage.repeat():
        for hole in range(8):
            if kills and kills % RESTARTS == 0:
                stage.recovered()
                stage.await_seen(WORKER_KILLED.times(hole))  # before the stop: a stopping mirror logs no worker's death
                stage.mirror.stop()
                stage.mirror.start()
            transaction(producer, topic, 5, seed=50 + hole, abort=hole % 3 == 2)
            stage.caught_up()  # also a recovery from the kill before, with what was written since
            stage.mirror.kill_worker()
            kills += 1
        stage.recovered()
        if _last(stage, topic).producer_id % ROTATIONS != 1:
            raise ChaosError(f"{topic} at the destination is still written by the first producer id; {stage.told()}")


@scenario("data-epochs-used-up", group=GROUP, full=1, quick=1, shape=SHAPE, topics=(DENSE,), rate=400.0, bare=True,
          struck=(WORKER_KILLED,),
          does=f"{MAX_EPOCH:,} holes one after the other, which use up two producer ids (quick: {LEFT_QUICK:,}, one); "
          "the worker is killed again and again")  # fmt: skip
def epochs_used_up(stage: Stage) -> None:
    topic = stage.topic(DENSE.name)
    wanted = ROTATED_QUICK if stage.quick else ROTATED
    if stage.quick:
        _planted(stage, topic, lambda first, _: Identity(first.producer_id, MAX_EPOCH - 2 * LEFT_QUICK, 0))
    else:
        stage.create_topics()
    for _ in range(PRODUCERS):
        stage.start_stream()
    stage.start_mirror()
    stage.flowing()
    for _ in stage.repeat():
        # In a full run, using up all epochs takes hours, but each single one takes a moment. So the timeout starts
        # again with each epoch.
        patience, before = Patience(), -1
        while (last := _last(stage, topic)).producer_id % ROTATIONS < wanted:
            used = last.producer_id % ROTATIONS * MAX_EPOCH + last.producer_epoch
            if used > before:
                patience, before = Patience(), used
            elif patience.over:
                raise ChaosError(
                    f"no epoch was used up for {patience.waited_s:.0f} s: epoch {last.producer_epoch} of producer id "
                    f"{last.producer_id}, {last.producer_id % ROTATIONS} of {wanted} used up; {stage.told()}"
                )
            stage.moment(2 if stage.quick else 60)
            stage.mirror.kill_worker()
            stage.recovered()
    stage.note("transactions", stage.ended)


def _last(stage: Stage, topic: str) -> BatchHeader:
    """Returns the header of the last batch of data of partition 0 at the destination."""
    end = until(lambda: stage.destination.ends([(topic, 0)]), "the destination's end")[topic, 0]
    found = batches(stage.destination, topic, offset=max(0, end - TAIL))
    return [one.header for one in found if not one.header.is_control][-1]
