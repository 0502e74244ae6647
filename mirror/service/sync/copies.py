"""Translates a group's offset at the source to the destination's offset, if there is one.

With exact offsets, it is the same offset, once the copy has reached it. Until then (and for good, if the source is lost
before), it is the end of the copy: the group has read everything that is copied, so a consumer that moves to the
destination misses nothing, and reads nothing twice. An offset above the log's end would be out of range, and the
consumer's reset policy would apply.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from mirror.net.errors import NetworkError
from mirror.offsetmap.compare.alignment import Differs
from mirror.offsetmap.fields import id_text
from mirror.offsetmap.translation import Translation
from mirror.service.offsets.copied import NOT_YET
from mirror.service.offsets.translate import NotTranslated, Translator

AT_ONCE = 64
"""Number of partitions that are looked at in parallel."""

Key = tuple[str, int]


class DestinationPlace(NamedTuple):
    """The destination's offset for an offset of the source.

    Attributes:
        offset: the offset; -1: there is none, and ``why`` says why.
        behind: True if the source's offset is not copied yet; ``offset`` is then the end of the copy.
        exact: True if it corresponds exactly to the source's offset, so that the metadata that a consumer committed
            with it stay valid.
        why: the reason, for people; empty if there is an offset.
        failed: True if it is not known because a cluster does not answer.
    """

    offset: int
    behind: bool = False
    exact: bool = True
    why: str = ""
    failed: bool = False


class Copy(Protocol):
    """The copy of one partition."""

    def spot(self, offset: int) -> DestinationPlace:
        """Returns the destination's offset for an offset of the source. Pure."""


class ExactCopy(NamedTuple):
    """A copy with the source's offsets.

    Attributes:
        start, end: start and end of the copy's log.
        source_start: start of the source's log; or the offset at which the copy begins, if that is later
            (``start.from``).
    """

    start: int
    end: int
    source_start: int

    def spot(self, offset: int) -> DestinationPlace:
        """See ``Copy``."""
        if self.end < self.source_start:
            # Before the source's first record, there is only filler, which is deleted.
            return DestinationPlace(-1, why=NOT_YET)
        if offset > self.end:
            return DestinationPlace(self.end, behind=True, exact=False)
        # An offset below the log's start would be out of range; there is nothing to read before the start.
        return DestinationPlace(max(offset, self.start), exact=offset >= self.start)


class MappedCopy(NamedTuple):
    """A copy with offsets of its own."""

    translation: Translation

    def spot(self, offset: int) -> DestinationPlace:
        """See ``Copy``."""
        known = self.translation
        behind = offset > known.source_end
        place = known.to_destination(min(offset, known.source_end))
        assert place is not None, "all up to the source's end is copied"
        exact = place.exact and not behind and place.offset >= known.log_start
        return DestinationPlace(max(place.offset, known.log_start), behind, exact)


class NoCopy(NamedTuple):
    """There is no copy, or it is not known: no offset is carried over."""

    why: str
    failed: bool = False

    def spot(self, offset: int) -> DestinationPlace:
        """Returns no offset, with the reason."""
        return DestinationPlace(-1, why=self.why, failed=self.failed)


class FlowCopies:
    """The copies of a flow's partitions, as of the last ``renew``."""

    def __init__(self, translator: Translator) -> None:
        """``translator``: open, with ``lazy``: its ``state`` is opened by ``renew``."""
        self._translator = translator
        self._opened = False
        self._found: dict[Key, Copy] = {}
        self._seats = asyncio.Semaphore(AT_ONCE)

    async def renew(self) -> None:
        """Forgets all partitions that were looked at, and reads what is new in the internal topic.

        Raises:
            NetworkError: a cluster does not answer.
        """
        self._found.clear()
        if not self._opened:
            self._opened = await self._translator.state.open(create=False)
        if self._opened:
            await self._translator.renew()

    async def look(self, keys: Iterable[Key]) -> None:
        """Looks at these partitions (topic, number) of the source, so that ``spot`` can be called for them. The flow
        has to mirror them."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self._found]
        found = await asyncio.gather(*(self._look(*key) for key in wanted))
        self._found.update(zip(wanted, found, strict=True))

    def spot(self, topic: str, partition: int, offset: int) -> DestinationPlace:
        """Returns the destination's offset for an offset of a partition that was looked at."""
        return self._found[topic, partition].spot(offset)

    async def _look(self, topic: str, partition: int) -> Copy:
        if not self._opened:
            return NoCopy(NOT_YET)
        translator = self._translator
        async with self._seats:
            try:
                if translator.exact:
                    return await self._exact(topic, partition)
                return MappedCopy(await translator.of(topic, partition))
            except (NotTranslated, Differs) as error:
                return NoCopy(str(error))
            except NetworkError as error:
                return NoCopy(str(error), failed=True)

    async def _exact(self, topic: str, partition: int) -> Copy:
        translator = self._translator
        subject = translator.subject(topic, partition)
        if translator.state.ledger.pin(subject) is None:
            return NoCopy(NOT_YET)
        here, there = await translator.copy(topic, partition)
        starting = translator.state.ledger.starting(subject, id_text(here.topic.topic_id))
        end, start, source_start = await asyncio.gather(there.visible_end(), there.start(), here.start())
        return ExactCopy(start, end, max(source_start, starting.offset if starting is not None else 0))
