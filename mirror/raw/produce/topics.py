"""What a raw producer has to know about a topic: the number of partitions, and the configs by which brokers refuse or
change batches."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from mirror.net.admin.configs import Resource, describe_configs
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.raw.errors import NotSendable, Unavailable, Unfit, of_network
from mirror.raw.leaders import Leaders, backoff_of
from mirror.records.header import BatchHeader, Codec
from mirror.service.config import DESTINATION_TOPIC_CONFIGS

MAX_MESSAGE_BYTES = "max.message.bytes"
COMPRESSION_TYPE = "compression.type"
UNCOMPRESSED = "uncompressed"
"""Kafka's name for no compression, as a topic's ``compression.type``."""
LOOKED_UP = (MAX_MESSAGE_BYTES, *DESTINATION_TOPIC_CONFIGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """The description of a topic.

    Attributes:
        partitions: number of partitions.
        max_bytes: ``max.message.bytes``; None: the client may not read it.
        configs: name -> value of the other configs in ``LOOKED_UP`` that are known.
        at: when the topic was described (monotonic, in s).
    """

    partitions: int
    max_bytes: int | None
    configs: Mapping[str, str]
    at: float

    def check(self, header: BatchHeader) -> None:
        """Raises NotSendable for a batch that the topic's brokers would refuse or change."""
        if self.max_bytes is not None and header.size > self.max_bytes:
            raise NotSendable(Unfit.TOO_LARGE, f"{header.size} bytes, and {MAX_MESSAGE_BYTES} is {self.max_bytes}")
        codec = Codec(header.codec_bits)
        own = UNCOMPRESSED if codec is Codec.NONE else codec.name.lower()
        for name, wanted in DESTINATION_TOPIC_CONFIGS.items():
            value = self.configs.get(name, wanted)
            if value != wanted and not (name == COMPRESSION_TYPE and value == own):
                raise NotSendable(Unfit.DESTINATION_REWRITES, f"the topic has {name}={value}")


async def describe(cluster: Cluster, leaders: Leaders, topic: str, *, timeout_s: float) -> TopicPolicy:
    """Asks the brokers to describe the topic.

    Raises:
        UnknownTopic: the topic does not exist.
        NotAuthorized: the client may not describe the topic. (Configs that it may not read are left out.)
        BrokerError: no broker answers in time.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    backoff = backoff_of(cluster)
    while True:
        try:
            failed = await cluster.refresh([topic])
            if topic in cluster.topics:
                found = await describe_configs(cluster, Resource.TOPIC, [topic], keys=list(LOOKED_UP))
                break
            problem = leaders.lack(topic, 0, failed) or Unavailable(f"{cluster.name}: {topic} has just been created")
        except NetworkError as error:
            problem = of_network(error)
        if not isinstance(problem, Unavailable) or loop.time() >= until:
            raise problem
        await asyncio.sleep(backoff.next_s())
    values = {name: str(entry.value) for name, entry in found.get(topic, {}).items() if entry.value is not None}
    limit = values.pop(MAX_MESSAGE_BYTES, "")
    known = cluster.topics[topic]
    return TopicPolicy(
        partitions=len(known.leaders),
        max_bytes=int(limit) if limit else None,
        configs={name: value for name, value in values.items() if name in DESTINATION_TOPIC_CONFIGS},
        at=time.monotonic(),
    )
