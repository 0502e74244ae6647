"""Fetches the partitions that are behind, with requests that rotate through them (KIP-74), outside any fetch session.

A partition that gave data goes to the end of the rotation. A response is bounded by ``fetch.max.bytes``, but its first
batch comes whole whatever its size, so there is always progress.
"""

import time
from typing import TYPE_CHECKING

from mirror.net.buffers import Frame
from mirror.net.connection import Connection
from mirror.relay.fetch.link import HURRY_MS, Asked, FetchLink, PartitionKey, asked_for, fetchable, share_of
from mirror.relay.partition.cursor import Hearing
from mirror.relay.partition.partition import Partition
from mirror.wire.fetch import FetchResponse

if TYPE_CHECKING:
    from mirror.relay.fetch.fetcher import Fetcher

LEAST_SHARE = 64 * 1024
"""Least bytes requested per partition, however many there are: a slice that ends in a partial batch is wasted."""


class BacklogFetch(FetchLink):
    """One connection. Its requests take only partitions that no other outstanding request asks for."""

    def __init__(self, fetcher: "Fetcher") -> None:
        super().__init__(fetcher)
        self._asked: dict[PartitionKey, Asked] = {}
        self._asked_bytes = 0

    @property
    def _answered_last(self) -> Hearing:
        return self._fetcher.backlog_answered

    @property
    def _needed(self) -> bool:
        """See ``FetchLink``. Brokers close a connection that was idle for ``connections.max.idle.ms``. That loses
        nothing: it is dialled again once a partition has backlog."""
        return bool(self._fetcher.behind)

    def pump(self) -> None:
        """Sends the next fetch, if none is outstanding and there is room for its response."""
        fetcher = self._fetcher
        if not fetcher.behind:
            return
        connection = self._ready(urgent=False)
        if connection is None:
            return
        active, _ = self._unlimited(partition for partition in fetcher.behind if partition not in fetcher.under_way)
        active = self._known(active)
        wanted = [partition for partition in active if fetchable(partition)]
        if not wanted or not self._reserve(spare=fetcher.spare):
            return
        # If several requests may be outstanding, each takes its part of the partitions.
        wanted = wanted[: -(-len(fetcher.behind) // fetcher.sizes.depth)]
        asked = self._enough(wanted, max(self._most // len(wanted), LEAST_SHARE))
        hurry = len(asked) < len(active)
        self._ask(connection, asked, HURRY_MS if hurry else self._relay.settings.fetch_max_wait_ms)

    def _enough(self, wanted: list[Partition], share: int) -> list[tuple[Partition, int]]:
        """Returns as many partitions from the front of the rotation as should fill the response, with the bytes to
        request for each.

        Other partitions would come back empty, and an empty slice costs as much to request and to read as a full one.
        They keep their turn. Partitions with an unknown backlog are included, so that no partition waits longer because
        of this.

        Args:
            wanted: partitions that can be fetched, in the order of the rotation.
            share: bytes to request for each; see ``share_of``.
        """
        most, room, limits = self._fetcher.sizes.most_partition_bytes, self._most, self._relay.limits
        asked: list[tuple[Partition, int]] = []
        for partition in wanted:
            if room <= 0:
                break
            max_bytes = share_of(partition, share, limits.most_of(partition, most) if limits.any else most)
            asked.append((partition, max_bytes))
            room -= min(max_bytes, partition.cursor.backlog_bytes)
        return asked

    def _ask(self, connection: Connection, wanted: list[tuple[Partition, int]], max_wait_ms: int) -> None:
        by_id = self._by_id([partition for partition, _ in wanted])
        entries = [asked_for(partition, max_bytes, by_id=by_id) for partition, max_bytes in wanted]
        self._asked = {
            entry[:2]: Asked(partition, partition.cursor.generation)
            for entry, (partition, _) in zip(entries, wanted, strict=True)
        }
        self._asked_bytes = min(self._most, sum([max_bytes for _, max_bytes in wanted]))
        self._fetcher.under_way.update([partition for partition, _ in wanted])
        self._send(connection, entries, by_id=by_id, max_wait_ms=max_wait_ms)

    def _answered(self, frame: Frame, fetch: FetchResponse) -> None:
        fetcher, size = self._fetcher, len(frame.body)
        fetcher.backlog_answered.at_s = time.monotonic()
        asked = self._take_asked()
        short = 2 * size < self._most
        given = fetcher.answers.take(frame, fetch, asked, short=short)
        if 2 * size >= self._asked_bytes:
            fetcher.sizes.answered(self._wait_s, self._transfer_s, others=len(fetcher.behind) > 1)
        heard = [each.partition for each in asked.values()] if short else given.gave
        cut = set(given.cut)
        fetcher.rotate(given.gave, [partition for partition in heard if partition not in cut])

    def _unanswered(self) -> None:
        self._take_asked()

    def _take_asked(self) -> dict[PartitionKey, Asked]:
        asked, self._asked = self._asked, {}
        self._fetcher.under_way.difference_update([each.partition for each in asked.values()])
        return asked
