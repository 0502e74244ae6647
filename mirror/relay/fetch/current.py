"""Fetches the partitions that are up to date, in one fetch session (KIP-227), which waits for new data.

Most partitions of most clusters are up to date at any moment, and most of those get nothing for a while. They are
*quiet*: the broker remembers them, and they cost nothing here until a response names them. All others are *busy*:
before each request, they are checked for changes.
"""

import time
from typing import TYPE_CHECKING

from mirror.net.buffers import OVERHEAD, Frame
from mirror.relay.fetch.link import HURRY_MS, Asked, FetchLink, PartitionKey, asked_for, fetchable, share_of
from mirror.relay.fetch.session import ENDED, FetchSession
from mirror.relay.partition.cursor import Hearing
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.wire.errors import error_slug
from mirror.wire.fetch import NO_SESSION, FetchPartition, FetchResponse

if TYPE_CHECKING:
    from mirror.relay.fetch.fetcher import Fetcher

JOIN_MS = 50
"""``max_wait_ms`` while other partitions of the broker have backlog. A partition that has caught up is added with the
next request, and must not wait for long."""
SMALL = 16 * 1024
"""A response of fewer bytes is small. It costs hardly less than one with ten times as many records."""


class CurrentFetch(FetchLink):
    """One connection, with a fetch session."""

    def __init__(self, fetcher: "Fetcher") -> None:
        super().__init__(fetcher)
        self._session = FetchSession()
        self._session_by_id = False
        self._busy: dict[Partition, None] = {}
        self._quiet: dict[Partition, None] = {}
        self._keys: dict[Partition, PartitionKey] = {}
        self._asked: dict[PartitionKey, Asked] = {}
        """All partitions in the session, with the generation of the position that was requested."""
        self._left: list[PartitionKey] = []
        """Partitions that left the session since the last request."""
        self._wanted: list[Partition] = []
        """The busy partitions in the outstanding request."""
        self._hearing = Hearing()
        self._lingers_until = 0.0
        """No request is sent before this time (``time.monotonic()``), so that records that arrive one by one are
        fetched together."""

    @property
    def _answered_last(self) -> Hearing:
        return self._hearing

    @property
    def quiet(self) -> int:
        """Number of quiet partitions."""
        return len(self._quiet)

    def add(self, partition: Partition) -> None:
        """Fetches the partition from the next request on."""
        self._busy[partition] = None

    def remove(self, partition: Partition) -> bool:
        """Stops fetching the partition. Its data in the response to an outstanding request are dropped. Returns False
        if it was not fetched here."""
        if partition not in self._busy and partition not in self._quiet:
            return False
        self._stir(partition)
        del self._busy[partition]
        self._leave(partition)
        return True

    # -- asking ------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Sends the next request, if none is outstanding and there is room for its response."""
        if not self._busy and not self._quiet:
            return
        connection = self._ready(urgent=True)
        if connection is None:
            return
        linger_s = self._lingers_until - time.monotonic()
        if linger_s > 0:
            self._pump_later(linger_s)
            return
        if self._quiet and self._paused:
            self._known(list(self._quiet))
        by_id = self._by_id(list(self._busy)) and (self._session_by_id or not self._session.incremental)
        if by_id is not self._session_by_id or not self._session.incremental:
            self._begin_again()
            self._session_by_id = by_id
        active, limited_s = self._unlimited(self._busy)
        active = self._known(active)
        wanted = [partition for partition in active if fetchable(partition)]
        if (not wanted and not self._quiet) or not self._reserve(urgent=self._fits_beside_backlog):
            return
        if len(wanted) < len(self._busy):
            kept = set(wanted)
            for partition in [each for each in self._busy if each not in kept]:
                self._leave(partition)
        change = self._session.next([self._entry(partition, by_id=by_id) for partition in wanted], self._left)
        self._left, self._wanted = [], wanted
        self._send(
            connection,
            change.partitions,
            by_id=by_id,
            max_wait_ms=self._max_wait_ms(hurry=len(wanted) < len(active), limited_s=limited_s),
            session=change.session,
            forgotten=change.forgotten,
        )

    @property
    def _fits_beside_backlog(self) -> bool:
        """True if the frame pool can have room for a response here beside one with backlog. Otherwise the two take
        turns."""
        return self._most + self._fetcher.sizes.most_bytes + 2 * OVERHEAD <= self._relay.pool.budget

    def _max_wait_ms(self, *, hurry: bool, limited_s: float) -> int:
        """Returns how long the broker may wait for data.

        Args:
            hurry: True if partitions are left out that may become fetchable at any moment.
            limited_s: seconds until partitions can be fetched that a limit holds back now.
        """
        if hurry:
            return HURRY_MS
        most = self._relay.settings.fetch_max_wait_ms
        if limited_s < most / 1000:
            most = max(HURRY_MS, int(limited_s * 1000))
        return min(most, JOIN_MS) if self._fetcher.behind else most

    def _entry(self, partition: Partition, *, by_id: bool) -> FetchPartition:
        """Returns the partition's entry in the request, and notes what is requested."""
        # All partitions always get the same share, because a change would have to be sent with the request.
        most = self._fetcher.sizes.most_partition_bytes
        if self._relay.limits.any:
            most = self._relay.limits.most_of(partition, most)
        entry = asked_for(partition, share_of(partition, most, most), by_id=by_id)
        self._keys[partition] = entry[:2]
        self._asked[entry[:2]] = Asked(partition, partition.cursor.generation)
        return entry

    def _leave(self, partition: Partition) -> None:
        """Removes the partition from the session with the next request."""
        key = self._keys.pop(partition, None)
        if key is not None:
            del self._asked[key]
            self._left.append(key)

    # -- responses ---------------------------------------------------------------------------------------------------

    def _answered(self, frame: Frame, fetch: FetchResponse) -> None:
        fetcher, wanted = self._fetcher, self._wanted
        self._wanted = []
        if fetch.error in ENDED:
            self._relay.source.failed("Fetch", error_slug(fetch.error))
            self._begin_again()
            return
        incremental = self._session.incremental
        self._session.answered(fetch.session_id if not fetch.error else NO_SESSION[0])
        self._hearing.at_s = time.monotonic()
        size = len(frame.body)
        short = 2 * size < self._most
        named = self._named(fetch)
        for partition in named:
            self._stir(partition)
        given = fetcher.answers.take(frame, fetch, self._asked, short=short)
        if given.gave and size < SMALL:
            self._lingers_until = self._hearing.at_s + self._relay.settings.linger_ms / 1000
        for partition in given.cut:
            if self.remove(partition):
                fetcher.fall_behind(partition, first=True)
        for partition in given.gave:
            if partition.cursor.behind and self.remove(partition):
                fetcher.fall_behind(partition)
        if incremental:
            nothing = not any(fetched.end > fetched.start for fetched in fetch.partitions)
            for partition in wanted:
                if partition in self._busy and partition not in named:
                    self._heard_nothing(partition, short=short, alone=nothing)
        self._rest(wanted)

    def _named(self, fetch: FetchResponse) -> dict[Partition, None]:
        """Returns the partitions that the response names."""
        asked = self._asked
        return {asked[each[:2]].partition: None for each in fetch.partitions if each[:2] in asked}

    def _heard_nothing(self, partition: Partition, *, short: bool, alone: bool) -> None:
        """Notes that a response in the session does not name the partition, so that nothing about it has changed."""
        cursor = partition.cursor
        key = self._keys.get(partition)
        if key is None or self._asked[key].generation != cursor.generation:
            return
        cursor.fetched(cursor.high_watermark, self._hearing.at_s, cursor.held_back)
        if short:
            self._fetcher.answers.gave_nothing(partition, alone=alone)

    def _rest(self, wanted: list[Partition]) -> None:
        """Makes those partitions quiet that need nothing until a response names them."""
        if not self._session.incremental:
            self._begin_again()
            return
        for partition in wanted:
            if partition in self._busy and self._is_quiet(partition):
                del self._busy[partition]
                self._quiet[partition] = None
                partition.cursor.hear_by(self._hearing)

    def _is_quiet(self, partition: Partition) -> bool:
        cursor, queue = partition.cursor, partition.queue
        key = self._keys.get(partition)
        return (
            key is not None
            and self._asked[key].generation == cursor.generation
            and self._session.knows(key, max(cursor.due, cursor.floor))
            and partition.phase is Phase.ACTIVE
            and cursor.due >= cursor.high_watermark
            and not queue.outbox
            and not queue.in_flight
            and fetchable(partition)
        )

    def _stir(self, partition: Partition) -> None:
        """Makes a quiet partition busy."""
        if partition in self._quiet:
            del self._quiet[partition]
            self._busy[partition] = None
            partition.cursor.hear_by(None)

    def _begin_again(self) -> None:
        """Makes all partitions busy, and has the next request name all of them."""
        self._session.reset()
        for partition in list(self._quiet):
            self._stir(partition)
        self._keys.clear()
        self._asked.clear()
        self._left.clear()

    def _unanswered(self) -> None:
        self._wanted = []
        self._begin_again()
        self._session.forget()
