"""One audit from beginning to end: freeze, plan, read and join, drill down where chunks differ, name what differs."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, ExitStack
from typing import NamedTuple, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirror.audit import coverage as cover
from mirror.audit.bounds import Frozen, cluster_options, freeze, outside
from mirror.audit.classify import Scene, classify, joined
from mirror.audit.compare import Compared, compare, locate
from mirror.audit.drill import by_content, drill_down, unexplained
from mirror.audit.errors import AuditError
from mirror.audit.estimate import estimates
from mirror.audit.holes import Rules
from mirror.audit.leading import visible_filler
from mirror.audit.mapped import at_destination, placed
from mirror.audit.model import (
    AuditRequest,
    AuditResult,
    BatchRow,
    Bounds,
    Coverage,
    Endpoint,
    Finding,
    Kind,
    Side,
    Span,
    TopicPartition,
)
from mirror.audit.options import BATCHES, CHUNKS, SourceOptions
from mirror.audit.plan import Estimate, Range, Task, bundled, merged, plan
from mirror.audit.progress import Progress, watched
from mirror.audit.session import LocalSession, cores
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Unreachable

MOST_NOTES = 10
"""Places that log cleaners have changed, named one by one."""
MOST_SEARCHED = 20_000
"""Payloads of differing batches that are looked for elsewhere."""


class Prepared(NamedTuple):
    """What is known before anything is read."""

    frozen: Frozen
    estimates: list[Estimate]
    filler: tuple[Finding, ...] = ()


Result = TypeVar("Result")


def run(request: AuditRequest, *, spark: SparkSession | None = None, progress: Progress | None = None) -> AuditResult:
    """Audits a flow. Starts a Spark session of its own, unless it is given one or there is nothing to read.

    Raises:
        AuditError: there is no verdict; says why and what to do.
    """
    began_at = time.monotonic()
    progress = progress or Progress()
    progress.stage("freezing the bounds on both clusters")
    prepared = asyncio.run(_prepare(request))
    frozen = prepared.frozen
    findings = [*frozen.findings, *prepared.filler]
    for known in frozen.bounds:
        findings += outside(known, request.source.alias, request.destination.alias)
    tasks = tuple(plan(prepared.estimates, cores()))
    ranges = cover.check_plan(frozen.bounds, tasks)
    coverage: list[Coverage]
    if tasks:
        with ExitStack() as stack:
            if spark is None:
                progress.stage("starting Spark")
                spark = stack.enter_context(LocalSession()).spark
            audit = _Audit(request, prepared, tasks, spark, progress)
            found, coverage = audit.run(ranges)
        findings += found
    else:
        coverage = [
            row
            for side, cluster_id in _cluster_ids(frozen).items()
            for row in cover.coverage_of(side, cluster_id, frozen.bounds, {}, {})
        ]
    cover.check_fills(coverage, findings, mapped=request.mapped)
    findings, cleaned = _apart(findings)
    return AuditResult(
        flow=request.flow,
        digest=request.digest,
        source_alias=request.source.alias,
        destination_alias=request.destination.alias,
        source_cluster_id=frozen.source_cluster_id,
        destination_cluster_id=frozen.destination_cluster_id,
        coverage=tuple(coverage),
        findings=tuple(joined(findings)),
        notes=tuple([*_notes(frozen.bounds, request), *cleaned]),
        elapsed_s=time.monotonic() - began_at,
        isolation_level=request.isolation_level,
        offsets=request.offsets,
    )


def _cluster_ids(frozen: Frozen) -> dict[Side, str]:
    return {Side.SOURCE: frozen.source_cluster_id, Side.DESTINATION: frozen.destination_cluster_id}


async def _prepare(request: AuditRequest) -> Prepared:
    try:
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(await _open(request.source))
            destination = await stack.enter_async_context(await _open(request.destination))
            frozen = await freeze(source, destination, request)
            filler = (
                await visible_filler(
                    destination, frozen.bounds, flow=request.flow, source_cluster_id=frozen.source_cluster_id
                )
                if not request.mapped
                else []
            )
            sizes = await estimates(source, request.source.client_id, frozen.bounds)
            return Prepared(frozen, sizes, tuple(filler))
    except NetworkError as error:
        raise AuditError(str(error), "check that its brokers are up and reachable from here") from error


async def _open(endpoint: Endpoint) -> Cluster:
    try:
        return await Cluster.open(endpoint.alias, cluster_options(endpoint))
    except Unreachable as error:
        problem, _, remedy = str(error).rpartition("; ")
        raise AuditError(problem, remedy) from error


def _apart(findings: Iterable[Finding]) -> tuple[list[Finding], list[str]]:
    """Differences, and notes on what log cleaners took away."""
    found = list(findings)
    notes = []
    for finding in joined(finding for finding in found if finding.kind is Kind.CLEANED):
        span = finding.destination
        assert span is not None
        where = f"{finding.topic} partition {finding.partition}, destination offsets {span.start} to {span.end - 1}"
        notes.append(f"{where}: {finding.detail}")
    if len(notes) > MOST_NOTES:
        notes = [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES:,} more places that log cleaners have changed"]
    return [finding for finding in found if finding.kind is not Kind.CLEANED], notes


def _notes(bounds: Iterable[Bounds], request: AuditRequest) -> list[str]:
    older = [known for known in bounds if known.source.start > known.destination.start]
    if not older:
        return []
    offsets = sum(min(known.source.start, known.destination.end) - known.destination.start for known in older)
    return [
        f"{request.destination.alias} still has {offsets:,} offsets of {len(older)} partitions that "
        f"{request.source.alias} no longer has (retention): there is nothing to compare them with"
    ]


class _Audit:
    """The part that needs Spark."""

    def __init__(
        self,
        request: AuditRequest,
        prepared: Prepared,
        tasks: tuple[Task, ...],
        spark: SparkSession,
        progress: Progress,
    ) -> None:
        self.request = request
        self.frozen = frozen = prepared.frozen
        self.tasks = tasks
        self.spark = spark
        self.progress = progress
        self.estimates = {estimate.key: estimate for estimate in prepared.estimates}
        self.bounds = {known.key: known for known in frozen.bounds}

    def run(self, ranges: dict[TopicPartition, list[Range]]) -> tuple[list[Finding], list[Coverage]]:
        """Findings and coverage rows."""
        self.progress.stage("reading and comparing both clusters")
        compared = self._compare(self.tasks, CHUNKS)
        coverage: list[Coverage] = []
        findings: list[Finding] = []
        for side, endpoint in ((Side.SOURCE, self.request.source), (Side.DESTINATION, self.request.destination)):
            cluster_id = _cluster_ids(self.frozen)[side]
            read = compared.coverage[side]
            cover.check_side(
                side, cluster_id or endpoint.alias, self.tasks, read, compared.clusters[side],
                (compared.batches[side], compared.bytes[side]),
            )  # fmt: skip
            coverage += cover.coverage_of(side, cluster_id, self.frozen.bounds, ranges, read)
            findings += cover.broken_logs(side, endpoint.alias, read)
        if compared.differing:
            findings += self._differences(compared, ranges, findings)
        findings = at_destination(findings, self.frozen.mapped)
        return findings + cover.unmapped(self.request.destination.alias, compared.coverage[Side.DESTINATION]), coverage

    def _differences(
        self, compared: Compared, ranges: dict[TopicPartition, list[Range]], broken: list[Finding]
    ) -> list[Finding]:
        drill = drill_down(compared.differing, ranges, broken)
        findings = list(drill.wholesale)
        if not drill.chunks:
            return findings
        self.progress.stage("looking at the batches that differ")
        differing = self._compare(tuple(bundled(merged(drill.chunks), cores())), BATCHES).differing
        for chunk in unexplained(drill, differing):
            raise AuditError(
                f"{chunk.topic} partition {chunk.partition} changed between offsets {chunk.start} and {chunk.end} "
                "while it was read",
                "run the audit again; if the topic is compacted, while its cleaner is idle",
            )
        self.progress.stage("looking for them elsewhere")
        rows = [row for pairs in differing.values() for row in (*pairs.source.values(), *pairs.destination.values())]
        digests = list(dict.fromkeys(row.digest for row in rows if row.crc_ok))[:MOST_SEARCHED]
        in_source = by_content(self._locate(Side.SOURCE, digests, differing))
        in_tail = by_content(self._locate(Side.DESTINATION, digests, differing))
        for key, pairs in sorted(differing.items()):
            findings += classify(
                Scene(
                    key=key,
                    audited=self.bounds[key].audited,
                    source=pairs.source,
                    destination=pairs.destination,
                    in_source=in_source,
                    in_tail=in_tail,
                    holes=pairs.holes,
                    markers=pairs.markers,
                    odd=pairs.odd,
                    cleaned={side for side, topics in self.frozen.compacted.items() if key.topic in topics},
                    looked=[Span(chunk.start, chunk.end) for chunk in drill.chunks if chunk.key == key],
                )
            )
        return findings

    def _options(self, side: Side, tasks: tuple[Task, ...], rows: str) -> SourceOptions:
        is_source = side is Side.SOURCE
        return SourceOptions(
            endpoint=self.request.source if is_source else self.request.destination,
            cluster_id=_cluster_ids(self.frozen)[side],
            topic_ids=self.frozen.source_topic_ids if is_source else self.frozen.destination_topic_ids,
            digest=self.request.digest,
            tasks=tasks if is_source else placed(tasks, self.frozen.mapped),
            rows=rows,
            rules=Rules(
                side=side,
                committed=is_source and self.request.committed,
                strangers=self.request.fill == "transaction",
                mapped=self.request.mapped,
            ),
        )

    def _compare(self, tasks: tuple[Task, ...], rows: str) -> Compared:
        sides = [self._options(side, tasks, rows) for side in Side]
        return self._spark(lambda: compare(self.spark, *sides))

    def _locate(
        self, side: Side, digests: list[bytes], dirty: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, BatchRow]]:
        """Where these payloads lie: at the source in topics that differ, at the destination behind its audited end."""
        topics = {key.topic for key in dirty}
        spans = [
            (known.key, known.source if side is Side.SOURCE else Span(known.audited.end, known.destination.end))
            for known in self.frozen.bounds
            if known.topic in topics
        ]
        tasks = tuple(plan((self._estimate(key, span) for key, span in spans), cores()))
        return self._spark(lambda: locate(self.spark, self._options(side, tasks, BATCHES), digests))

    def _estimate(self, key: TopicPartition, span: Span) -> Estimate:
        """From the audited offsets' estimate."""
        known = self.estimates[key]
        return Estimate(key, span, span.offsets * known.size // max(1, known.span.offsets))

    def _spark(self, action: Callable[[], Result]) -> Result:
        try:
            with watched(self.spark, self.progress):
                return action()
        except (PySparkException, Py4JError) as error:
            raise AuditError.unmarked(str(error)) or AuditError(
                f"Spark failed: {str(error).strip().splitlines()[0][:300]}", "run the audit again"
            ) from error
