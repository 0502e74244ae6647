"""The names in `sync.topic.configs`: Kafka's topic configs, and which of them are never copied."""

import difflib
from collections.abc import Mapping

from mirror.service.config.checks.refusal import refused
from mirror.service.selection import is_topic_name

DESTINATION_TOPIC_CONFIGS: Mapping[str, str] = {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
"""The configs of every destination topic that the mirror creates: with any other value, brokers rewrite its batches."""

SYNCED_TOPIC_CONFIGS = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)

_FIXED = "the destination has to keep batches as they are, so that {name} is always {value} there"
_TOO_OLD = "records are older when they reach the destination, which would refuse what the source took"
_PLACES = "it names brokers of the source cluster"
NEVER_SYNCED: Mapping[str, str] = {
    **{name: _FIXED.format(name=name, value=value) for name, value in DESTINATION_TOPIC_CONFIGS.items()},
    "message.format.version": "the destination would convert batches to another format",
    "message.timestamp.before.max.ms": _TOO_OLD,
    "message.timestamp.difference.max.ms": _TOO_OLD,
    "leader.replication.throttled.replicas": _PLACES,
    "follower.replication.throttled.replicas": _PLACES,
}

KNOWN = frozenset(
    {
        *SYNCED_TOPIC_CONFIGS, *NEVER_SYNCED, "compression.gzip.level", "compression.lz4.level",
        "compression.zstd.level", "file.delete.delay.ms", "flush.messages", "flush.ms", "index.interval.bytes",
        "internal.segment.bytes", "local.retention.bytes", "local.retention.ms", "message.downconversion.enable",
        "message.timestamp.after.max.ms", "min.insync.replicas", "preallocate", "remote.log.copy.disable",
        "remote.log.delete.on.disable", "remote.storage.enable", "segment.index.bytes", "segment.jitter.ms",
        "unclean.leader.election.enable",
    }
)  # fmt: skip
"""The topic configs of Kafka 4.3 and before (org.apache.kafka.common.config.TopicConfig)."""
VENDORS = ("confluent.", "redpanda.", "automq.", "msk.")
"""Prefixes of topic configs of other vendors: any name with one of them is accepted."""


def check_synced(name: str) -> str:
    """Returns the name of a topic config as it is; raises PydanticCustomError if there is no such config, or if it is
    never copied."""
    if name in NEVER_SYNCED:
        raise refused(f"is never copied: {NEVER_SYNCED[name]}", "take it off the list")
    if not is_topic_name(name):
        raise refused("is not the name of a topic config", "write a name such as retention.ms")
    if name not in KNOWN and not name.startswith(VENDORS):
        plain = name.lower().removeprefix("log.")
        near = difflib.get_close_matches(plain, sorted(KNOWN - NEVER_SYNCED.keys()), n=1, cutoff=0.75)
        raise refused(
            "is not the name of a topic config",
            f"did you mean {near[0]}?" if near else "write one such as retention.ms",
        )
    return name
