"""``mirror audit`` without its configuration: runs one audit, prints the result and returns the exit code. An expected
failure is printed in two lines, without a traceback; a bug is raised."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from mirror.audit.errors import AuditError, interrupted
from mirror.audit.folder import prepare
from mirror.audit.last import LastRun
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult, Verdict
from mirror.audit.remedies import remedies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNHEARD = logging.NullHandler()
UNWRAPPED = 10_000
"""Console width in characters that no line exceeds."""
NEEDED = ("pyspark", "pyarrow", "numpy", "xxhash", "cryptography")
"""Packages of the extra ``audit``, which the daemon does not need."""


class ExitCode(IntEnum):
    """The exit code of ``mirror audit``."""

    IDENTICAL = 0
    NOT_FINISHED = 1
    DIFFERENT = 2
    UNVERIFIABLE = 3
    """No difference. Something has no proof, or records were passed over as too large."""


_EXIT_CODES = {
    Verdict.IDENTICAL: ExitCode.IDENTICAL,
    Verdict.ACCEPTED: ExitCode.IDENTICAL,
    Verdict.DIFFERENT: ExitCode.DIFFERENT,
    Verdict.INCOMPLETE: ExitCode.NOT_FINISHED,
    Verdict.UNVERIFIABLE: ExitCode.UNVERIFIABLE,
    Verdict.OVERSIZE: ExitCode.UNVERIFIABLE,
}


def audit_flow(
    request: AuditRequest,
    *,
    out: Path | None = None,
    key: Path | None = None,
    metrics: Path | None = None,
    limit: int | None = None,
    console: Console | None = None,
    errors: Console | None = None,
    spark: "SparkSession | None" = None,
    typed: Callable[[str], str] = str,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> int:
    """Audits one flow.

    Args:
        request: what to audit.
        out: folder for the result files; None: none are written.
        key: file of the private key that signs the certificate among the result files.
        metrics: file for the result in Prometheus' text format (``mirror.audited``); None: none is written.
        limit: number of findings shown on the terminal; None for the default.
        console: for the result; stdout by default.
        errors: for progress and failures; stderr by default.
        spark: a running session, with ``AuditBatches`` registered; by default one is started and stopped.
        typed: rewrites the commands in a text as they have to be typed on this machine.
        master: a Spark cluster (``spark://HOST:PORT``, ``yarn``, ``k8s://…``); by default this machine alone.
        conf: settings for that cluster, as for ``spark-submit --conf``.

    Returns:
        0 identical or accepted; 1 no verdict, or none on a topic that the configuration names, or ``metrics`` cannot be
        written (the reason and a remedy were printed), or the user interrupted; 2 different; 3 no difference, but
        something has no proof, or records were passed over as too large.
    """
    console = console or for_stdout()
    errors = errors or Console(stderr=True)
    last: LastRun | None = None
    if metrics is not None:
        try:
            last = LastRun(metrics, f"{request.source.alias}->{request.destination.alias}")
        except AuditError as error:
            tell(errors, error, typed)
            return ExitCode.NOT_FINISHED
        if last.remark:
            errors.print(f"audit: {last.remark}", markup=False, highlight=False, soft_wrap=True)
    code = ExitCode.NOT_FINISHED
    # py4j logs a traceback for each failed call. All that matters also arrives as an exception.
    logging.getLogger().addHandler(_UNHEARD)
    try:
        with _terminated_as_interrupted():
            result = _audit(request, out, key, limit, console, errors, spark, typed, master, conf or {})
        code = _EXIT_CODES[result.verdict]
        if last is not None:
            last.result = result
    except (Exception, KeyboardInterrupt) as error:
        if interrupted(error):
            errors.print("audit: interrupted; nothing was proved", markup=False, highlight=False)
        elif isinstance(error, AuditError):
            tell(errors, error, typed)
        else:
            raise
    finally:
        logging.getLogger().removeHandler(_UNHEARD)
        # The file is written however the audit ended, also with a bug: the attempt counts.
        if last is not None and not _left(last, errors, typed):
            code = ExitCode.NOT_FINISHED
    return code


def _left(last: LastRun, errors: Console, typed: Callable[[str], str]) -> bool:
    """Writes the file for Prometheus. Prints the error and returns False if it cannot be written."""
    try:
        last.leave()
    except AuditError as error:
        tell(errors, error, typed)
        return False
    return True


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Makes SIGTERM end an audit as Ctrl-C does: Spark is stopped and its files are removed. Does nothing outside of
    the main thread, where Python allows no signal handlers."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def for_stdout() -> Console:
    """Returns the console for the result. It wraps lines only on a terminal: in a file or a pipe, each finding stays on
    one line of the table, for grep and later readers."""
    console = Console()
    return console if console.is_terminal else Console(width=UNWRAPPED)


def _audit(
    request: AuditRequest,
    out: Path | None,
    key: Path | None,
    limit: int | None,
    console: Console,
    errors: Console,
    spark: "SparkSession | None",
    typed: Callable[[str], str],
    master: str | None,
    conf: Mapping[str, str],
) -> AuditResult:
    if out is not None:
        prepare(out)
    _check_installed()
    from mirror.audit import export, job, report
    from mirror.audit.certify.keys import SigningKey
    from mirror.audit.spark.cluster_session import ClusterSession, is_submitted
    from mirror.audit.spark.session import LocalSession

    signing = SigningKey.read(key) if key is not None else None
    if master is None and not is_submitted():
        session: Callable[[], LocalSession] = LocalSession
    else:
        session = partial(ClusterSession, master, conf)
    with report.BarProgress(errors) as progress:
        result = job.run(request, spark=spark, session=session, progress=progress)
    advice = remedies(result.findings, request, typed)
    report.print_result(result, console, limit=report.MOST_SHOWN if limit is None else limit, remedies=advice)
    if out is not None:
        export.write(result, out, key=signing, remedies=advice)
        console.print(f"written to {out}", markup=False, highlight=False)
    return result


class Shown(NamedTuple):
    """What both sides have at an offset. ``data``: for JSON. ``table``: returns text for a terminal of so many columns
    (0: not wrapped). ``differs``: True if a copy has to keep something that differs."""

    data: dict[str, Any]
    table: Callable[[int], str]
    differs: bool


def explain_batches(
    request: AuditRequest, topic: str, partition: int, offset: int, there: int, show_records: bool
) -> Shown | None:
    """Compares the batches of both sides at an offset.

    Args:
        request: the audit request of the flow.
        topic: its name at the source.
        partition: its number.
        offset: at the source.
        there: the offset at the destination.
        show_records: keys, values and headers may be shown.

    Returns:
        What both sides have; None if a side cannot be read: then the reason and a remedy were printed to stderr.
    """
    from mirror.audit.explain.comparing import explained
    from mirror.audit.explain.looking import look
    from mirror.audit.explain.telling import data, table

    try:
        _check_installed()
        source, destination = look(request, topic, partition, offset, there)
    except AuditError as error:
        tell(Console(stderr=True), error)
        return None
    found = explained(source, destination, show_records=show_records)
    return Shown(data(source, destination, found), partial(table, source, destination, found), found.differs)


def verify_certificate(path: Path, key: Path | None, console: Console | None = None) -> int:
    """Verifies a certificate offline and prints what it says.

    Args:
        path: the certificate's file, or the folder that holds it.
        key: file of the public key that must have signed the certificate; None: the signature is not checked.
        console: for the result; stdout by default.

    Returns:
        1 if the certificate is not valid or cannot be read; otherwise the exit code of the audit that it is of.
    """
    from mirror.audit.certify.keys import read_public
    from mirror.audit.certify.verifying import verified

    console = console or for_stdout()
    try:
        found = verified(path, read_public(key) if key is not None else None)
    except AuditError as error:
        tell(Console(stderr=True), error)
        return ExitCode.NOT_FINISHED
    for line in found.told:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for problem in found.problems:
        console.print(f"not valid: {problem}", markup=False, highlight=False, soft_wrap=True)
    if found.problems:
        return ExitCode.NOT_FINISHED
    console.print("valid", markup=False, highlight=False)
    return _EXIT_CODES[found.verdict]


def _check_installed() -> None:
    """Raises AuditError if a package is missing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise AuditError(
            f"the audit needs {', '.join(missing)}, which the daemon does without",
            "in the project's folder: pip install '.[audit]'",
        )


def tell(errors: Console, error: AuditError, typed: Callable[[str], str] = str) -> None:
    """Prints the problem and the remedy on a line each. ``typed``: rewrites the commands in them as they have to be
    typed on this machine."""
    errors.print(f"audit: {typed(error.problem)}", markup=False, highlight=False, soft_wrap=True)
    errors.print(f"   try: {typed(error.remedy)}", markup=False, highlight=False, soft_wrap=True)
