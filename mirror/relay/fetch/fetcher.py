"""Fetches from one source broker: partitions that are up to date, and partitions that are behind.

The two kinds are fetched side by side over separate connections, so that fresh data does not wait for a backlog
(``current``, ``backlog``). A partition changes over when it falls behind, and changes back when it has caught up.
"""

from collections.abc import Iterable, Sequence

from mirror.net.buffers import OVERHEAD
from mirror.net.errors import NetworkError
from mirror.relay.fetch.answers import Answers
from mirror.relay.fetch.backlog import BacklogFetch
from mirror.relay.fetch.current import CurrentFetch
from mirror.relay.fetch.sizes import LEAST_FETCH, Sizes
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.cursor import Hearing
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase


class Fetcher:
    """The partitions that are fetched from one source broker, and the connections to it."""

    def __init__(self, relay: Orchestrator, node_id: int) -> None:
        self.relay = relay
        self.node_id = node_id
        self.answers = Answers(relay, node_id)
        self.sizes = Sizes(relay.settings, relay.pool)
        self.behind: list[Partition] = []
        """The partitions with backlog, in rotation."""
        self.under_way: set[Partition] = set()
        """Those partitions with backlog that an outstanding request asks for."""
        self.backlog_answered = Hearing()
        """When a request for backlog was last answered."""
        self._current = CurrentFetch(self)
        self._backlog = [BacklogFetch(self)]
        self._members: dict[Partition, None] = {}
        """In the order in which they were attached, so that a simulated run is the same each time. The same holds for
        other dicts that are used as sets."""
        self._closed = False

    def attach(self, partition: Partition) -> None:
        """Begins to fetch the partition."""
        if partition in self._members:
            return
        self._members[partition] = None
        if partition.cursor.caught_up:
            self._current.add(partition)
        else:
            self.fall_behind(partition)

    def detach(self, partition: Partition) -> None:
        """Stops fetching the partition. The response to an outstanding request is dropped by its generation."""
        if partition not in self._members:
            return
        del self._members[partition]
        if not self._current.remove(partition):
            self.behind.remove(partition)
            if not self.behind:
                self._shrink()

    def fall_behind(self, partition: Partition, *, first: bool = False) -> None:
        """Adds the partition to those with backlog. ``first``: True to fetch it before the others."""
        self.behind.insert(0 if first else len(self.behind), partition)

    def rotate(self, gave: Sequence[Partition], heard: Iterable[Partition]) -> None:
        """Moves partitions that gave data to the end of the rotation (KIP-74). Partitions that have caught up leave it.

        Args:
            gave: the partitions that gave data.
            heard: partitions for which the response shows how much is left.
        """
        caught_up = dict.fromkeys(
            partition
            for partition in heard
            if partition.phase is Phase.ACTIVE and partition in self._members and partition.cursor.caught_up
        )
        moved = set(gave).difference(caught_up)
        self.behind = [
            partition for partition in self.behind if partition not in moved and partition not in caught_up
        ] + [partition for partition in gave if partition in moved and partition in self._members]
        for partition in caught_up:
            self._current.add(partition)
        if not self.behind:
            self._shrink()

    def _shrink(self) -> None:
        """Goes back to one connection for backlog, because nothing is behind. Whether more are needed is measured again
        next time."""
        self.sizes.reset()
        for link in self._backlog[1:]:
            link.close()
        del self._backlog[1:]

    @property
    def quiet(self) -> int:
        """Number of partitions for which nothing is done until the broker names them."""
        return self._current.quiet

    @property
    def spare(self) -> int:
        """Bytes of room that a request for backlog has to leave, so that fresh data never waits for it, including data
        of partitions that are yet to be attached."""
        return 0 if self._current.reserves else LEAST_FETCH + OVERHEAD

    def pump(self) -> None:
        """Sends requests, as far as there is something to fetch and room for the responses."""
        if self._closed:
            return
        self._current.pump()
        if not self.behind:
            return
        while len(self._backlog) < self.sizes.depth:
            self._backlog.append(BacklogFetch(self))
        for link in list(self._backlog):
            link.pump()

    def unreachable(self, error: NetworkError) -> None:
        """Puts all partitions into doubt, because no connection can be made. Other brokers may lead them by now. Each
        is located again, with its own backoff."""
        for partition in list(self._members):
            self.relay.doubt_now(partition, error.slug, str(error))

    def lost(self, error: NetworkError) -> None:
        """Puts partitions without a topic id into doubt, because a connection has ended. The topic may have been
        recreated meanwhile, and the new one would answer to the name from here on. Nothing else would show that."""
        for partition in list(self._members):
            if partition.claim.source_id is None:
                self.relay.doubt_now(partition, error.slug, str(error))

    def close(self) -> None:
        """Closes the connections. Outstanding requests fail, and nothing more is sent."""
        self._closed = True
        self._current.close()
        for link in self._backlog:
            link.close()
