"""Where the offset of a group at the source is at the destination, if it is anywhere.

With exact offsets it is the same one, once the copy reaches that far. Until then, and for good if the source is lost
before, it is the end of the copy: the group has read all that is copied, so a consumer that moves over misses nothing,
and reads nothing again that the destination has by then. Above the log's end, it would be reset to anywhere.
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
"""Partitions that are looked at together."""

Key = tuple[str, int]


class DestinationPlace(NamedTuple):
    """The place at the destination of an offset of the source.

    Attributes:
        offset: -1: there is none, and ``why`` says why.
        behind: the source's offset is not copied yet, and this is the end of what is.
        exact: it is the very offset, so what a consumer noted with it stays true.
        why: words for people.
        failed: it is not known because a cluster does not answer.
    """

    offset: int
    behind: bool = False
    exact: bool = True
    why: str = ""
    failed: bool = False


class Copy(Protocol):
    """The copy of one partition."""

    def spot(self, offset: int) -> DestinationPlace:
        """Returns the place of one of the source's offsets. Pure."""


class ExactCopy(NamedTuple):
    """A copy with the source's offsets: where its log begins and ends, and where the source's begins, or the copy if
    that is to begin later (``start.from``)."""

    start: int
    end: int
    source_start: int

    def spot(self, offset: int) -> DestinationPlace:
        """Returns the place of one of the source's offsets."""
        if self.end < self.source_start:
            # What stands before the source's first record is filler, which is deleted.
            return DestinationPlace(-1, why=NOT_YET)
        if offset > self.end:
            return DestinationPlace(self.end, behind=True, exact=False)
        # Below the log's start a consumer would be reset to anywhere; nothing is left to be read before it.
        return DestinationPlace(max(offset, self.start), exact=offset >= self.start)


class MappedCopy(NamedTuple):
    """A copy with offsets of its own."""

    translation: Translation

    def spot(self, offset: int) -> DestinationPlace:
        """Returns the place of one of the source's offsets."""
        known = self.translation
        behind = offset > known.source_end
        place = known.to_destination(min(offset, known.source_end))
        assert place is not None, "all up to the source's end is copied"
        exact = place.exact and not behind and place.offset >= known.log_start
        return DestinationPlace(max(place.offset, known.log_start), behind, exact)


class NoCopy(NamedTuple):
    """Nothing is carried over."""

    why: str
    failed: bool = False

    def spot(self, offset: int) -> DestinationPlace:
        """Returns why not."""
        return DestinationPlace(-1, why=self.why, failed=self.failed)


class FlowCopies:
    """The copies of a flow's partitions, as of the last ``renew``."""

    def __init__(self, translator: Translator) -> None:
        """``translator``: open, and lazy."""
        self._translator = translator
        self._opened = False
        self._found: dict[Key, Copy] = {}
        self._seats = asyncio.Semaphore(AT_ONCE)

    async def renew(self) -> None:
        """Forgets what was looked at, and reads what the mirror has written down since.

        Raises:
            NetworkError: a cluster does not answer.
        """
        self._found.clear()
        if not self._opened:
            self._opened = await self._translator.state.open(create=False)
        if self._opened:
            await self._translator.renew()

    async def look(self, keys: Iterable[Key]) -> None:
        """Looks at these partitions, which the flow mirrors."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self._found]
        found = await asyncio.gather(*(self._look(*key) for key in wanted))
        self._found.update(zip(wanted, found, strict=True))

    def spot(self, topic: str, partition: int, offset: int) -> DestinationPlace:
        """Returns the place of an offset of a partition that was looked at."""
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
