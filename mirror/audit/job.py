"""One audit from start to end: freeze, plan, read and join, drill down where chunks differ, name the differences."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import NamedTuple

from pyspark.sql import SparkSession

from mirror.audit.errors import AuditError
from mirror.audit.judge import coverage as cover
from mirror.audit.judge.changed import old_formats
from mirror.audit.judge.consequences import keys, told_once
from mirror.audit.judge.kinds import joined
from mirror.audit.judge.mapped import at_destination
from mirror.audit.judge.rounds.differences import Differences
from mirror.audit.judge.rounds.drill import drill_down
from mirror.audit.judge.rounds.regions import of_bounds, regions
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Adopted, Bounds, Side, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult, Coverage
from mirror.audit.prepare.bounds import BegunLater, Frozen, cluster_options, freeze, outside
from mirror.audit.prepare.estimate import estimates
from mirror.audit.prepare.leading import VisibleFiller, visible_filler
from mirror.audit.prepare.moving import MOST_ROUNDS, LogsMoved, Scope, Starts, besides, found_starts, together
from mirror.audit.prepare.patience import patiently
from mirror.audit.prepare.plan import ReadingEstimate, Task, bundled, plan
from mirror.audit.prepare.skipped import Decisions, decided, skipped
from mirror.audit.spark.compare import Compared
from mirror.audit.spark.looking import Looking, cluster_ids
from mirror.audit.spark.options import CHUNKS
from mirror.audit.spark.progress import JobProgress
from mirror.audit.spark.session import LocalSession, slots_of
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Unreachable

MOST_NOTES = 10
"""Maximum number of notes on log cleaners that are listed one by one, and of topics that a note names."""


class Prepared(NamedTuple):
    """The results of the preparation, before any batch is compared."""

    frozen: Frozen
    estimates: list[ReadingEstimate]
    filler: VisibleFiller = VisibleFiller([], [])
    decisions: Decisions = Decisions()


class EndsLookedAt(NamedTuple):
    """What the comparison says about the ends of the logs. ``shifts``: by how many offsets a partition's end at the
    destination is shifted. ``looked``: partitions of which both logs were examined to their ends."""

    shifts: dict[TopicPartition, int]
    looked: set[TopicPartition]


class JobOutcome(NamedTuple):
    """The result of the part that needs Spark. ``notes``: what could not be found out, and why. ``old``: a finding
    (``Kind.REENCODED``) for each partition with messages of old formats, which counts those that the destination
    has."""

    findings: list[Finding]
    coverage: list[Coverage]
    ends: EndsLookedAt
    notes: list[str]
    old: Sequence[Finding] = ()


def run(
    request: AuditRequest,
    *,
    spark: SparkSession | None = None,
    session: Callable[[], LocalSession] = LocalSession,
    progress: JobProgress | None = None,
) -> AuditResult:
    """Audits a flow. Starts a Spark session of its own, unless it is given one or there is nothing to read.

    Args:
        request: what to audit.
        spark: a running session, in which ``AuditBatches`` must be registered; it is not stopped.
        session: returns a context manager that starts and stops a session; used if ``spark`` is None.
        progress: is notified of each stage.

    Raises:
        AuditError: there is no verdict; the error says why and what to do.
    """
    began_at = time.monotonic()
    progress = progress or JobProgress()
    progress.stage("freezing the bounds on both clusters")
    prepared = asyncio.run(_prepare(request))
    frozen = prepared.frozen
    findings = [*frozen.findings, *prepared.filler.findings]
    with ExitStack() as stack:
        tasks: tuple[Task, ...] = ()
        slots = 0
        if any(estimate.span.offsets for estimate in prepared.estimates):
            if spark is None:
                progress.stage("starting Spark")
                spark = stack.enter_context(session()).spark
            slots = slots_of(spark)
            tasks = tuple(plan(prepared.estimates, slots))
        scope = Scope(frozen, cover.check_plan(frozen.bounds, tasks), request)
        outcome = JobOutcome([], [], EndsLookedAt({}, set()), [])
        if tasks and spark is not None:
            outcome = _Audit(request, prepared, scope, spark, slots, progress).run(tasks)
            findings += [*outcome.findings, *asyncio.run(scope.lost())]
    for known in frozen.bounds:
        findings += outside(
            known, request.source.alias, request.destination.alias, outcome.ends.shifts.get(known.key, 0),
            ended=known.key in outcome.ends.looked,
        )  # fmt: skip
    coverage = outcome.coverage or [
        row
        for side, cluster_id in cluster_ids(frozen).items()
        for row in cover.coverage_of(side, cluster_id, frozen.bounds, {}, {})
    ]
    topics = {row.topic for row in coverage}
    compacted = frozenset().union(*frozen.compacted.values())
    cover.check_fills(coverage, findings, mapped=request.mapped, cleaned=compacted)
    cleaned_batches = cover.cleaned_of(coverage, findings)
    findings, cleaned = _apart(findings)
    anew = [*(finding for finding in findings if finding.kind is Kind.REENCODED), *outcome.old]
    findings = [finding for finding in findings if finding.kind is not Kind.REENCODED]
    return AuditResult(
        flow=request.flow,
        digest=request.digest,
        source_alias=request.source.alias,
        destination_alias=request.destination.alias,
        source_cluster_id=frozen.source_cluster_id,
        destination_cluster_id=frozen.destination_cluster_id,
        coverage=tuple(coverage),
        findings=tuple(joined(findings)),
        notes=tuple(
            [
                *filter(None, [prepared.decisions.unknown]),
                *frozen.notes,
                *prepared.filler.notes,
                *_alone(frozen.alone, request),
                *_before(prepared.decisions.adopted, request),
                *scope.notes,
                *outcome.notes,
                *_begun(scope.frozen.begun, request),
                *_notes(scope.frozen.bounds, request),
                *cleaned,
            ]
        ),
        reencoded=tuple(joined(anew)),
        cleaned=cleaned_batches,
        skipped=prepared.decisions.ranges,
        undecided=frozen.undecided,
        adopted=prepared.decisions.adopted,
        elapsed_s=time.monotonic() - began_at,
        isolation_level=request.isolation_level,
        offsets=request.offsets,
        fill=request.fill,
        topic_ids={Side.SOURCE: frozen.source_topic_ids, Side.DESTINATION: frozen.destination_topic_ids},
        accepted=request.accept,
        append_times=request.append_times,
        renamed={topic: there for topic in topics if (there := request.destination_of(topic)) != topic},
    )


async def _prepare(request: AuditRequest) -> Prepared:
    try:
        return await patiently(lambda: _frozen(request))
    except NetworkError as error:
        problem, _, remedy = str(error).rpartition("; ")
        if not (isinstance(error, Unreachable) and problem):
            problem, remedy = str(error), "check that its brokers are up and reachable from here"
        raise AuditError(problem, remedy) from error


async def _frozen(request: AuditRequest) -> Prepared:
    async with AsyncExitStack() as stack:
        source, destination = [
            await stack.enter_async_context(await Cluster.open(each.alias, cluster_options(each)))
            for each in (request.source, request.destination)
        ]
        frozen = await freeze(source, destination, request)
        filler = (
            await visible_filler(
                destination, frozen.bounds, flow=request.flow, source_cluster_id=frozen.source_cluster_id
            )
            if not request.mapped
            else VisibleFiller([], [])
        )
        sizes = await estimates(source, request.source.client_id, frozen.bounds)
        ids = frozen.source_topic_ids, frozen.destination_topic_ids
        return Prepared(frozen, sizes, filler, await skipped(destination, frozen.bounds, request, ids))


def _apart(findings: Iterable[Finding]) -> tuple[list[Finding], list[str]]:
    """Separates the differences from what log cleaners have removed (``Kind.CLEANED``). Returns the differences, and
    notes on the rest."""
    found = list(findings)
    notes = []
    for finding in joined(finding for finding in found if finding.kind is Kind.CLEANED):
        span = finding.destination or finding.source
        assert span is not None
        side = Side.DESTINATION if finding.destination else Side.SOURCE
        where = f"{finding.topic} partition {finding.partition}, {side.value} offsets {span.start} to {span.end - 1}"
        notes.append(f"{where}: {finding.detail}")
    if len(notes) > MOST_NOTES:
        notes = [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES:,} more places that log cleaners have changed"]
    return [finding for finding in found if finding.kind is not Kind.CLEANED], notes


def _alone(topics: Sequence[str], request: AuditRequest) -> list[str]:
    if not topics:
        return []
    more = f" and {len(topics) - MOST_NOTES:,} more" if len(topics) > MOST_NOTES else ""
    return [
        f"only {request.destination.alias} has {', '.join(topics[:MOST_NOTES])}{more}: the flow selects them, and "
        f"{request.source.alias} does not have them, or does not show them"
    ]


def _before(adopted: Mapping[TopicPartition, Adopted], request: AuditRequest) -> list[str]:
    """Returns notes on the partitions that the destination had before the flow began."""
    there, here = request.destination.alias, request.source.alias
    aborted = " and what they have aborted" if request.committed else ""
    notes = [
        f"{there}: {request.destination_of(key.topic)} partition {key.partition} was adopted up to offset {one.end}: "
        f"it was there before the flow. Markers of its producers{aborted} are no difference where {here} has markers"
        for key, one in sorted(adopted.items())
    ]
    if len(notes) > MOST_NOTES:
        notes = [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES:,} more partitions of {there} that were adopted"]
    return notes


def _begun(begun: Sequence[BegunLater], request: AuditRequest) -> list[str]:
    """Returns notes on the source's offsets in front of copies that begin later (``start.from``)."""
    notes = [
        f"{each.key.topic} partition {each.key.partition}: offsets {each.span.start} to {each.span.end - 1} of "
        f"{request.source.alias} were not to be copied (start.from: {each.start_from}), and are not audited"
        for each in begun[:MOST_NOTES]
    ]
    if len(begun) > MOST_NOTES:
        notes.append(f"and {len(begun) - MOST_NOTES:,} more partitions whose copies begin later than their source")
    return notes


def _notes(bounds: Iterable[Bounds], request: AuditRequest) -> list[str]:
    older = [known for known in bounds if known.source.start > known.destination.start]
    if not older:
        return []
    offsets = sum(min(known.source.start, known.destination.end) - known.destination.start for known in older)
    return [
        f"{request.destination.alias} still has {offsets:,} offsets in {len(older)} partition"
        f"{'s' if len(older) > 1 else ''} from before {request.source.alias}'s logs begin: there is nothing to compare "
        "them with"
    ]


class _Audit:
    """The part of an audit that needs Spark."""

    def __init__(
        self,
        request: AuditRequest,
        prepared: Prepared,
        scope: Scope,
        spark: SparkSession,
        slots: int,
        progress: JobProgress,
    ) -> None:
        self.request = request
        self.passed = prepared.decisions.passed
        self.scope = scope
        self.progress = progress
        self.looking = Looking(
            request, scope, prepared.estimates, spark, slots, progress,
            decided(prepared.decisions.adopted, prepared.frozen.undecided, request),
        )  # fmt: skip
        self._endpoints = ((Side.SOURCE, request.source), (Side.DESTINATION, request.destination))

    @property
    def frozen(self) -> Frozen:
        """The bounds, as they are now: they begin later if a log's beginning was deleted."""
        return self.scope.frozen

    def run(self, tasks: tuple[Task, ...]) -> JobOutcome:
        """Reads and compares these tasks, and names what differs. Afterwards, ``scope`` holds the bounds that were in
        fact compared."""
        # Estimates are of the source; the destination has about as much.
        size = 2 * sum(each.size for each in self.looking.estimates.values())
        self.progress.stage("reading and comparing both clusters", size)
        compared = self._by_record(self._followed(self._read(tasks), {}))
        try:
            while True:
                try:
                    return self._found(compared)
                except LogsMoved as moved:
                    compared = self._followed(compared, moved.starts)
        finally:
            self.looking.end()

    def _read(self, tasks: tuple[Task, ...]) -> Compared:
        """Reads and compares both sides of these tasks, and checks that each side was read in full.

        Raises:
            AuditError: a side was not read in full.
        """
        compared = self.looking.compare(tasks, CHUNKS)
        for side, endpoint in self._endpoints:
            cover.check_side(
                side, cluster_ids(self.frozen)[side] or endpoint.alias, tasks, compared.coverage[side],
                compared.clusters[side], (compared.batches[side], compared.bytes[side]),
            )  # fmt: skip
        return compared

    def _by_record(self, compared: Compared) -> Compared:
        """Reads once more the ranges in which the source has messages of old formats. Only the first reading shows
        which batches of the destination have to be opened. Returns the comparison with the results of both readings."""
        read = compared.coverage[Side.SOURCE]
        self.looking.old = old_formats.spans_of(read)
        again = [
            wanted for key in self.looking.old for wanted in self.scope.ranges[key] if read[cover.key_of(wanted)].old
        ]
        if not again:
            return compared
        self.progress.stage("comparing what is in old formats, record by record")
        later = self._read(tuple(bundled(again, self.looking.slots)))
        return self._followed(together(besides(compared, again), later), {})

    def _found(self, compared: Compared) -> JobOutcome:
        coverage: list[Coverage] = []
        broken: list[Finding] = []
        findings: list[Finding] = []
        for side, endpoint in self._endpoints:
            cluster_id = cluster_ids(self.frozen)[side]
            read = compared.coverage[side]
            coverage += cover.coverage_of(side, cluster_id, self.frozen.bounds, self.scope.ranges, read)
            broken += cover.broken_logs(side, endpoint.alias, read)
            cover.check_transactions(endpoint.alias, self.scope.ranges, read)
            if side is Side.SOURCE:
                findings += cover.causeless_gaps(endpoint.alias, read, self.frozen.compacted[side])
        cover.check_contents(compared.differing, compared.coverage)
        findings = at_destination([*findings, *broken], self.frozen.mapped)
        told, ends = self._differences(compared, broken)
        unmapped = cover.unmapped(self.request.destination.alias, compared.coverage[Side.DESTINATION])
        findings = [*findings, *told, *unmapped]
        cover.check_named(compared.differing, findings)
        old = at_destination(
            old_formats.told(compared.coverage[Side.SOURCE], [*told, *broken]), self.frozen.mapped
        )  # fmt: skip
        return JobOutcome(findings, coverage, ends, [*self.looking.notes, *self._spoiled(compared)], old)

    def _spoiled(self, compared: Compared) -> list[str]:
        """Returns notes that say why records could not be read."""
        why = [
            f"{endpoint.alias}: {topic} partition {partition}: {reason}"
            for side, endpoint in self._endpoints
            for (topic, partition, _, _), part in sorted(compared.coverage[side].items())
            for reason in part.spoiled
        ]
        return why if len(why) <= MOST_NOTES else [*why[:MOST_NOTES], f"and {len(why) - MOST_NOTES:,} more such places"]

    def _followed(self, compared: Compared, starts: Mapping[Side, Starts]) -> Compared:
        """Returns the comparison, cut to where both logs start now. Ranges around a new start are read again.

        Args:
            compared: the comparison so far.
            starts: new log starts that are already known; if empty, those that the readers met are used.

        Raises:
            AuditError: a log's beginning was deleted again in each of ``MOST_ROUNDS`` rounds.
        """
        for _ in range(MOST_ROUNDS):
            starts = starts or {side: found_starts(read) for side, read in compared.coverage.items()}
            if not any(starts.values()):
                return compared
            compared, again = self.scope.begin_later(compared, starts)
            if again:
                compared = together(compared, self._read(tuple(bundled(again, self.looking.slots))))
            starts = {}
        raise AuditError(
            f"what was to be compared was deleted before it could be, {MOST_ROUNDS} times in a row",
            "run the audit again when less is deleted, or leave the topic out",
        )

    def _differences(self, compared: Compared, broken: list[Finding]) -> tuple[list[Finding], EndsLookedAt]:
        """Returns the differences, each fault once, and what they say about the ends of the logs. ``broken``: the
        findings on logs that cannot be read to their ends."""
        bounds = self.scope.bounds
        chunks = drill_down(compared.differing, self.scope.ranges, broken)
        self.looking.begin(
            {key: some[0].where.start for key, some in chunks.items()}, broken, cover.damaged(compared.coverage)
        )
        differences = Differences(
            self.looking,
            bounds,
            mapped=self.request.mapped,
            passed=self.passed,
            codec=self.request.codec,
            rebatches=self.request.rebatches,
            append_times=self.request.append_times,
        )
        found = differences.run(
            region for key, some in chunks.items() for region in regions(some, of_bounds(bounds[key]))
        )
        certain = {key: [one.where for one in some if one.certain] for key, some in chunks.items()}
        cover.check_chunks(certain, found, differences.said)
        told: list[Finding] = []
        shifts: dict[TopicPartition, int] = {}
        for key, findings in keys(found).items():
            once = told_once(findings, bounds[key], differences.holes(key), ended=key in differences.ended)
            shifts[key] = once.shift
            told += at_destination(once.findings, self.frozen.mapped)
        told += at_destination(differences.broken, self.frozen.mapped)
        return told, EndsLookedAt(shifts, differences.ended)
