"""A relay's connections to brokers: a fetcher for each broker of the source, a sink for each broker of the destination.
Each is made when the first partition needs it."""

from typing import TYPE_CHECKING

from mirror.relay.fetch.fetcher import Fetcher
from mirror.relay.hot.plain import InnerLoop
from mirror.relay.mapped.lane import AppendingLane
from mirror.relay.sink import Lane, Sink
from mirror.relay.topics.describing import PATIENCE_S
from mirror.wire.produce import topic_head
from mirror.wire.versions import PRODUCE_KEY, PRODUCE_TOPIC_IDS, PRODUCE_VERSIONS

if TYPE_CHECKING:
    from mirror.net.cluster import Cluster
    from mirror.relay.orchestrator import Orchestrator
    from mirror.relay.partition.partition import Partition


class Brokers:
    """Connects partitions with their brokers: the destination's leader, and the source's leader or a follower of it.

    Attributes:
        fetchers: source broker's node id -> its fetcher.
        sinks: destination broker's node id -> its sink.
        inner_loop: the loop over plain batches, for the Produce version in use.
    """

    def __init__(self, relay: "Orchestrator") -> None:
        self._relay = relay
        self.fetchers: dict[int, Fetcher] = {}
        self.sinks: dict[int, Sink] = {}
        self.inner_loop = InnerLoop(PRODUCE_VERSIONS[1])

    # -- the version of Produce requests -------------------------------------------------------------------------------

    async def choose_produce_version(self, destination: "Cluster") -> None:
        """Chooses the highest Produce version that all reachable brokers support. During an upgrade, brokers differ,
        and one of them may be down.

        Raises:
            NetworkError: no broker answers, or there is no common version.
        """

        async def speaks(node_id: int) -> int:
            connection = await destination.control(node_id)
            return connection.version_of(PRODUCE_KEY, PRODUCE_VERSIONS, "Produce")

        self.use(min(await destination.ask_all(speaks, patience_s=PATIENCE_S)))

    def check_topic_ids(self, destination: "Cluster") -> None:
        """Goes back to the last Produce version that names topics, if a topic of the destination has no id."""
        if self._names_ids and any(topic.topic_id is None for topic in destination.topics.values()):
            self.use(PRODUCE_TOPIC_IDS - 1)

    def use(self, produce_version: int) -> None:
        """Sends with this version of Produce from now on."""
        self.inner_loop = InnerLoop(produce_version)

    @property
    def _names_ids(self) -> bool:
        """True if Produce requests name topics by their ids."""
        return self.inner_loop.produce_version >= PRODUCE_TOPIC_IDS

    def topic_head(self, partition: "Partition") -> bytes:
        """Returns the bytes of a Produce request that name the partition's topic; see ``wire.produce``."""
        key = partition.claim.destination_id if self._names_ids else partition.destination
        assert key is not None, partition.name
        return topic_head(self.inner_loop.produce_version, key)

    # -- partitions ----------------------------------------------------------------------------------------------------

    def attach(self, partition: "Partition", leader: int) -> None:
        """Sends the partition's batches to this broker.

        Args:
            partition: the partition.
            leader: node id of the partition's leader at the destination.
        """
        sink = self.sinks.get(leader)
        if sink is None:
            kind = AppendingLane if self._relay.settings.mapped else Lane
            version = self.inner_loop.produce_version
            sink = self.sinks[leader] = Sink(self._relay, leader, version=version, kind=kind)
        sink.attach(partition.queue)

    def fetch(self, partition: "Partition") -> None:
        """Fetches the partition from the broker that its cursor names."""
        node_id = partition.cursor.broker
        fetcher = self.fetchers.get(node_id)
        if fetcher is None:
            fetcher = self.fetchers[node_id] = Fetcher(self._relay, node_id)
        fetcher.attach(partition)
        fetcher.pump()

    def stop_fetching(self, partition: "Partition") -> None:
        """Stops fetching the partition."""
        fetcher = self.fetchers.get(partition.cursor.broker)
        if fetcher is not None:
            fetcher.detach(partition)

    @property
    def lanes(self) -> list[Lane]:
        """The lanes to all destination brokers."""
        return [lane for sink in self.sinks.values() for lane in sink.lanes]

    # -- all of them ---------------------------------------------------------------------------------------------------

    def pump_fetchers(self) -> None:
        """Fetches what can be fetched."""
        for fetcher in self.fetchers.values():
            fetcher.pump()

    def pump_sinks(self) -> None:
        """Sends what can be sent."""
        for sink in self.sinks.values():
            sink.pump()

    def close_fetchers(self) -> None:
        """Stops all fetching, for good."""
        for fetcher in self.fetchers.values():
            fetcher.close()

    def close(self) -> None:
        """Closes all data connections, at once."""
        self.close_fetchers()
        for sink in self.sinks.values():
            sink.close()
