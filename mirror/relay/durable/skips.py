"""Ranges of the source's offsets that are not copied: said in the log, and written down in the internal topic."""

import time
from collections.abc import Iterable

from mirror.offsetmap.records import Entry, Side, Skipped
from mirror.offsetmap.topic import Memory
from mirror.reasons import HaltReason
from mirror.relay.locate.resync import Log

ON_GAP = "on.gap"
UNPROVEN = HaltReason.UNPROVEN.slug
DELETED = HaltReason.RETENTION_OVERTOOK.slug
NEVER_ARRIVED = HaltReason.NEVER_ARRIVED.slug
_WORDS = {
    ON_GAP: "offsets {first} to {last} of the source are not there to copy; going on was accepted",
    UNPROVEN: "nothing shows that offsets {first} to {last} of the source are at the destination; taking that on trust "
    "was accepted",
    DELETED: "offsets {first} to {last} of the source were due when the partition halted, and the source has deleted "
    "them since: they were never copied",
    NEVER_ARRIVED: "offsets {first} to {last} of the source never arrived; going on was accepted",
}
"""What the log says, by the cause."""


class Skips:
    """Of one process. Each range is told before it is written down: whoever takes over from a process that was killed
    in between finds it written down, and has no reason to tell it. Told twice is better than never."""

    def __init__(self, state: Memory, log: Log) -> None:
        self._state = state
        self._log = log
        self._told: set[Skipped] = set()
        """Those whose writing has not succeeded yet. It is tried again with each look for the position."""

    async def write(
        self, side: Side, ranges: Iterable[tuple[int, int, str]], *others: Entry, forget: Iterable[bytes] = ()
    ) -> None:
        """
        Args:
            side: the partition.
            ranges: first offset, the one behind, and the cause. Empty ones are left out.
            others: what is written with them.
            forget: keys that are taken away with that.

        Raises:
            NetworkError: not certain that all of it is there.
        """
        skipped = [
            Skipped(side=side, start=start, end=end, cause=cause, at_ms=round(time.time() * 1000))
            for start, end, cause in ranges
            if start < end
        ]
        told = {self._tell(each) for each in skipped}
        await self._state.save([*others, *skipped], forget=forget)
        self._told -= told

    def _tell(self, skipped: Skipped) -> Skipped:
        """The line in the log, once for each range that is being written; what remembers that."""
        key = _timeless(skipped)
        if key not in self._told:
            self._told.add(key)
            detail = _WORDS[skipped.cause].format(first=skipped.start, last=skipped.end - 1)
            self._log.warning("skipped", topic=skipped.side.topic, partition=skipped.side.partition, detail=detail)
        return key


def _timeless(skipped: Skipped) -> Skipped:
    return Skipped(side=skipped.side, start=skipped.start, end=skipped.end, cause=skipped.cause, at_ms=0)
