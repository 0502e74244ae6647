"""Copies into which the destination's broker has put the time of their append: allowed by name, or found by name."""

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.export import summary
from mirror.audit.judge.changed.reencoded import APPENDED, CUT, counted
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult, Verdict
from mirror.audit.report import verdict
from mirror.records.content.rewriting import rewrite
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import Batches, copy, create, endpoint, fill
from tests.records.builders import sealed

pytestmark = [pytest.mark.broker, pytest.mark.spark]
Pair = tuple[SandboxCluster, SandboxCluster]
STAMPS: Any = {"message_timestamp_type": "LogAppendTime"}


@pytest.fixture
def pair(source_cluster: SandboxCluster, destination_cluster: SandboxCluster) -> Pair:
    """The two clusters."""
    return source_cluster, destination_cluster


def request(pair: Pair, *topics: str) -> AuditRequest:
    """Of a flow with ``destination.timestamps: append``, without waiting for a mirror that does not run."""
    source, destination = (
        endpoint(cluster, name) for cluster, name in zip(pair, ("source", "destination"), strict=True)
    )
    return AuditRequest(
        flow="a->b", source=source, destination=destination, topics=topics, catch_up_s=0, append_times=True
    )


def halves(raw: Batches) -> Batches:
    """All of them in two pieces each."""
    return [
        header.pack() + records
        for one in raw
        for header, records in rewrite(BatchHeader.read(one), one[HEADER_SIZE:], most_size=2 * len(one) // 3)
    ]


def anew(raw: Batches) -> Batches:
    return [header.pack() + rest for one in raw for header, rest in rewrite(BatchHeader.read(one), one[HEADER_SIZE:])]


def damaged(raw: Batches) -> Batches:
    """A byte of the fourth batch's records is another one, with a checksum that matches it."""
    return [*raw[:3], sealed(raw[3][:-1] + bytes([raw[3][-1] ^ 1])), *raw[4:]]


def kinds(result: AuditResult) -> list[tuple[Kind, int]]:
    return [(one.kind, one.batches) for one in result.findings]


def test_allowed_and_not(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """
    1. Of the topics of a flow, one has the times of the append, and one has its own; one was cut in pieces, and one has
       append times at the source, too.
    2. Where it is allowed, all is identical, and the batches are counted. Where not, they are findings by name.
    """
    own, stamped, cut, both = (f"{topic_name}-{what}" for what in ("own", "stamped", "cut", "both"))
    for name in (own, stamped, cut, both):
        create(pair[0], name, **(STAMPS if name == both else {}))
        create(pair[1], name, **({} if name == own else STAMPS))
        fill(pair[0], name, batches=20)
    for name, change in ((own, list), (stamped, list), (cut, halves), (both, anew)):
        copy(*pair, name, change=change)
    allowed = request(pair, own, stamped, cut, both)
    result = job.run(allowed, spark=spark)
    assert result.findings == ()
    assert result.verdict is Verdict.IDENTICAL
    assert {cause: batches for cause, (batches, _) in counted(result.reencoded).items()} == {CUT: 20, APPENDED: 20}
    there = sum(row.batches for row in result.coverage if row.side is Side.DESTINATION and row.topic != own)
    assert result.stamped == summary(result)["append_times"] == there >= 60
    assert f"; {there} batches of destination have append times" in verdict(result)
    strict = job.run(replace(allowed, topics=(own, stamped), append_times=False), spark=spark)
    assert kinds(strict) == [(Kind.APPEND_TIMES, 20)]
    assert strict.verdict is Verdict.DIFFERENT
    assert strict.stamped == 0


def test_all_else_is_compared(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    for name in (f"{topic_name}-changed", f"{topic_name}-missing"):
        create(pair[0], name)
        create(pair[1], name, **STAMPS)
        fill(pair[0], name, batches=8)
    copy(*pair, f"{topic_name}-changed", change=damaged)
    copy(*pair, f"{topic_name}-missing", change=lambda raw: raw[:-1])
    result = job.run(request(pair, f"{topic_name}-changed", f"{topic_name}-missing"), spark=spark)
    assert kinds(result) == [(Kind.VALUE_CHANGED, 1), (Kind.MISSING, 0)]
