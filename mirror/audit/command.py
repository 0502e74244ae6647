"""``mirror audit`` without the configuration: runs one audit, prints it, returns the exit code. A failure that is
expected is two lines, never a traceback; a bug is raised."""

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
"""Console width in characters: more than any line has."""
NEEDED = ("pyspark", "pyarrow", "numpy", "xxhash", "cryptography")


class ExitCode(IntEnum):
    """The exit code of ``mirror audit``."""

    IDENTICAL = 0
    NOT_FINISHED = 1
    DIFFERENT = 2
    UNVERIFIABLE = 3


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
        out: folder for the result files; without it none are written.
        key: file of the private key that signs the certificate among them.
        metrics: file for what it said, for Prometheus (``mirror.audited``); without it none is written.
        limit: number of findings shown on the terminal; None for the default.
        console: for the result; stdout by default.
        errors: for progress and failures; stderr by default.
        spark: a session to use; by default one is started and stopped.
        typed: rewrites the commands in a text as they have to be typed here.
        master: a Spark cluster (``spark://HOST:PORT``, ``yarn``, ``k8s://…``); by default this machine alone.
        conf: settings for that cluster, as for ``spark-submit --conf``.

    Returns:
        0 identical or accepted; 1 no verdict, or none on a topic that the configuration names (the reason and a remedy
        were printed); 2 different; 3 no difference but no proof either, or nothing but records that were passed over as
        too large.
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
        # Whatever became of it, a bug included: it was tried.
        if last is not None and not _left(last, errors, typed):
            code = ExitCode.NOT_FINISHED
    return code


def _left(last: LastRun, errors: Console, typed: Callable[[str], str]) -> bool:
    """Writes what the audit said for Prometheus. Returns False, and says why, if that cannot be done."""
    try:
        last.leave()
    except AuditError as error:
        tell(errors, error, typed)
        return False
    return True


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Makes SIGTERM end an audit as Ctrl-C does: Spark is stopped and its files are removed."""

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
    """What is at an offset: as JSON could hold it, as text of so many columns (0: not wrapped), and the verdict."""

    data: dict[str, Any]
    table: Callable[[int], str]
    differs: bool


def explain_batches(
    request: AuditRequest, topic: str, partition: int, offset: int, there: int, show_records: bool
) -> Shown | None:
    """Compares the batches of both sides at an offset.

    Args:
        request: of the flow.
        topic: by its name at the source.
        partition: its number.
        offset: at the source.
        there: at the destination.
        show_records: keys, values and headers may be shown.

    Returns:
        What is there; None if a side cannot be read: the reason and a remedy were printed.
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
        path: the file, or the folder that has it.
        key: file of the public key whose signature it must have.
        console: for the result; stdout by default.

    Returns:
        1 if it is not valid, or cannot be read; otherwise the exit code of the audit.
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
    """Prints problem and remedy, a line each."""
    errors.print(f"audit: {typed(error.problem)}", markup=False, highlight=False, soft_wrap=True)
    errors.print(f"   try: {typed(error.remedy)}", markup=False, highlight=False, soft_wrap=True)
