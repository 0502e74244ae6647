"""The metadata of a cluster: its id, brokers, topics, and the leaders of partitions.

It sends no requests: ``net.cluster`` does, and stores the answers here.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mirror.net.errors import Refused, Unreachable, WrongCluster
from mirror.net.rights import DENIED, DESCRIBE, TOPIC, Right
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import Node
from mirror.wire.versions import NULL_UUID

ANY_NODE = -1
CLUSTER_ID_SINCE = 2
METADATA_ERROR_SINCE = 13
LED = (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE)
"""The error codes of a partition that has a leader: a missing follower does not concern a client."""


class Leader(NamedTuple):
    """The leader of a partition. ``node_id`` -1: there is none at present."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic, as a Metadata response describes it. ``topic_id`` is None before Kafka 2.8, and as long as the cluster
    has not assigned ids yet. ``leaders``: by partition number."""

    name: str
    topic_id: bytes | None
    internal: bool
    leaders: dict[int, Leader] = field(default_factory=dict)
    down: dict[int, str] = field(default_factory=dict)
    """Partition without a leader -> a phrase for messages: the brokers of its replicas, and those that are down."""


class Metadata:
    """The newest metadata of one cluster. ``name``: its alias in the config, which every message names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cluster_id = ""
        self.controller_id = ANY_NODE
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.denied: set[str] = set()
        """Topics that were asked for by name and that the mirror may not describe. They may exist."""
        self._refreshed: dict[str | None, float] = {}
        """Topic -> when what is known of it was asked for by name (monotonic, in s); None -> when all topics were."""

    def store(self, answer: Any, *, of_all: bool, asked_at: float) -> dict[str, int]:
        """Stores a Metadata answer.

        Args:
            answer: a Metadata response from this cluster (``identify`` has checked it).
            of_all: True if it lists all topics: those that it lacks are dropped.
            asked_at: when the request was sent (monotonic, in s): this process may have been stopped before it read the
                response.

        Returns:
            Topics with an error in the answer: name -> code. Their old entry is dropped.
        """
        self.controller_id = answer.controller_id if answer.version else ANY_NODE
        self.nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port) for broker in answer.brokers}
        failed: dict[str, int] = {}
        before = dict(self.topics)
        if of_all:
            self.topics.clear()
        self._refreshed = {None: asked_at} if of_all else self._refreshed
        for found in answer.topics:
            self.note_denied(found.name, found.error_code)
            if not of_all:
                self._refreshed[found.name] = asked_at
            if found.error_code:
                failed[found.name] = found.error_code
                self.topics.pop(found.name, None)
            else:
                self.topics[found.name] = self._with_newest_leaders(
                    _topic_of(found, self.nodes), before.get(found.name)
                )
        return failed

    def refreshed_of(self, topic: str) -> float:
        """Returns when what is known of the topic was asked for, by name or with all topics (monotonic, in s); 0:
        never."""
        return max(self._refreshed.get(None, 0.0), self._refreshed.get(topic, 0.0))

    def note_denied(self, name: str, code: int) -> None:
        """Updates ``denied`` from the answer for a topic that was asked for by name. ``code``: the topic's error
        code."""
        self.denied.discard(name)
        if code in DENIED:
            self.denied.add(name)

    def is_strange(self, cluster_id: str) -> bool:
        """Returns True if this is the id of another cluster. ``cluster_id``: empty if it is not known."""
        return bool(self.cluster_id and cluster_id) and cluster_id != self.cluster_id

    def identify(self, cluster_id: str) -> None:
        """Stores the cluster's id. Raises WrongCluster if it was another one before."""
        if self.is_strange(cluster_id):
            raise WrongCluster(
                f"cluster {self.name} was {self.cluster_id}, and now {cluster_id} answers at its addresses; "
                "check bootstrap.servers and the names it resolves to, then restart the mirror"
            )
        self.cluster_id = cluster_id or self.cluster_id

    def _with_newest_leaders(self, topic: Topic, before: Topic | None) -> Topic:
        """Returns ``topic`` with the newest leader of each partition. A broker may be behind another one (``hint``):
        for the same topic id, the later leader epoch counts."""
        if before is not None and topic.topic_id is not None and topic.topic_id == before.topic_id:
            for partition, known in before.leaders.items():
                told = topic.leaders.get(partition)
                if told is not None and 0 <= told.epoch < known.epoch and known.node_id in self.nodes:
                    topic.leaders[partition] = known
        return topic

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Returns the last known leader. None: the topic or partition is unknown, or has no leader."""
        known = self.topics.get(topic)
        leader = known.leaders.get(partition) if known else None
        return leader if leader and leader.node_id in self.nodes else None

    def hint(self, topic: str, partition: int, leader: tuple[int, int], nodes: Iterable[Node]) -> bool:
        """Stores the leader (node id, epoch) that a Fetch or Produce response names (KIP-951) if it is newer than the
        known one. Returns True if it was stored. ``nodes``: the addresses in that response."""
        known = self.topics.get(topic)
        if known is None:
            return False
        for node in nodes:
            self.nodes[node.node_id] = node
        old = known.leaders.get(partition)
        if leader[0] not in self.nodes or (old is not None and old.epoch >= leader[1]):
            return False
        known.leaders[partition] = Leader(*leader)
        return True


def code_of(answer: Any) -> int:
    """Returns the error code of a Metadata answer as a whole."""
    return answer.error_code or 0 if answer.version >= METADATA_ERROR_SINCE else 0


def cluster_id_of(answer: Any) -> str:
    """Returns the cluster's id in a Metadata answer; empty if it has none (before Kafka 0.10.1)."""
    return answer.cluster_id or "" if answer.version >= CLUSTER_ID_SINCE else ""


def not_described(cluster: str, name: str) -> Refused:
    """Returns the error for a topic that the mirror may not describe: it cannot tell whether the topic exists."""
    needs = Right(DESCRIBE, TOPIC, name, cluster)
    return Refused(f"{cluster}: Metadata of {name}", ErrorCode.TOPIC_AUTHORIZATION_FAILED, needs=needs)


def no_leader(cluster: str, name: str, partition: int, topic: Topic | None) -> Unreachable:
    """Returns the error for a partition without a leader, with the brokers that are down. ``topic``: as last known."""
    down = topic.down.get(partition, "") if topic is not None else ""
    return Unreachable(f"cluster {cluster}: {name}-{partition} has no leader at present{down}")


def _told_down(replicas: Iterable[int], alive: Container[int]) -> str:
    """Returns the end of a message about a missing leader: the replicas' brokers, and those not in the metadata."""
    replicas = sorted(replicas)
    missing = [str(node_id) for node_id in replicas if node_id not in alive]
    told = f"; its replicas are on broker{'s' if len(replicas) > 1 else ''} {', '.join(map(str, replicas))}"
    return told + (f", and {', '.join(missing)} {'are' if len(missing) > 1 else 'is'} down" if missing else "")


def id_told(found: Any) -> bytes | None:
    """Returns the id of a topic of a Metadata answer; None: it has none, or the broker knows no such topic."""
    topic_id: bytes | None = found.topic_id.bytes if found.topic_id is not None else None
    return topic_id if topic_id != NULL_UUID else None


def _topic_of(found: Any, alive: Container[int]) -> Topic:
    """Converts a topic of a Metadata response. ``alive``: the brokers in that response. A partition without a leader
    (LEADER_NOT_AVAILABLE) is included: it still belongs to the topic, and will have a leader again."""
    leaders = {
        partition.partition_index: Leader(
            partition.leader_id if partition.error_code in LED else ANY_NODE,
            partition.leader_epoch if partition.leader_epoch is not None else -1,
        )
        for partition in found.partitions
    }
    return Topic(
        name=found.name,
        topic_id=id_told(found),
        internal=bool(found.is_internal),
        leaders=leaders,
        down={
            partition.partition_index: _told_down(partition.replica_nodes or (), alive)
            for partition in found.partitions
            if leaders[partition.partition_index].node_id not in alive
        },
    )
