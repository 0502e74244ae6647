"""The ends of both logs of each partition of a flow: what the source has, and how much of that is at the
destination."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.logs import leader_requests
from mirror.net.logs.leader_requests import LATEST
from mirror.net.logs.log import PartitionLog
from mirror.net.rights import DESCRIBE, TOPIC, Right
from mirror.offsetmap.compare.alignment import Differs
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.fields import id_text
from mirror.service.offsets.copied import NOT_YET, why_no_copy
from mirror.service.offsets.translate import NotTranslated, Translator
from mirror.service.selection import Selection, is_internal
from mirror.service.sync.copies import AT_ONCE
from mirror.wire.errors import error_name

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnds:
    """Both logs of one partition. An end is the offset of the next record. Offsets and epochs are -1 if they are not
    known.

    Attributes:
        topic, partition: the partition at the source.
        into: the destination topic.
        source_id, destination_id: topic ids in hexadecimal; None: the cluster has no topic ids, or does not have the
            topic.
        source_start: the source's log start offset.
        source_end: the source's log end offset.
        source_stable: the source's last stable offset. Open transactions and records that are not replicated yet are
            behind it.
        destination_start: the destination's log start offset.
        destination_end: the end of the copy, in the destination's offsets.
        copied_to: the source offset up to which everything is at the destination.
        source_epoch, destination_epoch: epochs of the leaders that were asked. No batch before the ends has a later
            epoch.
        absent: True if the destination does not have the partition yet.
        why: what is not known, and why; empty: everything is known.
    """

    topic: str
    partition: int
    into: str
    source_id: str | None = None
    destination_id: str | None = None
    source_start: int = -1
    source_end: int = -1
    source_stable: int = -1
    destination_start: int = -1
    destination_end: int = -1
    copied_to: int = -1
    source_epoch: int = -1
    destination_epoch: int = -1
    absent: bool = False
    why: str = ""

    @property
    def key(self) -> Key:
        """Topic and partition at the source."""
        return self.topic, self.partition

    @property
    def name(self) -> str:
        """topic-partition."""
        return f"{self.topic}-{self.partition}"

    @property
    def lag(self) -> int | None:
        """Number of source offsets that are not copied; None: not known. Negative if the destination has more than the
        source."""
        return self.source_end - self.copied_to if min(self.source_end, self.copied_to) >= 0 else None

    @property
    def is_behind(self) -> bool:
        """True if something is still to be copied, if that is not known, or if the destination does not have the
        partition yet."""
        return self.absent or self.lag is None or self.lag > 0


class Missing(NamedTuple):
    """A topic that the flow has to mirror and of which the source shows no partition.

    Attributes:
        topic: the name at the source.
        why: the cause for people, with what to do about it.
        gone: True if the topic was copied, the source does not have it any more, and the configuration does not name
            it. Its copy is still there.
    """

    topic: str
    why: str
    gone: bool = False


class FlowEnds:
    """Asks both clusters for the ends of a flow's partitions.

    Args:
        selection: which topics the flow mirrors.
        translator: the flow's translator, open and lazy.

    Attributes:
        missing: topics of which the last look has no partition, sorted: the flow names them or has copied them, or the
            source has answered with an error.
    """

    def __init__(self, selection: Selection, translator: Translator) -> None:
        self.missing: list[Missing] = []
        self._selection = selection
        self._translator = translator
        self._seats = asyncio.Semaphore(AT_ONCE)
        self._opened = False

    async def look(self) -> list[PartitionEnds]:
        """Returns the ends of all partitions that the flow mirrors, sorted. Sets ``missing``.

        Raises:
            NetworkError: a cluster does not answer. If only one partition cannot be asked, it has a ``why`` instead.
        """
        translator = self._translator
        if not self._opened:
            self._opened = await translator.state.open(create=False)
        if self._opened:
            failed = await translator.renew()
        else:
            failed, _ = await asyncio.gather(translator.source.refresh(None), translator.destination.refresh(None))
        self.missing = await self._missing(failed)
        topics = [topic for name, topic in sorted(translator.source.topics.items()) if self._selection.selects(name)]
        unlisted = {translator.destination_of(topic.name) for topic in topics} - translator.destination.topics.keys()
        if unlisted:
            # They do not exist yet, or may not be described. A broker tells these apart only for a topic asked by name.
            await translator.destination.check_denied(unlisted)
        return await asyncio.gather(
            *(self._look(topic.name, each) for topic in topics for each in sorted(topic.leaders))
        )

    async def _missing(self, failed: Mapping[str, int]) -> list[Missing]:
        """Returns the value for ``missing``. ``failed``: topic -> error code with which the source has just
        answered."""
        translator, selects = self._translator, self._selection.selects
        here, there = translator.source, translator.destination
        into = {each.topic: each.destination for each in translator.state.ledger.known}
        copied = {topic for topic, each in into.items() if selects(topic) and each == translator.destination_of(topic)}
        named = set(self._selection.names)
        names = sorted({*named, *copied, *filter(selects, failed)} - here.topics.keys())
        if not names:
            return []
        # A list of all topics leaves out those that may not be described. A broker tells that if asked for one by name.
        await here.check_denied(names)
        await there.check_denied({into[name] for name in names if name in copied})
        found = []
        for name in names:
            gone = False
            if name in here.denied:
                why = f"it may not be described: {Right(DESCRIBE, TOPIC, name, here.name).grant}"
            elif name in failed:
                why = f"{here.name} answers {error_name(failed[name])} for it"
            elif name in named:
                why = (
                    f"the flow names it, and {here.name} has no such topic: take it out of topics, or see that it is "
                    "there"
                )
            elif into[name] in there.topics or into[name] in there.denied:
                gone = True
                why = (
                    f"it was copied, and {here.name} does not have it any more: see that it is there; or if it was "
                    f"deleted for good, have the flow exclude it, or delete the copy ({into[name]} at {there.name})"
                )
            else:
                continue
            found.append(Missing(name, why, gone))
        return found

    def not_covered(self) -> list[str]:
        """Returns the source's topics that the flow does not mirror, sorted, without internal topics of Kafka and of
        mirrors."""
        return not_covered(self._translator.source.topics, self._selection)

    async def _look(self, topic: str, partition: int) -> PartitionEnds:
        async with self._seats:
            return await self._asked(topic, partition)

    async def _asked(self, topic: str, partition: int) -> PartitionEnds:
        translator, into = self._translator, self._translator.destination_of(topic)
        found = PartitionEnds(
            topic=topic,
            partition=partition,
            into=into,
            source_id=_topic_id(translator.source, topic),
            destination_id=_topic_id(translator.destination, into),
        )
        try:
            here = await translator.log(translator.source, topic, partition)
            start, end, stable = await asyncio.gather(here.start(), here.true_end(), _stable_end(here))
            found = replace(
                found, source_start=start, source_end=end, source_stable=stable, source_epoch=here.leader.epoch
            )
            topic_there = translator.destination.topics.get(into)
            if into not in translator.destination.denied and (
                topic_there is None or partition not in topic_there.leaders
            ):
                return replace(found, absent=True, copied_to=start)
            there = await translator.log(translator.destination, into, partition)
            found = replace(found, destination_start=await there.start(), destination_epoch=there.leader.epoch)
            if translator.exact:
                visible = await there.visible_end()
                if visible:
                    await self._check_copy(here, there)
                return replace(found, destination_end=visible, copied_to=visible)
            if start == end and translator.state.ledger.checkpoint(Subject(topic, partition, into)) is None:
                return replace(found, destination_end=await there.visible_end(), copied_to=end)
            known = await translator.of(topic, partition)
            return replace(found, destination_end=known.destination_end, copied_to=known.source_end)
        except (NotTranslated, Differs, NetworkError) as error:
            return replace(found, why=str(error))

    async def _check_copy(self, here: PartitionLog, there: PartitionLog) -> None:
        """Raises NotTranslated if the destination's log, which is not empty, is not known as the flow's copy."""
        translator, subject = self._translator, self._translator.subject(here.topic.name, here.index)
        why = why_no_copy(translator.state.ledger, subject, here, there)
        if why == NOT_YET and self._opened:
            # The copy may have begun since the internal topic was read: its pin is written before the first batch.
            await translator.state.load()
            why = why_no_copy(translator.state.ledger, subject, here, there)
        if why:
            raise NotTranslated(translator.told_no_copy(there, why))


def not_covered(topics: Iterable[str], selection: Selection) -> list[str]:
    """Returns those topics that a flow does not mirror, sorted, without internal topics of Kafka and of mirrors."""
    return sorted(name for name in topics if not selection.selects(name) and not is_internal(name))


async def _stable_end(log: PartitionLog) -> int:
    return await leader_requests.list_offset(log.cluster, log.topic.name, log.index, log.leader, LATEST, committed=True)


def _topic_id(cluster: Cluster, topic: str) -> str | None:
    known = cluster.topics.get(topic)
    return id_text(known.topic_id) if known is not None else None
