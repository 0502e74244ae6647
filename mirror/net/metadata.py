"""What a cluster's brokers say of it in Metadata answers: its id, brokers, topics, and the leaders of partitions.

No requests here: ``net.cluster`` asks, and stores the answers.
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
    """A topic by a Metadata answer. ``topic_id`` is None before Kafka 2.8, and while the cluster has no ids yet."""

    name: str
    topic_id: bytes | None
    internal: bool
    leaders: dict[int, Leader] = field(default_factory=dict)
    down: dict[int, str] = field(default_factory=dict)
    """Partition without a leader -> a phrase for messages: the brokers of its replicas, and those that are down."""


class Metadata:
    """The newest of what was told of one cluster. ``name`` is the alias in the config; it is in every message."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cluster_id = ""
        self.controller_id = ANY_NODE
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.denied: set[str] = set()
        """Topics that may not be described, as far as they were asked for by name: they may be there."""
        self._refreshed: dict[str | None, float] = {}
        """Topic -> when what is known of it was asked for by name (monotonic); None: when all topics were."""

    def store(self, answer: Any, *, of_all: bool, asked_at: float) -> dict[str, int]:
        """Stores a Metadata answer.

        Args:
            answer: from this cluster (``identify``).
            of_all: it lists all topics; others are gone.
            asked_at: when it was asked for (monotonic): this process may have been stopped before it read the answer.

        Returns:
            Topics that it has with an error: name -> code. Their old entry is dropped.
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
        """Returns when what is known of the topic was asked for, by name or with all others (monotonic); 0: never."""
        return max(self._refreshed.get(None, 0.0), self._refreshed.get(topic, 0.0))

    def note_denied(self, name: str, code: int) -> None:
        """Takes note of what an answer says of a topic that was asked for by name. ``code``: its error."""
        self.denied.discard(name)
        if code in DENIED:
            self.denied.add(name)

    def is_strange(self, cluster_id: str) -> bool:
        """Returns True if this is the id of another cluster. ``cluster_id``: empty if it is not known."""
        return bool(self.cluster_id and cluster_id) and cluster_id != self.cluster_id

    def identify(self, cluster_id: str) -> None:
        """Raises WrongCluster if the cluster's id has changed; else stores the id."""
        if self.is_strange(cluster_id):
            raise WrongCluster(
                f"cluster {self.name} was {self.cluster_id}, and now {cluster_id} answers at its addresses; "
                "check bootstrap.servers and the names it resolves to, then restart the mirror"
            )
        self.cluster_id = cluster_id or self.cluster_id

    def _with_newest_leaders(self, topic: Topic, before: Topic | None) -> Topic:
        """Returns ``topic`` with the leaders of the later epochs. A broker may be behind what another one told us
        (``hint``): for the same topic id, the later leader epoch counts."""
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
        """Stores a leader that an answer names (KIP-951) if it is newer than the known one. Returns True if so."""
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
    """Returns the error for a topic that may not be described, so that nobody can tell whether it is there."""
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
    """Converts a topic of a Metadata answer. A partition without a leader (LEADER_NOT_AVAILABLE) is included: it
    counts, and it comes back."""
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
