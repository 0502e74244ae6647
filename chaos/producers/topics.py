"""The topics of a scenario: which producer writes into each, with which codec, and how many partitions it has."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

__all__ = ["EVERYONE", "GAPS", "HOLES", "MORE_JAVA", "NEMESES", "PLAIN", "USUAL", "TopicPlan", "Writing", "named"]

Writing = Literal["idempotent", "transactional", "java", "verifiable", "copier", "keyed", "nobody"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The plan of a topic.

    Attributes:
        name: name of the topic, without the stage's prefix until ``named`` adds it.
        writing: the kind of producer that writes into it.
        codec: codec of that producer's batches.
        partitions: number of partitions.
        replicas: replication factor; if there are fewer brokers, their number counts.
        configs: configs of the topic at the source, in addition to the broker's defaults.
        age_s: age of the records when they are written, in seconds.
        copies: for a copier, the topic whose partition 0 it copies, with or without prefix like ``name``.
    """

    name: str
    writing: Writing
    codec: str = "none"
    partitions: int = 1
    replicas: int = 3
    configs: Mapping[str, str] = field(default_factory=dict)
    age_s: float = 0.0
    copies: str = ""


PLAIN = (
    TopicPlan(name="idem-lz4", writing="idempotent", codec="lz4", partitions=2),
    TopicPlan(name="idem-zstd", writing="idempotent", codec="zstd"),
)
"""Topics without holes."""

USUAL = (
    *PLAIN,
    TopicPlan(name="txn-snappy", writing="transactional", codec="snappy", partitions=2),
    TopicPlan(name="txn-none", writing="transactional", codec="none"),
)
"""The topics of most scenarios: idempotent and transactional producers, with several codecs."""

EVERYONE = (*USUAL, TopicPlan(name="java-gzip", writing="java", codec="gzip"))
"""The usual topics, and one of Kafka's own producer, whose JVM takes a while to start."""

MORE_JAVA = (
    TopicPlan(name="verifiable-lz4", writing="verifiable", codec="lz4"),
    TopicPlan(name="copied-none", writing="copier", copies="verifiable-lz4"),
)
"""Topics of Kafka's own producers that report acknowledgements: an idempotent one, and one with transactions."""

SUBDUED = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
"""Configs of a compacted topic that the cleaner leaves alone for now."""

NEMESES = (
    TopicPlan(name="widened", writing="idempotent", codec="gzip"),
    TopicPlan(name="trimmed", writing="idempotent", codec="lz4"),
    TopicPlan(name="compacted", writing="keyed", configs=SUBDUED),
    TopicPlan(name="remade", writing="nobody", replicas=2),
)
"""Topics for which there is one nemesis each."""

GAPS = (
    TopicPlan(name="overtaken", writing="idempotent", codec="zstd"),
    TopicPlan(name="retained", writing="idempotent", codec="snappy"),
)
"""Topics for the nemeses that delete records before they are copied, for a flow with ``on.gap: continue``."""

HOLES = (
    TopicPlan(name="txn-dense", writing="transactional", codec="lz4"),
    TopicPlan(name="idem-zstd", writing="idempotent", codec="zstd"),
)
"""A partition with a hole every few records, and one without holes."""


def named(plans: tuple[TopicPlan, ...], prefix: str) -> tuple[TopicPlan, ...]:
    """Returns the plans with the prefix and a hyphen in front of the topics' names."""
    return tuple(
        replace(plan, name=f"{prefix}-{plan.name}", copies=f"{prefix}-{plan.copies}" if plan.copies else "")
        for plan in plans
    )
