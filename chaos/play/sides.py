"""The two clusters of a scenario, and the operations on them."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.protocol.admin import AlterClientQuotasRequest, AlterPartitionReassignmentsRequest, ElectLeadersRequest

from chaos.errors import ChaosError
from chaos.producers.topics import TopicPlan
from chaos.waiting import until
from chaos.witness import kernel
from chaos.witness.ask import ask
from lab.evidence import BROKER_FROZEN, BROKER_KILLED, BROKER_RESTARTED, MOVED, Record
from lab.proxy import Proxy
from mirror.sandbox import Broker, SandboxCluster

__all__ = ["Name", "Offsets", "Pair", "PartitionView", "Side"]

Name = tuple[str, int]
"""Topic and partition."""

Offsets = Mapping[Name, int]

_TIMEOUT_S = 30.0
_ANSWER_S = _TIMEOUT_S + 5.0
"""Timeout of a future in seconds. librdkafka's own error, which says more, comes before this."""
_LOOK_TIMEOUT_S = 5.0
_UNCLEAN = 1


class PartitionView(NamedTuple):
    """Node ids of a partition's leader, of its replicas, and of those in sync. A leader of -1 means none."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Side:
    """One cluster of a scenario.

    Args:
        cluster: the brokers.
        network: the proxy between the mirror and the brokers; None: there is none.
        listener: name of the brokers' further listener that the mirror uses; empty: none.
    """

    def __init__(self, cluster: SandboxCluster, network: Proxy | None = None, *, listener: str = "") -> None:
        self.cluster = cluster
        self._network = network
        self.listener = listener
        self.name = cluster.name
        self.record = Record()
        """Evidence of faults of the brokers."""
        self._paused: set[int] = set()
        self._down: set[int] = set()
        """Node ids of brokers that the suite has killed or stopped, and not started again."""
        self._died: list[str] = []
        """Unordered deaths, in words, of brokers that run again by now."""
        self.admin = AdminClient({
            "bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 2_000,
        })  # fmt: skip

    @property
    def bootstrap_servers(self) -> str:
        """``bootstrap.servers`` for clients that do not go through the proxy."""
        return self.cluster.bootstrap_servers

    @property
    def mirror_servers(self) -> str:
        """``bootstrap.servers`` for the mirror: those of the proxy, or of the mirror's listener, if there is one."""
        if self._network is not None:
            return self._network.bootstrap_servers
        return self.cluster.servers(self.listener) if self.listener else self.bootstrap_servers

    def broker_logs(self) -> dict[int, Path]:
        """Returns node id -> path of the broker's log file."""
        return {broker.node_id: broker.log_path for broker in self.cluster.brokers}

    @property
    def network(self) -> Proxy:
        """The proxy between the mirror and the brokers. Only for scenarios whose shape is proxied."""
        assert self._network is not None, "the scenario's shape is not proxied"
        return self._network

    @property
    def records(self) -> list[Record]:
        """The records of evidence of this side: that of the brokers' processes, and that of the proxy."""
        return [self.record, *([self._network.record] if self._network is not None else [])]

    def take_errors(self) -> list[BaseException]:
        """Returns errors of the proxy itself since the last call."""
        if self._network is None:
            return []
        taken, self._network.errors = self._network.errors, []
        return taken

    def good_weather(self) -> None:
        """Ends all faults of the network."""
        if self._network is not None:
            self._network.clear()

    # -- topics --------------------------------------------------------------------------------------------------------

    def create(self, plans: Iterable[TopicPlan], **configs: str) -> None:
        """Creates topics, and waits until all their replicas are in sync.

        Args:
            plans: the topics.
            configs: configs of all these topics, with underscores for dots. They override those of the plans.

        Raises:
            ChaosError: the cluster has refused, or a topic was there before.
        """
        over = {key.replace("_", "."): value for key, value in configs.items()}
        made = list(plans)
        brokers = len(self.cluster.brokers)
        new = [
            NewTopic(
                plan.name, num_partitions=plan.partitions, replication_factor=min(plan.replicas, brokers),
                config={**plan.configs, **over},
            )
            for plan in made
        ]  # fmt: skip
        repeated = set[str]()
        for name, future in self.admin.create_topics(new, request_timeout=_TIMEOUT_S).items():
            try:
                future.result(_ANSWER_S)
            except KafkaException as error:
                # The client repeats a request if its answer was lost with a broker. Then the topic is there, and empty.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ChaosError(f"the {self.name} cluster did not create {name}: {error}") from error
                repeated.add(name)
        self.await_in_sync([plan.name for plan in made])
        names = [(plan.name, index) for plan in made for index in range(plan.partitions)]
        ends = until(lambda: self.ends(names), f"the leaders of {names} on the {self.name} cluster")
        if filled := [name for name, end in ends.items() if end and name[0] in repeated]:
            raise ChaosError(f"the {self.name} cluster already had {filled}, with records")

    def delete(self, topics: Sequence[str]) -> None:
        """Deletes topics. Errors are ignored, for example of topics that do not exist."""
        if topics:
            for future in self.admin.delete_topics(list(topics), request_timeout=_TIMEOUT_S).values():
                with suppress(KafkaException, TimeoutError):
                    future.result(_ANSWER_S)

    def topics(self) -> list[str]:
        """Returns the names of all topics except Kafka's internal ones."""
        return [name for name in self.admin.list_topics(timeout=_TIMEOUT_S).topics if not name.startswith("__")]

    def view(self, topics: Sequence[str]) -> dict[Name, PartitionView]:
        """Returns leader and replicas of every partition of these topics. Topics that do not exist are left out; empty
        if the cluster does not answer."""
        try:
            found = self.admin.describe_topics(TopicCollection(list(topics)), request_timeout=_LOOK_TIMEOUT_S)
        except KafkaException:
            return {}
        out: dict[Name, PartitionView] = {}
        for name, future in found.items():
            with suppress(KafkaException, TimeoutError):
                for one in future.result(_LOOK_TIMEOUT_S).partitions:
                    leader = one.leader.id if one.leader else -1
                    out[name, one.id] = PartitionView(
                        leader, tuple(node.id for node in one.replicas), tuple(node.id for node in one.isr)
                    )
        return out

    def await_in_sync(self, topics: Sequence[str]) -> None:
        """Waits until all replicas of these topics are in sync."""

        def in_sync() -> bool:
            views = self.view(topics)
            return {name for name, _ in views} == set(topics) and all(
                view.leader >= 0 and set(view.in_sync) == set(view.replicas) for view in views.values()
            )

        until(in_sync, lambda: f"replicas in sync on the {self.name} cluster; it has {self.view(topics)}")

    def alter(self, topic: str, **configs: str) -> None:
        """Sets configs of a topic. ``configs``: with underscores for dots."""
        self._alter(ConfigResource(ResourceType.TOPIC, topic), configs)

    def _alter(self, resource: ConfigResource, configs: Mapping[str, str]) -> None:
        for key, value in configs.items():
            resource.add_incremental_config(
                ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            )
        for future in self.admin.incremental_alter_configs([resource], request_timeout=_TIMEOUT_S).values():
            future.result(_ANSWER_S)

    def reassign(self, replicas: Mapping[Name, Sequence[int]]) -> None:
        """Moves partitions to other brokers, and waits until all replicas are in sync and each partition has a leader.
        ``replicas``: partition -> node ids of the new replicas."""
        asked = sorted({topic for topic, _ in replicas})
        before = until(
            lambda: found if set(replicas) <= set(found := self.view(asked)) else {}, f"the leaders of {asked}"
        )
        topics: dict[str, list[Any]] = {}
        kinds = AlterPartitionReassignmentsRequest.ReassignableTopic
        for (topic, index), ids in replicas.items():
            one = kinds.ReassignablePartition(partition_index=index, replicas=list(ids))
            topics.setdefault(topic, []).append(one)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=30_000, topics=[kinds(name=name, partitions=parts) for name, parts in topics.items()]
        )
        self._ask(request, 0)

        def moved() -> dict[Name, PartitionView]:
            views = self.view(list(topics))
            there = set(replicas) <= set(views) and all(
                set(views[name].replicas) == set(ids) == set(views[name].in_sync) and views[name].leader > 0
                for name, ids in replicas.items()
            )
            return views if there else {}

        # The request is not repeated: the broker that answers may only not have heard of the move yet.
        after = until(moved, lambda: f"partitions of the {self.name} cluster to move; it has {self.view(list(topics))}")
        self.record.note(MOVED, sum(before[name].leader not in after[name].replicas for name in replicas))

    def elect(self, topic: str, index: int, *, kind: int = _UNCLEAN) -> None:
        """Requests an election of a leader. A refusal is ignored: there may be no candidate yet. ``kind``: the type of
        election (ElectLeaders); by default an unclean one."""
        wanted = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[index])
        request = ElectLeadersRequest(election_type=kind, topic_partitions=[wanted], timeout_ms=5_000)
        with suppress(ChaosError, OSError):
            self._ask(request, 1)

    def limit(self, client_id: str, *, bytes_per_s: float | None) -> None:
        """Sets the produce quota of a client id. ``bytes_per_s``: the quota; None: remove it."""
        kinds = AlterClientQuotasRequest.EntryData
        entry = kinds(
            entity=[kinds.EntityData(entity_type="client-id", entity_name=client_id)],
            ops=[kinds.OpData(key="producer_byte_rate", value=bytes_per_s or 0.0, remove=bytes_per_s is None)],
        )
        self._ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)

    def _ask(self, request: Any, version: int) -> Any:
        """Sends a request to any broker that is awake, which forwards it to the controller if necessary. Raises
        ChaosError if the answer has an error code."""
        answer = ask(self.awake[0].address, request, version)
        codes = [getattr(answer, "error_code", 0), *(entry.error_code for entry in getattr(answer, "entries", ()))]
        if any(codes):
            raise ChaosError(f"the {self.name} cluster refused {type(request).__name__}: {answer}")
        return answer

    # -- offsets -------------------------------------------------------------------------------------------------------

    def ends(self, names: Iterable[Name], *, committed: bool = False) -> dict[Name, int]:
        """Returns partition -> high watermark, or last stable offset with ``committed``. Empty if any of them is not
        known at present."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(names, OffsetSpec.latest(), isolation)

    def starts(self, names: Iterable[Name]) -> dict[Name, int]:
        """Returns partition -> log start offset. Empty if any of them is not known at present."""
        return self._offsets(names, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def _offsets(self, names: Iterable[Name], spec: OffsetSpec, isolation: IsolationLevel) -> dict[Name, int]:
        asked = {TopicPartition(topic, index): spec for topic, index in names}
        if not asked:
            return {}
        out: dict[Name, int] = {}
        try:
            answers = self.admin.list_offsets(asked, isolation_level=isolation, request_timeout=_LOOK_TIMEOUT_S)
            for one, future in answers.items():
                out[one.topic, one.partition] = future.result(_LOOK_TIMEOUT_S).offset
        except (KafkaException, TimeoutError):
            return {}
        return out

    def delete_before(self, offsets: Offsets) -> None:
        """Deletes records (DeleteRecords). ``offsets``: partition -> its new log start offset.

        Raises:
            ChaosError: the cluster has refused.
        """
        asked = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
        for one, future in self.admin.delete_records(asked, request_timeout=_TIMEOUT_S).items():
            try:
                future.result(_ANSWER_S)
            except KafkaException as error:
                raise ChaosError(f"DeleteRecords of {one.topic}-{one.partition} at {self.name}: {error}") from error

    # -- brokers -------------------------------------------------------------------------------------------------------

    def broker(self, node_id: int) -> Broker:
        """Returns a broker by its node id."""
        return self.cluster.brokers[node_id - 1]

    @property
    def awake(self) -> list[Broker]:
        """The brokers that run and are not paused."""
        return [one for one in self.cluster.brokers if one.running and one.node_id not in self._paused]

    def leader(self, topic: str, index: int = 0) -> Broker:
        """Waits until a partition has a leader, and returns that broker."""
        name = (topic, index)

        def leading() -> int:
            view = self.view([topic]).get(name)
            return view.leader if view is not None else 0

        found = until(lambda: max(0, leading()), f"a leader of {topic}-{index} on the {self.name} cluster")
        return self.broker(found)

    def followers(self, topic: str, index: int = 0) -> list[Broker]:
        """Returns the brokers that have the partition's other replicas."""
        leader = self.leader(topic, index)
        view = until(lambda: self.view([topic]).get((topic, index)), f"the replicas of {topic}-{index}")
        assert view is not None
        return [self.broker(node_id) for node_id in view.replicas if node_id != leader.node_id]

    def pause(self, broker: Broker) -> None:
        """Freezes a broker (SIGSTOP). ``Pair.heal`` resumes it."""
        self._paused.add(broker.node_id)
        broker.pause()
        kernel.await_stopped(broker.pid)

    def resume(self, broker: Broker) -> None:
        """Resumes a frozen broker (SIGCONT)."""
        if kernel.stopped(broker.pid):
            self.record.note(BROKER_FROZEN)
        broker.resume()
        self._paused.discard(broker.node_id)

    def kill(self, broker: Broker) -> None:
        """Kills a broker (kill -9). Its data stay."""
        pid = broker.pid
        self._down.add(broker.node_id)
        broker.kill()
        if not kernel.alive(pid):
            self.record.note(BROKER_KILLED)

    def restart(self, broker: Broker) -> None:
        """Stops a broker cleanly, starts it again, and waits until it is ready."""
        pid = broker.pid
        self._down.add(broker.node_id)
        broker.stop()
        self.start(broker)
        if not kernel.alive(pid) and broker.pid != pid:
            self.record.note(BROKER_RESTARTED)

    def start(self, broker: Broker, *, wait: bool = True) -> None:
        """Starts a broker that is down. ``wait``: True to wait until it is ready."""
        broker.start(wait=wait)
        self._down.discard(broker.node_id)

    def died(self) -> list[str]:
        """Returns the deaths of brokers that nobody ordered, in words. If the broker runs again, its death is returned
        only once."""
        before, self._died = self._died, []
        return before + [
            f"broker {broker.node_id} of the {self.name} cluster died, and nobody ordered it"
            for broker in self.cluster.brokers
            if broker.node_id not in self._down and not broker.running
        ]

    def bring_up(self) -> None:
        """Resumes frozen brokers, starts those that are down, and waits until all are ready."""
        self._died = self.died()
        for broker in self.cluster.brokers:
            if broker.node_id in self._paused and broker.running:
                self.resume(broker)
            elif not broker.running:
                self.start(broker, wait=False)
        self._paused.clear()
        self.await_all()

    def await_all(self) -> None:
        """Waits until every broker is ready and knows the others."""
        everyone = frozenset(broker.node_id for broker in self.cluster.brokers)
        for broker in self.cluster.brokers:
            broker.wait_ready(others=everyone)


class Pair:
    """The source and the destination of a scenario.

    Args:
        source: the brokers of the source, started by the caller.
        destination: the brokers of the destination, started by the caller.
        networks: the proxies of both sides; empty: there are none.
        listener: see ``Side``.
    """

    def __init__(
        self, source: SandboxCluster, destination: SandboxCluster, networks: Sequence[Proxy] = (), *, listener: str = ""
    ) -> None:
        here, there = networks or (None, None)
        self.source = Side(source, here, listener=listener)
        self.destination = Side(destination, there, listener=listener)
        self.version = (
            source.version if source.version == destination.version else f"{source.version} to {destination.version}"
        )
        self.started_at = time.monotonic()

    @property
    def sides(self) -> tuple[Side, Side]:
        """Source and destination."""
        return self.source, self.destination

    def heal(self) -> None:
        """Restores both sides: ends all faults of the network, and brings all brokers up."""
        for side in self.sides:
            side.good_weather()
            side.bring_up()
