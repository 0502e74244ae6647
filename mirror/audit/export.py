"""The result of an audit as files: findings and coverage as Parquet and JSON, and a summary. No Spark.

A script that watches the folder must never mistake an older audit's result for this one's. So old files are removed
before any work is done, each file appears whole, and the summary, which has the verdict, comes last.
"""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirror import DISTRIBUTION
from mirror.audit.certify.certificate import certificate, outcome, signed
from mirror.audit.certify.keys import SigningKey
from mirror.audit.errors import AuditError
from mirror.audit.folder import CERTIFICATE, CERTIFIED, FILES, PAGE, SUMMARY, UNFINISHED
from mirror.audit.model.findings import Finding
from mirror.audit.model.places import Span
from mirror.audit.model.result import AuditResult, Coverage
from mirror.audit.page.page import page

_OFFSETS = [(f"{side}_{border}", pa.int64()) for side in ("source", "destination") for border in ("start", "end")]
FINDINGS = pa.schema(
    [
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *_OFFSETS,
        ("batches", pa.int64()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("detail", pa.string()),
    ]
)
COVERAGE = pa.schema(
    [
        ("side", pa.string()),
        ("cluster_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("log_start", pa.int64()),
        ("log_end", pa.int64()),
        ("audited_start", pa.int64()),
        ("audited_end", pa.int64()),
        ("ranges", pa.int64()),
        ("batches", pa.int64()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("record_offsets", pa.int64()),
        ("control_offsets", pa.int64()),
        ("aborted_offsets", pa.int64()),
        ("empty_offsets", pa.int64()),
        ("gap_offsets", pa.int64()),
        ("odd_offsets", pa.int64()),
        ("append_times", pa.int64()),
        ("complete", pa.bool_()),
    ]
)


def write(
    result: AuditResult, folder: Path, *, key: SigningKey | None = None, remedies: Sequence[str] = ()
) -> list[Path]:
    """Writes all files, the summary last. No file gets its name before all are whole and on disk.

    Args:
        result: the result of the audit.
        folder: an existing folder.
        key: signs the certificate; None: it is not signed.
        remedies: lines for the page that say what to do.

    Returns:
        The paths of the files.

    Raises:
        AuditError: a file cannot be written.
    """
    findings = [finding_row(finding) for finding in result.findings]
    coverage = [coverage_row(row) for row in result.coverage]
    contents: dict[str, Any] = {
        "findings.json": findings,
        "findings.parquet": (findings, FINDINGS),
        "coverage.json": coverage,
        "coverage.parquet": (coverage, COVERAGE),
        PAGE: page(result, remedies),
        SUMMARY: summary(result),
    }
    digests: dict[str, str] = {}
    try:
        for name in FILES:
            path = folder / name
            unfinished = folder / (name + UNFINISHED)
            _write(unfinished, signed(certificate(result, digests), key) if name == CERTIFICATE else contents[name])
            _flush(unfinished)
            if name in CERTIFIED:
                with unfinished.open("rb") as written:
                    digests[name] = hashlib.file_digest(written, "sha256").hexdigest()
        for name in FILES:
            path = folder / name
            (folder / (name + UNFINISHED)).rename(path)
        _flush(folder)
    except OSError as error:
        raise AuditError(f"cannot write {path}: {error.strerror}", "free some space, or name another folder") from error
    return [folder / name for name in FILES]


def _write(path: Path, content: Any) -> None:
    """Writes a tuple (rows, schema) as Parquet, a string as UTF-8 text, and everything else as JSON."""
    if isinstance(content, tuple):
        rows, schema = content
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")  # as the page says, whatever the locale is
    else:
        path.write_text(json.dumps(content, indent=1) + "\n")


def _flush(path: Path) -> None:
    """Flushes a file, or the names in a folder, to disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _borders(side: str, span: Span | None) -> dict[str, int | None]:
    return {f"{side}_start": span.start if span else None, f"{side}_end": span.end if span else None}


def finding_row(finding: Finding) -> dict[str, Any]:
    """Returns a finding as a flat row. The end offsets are exclusive."""
    return {
        "kind": finding.kind.value,
        "topic": finding.topic,
        "partition": finding.partition,
        **_borders("source", finding.source),
        **_borders("destination", finding.destination),
        "batches": finding.batches,
        "records": finding.records,
        "bytes": finding.bytes,
        "detail": finding.detail,
    }


def coverage_row(row: Coverage) -> dict[str, Any]:
    """Returns a coverage row as a flat row. The end offsets are exclusive."""
    return {
        "side": row.side.value,
        "cluster_id": row.cluster_id,
        "topic": row.topic,
        "partition": row.partition,
        "log_start": row.log.start,
        "log_end": row.log.end,
        "audited_start": row.audited.start,
        "audited_end": row.audited.end,
        "ranges": row.ranges,
        "batches": row.batches,
        "records": row.records,
        "bytes": row.bytes,
        "record_offsets": row.offsets,
        "control_offsets": row.control,
        "aborted_offsets": row.aborted,
        "empty_offsets": row.empty,
        "gap_offsets": row.gaps,
        "odd_offsets": row.odd,
        "append_times": row.stamped,
        "complete": row.complete,
    }


def summary(result: AuditResult) -> dict[str, Any]:
    """Returns the verdict and what it is based on. ``bounds`` has, for each partition, the first audited offset and the
    first offset after the audited ones."""
    bounds: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for row in result.coverage:
        bounds[row.topic][row.partition] = [row.audited.start, row.audited.end]
    return {
        **outcome(result),
        "version": version(DISTRIBUTION),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "identical": result.identical,
        "bounds": bounds,
        "cleaned": result.all_cleaned._asdict(),
        "skipped": [
            {
                "topic": each.topic,
                "partition": each.partition,
                **_borders("source", each.source),
                "why": each.why,
                "at_ms": each.at_ms,
            }
            for each in result.skipped
        ],
        "undecided": [
            {
                "side": each.side.value,
                "topic": each.topic,
                "partition": each.partition,
                "start": each.span.start,
                "end": each.span.end,
            }
            for each in result.undecided
        ],
        "adopted": [
            {"topic": key.topic, "partition": key.partition, "end": one.end, "leader_epoch": one.leader_epoch}
            for key, one in sorted(result.adopted.items())
        ],
        "notes": list(result.notes),
        "elapsed_s": round(result.elapsed_s, 3),
    }
