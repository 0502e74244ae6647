"""Logs the ranges of source offsets that are not copied, and writes them down in the internal topic."""

import time
from collections.abc import Iterable

from mirror.offsetmap.entries.checkpoint import SkippedOffsets
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.memory import Memory
from mirror.reasons import HaltReason
from mirror.relay.events import EventLog

ON_GAP = "on.gap"
"""The cause of a range that was given up by decision."""
UNPROVEN = HaltReason.UNPROVEN.slug
"""The cause of a range that an operator took on trust."""
DELETED = HaltReason.RETENTION_OVERTOOK.slug
"""The cause of a range that was due when the partition halted, and that the source has deleted since."""
NEVER_ARRIVED = HaltReason.NEVER_ARRIVED.slug
_WORDS = {
    ON_GAP: "offsets {first} to {last} of the source are not there to copy; going on was accepted",
    UNPROVEN: "nothing shows that offsets {first} to {last} of the source are at the destination; taking that on trust "
    "was accepted",
    DELETED: "offsets {first} to {last} of the source were due when the partition halted, and the source has deleted "
    "them since: they were never copied",
    NEVER_ARRIVED: "offsets {first} to {last} of the source never arrived; going on was accepted",
}
"""The text for the log, by cause."""


class Skips:
    """Logs and writes the skipped ranges of one process. Each range is logged before it is written down. In the other
    order, a process that was killed in between would leave a range that is written down, and so is never logged again.
    A range that is logged twice is better than one that is never logged."""

    def __init__(self, state: Memory, log: EventLog) -> None:
        self._state = state
        self._log = log
        self._told: set[SkippedOffsets] = set()
        """Ranges that are logged and not written yet, so that they are not logged again when the next look tries to
        write them."""

    async def write(self, subject: Subject, ranges: Iterable[tuple[int, int, str]], *others: Entry) -> None:
        """Logs ranges and writes them down.

        Args:
            subject: the partition.
            ranges: first offset, end offset and cause of each. Empty ranges are left out.
            others: entries that are written with them.

        Raises:
            NetworkError: it is not certain that all of it was written.
        """
        skipped = [
            SkippedOffsets(subject=subject, start=start, end=end, cause=cause, at_ms=round(time.time() * 1000))
            for start, end, cause in ranges
            if start < end
        ]
        told = {self._tell(each) for each in skipped}
        await self._state.save([*others, *skipped])
        self._told -= told

    def _tell(self, skipped: SkippedOffsets) -> SkippedOffsets:
        """Logs a range, unless it is already logged and not written yet. Returns its key in ``_told``."""
        key = _timeless(skipped)
        if key not in self._told:
            self._told.add(key)
            detail = _WORDS[skipped.cause].format(first=skipped.start, last=skipped.end - 1)
            self._log.warning(
                "skipped", topic=skipped.subject.topic, partition=skipped.subject.partition, detail=detail
            )
        return key


def _timeless(skipped: SkippedOffsets) -> SkippedOffsets:
    return SkippedOffsets(subject=skipped.subject, start=skipped.start, end=skipped.end, cause=skipped.cause, at_ms=0)
