"""Searches both clusters for batches that have no counterpart in their place."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mirror.audit.judge.kinds import Content, PlacedBatch
from mirror.audit.judge.rounds.drill import by_content
from mirror.audit.judge.rounds.looks import Looks
from mirror.audit.judge.rounds.regions import Places, Window
from mirror.audit.model.differences import Pairs
from mirror.audit.model.places import Span, TopicPartition


def _strange(pairs: Pairs) -> set[bytes]:
    """Returns the digests of the destination's rows that have no counterpart at the source."""
    ours = {row.content for row in pairs.source.values()}
    return {row.digest for row in pairs.destination.values() if row.crc_ok and row.content not in ours}


def _lost(pairs: Pairs) -> set[bytes]:
    """Returns the digests of the source's rows that have no counterpart at the destination."""
    theirs = {row.content for row in pairs.destination.values()}
    return {row.digest for row in pairs.source.values() if row.crc_ok and row.content not in theirs}


@dataclass(slots=True)
class Elsewhere:
    """The places, at source and destination, of rows that have no counterpart. ``asked``: the digests that were already
    searched for on each side, found or not."""

    looks: Looks
    source: dict[Content, list[PlacedBatch]] = field(default_factory=dict)
    destination: dict[Content, list[PlacedBatch]] = field(default_factory=dict)
    asked: tuple[set[bytes], set[bytes]] = field(default_factory=lambda: (set(), set()))

    def search(self, seen: Iterable[Pairs]) -> None:
        """Searches both clusters for the rows that have no counterpart in their window, and adds their places."""
        asked_source, asked_destination = self.asked
        lost: set[bytes] = set()
        strange: set[bytes] = set()
        for pairs in seen:
            lost |= _lost(pairs)
            strange |= _strange(pairs)
        if wanted := sorted(strange - asked_source):
            self.source.update(by_content(self.looks.in_source(wanted)))
        if wanted := sorted(lost - asked_destination):
            self.destination.update(by_content(self.looks.in_destination(wanted)))
        asked_source |= strange
        asked_destination |= lost


def behind_windows(looks: Looks, windows: Sequence[Window]) -> tuple[Places, Places]:
    """Returns the places, at source and destination, of the windows' rows that have no counterpart. Only the rest of
    each window's region is searched, where a jump may lead. (``Elsewhere`` searches the whole logs, once for many
    windows.)"""
    lost, strange = set[bytes](), set[bytes]()
    here, there = (defaultdict[TopicPartition, list[Span]](list) for _ in range(2))
    for window in windows:
        region, end = window.region, window.where.end
        if more := _strange(window.pairs):
            strange |= more
            here[region.key].append(Span(end, region.source.end))
        if more := _lost(window.pairs):
            lost |= more
            there[region.key].append(Span(end + region.shift, region.destination.end + region.shift))
    return (
        by_content(looks.in_source(sorted(strange), here)) if strange else {},
        by_content(looks.in_destination(sorted(lost), there)) if lost else {},
    )
