"""Roots identify what is in the logs: computed once more here, from the batches that another client reads, by what
docs/AUDIT.md says of them."""

import hashlib
import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import xxhash
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.certify.contents import root
from mirror.audit.model.places import Side, Span
from mirror.audit.model.result import AuditResult, Coverage, RangeContent
from mirror.audit.prepare import plan
from mirror.audit.read.rows import Chunks
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import batches_of, copy, create, delete_before, edited, fill
from tests.audit.read.test_rows import PAYLOADS, block_of, log
from tests.audit.test_job import audit

Pair = tuple[SandboxCluster, SandboxCluster]
NEW: dict[str, Callable[[bytes], Any]] = {"xxh3_128": xxhash.xxh3_128, "sha256": hashlib.sha256}


def recomputed(batches: Sequence[bytes], content: RangeContent, digest: str, log_start: int = 0) -> str:
    """A range's digest, of all batches of the partition."""
    new, whole = NEW[digest], b""
    headers = [(BatchHeader.read(batch), batch) for batch in batches]
    own = [
        (max(0, header.base_offset - content.start) // content.width, header, batch)
        for header, batch in headers
        if content.start <= max(header.base_offset, log_start) < content.end
    ]
    for index, chunk in itertools.groupby(own, key=lambda one: one[0]):
        parts = [
            header._replace(leader_epoch=0, crc=0, producer_id=0, producer_epoch=0, base_sequence=0).pack()
            + new(batch[HEADER_SIZE:]).digest()
            for _, header, batch in chunk
        ]
        whole += struct.pack(">qq", content.start + index * content.width, len(parts)) + new(b"".join(parts)).digest()
    return str(new(whole).hexdigest())


def sides(result: AuditResult) -> tuple[Coverage, Coverage]:
    """The rows of the one partition."""
    ours, theirs = result.coverage
    assert (ours.side, theirs.side) == (Side.SOURCE, Side.DESTINATION)
    return ours, theirs


@pytest.fixture
def pair(source_cluster: SandboxCluster, destination_cluster: SandboxCluster) -> Pair:
    return source_cluster, destination_cluster


def test_a_range_is_known_by_its_batches() -> None:
    """Whatever answers they came in; and each of them counts."""

    def content(*parts: bytes, digest: str = "xxh3_128") -> str:
        chunks = Chunks(digest, 0, 10)
        for part in parts:
            chunks.add(block_of(part, digest))
        chunks.rows("c", "t", 0)
        return str(chunks.content.hexdigest())

    size = [HEADER_SIZE + len(data) for data in PAYLOADS]
    cuts = [sum(size[:at]) for at in range(len(size) + 1)]
    batches = [log()[start:end] for start, end in itertools.pairwise(cuts)]
    for digest in NEW:
        assert content(log(), digest=digest) == recomputed(batches, RangeContent(0, 30, 10, ""), digest)
    for at in range(1, len(batches)):
        assert content(log()[: cuts[at]], log()[cuts[at] :]) == content(log())
    without = {content(b"".join([*batches[:at], *batches[at + 1 :]])) for at in range(len(batches))}
    assert len({*without, content(log()), content()}) == len(batches) + 2
    assert content(log(producer_id=7)) == content(log())  # the writer's own
    assert content(log(base_timestamp=7)) != content(log())


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("digest", NEW)
@pytest.mark.parametrize("small", [False, True])
def test_roots_of_real_logs(
    pair: Pair, spark: SparkSession, topic_name: str, monkeypatch: pytest.MonkeyPatch, digest: str, small: bool
) -> None:
    """
    1. Of a copy: both sides' are the same, and what they should be, read in one range or in many.
    2. The log begins inside of a batch: likewise.
    """
    if small:
        monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 1)
        monkeypatch.setattr(plan, "TASK_BYTES", 700)
        monkeypatch.setattr(plan, "CHUNK_BYTES", 300)
    for cluster in pair:
        create(cluster, topic_name)
    fill(pair[0], topic_name, codec="zstd")
    copy(*pair, topic_name)

    def checked(start: int) -> tuple[Coverage, Coverage]:
        found = sides(audit(pair, spark, topic_name, digest=digest))
        for row, cluster in zip(found, pair, strict=True):
            batches = batches_of(cluster, topic_name, start=start)
            assert Span(row.contents[0].start, row.contents[-1].end) == row.audited
            assert len(row.contents) > 2 or not small
            for content in row.contents:
                assert content.digest == recomputed(batches, content, digest, start)
        return found

    ours, theirs = checked(0)
    assert root(digest, ours.contents) == root(digest, theirs.contents)
    inside = BatchHeader.read(batches_of(pair[0], topic_name)[1]).base_offset + 1
    for cluster in pair:
        delete_before(cluster, topic_name, inside)
    ours, theirs = checked(inside)
    assert root(digest, ours.contents) == root(digest, theirs.contents)


@pytest.mark.broker
@pytest.mark.spark
def test_a_changed_batch_has_another_root(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    for cluster in pair:
        create(cluster, topic_name)
    fill(pair[0], topic_name, codec="none")
    copy(
        *pair, topic_name, change=lambda raw: [*raw[:3], edited(raw[3], at=raw[3].index(b"none 3")), *raw[4:]]
    )  # fmt: skip
    ours, theirs = sides(audit(pair, spark, topic_name))
    assert root("xxh3_128", ours.contents) != root("xxh3_128", theirs.contents)
    for row, cluster in zip((ours, theirs), pair, strict=True):
        assert row.contents[0].digest == recomputed(batches_of(cluster, topic_name), row.contents[0], "xxh3_128")


@pytest.mark.broker
@pytest.mark.spark
def test_roots_of_logs_that_begin_later_by_now(
    pair: Pair, spark: SparkSession, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. After the bounds are frozen, the source deletes up to the middle of a batch: what is left is identified.
    2. Audits of what is left, in the same ranges, have equal roots among them.
    """
    for name, size in (("LEAST_TASK_BYTES", 1), ("TASK_BYTES", 1_500), ("CHUNK_BYTES", 300)):
        monkeypatch.setattr(plan, name, size)
    for cluster in pair:
        create(cluster, topic_name)
    fill(pair[0], topic_name, codec="zstd", batches=20)
    copy(*pair, topic_name)
    start = BatchHeader.read(batches_of(pair[0], topic_name)[9]).base_offset + 1
    planned = plan.plan

    def later(*given: Any) -> Any:
        delete_before(pair[0], topic_name, start)
        return planned(*given)

    monkeypatch.setattr(job, "plan", later)
    found = sides(audit(pair, spark, topic_name))
    for row, cluster in zip(found, pair, strict=True):
        assert (row.audited.start, row.contents[0].start, len(row.contents) > 2) == (start, start, True)
        batches = batches_of(cluster, topic_name, start=start)
        assert [one.digest for one in row.contents] == [
            recomputed(batches, one, "xxh3_128", start) for one in row.contents
        ]
    monkeypatch.setattr(job, "plan", planned)
    roots = [[root("xxh3_128", row.contents) for row in sides(audit(pair, spark, topic_name))] for _ in range(2)]
    assert roots[0] == roots[1]
    assert roots[0][0] == roots[0][1]
