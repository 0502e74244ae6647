"""Fetches from one source broker: those of its partitions that are up to date, and those that are behind.

The two kinds are fetched side by side, on connections of their own, so that fresh data does not wait for a backlog
(``current``, ``backlog``). A partition changes over when it falls behind, and comes back when it has caught up.
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
    """The partitions that a source broker leads, and the connections to it."""

    def __init__(self, relay: Orchestrator, node_id: int) -> None:
        self.relay = relay
        self.node_id = node_id
        self.answers = Answers(relay, node_id)
        self.sizes = Sizes(relay.settings, relay.pool)
        self.behind: list[Partition] = []
        """The partitions with backlog, in rotation."""
        self.under_way: set[Partition] = set()
        """Those of them that a request under way asks for."""
        self.backlog_answered = Hearing()
        """When one of these requests was answered last."""
        self._current = CurrentFetch(self)
        self._backlog = [BacklogFetch(self)]
        self._members: dict[Partition, None] = {}
        """In the order in which they came, so that a simulated run is the same each time; likewise elsewhere."""
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
        """Stops fetching the partition. An answer under way is dropped by its generation."""
        if partition not in self._members:
            return
        del self._members[partition]
        if not self._current.remove(partition):
            self.behind.remove(partition)
            if not self.behind:
                self._shrink()

    def fall_behind(self, partition: Partition, *, first: bool = False) -> None:
        """The partition has backlog. ``first``: it is fetched before the others."""
        self.behind.insert(0 if first else len(self.behind), partition)

    def rotate(self, gave: Sequence[Partition], heard: Iterable[Partition]) -> None:
        """Those that gave data go to the end of the rotation (KIP-74). Those that have caught up leave it.

        Args:
            gave: the partitions that gave data.
            heard: those of which the answer says how much is left.
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
        """Nothing is behind: one connection for backlog is enough until that is measured again."""
        self.sizes.reset()
        for link in self._backlog[1:]:
            link.close()
        del self._backlog[1:]

    @property
    def quiet(self) -> int:
        """Partitions about which the broker has to say something before anything is done."""
        return self._current.quiet

    @property
    def spare(self) -> int:
        """Bytes of room that a request for backlog has to leave, so that fresh data never waits for it: not that of a
        partition either which is fetched from now on."""
        return 0 if self._current.reserves else LEAST_FETCH + OVERHEAD

    def pump(self) -> None:
        """Sends requests, as far as there is something to ask for and room for the answers."""
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
        """No connection can be made. Other brokers may lead its partitions by now: each is located again, with its own
        backoff."""
        for partition in list(self._members):
            self.relay.doubt_now(partition, error.slug, str(error))

    def lost(self, error: NetworkError) -> None:
        """A connection has ended. Without topic ids, a topic may have been recreated meanwhile, and the new one would
        answer to the name from here on. Nothing else shows that."""
        for partition in list(self._members):
            if partition.claim.source_id is None:
                self.relay.doubt_now(partition, error.slug, str(error))

    def close(self) -> None:
        """Closes the connections. Requests under way fail, and nothing more is sent."""
        self._closed = True
        self._current.close()
        for link in self._backlog:
            link.close()
