"""Resumes halted partitions: because an operator says so, or because the reason is gone (``reasons.Heals``)."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mirror.reasons import PAUSED, Heals, heals
from mirror.relay.assignment import Key
from mirror.relay.durable.pins import Seen
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.topics.pairing import Pair

if TYPE_CHECKING:
    from mirror.relay.relay import Relay


class Resuming:
    """Resumes the halted partitions of a relay. ``locate``: locates a partition that is no longer halted."""

    def __init__(self, relay: "Relay", locate: Callable[[Partition], None]) -> None:
        self._relay = relay
        self._locate = locate

    async def resume_all(self, keys: Iterable[Key], **accept: bool) -> dict[Key, str]:
        """See ``Relay.resume_all``."""
        relay = self._relay
        keys = list(keys)
        # A partition that is not paused yet has not halted: it goes on at once.
        kept_on = {key for key in keys if key in relay.partitions and relay.pausing.give_up(relay.partitions[key])}
        resting = [relay.partitions[key] for key in keys if key in relay.partitions and key not in kept_on]
        halted = [each for each in resting if each.halted is not None]
        # If another worker writes a halt later, the operator has not seen it, so it is not resumed.
        seen = {each: relay.pins.kept_halt(each) for each in resting}
        try:
            for partition in halted:
                await relay.pausing.begin_to_resume(partition)
            told = await self._resume_resting([key for key in keys if key not in kept_on], seen, **accept)
        finally:
            for partition in halted:
                relay.pausing.end_to_resume(partition)
        return dict.fromkeys(kept_on, "") | told

    async def _resume_resting(self, keys: Iterable[Key], seen: Seen, **accept: bool) -> dict[Key, str]:
        relay = self._relay
        halted = {(each.topic, each.index) for each in relay.halted}
        await relay.find_topics()
        told = {key: self._why_not(key) for key in keys}
        wanted = [relay.partitions[key] for key, why_not in told.items() if not why_not]
        # A pause says nothing about the topics. If they have changed meanwhile, that is found and reported as usual.
        paused = [each for each in wanted if each.halted is not None and each.halted.reason == PAUSED]
        others = [each for each in wanted if each not in paused]
        # Some may have healed in ``find_topics``, and go on already.
        healed = {key for key in halted if key in relay.partitions and relay.partitions[key].halted is None}
        told |= {key: "" for key in told if key in healed}
        await relay.loops.resumed(others, accept=accept.get("accept_unproven", False))
        relay.pausing.begin_to_take_away(wanted)
        going = [*await relay.pins.resumed(others, seen), *await relay.pins.unpaused(paused, seen)]
        relay.pausing.took_away(wanted)
        for partition in wanted:
            key = (partition.topic, partition.index)
            if partition not in going:
                told[key] = "another worker has it, and it has halted there anew, or was let go; try again"
                continue
            if relay.partitions.get(key) is not partition or partition.phase is not Phase.HALTED:
                told[key] = "let go meanwhile, or resumed by somebody else"
                continue
            relay.log.info("resumed", topic=partition.topic, partition=partition.index, **accept)
            self._go_on(partition, relay.pairs.get(key[0]), **accept)
        return told

    def heal(self, partition: Partition) -> None:
        """Resumes a halted partition if its reason heals by itself, and is gone."""
        assert partition.halted is not None
        pair = self._relay.pairs.get(partition.topic)
        if pair is None or pair.halt_of(partition.index) is not None or not _at_rest(partition):
            return
        by_itself = heals(partition.halted.reason)
        if (
            by_itself is Heals.TOPICS
            or (by_itself is Heals.TERMS and pair.terms != partition.terms)
            or (by_itself is Heals.RIGHTS and self._relay.rights.is_back(partition))
        ):
            told = {"topic": partition.topic, "partition": partition.index, "reason": partition.halted.reason}
            self._relay.log.info("healed", **told)
            self._go_on(partition, pair)

    def _why_not(self, key: Key) -> str:
        """Returns why a partition cannot be resumed now; empty if it can."""
        partition, pair = self._relay.partitions.get(key), self._relay.pairs.get(key[0])
        if partition is None:
            return "not copied here"
        if partition.phase is not Phase.HALTED:
            return f"it is {partition.phase.value}, not halted"
        if not _at_rest(partition):
            return "answers of the destination are still due; try again"
        halted = pair.halt_of(partition.index) if pair else None
        if halted is None:
            return ""
        partition.still_halted(halted)
        return f"still {halted.reason}: {halted.detail}"

    def _go_on(self, partition: Partition, pair: Pair | None, **accept: bool) -> None:
        """Locates a halted partition again. ``accept``: see ``Partition.resume``."""
        partition.queue.leave()
        if pair is not None:
            partition.judge_by(pair.terms)
        partition.resume(**accept)
        self._locate(partition)


def _at_rest(partition: Partition) -> bool:
    """Returns True if no response of the destination is due any more."""
    return not partition.queue.in_flight and not partition.queue.filling
