"""Tracks the JVM that a Spark session starts from its first moment, and never leaves it behind.

PySpark relies on the JVM to end when its stdin closes. That fails during startup: if the folder for its first message
is gone by then (an interrupt, a cleaner of temporary files), its main thread dies and its other threads run forever.
"""

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from mirror.audit.errors import AuditError
from mirror.parent import death_signal

END_S = 20.0
"""How long a JVM may take to end after its stdin is closed; then it is killed."""
GOING_S = 10.0
"""How long a JVM may take to exit after its socket closed: the kernel reclaims gigabytes first, which is slow on a busy
machine."""
_ANSWERS = (CapturedException, Py4JJavaError)

Started = list["subprocess.Popen[Any]"]


@contextmanager
def watched_start() -> Iterator[Started]:
    """Yields a list that gets each process as soon as PySpark starts it in this context, long before PySpark itself
    returns it."""
    started: Started = []
    launcher: Any = java_gateway
    popen = launcher.Popen
    # The death signal comes when the thread that forked ends, not the process. So it is set in the main thread only.
    die_with_parent = death_signal() if threading.current_thread() is threading.main_thread() else None

    def start(command: list[str], **options: Any) -> "subprocess.Popen[Any]":
        before = options.pop("preexec_fn", None)

        def prepare() -> None:
            if before is not None:
                before()
            if die_with_parent is not None:
                die_with_parent()

        process: subprocess.Popen[Any] = popen(command, preexec_fn=prepare, **options)
        started.append(process)
        return process

    launcher.Popen = start
    try:
        yield started
    finally:
        launcher.Popen = popen


FAILURES = (PySparkException, Py4JError, OSError, EOFError)
"""The exceptions that a call to Spark may raise."""


@contextmanager
def failures_told() -> Iterator[None]:
    """Turns failures of Spark in this context into an ``AuditError``. All calls to the JVM belong in such a context.

    Raises:
        AuditError: the JVM is gone, or Spark failed.
    """
    try:
        yield
    except FAILURES as error:
        text = said(error)
        how = ended(answered=text is not None and isinstance(error, _ANSWERS))
        if how is not None:
            raise AuditError(
                f"Spark's Java process {how}", "see whether the machine ran out of memory, then run the audit again"
            ) from error
        text = text or "its Java process does not answer"
        raise AuditError.unmarked(text) or AuditError(
            f"Spark failed: {_cause(text)}",
            "see whether the machine ran out of memory or of disk, then run the audit again",
        ) from error


def said(error: Exception) -> str | None:
    """Returns the error's text. For an exception that was raised in the JVM, py4j asks the JVM for its text; None if
    the JVM does not answer any more."""
    try:
        return str(error).strip() or repr(error)
    except FAILURES:
        return None


def _cause(text: str) -> str:
    """Returns the cause in one line. The first line of an exception in Java says only what was called."""
    lines = [line.strip() for line in text.splitlines()]
    causes = [line.partition(": ")[2] for line in lines if line.startswith(("Caused by: ", ": "))]
    return (causes[-1] if causes else lines[0])[:300]


def ended(*, answered: bool) -> str | None:
    """Returns in words how the JVM of this process's session ended; None if it lives or if there is none.

    ``answered``: the JVM answered a moment ago. If it did not, it may be exiting, so this waits up to ``GOING_S``.
    """
    process = getattr(SparkContext._gateway, "proc", None)
    try:
        code = process.wait(0 if answered else GOING_S) if process is not None else None
    except subprocess.TimeoutExpired:
        return None
    if code is None:
        return None
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def end(started: Started, *, at_once: bool = False) -> None:
    """Ends the JVM, which ``SparkSession.stop`` leaves to the interpreter's exit, and makes room for another session.

    ``at_once``: kills it, because nothing in it needs a clean end.
    """
    if at_once:
        for process in started:
            process.kill()
    gateway = SparkContext._gateway
    SparkContext._gateway = None
    SparkContext._jvm = None
    # If ``stop`` failed or was not called, PySpark would return the ended session as the next one.
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    if gateway is not None:
        with suppress(Exception):  # py4j may raise anything if the JVM is gone already
            gateway.shutdown()
    while started:
        process = started.pop()
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
