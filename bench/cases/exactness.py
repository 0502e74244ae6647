"""Measures the cost of exactness: the same data plain, old, in transactions, and over long round trips. Mirror only.

Each case is a topic of 16 KB lz4 batches, or of smaller ones if transactions end them. A hole at the source becomes
markers at the destination. If data are so old that the destination may forget their producer, one batch is in flight at
a time. Both limit the throughput of a partition by round trips, as these rows show.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bench.copiers.copying import Copier, Job, copy
from bench.copiers.programs import Programs, python_module
from bench.copiers.shallow import Mirror
from bench.data.clusters import Side
from bench.data.stored import Stored
from bench.errors import BenchError
from bench.goals import judges
from bench.measure import Measured, Window, median
from bench.plan import Case
from bench.report.results import Cost

__all__ = ["cost", "fill", "measure"]

CODEC = "lz4"
RECORD_BYTES = 1_000
BATCH_BYTES = 16_384
LARGE = 4
"""Factor by which the batches are larger that the destination does not take."""
_LOADERS = 2
_TIMEOUT_S = 300.0


def fill(case: Case, source: Side, programs: Programs) -> Stored:
    """Creates the case's topic, fills it, and returns its contents. Markers count as records unless offsets are mapped.

    Raises:
        BenchError: a loader has failed, or the topic is empty.
    """
    source.create(case.topic, case.partitions)
    written = _load(case, source, programs, BATCH_BYTES, case.total_bytes * (1 - case.large_share))
    if case.large_share:
        written += _load(case, source, programs, LARGE * BATCH_BYTES, case.total_bytes * case.large_share)
    held = source.stored(case.topic, case.partitions)
    if not held.records:
        raise BenchError(f"{case.topic} holds nothing", "see the source's log")
    return dataclasses.replace(held, records=written) if case.flow.get("offsets") == "mapped" else held


def _load(case: Case, source: Side, programs: Programs, batch_bytes: int, total_bytes: float) -> int:
    """Writes batches of a size until there are ``total_bytes``. Returns the number of records."""
    loaders = []
    for number in range(min(_LOADERS, case.partitions)):
        partitions = list(range(number, case.partitions, _LOADERS))
        arguments = {
            "bootstrap_servers": source.bootstrap_servers, "topic": case.topic, "partitions": partitions,
            "codec": CODEC, "batch_bytes": batch_bytes, "record_bytes": RECORD_BYTES,
            "total_bytes": int(total_bytes) * len(partitions) // case.partitions, "age_s": case.age_s,
            "records_per_transaction": case.records_per_transaction,
        }  # fmt: skip
        loaders.append(programs.start("loader", python_module("bench.data.load", json.dumps(arguments))))
    try:
        return sum(json.loads(loader.wait(_TIMEOUT_S).splitlines()[-1])["records"] for loader in loaders)
    finally:
        for loader in loaders:
            loader.kill()


def measure(
    case: Case, held: Stored, *, source: Side, destination: Side, programs: Programs, flow: Mapping[str, Any]
) -> Measured:
    """Copies the case's topic once, and returns the figures. Arguments: see ``copying.measure``; ``flow``: further
    settings of mirror's flow.

    Raises:
        BenchError: mirror has ended, stood still, or was too quick to be measured.
    """
    far = case.far if case.round_trip_ms else ()
    job = Job(
        topic=case.topic, partitions=case.partitions, codec=CODEC,
        source=source.far_servers(case.round_trip_ms) if "source" in far else source.bootstrap_servers,
        destination=destination.far_servers(case.round_trip_ms) if "destination" in far
        else destination.bootstrap_servers,
    )  # fmt: skip
    copier: Copier = Mirror({**flow, **case.flow})
    config = {"max.message.bytes": str(LARGE // 2 * BATCH_BYTES)} if case.large_share else {}
    # Cases that a bound compares are measured as a whole: the batches that are cut in pieces were written last.
    window = Window() if judges(case) else None
    return copy(copier, job, held, destination=destination, programs=programs, config=config, window=window)


def cost(case: Case, held: Stored, runs: Sequence[Measured]) -> Cost:
    """Returns a row of the results, made from the run with the median CPU. ``held``: the topic's contents."""
    measured = median(runs)
    return Cost(
        case=case.name, what=case.what, partitions=case.partitions, stored_bytes=held.bytes, batches=held.batches,
        records=held.records, mb_per_s=round(measured.mb_per_s, 2), cpu_s_per_gb=round(measured.cpu_s_per_gb, 3),
        offsets_per_s=round(held.records * measured.bytes / held.bytes / measured.seconds),
        runs_cpu_s_per_gb=tuple(round(run.cpu_s_per_gb, 4) for run in runs) if len(runs) > 1 else (),
    )  # fmt: skip
