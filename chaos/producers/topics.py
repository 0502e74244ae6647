"""The topics of a scenario: which producer writes each, with which codec, in how many partitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

__all__ = ["EVERYONE", "GAPS", "HOLES", "MORE_JAVA", "NEMESES", "PLAIN", "USUAL", "TopicPlan", "Writing", "named"]

Writing = Literal["idempotent", "transactional", "java", "verifiable", "copier", "keyed", "nobody"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """One topic.

    Attributes:
        name: without the scenario's prefix until ``named`` puts it in front.
        writing: the kind of producer that streams into it.
        codec: of that producer's batches.
        partitions: how many.
        replicas: of each partition; bounded by the number of brokers.
        configs: of the topic at the source, if not the broker's own.
        age_s: age of its records when they are written.
        copies: for a copier: the topic whose partition 0 it copies; named as ``name`` is.
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
"""A stream without holes."""

USUAL = (
    *PLAIN,
    TopicPlan(name="txn-snappy", writing="transactional", codec="snappy", partitions=2),
    TopicPlan(name="txn-none", writing="transactional", codec="none"),
)
"""The topics of most scenarios: idempotent and transactional producers, several codecs."""

EVERYONE = (*USUAL, TopicPlan(name="java-gzip", writing="java", codec="gzip"))
"""The same and Kafka's own producer, whose JVM takes a while to start."""

MORE_JAVA = (
    TopicPlan(name="verifiable-lz4", writing="verifiable", codec="lz4"),
    TopicPlan(name="copied-none", writing="copier", copies="verifiable-lz4"),
)
"""Kafka's own producers that report acknowledgements: idempotent, and in transactions."""

SUBDUED = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
"""Settings of a topic that is compacted, but not cleaned yet."""

NEMESES = (
    TopicPlan(name="widened", writing="idempotent", codec="gzip"),
    TopicPlan(name="trimmed", writing="idempotent", codec="lz4"),
    TopicPlan(name="compacted", writing="keyed", configs=SUBDUED),
    TopicPlan(name="remade", writing="nobody", replicas=2),
)
"""Topics that have a nemesis of their own."""

GAPS = (
    TopicPlan(name="overtaken", writing="idempotent", codec="zstd"),
    TopicPlan(name="retained", writing="idempotent", codec="snappy"),
)
"""The same, for a flow that goes on after a gap."""

HOLES = (
    TopicPlan(name="txn-dense", writing="transactional", codec="lz4"),
    TopicPlan(name="idem-zstd", writing="idempotent", codec="zstd"),
)
"""One partition with a hole every few records, and one without any beside it."""


def named(plans: tuple[TopicPlan, ...], prefix: str) -> tuple[TopicPlan, ...]:
    """Returns the topics with the prefix in front of their names."""
    return tuple(
        replace(plan, name=f"{prefix}-{plan.name}", copies=f"{prefix}-{plan.copies}" if plan.copies else "")
        for plan in plans
    )
