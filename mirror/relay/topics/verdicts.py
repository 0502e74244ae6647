"""Confirms verdicts that depend on topics' configs before a partition halts.

The known configs are as old as the last look for topics: up to a minute by default. So if a verdict depends on them,
the partition comes into doubt instead of halting, and both topics are described again before it is located. If their
configs differ from those of the verdict, the partition goes on under the new terms, and the batch in question is judged
again. Otherwise it halts, with the current numbers.

A log that its broker fails to read is confirmed in the same way: it may be in tiered storage that is down.
"""

import asyncio
import time
from dataclasses import replace
from typing import NamedTuple

from mirror.reasons import HaltReason
from mirror.records.admit import Terms
from mirror.records.header import HEADER_SIZE
from mirror.relay.halts import Halted, PartitionHalted, Suspicion
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.settings import HALT
from mirror.relay.topics.limits import LARGEST_SEGMENT, MAX_MESSAGE_BYTES, SEGMENT_BYTES, set_command
from mirror.relay.topics.pairing import Pair, describe_pair

RESTS_ON_CONFIGS = frozenset(
    {
        HaltReason.TOO_LARGE.slug,
        HaltReason.LOG_APPEND_TIME.slug,
        HaltReason.UNEXPLAINED_GAP.slug,
        HaltReason.MID_BATCH.slug,
        HaltReason.NOT_A_COPY.slug,
        HaltReason.OVERFILLED.slug,
        HaltReason.INVALID_TIMESTAMP.slug,
        HaltReason.REFUSED.slug,
    }
)
"""Reasons that depend on a config of one of the topics: its limits, its cleanup policy, its timestamp type."""
_OF_SOME_RECORD = frozenset({HaltReason.REFUSED.slug, HaltReason.INVALID_TIMESTAMP.slug})
"""Reasons for which a broker refuses a batch because of one of its records."""
TRIES = 6
"""Consecutive doubts in which a broker may refuse what the config allows: a new value reaches the leaders one by
one."""


LEARNED_FOR_S = 600.0
"""Seconds after which larger batches are tried again, if the described limit allows them. A broker may have refused
some before it heard of a new limit."""


class LearnedLimit(NamedTuple):
    """A limit that was learned from a refusal.

    Attributes:
        most: most bytes of a batch.
        described: the limit that was described at that time, in bytes; None: it may not be described.
        at_s: when it was learned (monotonic).
    """

    most: int
    described: int | None
    at_s: float


class Verdicts:
    """Confirms the verdicts of all partitions of a process."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._looking: set[str] = set()
        self._learned: dict[str, LearnedLimit] = {}
        """Source topic -> the limit learned from a refusal that the described limit does not explain."""
        self._as_they_are: set[str] = set()
        """Source topics of which a larger, combined batch was refused. Their batches are not combined any more."""

    def suspect(self, partition: Partition, halted: Halted) -> bool:
        """Returns True if the verdict must be confirmed first. Then it is kept until the partition is located."""
        rests = halted.reason in RESTS_ON_CONFIGS or halted.unread >= 0
        if not rests or partition.claim.suspected is not None:
            return False
        waits = partition.queue.in_flight[0] if partition.queue.in_flight else None
        size = halted.size or (HEADER_SIZE + len(waits[1]) if waits is not None else 0)
        leader = self._relay.source.leader(partition.topic, partition.index)
        partition.claim.suspect(Suspicion(halted, partition.terms, size, leader))
        return True

    async def confirmed(self, partition: Partition) -> Halted | None:
        """Returns the halt of a suspected partition, according to the current configs. None: the partition goes on,
        usually under new terms.

        Raises:
            NetworkError: a cluster does not answer.
        """
        suspicion = partition.claim.suspected
        assert suspicion is not None, partition.name
        if suspicion.halted.unread >= 0:
            # Dropped first: an operator who resumes the partition after another halt must not get this one again.
            partition.claim.suspect(None)
            here, _ = self._relay.locator.logs(partition)
            if here.leader != suspicion.leader:
                return None  # the failure was of another broker's disk
            away = await here.in_tiered_storage(suspicion.halted.unread)
            return None if away else suspicion.halted
        pair = await self._describe(partition.topic)
        partition.claim.suspect(None)
        if pair is None:
            return suspicion.halted
        if pair.halted is not None:
            return pair.halted
        terms = self._terms(pair)
        partition.judge_by(terms)
        if terms != suspicion.terms:
            self._relay.log.info(
                "configs_changed",
                topic=partition.topic,
                partition=partition.index,
                detail=f"judged again: {suspicion.halted.reason}, {suspicion.halted.detail}",
            )
            return None
        if _may_have_come_back(suspicion) and partition.claim.doubts < TRIES:
            return None
        if terms.rebatches and suspicion.halted.reason in _OF_SOME_RECORD:
            # One record of the combined batch may be the cause. If the batches are sent as they are, those before it
            # arrive, and the halt names the right one.
            self._as_they_are.add(partition.topic)
            partition.judge_by(self._terms(pair))
            return None
        if suspicion.size and suspicion.halted.reason == HaltReason.TOO_LARGE.slug:
            if terms.rewrites and not suspicion.halted.size and self._learn(pair, suspicion.size):
                partition.judge_by(self._terms(pair))
                return None
            if self._only_learned(suspicion, pair) and partition.claim.doubts < TRIES:
                # A batch that cannot be cut is sent once more: the broker may have been wrong, or may not have heard of
                # its config yet.
                del self._learned[partition.topic]
                partition.judge_by(self._terms(pair))
                return None
            return self._too_large(suspicion, pair, again=partition.claim.doubts < TRIES)
        return suspicion.halted

    async def renewed(self, partition: Partition) -> Terms:
        """Describes the partition's topics now. Returns the terms that follow, which count for the partition from now
        on.

        Raises:
            PartitionHalted: the topics must not be mirrored any more.
            NetworkError: a cluster does not answer.
        """
        pair = await self._describe(partition.topic)
        if pair is None:
            return partition.terms
        if pair.halted is not None:
            raise PartitionHalted(pair.halted)
        self.renew({partition.topic: pair})
        return self._terms(pair)

    async def look(self, partition: Partition) -> None:
        """Checks whether the destination changes batches, after a response with an append time. If it does, the topic's
        partitions halt. There is one look at a time for each topic.

        Raises:
            NetworkError: a cluster does not answer.
        """
        if partition.topic in self._looking:
            return
        self._looking.add(partition.topic)
        try:
            pair = await self._describe(partition.topic)
            if pair is not None:
                self.renew({partition.topic: pair})
            await asyncio.sleep(1)
        finally:
            self._looking.discard(partition.topic)

    def renew(self, pairs: dict[str, Pair]) -> None:
        """Gives the current terms to the running partitions. If a verdict waits to be confirmed, its ``Suspicion``
        keeps the terms of the verdict. A halted partition keeps its own terms, so that a change is noticed."""
        for partition in list(self._relay.partitions.values()):
            pair = pairs.get(partition.topic)
            if pair is None or partition.phase in (Phase.HALTED, Phase.STOPPED):
                continue
            if pair.halted is None:
                partition.judge_by(self._terms(pair))
            elif pair.halted.reason in (HaltReason.DESTINATION_REWRITES.slug, HaltReason.NOT_STRICT.slug):
                self._relay.halt(partition, pair.halted)

    def _terms(self, pair: Pair) -> Terms:
        """Returns a pair's terms, with the limit that was learned from a refusal."""
        terms, name = pair.terms, pair.source.name
        if terms.rebatches and name in self._as_they_are:
            terms = replace(terms, rebatches=0)
        learned, described = self._learned.get(name), terms.max_batch_size
        if learned is None or (described is not None and described <= learned.most):
            return terms
        since_s = time.monotonic() - learned.at_s
        if described != learned.described or (described is not None and since_s > LEARNED_FOR_S):
            del self._learned[name]
            return terms
        # No record is passed over because of it (``Terms.passes_over``): a broker may be late to hear of a new limit.
        return replace(terms, max_batch_size=learned.most)

    def _only_learned(self, suspicion: Suspicion, pair: Pair) -> bool:
        """Returns True if a batch is too large only by a limit that was learned from refusals."""
        described = pair.terms.max_batch_size
        learned = pair.source.name in self._learned and suspicion.halted.size > 0
        return learned and (described is None or suspicion.size <= described)

    def _learn(self, pair: Pair, size: int) -> bool:
        """Learns from a refusal that batches of this size are too large, if the described limit does not explain it:
        that limit may not be described, or the broker has one of its own. From then on, batches are cut smaller and
        smaller. Returns False if the described limit explains it."""
        described = pair.terms.max_batch_size
        if described is not None and size > described:
            return False
        self._learned[pair.source.name] = LearnedLimit(size - 1, described, time.monotonic())
        return True

    def _too_large(self, suspicion: Suspicion, pair: Pair, *, again: bool) -> Halted | None:
        """Returns the halt for a batch that is too large, with the numbers and the command that fixes it. None if the
        broker that refused the batch should accept it soon."""
        halted, most, size = suspicion.halted, pair.terms.max_batch_size, suspicion.size
        detail, remedy = halted.detail, halted.remedy
        if most is not None and size <= most and again:
            return None
        if remedy == HaltReason.TOO_LARGE_FOR_SEGMENT.told:
            command = set_command(self._relay.destination, pair.destination, SEGMENT_BYTES, LARGEST_SEGMENT)
            return replace(halted, detail=f"{detail}; {size} bytes", remedy=f"{remedy}: `{command}`")
        kept = halted.size and self._relay.settings.oversize_record != HALT
        if most is None:
            why = f"; not passed over, since {MAX_MESSAGE_BYTES} is not known: it takes DescribeConfigs on the topic"
            return replace(halted, detail=detail + why) if kept else halted
        if not halted.size:
            detail += f"; {size} bytes, and the destination takes {most}"
        if size <= most:
            if kept:
                detail += f"; not passed over, since it fits by {MAX_MESSAGE_BYTES}={most} of {pair.destination}"
            return replace(halted, detail=detail)
        of_source = max((each.enough for each in pair.narrower if each.name == MAX_MESSAGE_BYTES), default=0)
        command = set_command(self._relay.destination, pair.destination, MAX_MESSAGE_BYTES, max(size, of_source))
        known = f", and the source takes up to {of_source}" if of_source >= size else ""
        remedy = (
            f"the batch has {size} bytes{known}; {MAX_MESSAGE_BYTES} of {pair.destination} at "
            f"{self._relay.destination.name} is {most}. Raise it: `{command}`"
        )
        return replace(halted, detail=detail, remedy=remedy)

    async def _describe(self, topic: str) -> Pair | None:
        relay, pair = self._relay, self._relay.pairs.get(topic)
        if pair is None:
            return None
        return await describe_pair(relay.source, relay.destination, pair.source, relay.settings)


def _may_have_come_back(suspicion: Suspicion) -> bool:
    """Returns True if the position was found inside a batch. A source leader that is less cleaned may have such a batch
    where there was a gap before. The next look at both logs decides."""
    return suspicion.terms.compacted and suspicion.halted.reason == HaltReason.MID_BATCH.slug
