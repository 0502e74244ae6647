"""``mirror audit``, but for the configuration: runs one audit, prints it, gives the exit code. Never a traceback."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mirror.audit.errors import AuditError
from mirror.audit.model import AuditRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = ("pyspark", "pyarrow", "numpy", "xxhash")


class ExitCode(IntEnum):
    """What the shell gets."""

    IDENTICAL = 0
    NOT_FINISHED = 1
    DIFFERENT = 2


def audit_flow(
    request: AuditRequest,
    *,
    out: Path | None = None,
    limit: int | None = None,
    console: Console | None = None,
    errors: Console | None = None,
    spark: "SparkSession | None" = None,
) -> int:
    """Audits one flow.

    Args:
        request: what to audit.
        out: folder for the result as files; none are written without it.
        limit: findings shown on the terminal; None for the usual number.
        console: for the result, stdout by default.
        errors: for progress and failures, stderr by default.
        spark: a session to use; by default one is started and ended.

    Returns:
        0 identical, 1 no verdict (the reason and a remedy were printed), 2 different.
    """
    console = console or Console()
    errors = errors or Console(stderr=True)
    try:
        with _terminated_as_interrupted():
            return _audit(request, out, limit, console, errors, spark)
    except AuditError as error:
        tell(errors, error)
    except KeyboardInterrupt:
        errors.print("audit: interrupted; nothing was proved", markup=False, highlight=False)
    return ExitCode.NOT_FINISHED


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends an audit as Ctrl-C does: Spark and its files are cleared away."""

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


def _audit(
    request: AuditRequest,
    out: Path | None,
    limit: int | None,
    console: Console,
    errors: Console,
    spark: "SparkSession | None",
) -> ExitCode:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise AuditError(
            f"the audit needs {', '.join(missing)}, which the daemon does without", "pip install 'mirror[audit]'"
        )
    from mirror.audit import export, job, report

    if out is not None:
        export.prepare(out)
    with report.BarProgress(errors) as progress:
        result = job.run(request, spark=spark, progress=progress)
    report.print_result(result, console, limit=report.MOST_SHOWN if limit is None else limit)
    if out is not None:
        export.write(result, out)
        console.print(f"written to {out}", markup=False, highlight=False)
    return ExitCode.IDENTICAL if result.identical else ExitCode.DIFFERENT


def tell(errors: Console, error: AuditError) -> None:
    """Problem and remedy, a line each."""
    errors.print(f"audit: {error.problem}", markup=False, highlight=False, soft_wrap=True)
    errors.print(f"   try: {error.remedy}", markup=False, highlight=False, soft_wrap=True)
