"""Reads end offsets from the brokers themselves: a mirror's own log is no proof that it has copied everything."""

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from mirror.demo.data.topics import TopicPlan
from mirror.demo.errors import DemoError

__all__ = ["Ends", "EndsOf", "behind", "records"]

_TIMEOUT_S = 30.0

Ends = Mapping[tuple[str, int], int]
"""End offset per topic and partition."""


class EndsOf:
    """Reads the end offsets of one cluster."""

    def __init__(self, name: str, bootstrap_servers: str, topics: Sequence[TopicPlan]) -> None:
        self._name = name
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
        self._asked = [(plan.name, partition) for plan in topics for partition in range(plan.partitions)]

    def read(self) -> Ends:
        """Returns the offset after the last record that consumers can read, per partition.

        Raises:
            DemoError: a partition does not exist, or the cluster did not answer.
        """
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for topic, partition in self._asked}
        futures = self._admin.list_offsets(asked, request_timeout=_TIMEOUT_S)
        ends: dict[tuple[str, int], int] = {}
        for partition, future in futures.items():
            try:
                ends[partition.topic, partition.partition] = future.result(_TIMEOUT_S).offset
            except KafkaException as error:
                raise DemoError(
                    f"the {self._name} cluster does not tell where {partition.topic}-{partition.partition} ends: "
                    f"{error.args[0].str()}",
                    "see whether the cluster is up",
                ) from error
        return ends


def records(ends: Ends, topic: str) -> int:
    """Returns the number of records in a topic. Its logs must begin at 0 and have no holes."""
    return sum(end for (name, _), end in ends.items() if name == topic)


def behind(source: Ends, destination: Ends) -> int:
    """Returns the number of records that the destination lacks, according to the end offsets."""
    return sum(max(0, end - destination.get(partition, 0)) for partition, end in source.items())
