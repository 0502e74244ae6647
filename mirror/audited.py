"""The result of a flow's last audit, as a small file in Prometheus' text format.

``mirror audit`` writes the file, and reads it at the next audit. node_exporter's textfile collector and ``mirror run``
read it. It appears as a whole, by a rename, and its last line shows that it is complete.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from errno import EISDIR
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # otherwise imported where needed: most importers of this module neither write nor read a file
    from prometheus_client.core import Metric

UNFINISHED = "unfinished"
"""The audit ended without a verdict (exit code 1): nothing was proved."""
VERDICTS = ("identical", "accepted", "unverifiable", "oversize", "different", "incomplete", UNFINISHED)
"""The values of ``mirror.audit.model.result.Verdict``, and ``UNFINISHED``."""
PASSED = frozenset({"identical", "accepted"})
"""The verdicts of an audit that ends with exit code 0."""
SUFFIX = ".prom"
"""The suffix of the file's name; node_exporter reads no other files."""
MODE = 0o644
"""Readable for all users, whatever the umask is: node_exporter runs as another user, and the file has no secrets."""
MOST_BYTES = 32 << 20
"""Maximum size of the file; a larger one is refused. It is enough for more than 50,000 topics."""
_FLOW = ["source", "target"]
_TOPIC = [*_FLOW, "topic"]
_LAST_RUN = "mirror_audit_last_run_timestamp_seconds"
_LAST_SUCCESS = "mirror_audit_last_success_timestamp_seconds"
_VERDICT = "mirror_audit_verdict"
_DIFFERENCES = "mirror_audit_differences"
_BYTES = "mirror_audit_compared_bytes"
_BATCHES = "mirror_audit_compared_batches"
_INFO = "mirror_audit_info"
_COUNTS = (_DIFFERENCES, _BYTES, _BATCHES)
"""The metrics of ``Compared``, in the order of its fields."""
_FAMILIES = (
    (_LAST_RUN, _FLOW, "When the last audit of the flow ended, whatever it said."),
    (_LAST_SUCCESS, _FLOW, "When the last audit ended that passed (exit code 0)."),
    (_DIFFERENCES, _TOPIC, "Differences that the last audit with a verdict found."),
    (_BYTES, _TOPIC, "Bytes of the source's batches that the last audit with a verdict has read."),
    (_BATCHES, _TOPIC, "Batches of the source that the last audit with a verdict has read."),
    (_VERDICT, [*_FLOW, "verdict"], "1 for what the last audit said; unfinished: it ended without a verdict."),
    (_INFO, [*_FLOW, "source_cluster_id", "target_cluster_id"], "The ids of the audited clusters; always 1."),
)
LABELS = {name: labels for name, labels, _ in _FAMILIES}
"""The labels of each metric, by its name."""


class Damaged(Exception):
    """The file is not one that an audit writes. The message says what is wrong; it is to be shown behind the file's
    name.
    """


class Compared(NamedTuple):
    """The numbers of one topic, from the last audit with a verdict. ``bytes`` and ``batches`` count what was read of
    the source."""

    differences: int = 0
    bytes: int = 0
    batches: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAudit:
    """The result of a flow's last audit.

    Attributes:
        flow: the flow's name (``source->destination``).
        at_s: when the audit ended, in seconds since 1970.
        verdict: one of ``VERDICTS``.
        success_at_s: when the last audit ended that passed, in seconds since 1970; None: none is known.
        source_id: the source's cluster id; empty: not known, because no audit has got that far.
        destination_id: the destination's cluster id, likewise.
        topics: the numbers of each source topic, from the last audit that reached a verdict.
    """

    flow: str
    at_s: float
    verdict: str
    success_at_s: float | None = None
    source_id: str = ""
    destination_id: str = ""
    topics: Mapping[str, Compared] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True if the audit ended with exit code 0."""
        return self.verdict in PASSED

    @property
    def differences(self) -> int:
        """The number of differences in all topics."""
        return sum(each.differences for each in self.topics.values())

    def is_of(self, source_id: str, destination_id: str) -> bool:
        """Returns False if the audit was of other clusters than these. An id that is not known (empty) matches any."""
        pairs = (self.source_id, source_id), (self.destination_id, destination_id)
        return all(one == other or not one or not other for one, other in pairs)

    def after(self, before: "LastAudit | None") -> "LastAudit":
        """Returns this result with what remains true of the previous audit, ``before``: the time of the last success
        and, if this audit has no verdict, the numbers of the topics. An audit of other clusters does not count."""
        if self.passed:
            return replace(self, success_at_s=self.at_s)
        if before is None or not before.is_of(self.source_id, self.destination_id):
            return self
        kept = replace(
            self,
            success_at_s=before.success_at_s,
            source_id=self.source_id or before.source_id,
            destination_id=self.destination_id or before.destination_id,
        )
        return replace(kept, topics=before.topics) if self.verdict == UNFINISHED else kept


@dataclass(frozen=True, slots=True)
class Look:
    """The outcome of reading the file of a flow's last audit. ``audit``: the result; None if there is a problem.
    ``problem``: the reason why the file tells nothing about the flow; empty if it does."""

    path: str
    audit: LastAudit | None = None
    problem: str = ""

    @classmethod
    def at(cls, path: str) -> "Look":
        """Reads the file at this path. A missing or damaged file is a ``problem``, not an error."""
        try:
            audit = read(Path(path))
        except Damaged as error:
            return cls(path, None, f"{path} {error}")
        return cls(path, audit, "" if audit else f"there is no {path}: no audit has ended yet, or none that writes it")

    def about(self, flow: str, source_id: str, destination_id: str) -> "Look":
        """Returns the outcome for a flow between these clusters. It is a ``problem`` if the audit was of another flow
        or of other clusters, or if an id is empty, so that this is not known."""
        audit = self.audit
        if audit is None:
            return self
        if audit.flow != flow:
            return Look(self.path, None, f"{self.path} is of flow {audit.flow}")
        if not source_id or not destination_id:
            return Look(self.path, None, f"{self.path} may be of other clusters: the flow has not reached both yet")
        if not audit.is_of(source_id, destination_id):
            audited = f"{audit.source_id} and {audit.destination_id}"
            return Look(
                self.path, None, f"{self.path} is of clusters {audited}, not of {source_id} and {destination_id}"
            )
        return self


def families(audits: Iterable[LastAudit]) -> "Iterator[Metric]":
    """Yields the metrics of these audits, in the order of ``_FAMILIES``: the metrics that a complete file must have
    come last."""
    from prometheus_client.core import GaugeMetricFamily

    gauges = {name: GaugeMetricFamily(name, text, labels=labels) for name, labels, text in _FAMILIES}
    for audit in audits:
        here, _, there = audit.flow.partition("->")
        flow = [here, there]
        gauges[_LAST_RUN].add_metric(flow, audit.at_s)
        if audit.success_at_s is not None:
            gauges[_LAST_SUCCESS].add_metric(flow, audit.success_at_s)
        for topic, compared in sorted(audit.topics.items()):
            for name, value in zip(_COUNTS, compared, strict=True):
                gauges[name].add_metric([*flow, topic], value)
        for verdict in VERDICTS:
            gauges[_VERDICT].add_metric([*flow, verdict], int(verdict == audit.verdict))
        gauges[_INFO].add_metric([*flow, audit.source_id, audit.destination_id], 1)
    yield from gauges.values()


def write(audit: LastAudit, path: Path) -> None:
    """Writes the file under another name, which node_exporter ignores, and renames it.

    Raises:
        OSError: it cannot be written; a former file is unchanged.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Collected(Collector):
        def collect(self) -> "Iterable[Metric]":
            return families([audit])

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected())
    with _beside(path) as unfinished:
        with open(unfinished, "wb") as stream:
            stream.write(generate_latest(registry))
            stream.flush()
            os.fchmod(stream.fileno(), MODE)
            os.fsync(stream.fileno())
        unfinished.rename(path)


def probe(path: Path) -> None:
    """Checks that a file can be written at this path, and leaves nothing behind.

    Raises:
        OSError: it cannot be written.
    """
    if path.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    with _beside(path):
        pass


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Yields a new file in the same folder, with a name that node_exporter ignores. The file is removed at the end."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".unfinished", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)  # it is missing if it was renamed


def read(path: Path) -> LastAudit | None:
    """Returns the result in the file; None if there is no file.

    Raises:
        Damaged: the file cannot be read, or is not one that an audit writes.
    """
    try:
        with open(path, "rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Damaged(f"cannot be read: {error.strerror}") from error
    if len(raw) > MOST_BYTES:
        raise Damaged(f"is larger than {MOST_BYTES} bytes")
    try:
        return _parsed(raw.decode())
    except (LookupError, ValueError, OverflowError) as error:
        raise Damaged("is damaged, or was not written by mirror audit") from error


def _parsed(text: str) -> LastAudit:
    """Returns the result that this text contains.

    Raises:
        LookupError, ValueError, OverflowError: no audit writes such a text.
    """
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not isfinite(sample.value):
                raise ValueError(f"{sample.name} is no number")
            found.setdefault(sample.name, {})[tuple(sample.labels[name] for name in LABELS[sample.name])] = sample.value
    # This metric is in the last line. If that is missing, or does not end with a newline (below), the file was cut.
    ((here, there, source_id, destination_id),) = found[_INFO]
    ((_, at_s),) = found[_LAST_RUN].items()
    said = {verdict: is_so for (*_, verdict), is_so in found[_VERDICT].items()}
    if set(said) != set(VERDICTS) or sorted(said.values()) != [*(0 for _ in VERDICTS[1:]), 1] or text[-1] != "\n":
        raise ValueError("not one verdict")
    if {flow[:2] for series in found.values() for flow in series} != {(here, there)}:
        raise ValueError("not one flow")
    counts = [{topic: round(n) for (*_, topic), n in found.get(name, {}).items()} for name in _COUNTS]
    return LastAudit(
        flow=f"{here}->{there}",
        at_s=at_s,
        verdict=max(said, key=said.__getitem__),
        success_at_s=next(iter(found.get(_LAST_SUCCESS, {}).values()), None),
        source_id=source_id,
        destination_id=destination_id,
        topics={topic: Compared(*(each[topic] for each in counts)) for topic in counts[0]},
    )
