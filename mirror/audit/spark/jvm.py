"""The JVM that a Spark session starts: known from its first moment, and never left behind.

PySpark's own care is that the JVM ends when its stdin does. That fails while it starts: if the folder for its first
message is gone by then (an interrupt, a cleaner of temporary files), its main thread dies and the rest lives for ever.
"""

import ctypes
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

from mirror.audit.errors import AuditError

END_S = 20.0
"""How long a JVM may take to end once its stdin is closed; then it is killed."""
GOING_S = 10.0
"""A JVM whose socket has just closed may need so long to be gone: the kernel takes back gigabytes first, and on a busy
machine that takes its time."""
_ANSWERS = (CapturedException, Py4JJavaError)
_PR_SET_PDEATHSIG = 1

Started = list["subprocess.Popen[Any]"]


def _die_with_parent() -> Callable[[], None] | None:
    """For the child: the kernel kills it when the thread that started it ends, however that comes about (Linux).

    None elsewhere, and where the caller is not the main thread: other threads end before the process does.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@contextmanager
def watched_start() -> Iterator[Started]:
    """What PySpark starts in here is in the list at once, long before PySpark itself would tell."""
    started: Started = []
    launcher: Any = java_gateway
    popen = launcher.Popen
    die_with_parent = _die_with_parent()

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
"""What a call of Spark raises."""


@contextmanager
def failures_told() -> Iterator[None]:
    """Whatever asks the JVM something is done in here.

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
    """Its text. py4j asks the JVM for the text of what was raised there: None where it is gone by now."""
    try:
        return str(error).strip() or repr(error)
    except FAILURES:
        return None


def _cause(text: str) -> str:
    """In one line: of an exception in Java, what caused it; its first line says only what was called."""
    lines = [line.strip() for line in text.splitlines()]
    causes = [line.partition(": ")[2] for line in lines if line.startswith(("Caused by: ", ": "))]
    return (causes[-1] if causes else lines[0])[:300]


def ended(*, answered: bool) -> str | None:
    """How the JVM of this process's session has ended, for people; None while it lives, or where there is none.

    ``answered``: a moment ago. Where it did not, it is going, and is waited for.
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
    """Ends the JVM, which ``SparkSession.stop`` leaves to the interpreter's exit; makes room for another session.

    ``at_once``: there is nothing in it to end cleanly, kill it.
    """
    if at_once:
        for process in started:
            process.kill()
    gateway = SparkContext._gateway
    SparkContext._gateway = None
    SparkContext._jvm = None
    if gateway is not None:
        with suppress(Exception):  # py4j raises what it likes where the JVM is gone already
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
