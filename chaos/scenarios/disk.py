"""Scenarios in which bits flip in the segments on the brokers' disks, at the source or at the destination.

Each partition of three topics (plain, transactional, compacted) gets one flipped bit: in each of the 61 bytes of a
header in turn, then at random places of whole batches. Expected is one of two results. The records that a consumer of
the source reads with verified checksums are at the destination, at their offsets. Or the partition has halted, with a
true reason, and its copy is right up to there.
"""

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import Producer

from chaos.errors import ChaosError
from chaos.judging.compare import compare
from chaos.judging.reading import Reading, read
from chaos.play.segments import flip
from chaos.play.sides import Name, Offsets, Side
from chaos.play.stage import Stage
from chaos.producers.raw import Stored, answer_at, batches
from chaos.producers.topics import PLAIN, TopicPlan
from chaos.producers.writing import add, transactional
from chaos.scenario import scenario
from chaos.scenarios.data import GROUP, SHAPE
from chaos.waiting import NOW_AND_THEN_S, PATIENCE_S, until
from lab.evidence import DAMAGED, WORKER_KILLED
from lab.proxy import Direction
from mirror.records.header import HEADER_SIZE

PARTITIONS = 24
ROUNDS = 3
"""Number of rounds of writing, before the mirror starts and after."""
ROLL_S = 0.25
LOOKED_AT = 8
"""Number of batches at the start of a log that are searched for gaps of the cleaner."""
TURNS = 2
STRIDE = 23
"""Distance of the struck bytes between one partition and the next, so that a short run strikes every field."""
SMALL_SEGMENTS = {"segment.ms": "200"}
FRESH = PLAIN[1]
KINDS = tuple(
    TopicPlan(name=name, writing="nobody", partitions=PARTITIONS, replicas=1, configs=SMALL_SEGMENTS)
    for name in ("flip-plain", "flip-txn", "flip-keyed")
)
AT_SOURCE = ("corrupt", "unexplained_gap")
AT_DESTINATION = ("corrupt_destination",)


class Flipped(NamedTuple):
    """A bit that was flipped in a batch."""

    name: Name
    batch: Stored
    bit: int
    """Number of the bit within the batch."""
    least: int
    """The offset up to which everything can be copied in any case. It is the batch's base offset, or the start of a gap
    before the batch, because the check of a gap reads the batches behind it."""

    def __str__(self) -> str:
        header = self.batch.header
        return (
            f"{self.name[0]}-{self.name[1]}, offsets {header.base_offset} to {header.last_offset}, "
            f"byte {self.bit >> 3}, bit {self.bit & 7}"
        )


# -- writing ---------------------------------------------------------------------------------------------------------


class Writer:
    """Writes into all partitions of the three topics, one batch into each at a time. Every round begins a new
    segment."""

    def __init__(self, stage: Stage) -> None:
        self._topics = {name: stage.topic(f"flip-{name}") for name in ("plain", "txn", "keyed")}
        self._seed = 0
        self._plain = Producer({"bootstrap.servers": stage.source.bootstrap_servers, "linger.ms": 20, "log_level": 0})
        # This producer is not idempotent. So the cleaner removes whole batches, and leaves no empty ones.
        self._keyed = Producer({
            "bootstrap.servers": stage.source.bootstrap_servers, "linger.ms": 0, "batch.num.messages": 1,
            "log_level": 0,
        })  # fmt: skip
        self._transactional = transactional(stage.source, f"{stage.prefix}-flip")

    def rounds(self, count: int) -> None:
        """Writes rounds of plain records and of transactions. One transaction in three is aborted."""
        for _ in range(count):
            for _ in range(2):
                self._seed += 1
                for index in range(PARTITIONS):
                    add(self._plain, self._topics["plain"], 3, index=index, seed=self._seed)
                _flush(self._plain)
                self._transaction(abort=self._seed % 3 == 1)
            time.sleep(ROLL_S)

    def _transaction(self, *, abort: bool) -> None:
        producer = self._transactional
        producer.begin_transaction()
        for index in range(PARTITIONS):
            add(producer, self._topics["txn"], 3, index=index, seed=self._seed)
        _flush(producer)
        (producer.abort_transaction if abort else producer.commit_transaction)(PATIENCE_S)

    def keyed(self, count: int) -> None:
        """Writes records of three keys, each in a separate batch."""
        for number in range(count):
            for index in range(PARTITIONS):
                value = b"%d" % time.monotonic_ns()
                self._keyed.produce(self._topics["keyed"], key=b"%d" % (number % 3), value=value, partition=index)
            _flush(self._keyed)
            time.sleep(0.01)


def _flush(producer: Producer) -> None:
    if producer.flush(PATIENCE_S):
        raise ChaosError("records were not taken")


def cleaned(stage: Stage, writer: Writer) -> None:
    """Compacts the third topic until each of its partitions has gaps. From then on, it is not cleaned any further."""
    topic = stage.topic("flip-keyed")
    writer.keyed(24)
    stage.source.alter(topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0")

    left = list(range(PARTITIONS))

    def gaps() -> bool:
        while left and _has_gap(batches(stage.source, topic, left[-1], most=LOOKED_AT)):
            left.pop()
        if left:
            writer.keyed(1)  # otherwise no segment would end, and the cleaner would have nothing to do
        return not left

    until(gaps, lambda: f"the cleaner to have been at {topic}; it lacks {left}", moving=lambda: len(left), every_s=1.0)
    stage.source.alter(topic, min_cleanable_dirty_ratio="1.0", min_compaction_lag_ms="86400000", segment_ms="86400000")
    writer.keyed(3)


def _has_gap(found: list[Stored]) -> bool:
    return any(one.header.next_offset < other.header.base_offset for one, other in pairwise(found))


# -- flipping bits ---------------------------------------------------------------------------------------------------


def strike(
    stage: Stage, side: Side, names: list[Name], victims: Callable[[list[Stored]], list[Stored]]
) -> list[Flipped]:
    """Flips one bit in each of these partitions. It counts as a strike if the broker's answer changes.

    Args:
        stage: the stage.
        side: the cluster.
        names: the partitions.
        victims: returns those of a partition's batches from which one is chosen at random.
    """
    done: list[Flipped] = []
    for name in names:
        found = batches(side, *name)
        victim = stage.chance.choice(victims(found))
        # Over all stages, each byte of a header is struck ``TURNS`` times in each kind of topic.
        number = stage.seed // len(KINDS) + name[1]
        in_turn = number < TURNS * HEADER_SIZE
        at = number * STRIDE % HEADER_SIZE if in_turn else stage.chance.randrange(len(victim.data))
        one = Flipped(name, victim, 8 * at + stage.chance.randrange(8), sure_before(found, victim))
        offset = victim.header.base_offset
        before = answer_at(side, *name, offset)
        flip(side, *name, victim.data, one.bit)
        stage.seen(DAMAGED, int(answer_at(side, *name, offset) != before))
        done.append(one)
    return done


def sure_before(found: list[Stored], victim: Stored) -> int:
    """Returns the value for ``Flipped.least``: the base offset of the batch, or the start of the last gap before it.
    ``found``: the batches of the log, which begins at 0; ``victim``: the batch."""
    reached, least = 0, victim.header.base_offset
    for one in found[: found.index(victim) + 1]:
        if one.header.base_offset > reached:
            least = reached
        reached = one.header.next_offset
    return least


def settled(stage: Stage, flips: list[Flipped]) -> list[Flipped]:
    """Waits until each of these partitions has halted, or has everything that its source has committed. Returns those
    that have halted."""
    names = [one.name for one in flips]
    wanted = until(lambda: stage.source.ends(names, committed=True), "the source's ends")

    def over() -> bool:
        stage.look()
        ends = stage.destination.ends(names)
        return bool(ends) and all(name in stage.mirror.halts or ends[name] >= end for name, end in wanted.items())

    def waiting() -> str:
        ends = stage.destination.ends(names)
        late = [str(one) for one in flips if one.name not in stage.mirror.halts and ends[one.name] < wanted[one.name]]
        return f"a halt or the end of {'; '.join(late)}; {stage.told()}"

    until(over, waiting, every_s=NOW_AND_THEN_S)
    return [one for one in flips if one.name in stage.mirror.halts]


# -- looking ---------------------------------------------------------------------------------------------------------


def judge(stage: Stage, flips: list[Flipped], halted: list[Flipped], written: Reading) -> Iterator[str]:
    """Yields what is wrong at the destination, in words.

    Args:
        stage: the stage.
        flips: the flipped bits.
        halted: those of them whose partitions have halted.
        written: the source's records before the damage.
    """
    stopped = {one.name for one in halted}
    ends = until(lambda: stage.destination.ends([one.name for one in flips]), "the destination's ends")
    there = read(stage.destination.bootstrap_servers, [one.name for one in flips], "read_uncommitted")
    gone_on = [one.name for one in flips if one.name not in stopped]
    checked = read(stage.source.bootstrap_servers, gone_on, "read_committed")
    untold = 0
    for one in flips:
        right, copied = written[one.name], there[one.name]
        if one.name in stopped:  # the copy needs all records before the damage, and none behind its end
            right = {offset: record for offset, record in right.items() if offset < max(one.least, ends[one.name])}
            stage.outcome.prefixes += len(right)
        elif checked[one.name] != right and list(checked[one.name].values()) == list(right.values()):
            # The damage is in an offset, and the offsets are still in order: every consumer of the source gets all
            # records, some of them at the wrong offset. So the copy has to be like that. If a consumer gets fewer
            # records, it has dropped some because of the damage, and is no measure for the copy.
            untold += 1
            right = checked[one.name]
        stage.outcome.compared.add(compare({one.name: right}, {one.name: copied}))
        if copied != right:
            differ = sorted({*copied.items()} ^ {*right.items()})[:3]
            yield f"{one}: {len(copied)} records, {len(right)} expected; they differ at {[at for at, _ in differ]}"
    if untold:
        stage.figure(f"{untold} not to be told by anybody: every consumer is given them at the damaged offset")


def tell(stage: Stage, halted: list[Flipped]) -> None:
    """Adds the reasons of these partitions' halts to the outcome."""
    for one in halted:
        stage.outcome.halted.append(stage.mirror.halts[one.name].reason)


# -- the scenarios ---------------------------------------------------------------------------------------------------


@scenario("disk-source", group=GROUP, full=504, quick=72, per_stage=72, shape=SHAPE, topics=(*KINDS, FRESH), bare=True,
          damages=True, struck=(DAMAGED, WORKER_KILLED),
          does="bits turn over in the source's segments, each byte of a header in turn; kill -9")  # fmt: skip
def source(stage: Stage) -> None:
    stage.create_topics()
    writer = Writer(stage)
    cleaned(stage, writer)
    writer.rounds(ROUNDS)
    by_kind = _victims(stage)
    keyed = [name for name in by_kind if name[0] == stage.topic("flip-keyed")]
    others = [name for name in by_kind if name not in keyed]
    began = dict(until(lambda: stage.source.ends(others), "the source's ends"))
    for name in by_kind:
        stage.halts.tolerate(name, *AT_SOURCE)
    # Cleaned data are damaged before the mirror starts: otherwise it would have copied them before.
    written = read(stage.source.bootstrap_servers, keyed, "read_committed")
    flips = strike(stage, stage.source, keyed, lambda found: found[:-3])
    stage.start_mirror()
    stage.start_stream(_streamed(stage))
    stage.caught_up(others)
    stage.source.network.stall([Direction.REQUESTS])
    writer.rounds(ROUNDS)
    written |= read(stage.source.bootstrap_servers, others, "read_committed")
    least = max(began.values())
    flips += strike(
        stage, stage.source, others, lambda found: [one for one in found[:-2] if one.header.base_offset >= least]
    )
    stage.source.network.clear()
    settled(stage, flips)
    stage.mirror.kill_worker()
    stage.recovered()
    halted = settled(stage, flips)
    tell(stage, halted)
    if halted:
        stage.halts.others_go_on()
    stage.outcome.problems += judge(stage, flips, halted, written)
    stage.trials.counted(len(flips), once=(WORKER_KILLED,))


@scenario("disk-destination", group=GROUP, full=216, quick=72, per_stage=72, shape=SHAPE, topics=(*KINDS, FRESH),
          bare=True, damages=True, struck=(DAMAGED, WORKER_KILLED),
          does="the same in the destination's segments, mostly in the last batch; kill -9")  # fmt: skip
def destination(stage: Stage) -> None:
    stage.create_topics()
    writer = Writer(stage)
    cleaned(stage, writer)
    writer.rounds(ROUNDS)
    names = _victims(stage)
    stage.start_mirror()
    stage.start_stream(_streamed(stage))
    stage.caught_up()
    before = dict(until(lambda: stage.destination.ends(names), "the destination's ends"))
    stage.outcome.problems += alike(stage, names)
    for name in names:
        stage.halts.tolerate(name, *AT_DESTINATION)
    flips = strike(stage, stage.destination, names, lambda found: found[-1:] if stage.chance.random() < 0.7 else found)
    stage.mirror.kill_worker()
    stage.recovered()
    writer.rounds(1)
    writer.keyed(3)
    halted = settled(stage, flips)
    tell(stage, halted)
    if halted:
        stage.halts.others_go_on()
    stage.outcome.problems += judge_behind(stage, flips, halted, before)
    stage.trials.counted(len(flips), once=(WORKER_KILLED,))


def alike(stage: Stage, names: list[Name]) -> Iterator[str]:
    """Yields, in words, the partitions whose copies differ from the source before anything is damaged."""
    here = read(stage.source.bootstrap_servers, names, "read_committed")
    there = read(stage.destination.bootstrap_servers, names, "read_uncommitted")
    for name in names:
        stage.outcome.prefixes += len(here[name])
        stage.outcome.compared.count(compare({name: here[name]}, {name: there[name]}))
        if here[name] != there[name]:
            yield f"{name[0]}-{name[1]}: {len(there[name])} records before the damage, {len(here[name])} expected"


def judge_behind(stage: Stage, flips: list[Flipped], halted: list[Flipped], before: Offsets) -> Iterator[str]:
    """Yields what is wrong behind the damage, in words. A halted partition must have nothing there.

    Args:
        stage: the stage.
        flips: the flipped bits.
        halted: those of them whose partitions have halted.
        before: partition -> end offset of the destination when it was damaged.
    """
    stopped = {one.name for one in halted}
    names = [one.name for one in flips]
    ends = until(lambda: stage.destination.ends(names), "the destination's ends")
    here = read(stage.source.bootstrap_servers, names, "read_committed", since=before)
    gone_on = [name for name in names if name not in stopped]
    there = read(stage.destination.bootstrap_servers, gone_on, "read_uncommitted", since=before)
    for one in flips:
        if one.name in stopped:
            if ends[one.name] != before[one.name]:
                yield f"{one}: halted, and ends at {ends[one.name]} instead of {before[one.name]}"
            continue
        stage.outcome.compared.add(compare({one.name: here[one.name]}, {one.name: there[one.name]}))
        if there[one.name] != here[one.name]:
            yield f"{one}: {len(there[one.name])} records behind it, {len(here[one.name])} expected"


def _streamed(stage: Stage) -> list[TopicPlan]:
    return [plan for plan in stage.topics if plan.name == stage.topic(FRESH.name)]


def _victims(stage: Stage) -> list[Name]:
    """Returns as many partitions as the stage has repetitions, alternating between the three topics."""
    names = [(stage.topic(plan.name), index) for index in range(PARTITIONS) for plan in KINDS]
    return names[: stage.repetitions]
