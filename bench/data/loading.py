"""Fills the source topic of a workload by several processes in parallel, and reads its contents from the disk."""

import json

from bench.copiers.programs import Programs, python_module
from bench.data.clusters import Side
from bench.data.stored import Stored
from bench.errors import BenchError
from bench.plan import Workload

__all__ = ["fill"]

_LOADERS = 2
_TIMEOUT_S = 900.0
_TOLERANCE = 0.15


def fill(workload: Workload, source: Side, programs: Programs) -> Stored:
    """Creates the workload's topic, fills it, and returns its contents.

    Raises:
        BenchError: a loader has failed, records are missing, or the batches do not have the intended size.
    """
    source.create(workload.topic, workload.partitions)
    started = []
    for number in range(min(_LOADERS, workload.partitions)):
        partitions = list(range(number, workload.partitions, _LOADERS))
        arguments = {
            "bootstrap_servers": source.bootstrap_servers, "topic": workload.topic, "partitions": partitions,
            "codec": workload.codec, "batch_bytes": workload.batch_bytes, "record_bytes": workload.record_bytes,
            "total_bytes": workload.total_bytes * len(partitions) // workload.partitions,
        }  # fmt: skip
        started.append(programs.start("loader", python_module("bench.data.load", json.dumps(arguments))))
    try:
        written = sum(json.loads(loader.wait(_TIMEOUT_S).splitlines()[-1])["records"] for loader in started)
    finally:
        for loader in started:
            loader.kill()
    held = source.stored(workload.topic, workload.partitions)
    if held.records != written:
        raise BenchError(f"{workload.topic} holds {held.records} records of {written} written", "see the source's log")
    if abs(held.mean_batch_bytes / workload.batch_bytes - 1) > _TOLERANCE:
        raise BenchError(
            f"batches of {workload.topic} measure {held.mean_batch_bytes:.0f} bytes, not {workload.batch_bytes}",
            "look at load.records_per_batch",
        )
    return held
