"""Writes the result of an audit to a file that Prometheus and ``mirror run`` read (``mirror.audited`` has its format).
No Spark."""

import time
from collections import Counter, defaultdict
from pathlib import Path

from mirror.audit.errors import AuditError
from mirror.audit.model.findings import PROVED_OTHERWISE
from mirror.audit.model.places import Side
from mirror.audit.model.result import AuditResult
from mirror.audited import SUFFIX, UNFINISHED, Compared, Damaged, LastAudit, probe, read, write


class LastRun:
    """The file of a flow's last audit, from before an audit begins until its result is written."""

    def __init__(self, path: Path, flow: str) -> None:
        """Checks that the file can be written, and reads the result of the previous audit from it. A damaged file is no
        error: it is replaced, and ``remark`` says so.

        Args:
            path: the file of metrics.
            flow: the flow's name (``source->destination``).

        Raises:
            AuditError: the file cannot be written, its name does not end in ``.prom``, or it is another flow's.
        """
        self.path = path
        self.result: AuditResult | None = None
        """The result of the audit. ``command`` sets it; None as long as there is no verdict."""
        self.remark = ""
        """Says for the operator that the file was damaged; empty if it was not."""
        self._flow = flow
        self._before: LastAudit | None = None
        if path.suffix != SUFFIX:
            raise AuditError(
                f"{path} does not end in {SUFFIX}, and node_exporter reads no other files", f"name it {path}{SUFFIX}"
            )
        try:
            probe(path)
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            self._before = read(path)
        except Damaged as error:
            self.remark = f"{path} {error}; when the last audit passed is not known any more"
        if self._before is not None and self._before.flow != flow:
            raise AuditError(
                f"{path} has the last audit of flow {self._before.flow}, and this one is of {flow}",
                "name a file for each flow",
            )

    def leave(self) -> None:
        """Writes the result of this audit, with what remains true of the previous one (``LastAudit.after``).

        Raises:
            AuditError: the file cannot be written.
        """
        last = said(self.result, self._flow, time.time()).after(self._before)
        try:
            write(last, self.path)
        except OSError as error:
            raise _unwritable(self.path, error) from error


def said(result: AuditResult | None, flow: str, at_s: float) -> LastAudit:
    """Returns the content of the file for an audit that ended at ``at_s`` (seconds since 1970). ``result`` is None if
    the audit ended without a verdict."""
    if result is None:
        return LastAudit(flow=flow, at_s=at_s, verdict=UNFINISHED)
    found = Counter(each.topic for each in result.findings if each.kind not in PROVED_OTHERWISE)
    read_of: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in result.coverage:
        size, batches = read_of[row.topic]
        is_source = row.side is Side.SOURCE
        read_of[row.topic] = size + row.bytes * is_source, batches + row.batches * is_source
    return LastAudit(
        flow=flow,
        at_s=at_s,
        verdict=result.verdict.value,
        source_id=result.source_cluster_id,
        destination_id=result.destination_cluster_id,
        topics={topic: Compared(found[topic], *read_of[topic]) for topic in {*read_of, *found}},
    )


def _unwritable(path: Path, error: OSError) -> AuditError:
    return AuditError(f"cannot write {path}: {error.strerror}", "name a file in a folder that can be written to")
