"""Reads the ranges of one Spark task, one after the other, as Arrow batches. No Spark in here."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

from mirror.audit.model.places import Side, Span
from mirror.audit.prepare.plan import Range, Task
from mirror.audit.read.opened import as_units, record_rows, unopened_within
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.read.reader import Reader
from mirror.audit.read.rows import Block, Chunks, Runs, batch_rows, coverage_row, gathered
from mirror.audit.spark.options import CHUNKS, OPENED, RECORDS, SourceOptions
from mirror.loop_thread import driven


def read_task(options: SourceOptions, task: Task) -> Iterator[Any]:
    """Returns an iterator over the rows of all ranges of the task, in Arrow batches of a useful size.

    Raises:
        AuditError: a range cannot be read.
    """
    return gathered(driven(_rows(options, task)))


async def _rows(options: SourceOptions, task: Task) -> AsyncGenerator[Any, None]:
    cluster = options.cluster_id or options.endpoint.alias
    reader = Reader(
        options.endpoint,
        cluster_id=options.cluster_id,
        topic_ids=options.topic_ids,
        digest=options.digest,
        fetch_bytes=options.fetch_bytes,
        rules=options.rules,
        opens=options.rows == RECORDS or options.units == OPENED,
        cleaned=options.cleaned,
        old=options.old,
        adopted=options.adopted,
    )
    try:
        await reader.open({wanted.copied.topic if wanted.copied else wanted.topic for wanted in task})
        for wanted in task:
            coverage = RangeCoverage()
            name = cluster, wanted.topic, wanted.partition
            odd = options.rules.odd
            blocks = _units(reader, wanted, coverage) if options.units == OPENED else reader.blocks(wanted, coverage)
            if options.rows == CHUNKS:
                chunks = Chunks(options.digest, wanted.start, wanted.width, odd)
                async for block in blocks:
                    chunks.add(block)
                yield chunks.rows(*name)
                coverage.content = chunks.content.hexdigest()
            elif options.rows == RECORDS:
                async for block in blocks:
                    if block.records:
                        yield record_rows(*name, unopened_within(block.records, wanted.start))
            else:
                runs = Runs(odd)
                async for block in blocks:
                    if len(block.headers):
                        yield batch_rows(*name, block)
                    if options.rules.side is Side.SOURCE or not options.rules.mapped:
                        for rows in runs.rows(*name, runs.take(block.holes)):
                            yield rows
                for rows in runs.rows(*name, runs.close()):
                    yield rows
            yield coverage_row(cluster, wanted.topic, wanted.partition, wanted.start, wanted.end, coverage.to_json())
    finally:
        await reader.close()


async def _units(reader: Reader, wanted: Range, coverage: RangeCoverage) -> AsyncIterator[Block]:
    """Yields blocks of records instead of batches. The other side's batches may have other borders, so a range that
    begins inside of a batch also takes its records from that batch."""
    async for block in reader.blocks(wanted._replace(first=True), coverage):
        yield as_units(block, Span(wanted.start, wanted.end))
