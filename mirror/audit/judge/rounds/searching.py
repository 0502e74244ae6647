"""Searches both clusters for batches that have no counterpart where they should."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mirror.audit.judge.kinds import Content, PlacedBatch
from mirror.audit.judge.rounds.drill import by_content
from mirror.audit.judge.rounds.looks import Looks
from mirror.audit.model.differences import Pairs


@dataclass(slots=True)
class Elsewhere:
    """The places, at source and destination, of a round's rows that have no counterpart. ``asked``: the digests that
    were searched for on each side, whether they were found or not."""

    looks: Looks
    source: dict[Content, list[PlacedBatch]] = field(default_factory=dict)
    destination: dict[Content, list[PlacedBatch]] = field(default_factory=dict)
    asked: tuple[set[bytes], set[bytes]] = field(default_factory=lambda: (set(), set()))

    def search(self, seen: Sequence[Pairs]) -> None:
        """Searches both clusters for the rows that have no counterpart in their window, and adds their places."""
        asked_source, asked_destination = self.asked
        lost: set[bytes] = set()
        strange: set[bytes] = set()
        for pairs in seen:
            ours = {row.content for row in pairs.source.values()}
            theirs = {row.content for row in pairs.destination.values()}
            lost |= {row.digest for row in pairs.source.values() if row.crc_ok and row.content not in theirs}
            strange |= {row.digest for row in pairs.destination.values() if row.crc_ok and row.content not in ours}
        if wanted := sorted(strange - asked_source):
            self.source.update(by_content(self.looks.in_source(wanted)))
        if wanted := sorted(lost - asked_destination):
            self.destination.update(by_content(self.looks.in_destination(wanted)))
        asked_source |= strange
        asked_destination |= lost
