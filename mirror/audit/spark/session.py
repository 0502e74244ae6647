"""A Spark session for one audit on this machine. It fits the machine, uses only loopback, prints nothing and removes
all of its files.

The output of Spark and Java goes to a log in the session's temporary folder. Errors that matter arrive as exceptions.
"""

import math
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark.sql import SparkSession

from mirror.audit.errors import AuditError, interrupted
from mirror.audit.spark import java, jvm
from mirror.audit.spark.source import AuditBatches

HEAP_MB = 512
"""The JVM's heap. It holds only rows, and Spark spills what does not fit; payloads never reach the JVM. A larger heap
would only fill with more garbage before it is collected (``make audit-large`` measures the memory of an audit)."""
LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
LOG_TAIL = 5
MOST_SOCKET_FOLDER = 60
"""Maximum length in bytes of the path of a folder for Spark's Unix sockets: the kernel accepts 108 bytes for the whole
path of a socket."""
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""The CPU limit of this container: quota and period in microseconds (cgroup v2). A host has no such file."""

ENVIRONMENT = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP")
"""The environment variables that a session sets for PySpark, and restores when it ends."""


def cores() -> int:
    """Returns the number of processors that this process may use, with the CPU limit of a container. Neither Python nor
    Spark considers that limit, and a task for each processor of a large node would need more memory than the container
    has."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CPU_LIMIT.read_text().split()
        return min(usable, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file; "max", which is no limit
        return usable


def slots_of(spark: SparkSession) -> int:
    """Returns the number of tasks that the session runs at the same time.

    Raises:
        AuditError: the JVM is gone.
    """
    with jvm.failures_told():
        return max(1, int(spark.sparkContext.defaultParallelism))


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirects stderr to ``path`` in this context. Processes that are started in it keep writing there."""
    sys.stderr.flush()
    own = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(log)


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Restores the SIGINT handler at the end of this context. The handler that PySpark sets in it calls the JVM from
    wherever the thread was interrupted, maybe in the middle of another call, and ends in py4j's tracebacks."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class LocalSession:
    """A context manager that owns a Spark session, ``spark``. Spark itself allows only one at a time in a process."""

    def __init__(self) -> None:
        self._folders: list[Path] = []
        self._spark: SparkSession | None = None
        self._started: jvm.Started = []
        self._environment: dict[str, str | None] = {}

    @property
    def spark(self) -> SparkSession:
        """The running session."""
        assert self._spark is not None, "the session is not started"
        return self._spark

    @property
    def python(self) -> str:
        """The interpreter of the session's tasks."""
        return sys.executable

    def start(self) -> Self:
        """Starts the session (about 5 s).

        Raises:
            AuditError: there is no Java, or Spark does not start; the error has the end of Spark's log.
        """
        java.check()
        folder = self._temporary()
        log = folder / "spark.log"
        try:
            sockets = folder if len(os.fsencode(folder)) <= MOST_SOCKET_FOLDER else self._temporary("/tmp")
            (folder / "log4j2.properties").write_text(LOG4J)
            python = self.python
            self._environment = {name: os.environ.get(name) for name in ENVIRONMENT}
            os.environ["PYSPARK_PYTHON"] = python
            os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
            with _stderr_to(log), _own_interrupt(), jvm.watched_start() as self._started:
                self._spark = self._create(folder, sockets)
                _quiet_updates(self._spark)
                self._spark.dataSource.register(AuditBatches)
        except jvm.FAILURES as error:
            tail = _tail(log)
            text = jvm.said(error) or "its Java process does not answer"
            self.stop()
            raise AuditError(
                f"Spark does not start: {text.splitlines()[0]}{tail}",
                f"see what it says above; it needs Java {java.MINIMUM} or newer and {HEAP_MB} MB of memory",
            ) from error
        except BaseException:
            self.stop()
            raise
        return self

    def _create(self, folder: Path, sockets: Path) -> SparkSession:
        # The host name may not resolve to an address of this machine. Only loopback is used.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        builder = SparkSession.builder.master(f"local[{cores()}]").appName("mirror audit")
        for key, value in settings(folder, sockets).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def stop(self, *, at_once: bool = False) -> None:
        """Stops the session and removes everything that it wrote. It may be called more than once.

        ``at_once``: kills the JVM whatever Spark is doing, because the user interrupted the audit and waits.
        """
        spark, self._spark = self._spark, None
        try:
            if spark is not None and not at_once:
                with suppress(Exception):  # py4j may raise anything if the JVM is gone
                    spark.stop()
        finally:
            jvm.end(self._started, at_once=at_once or spark is None)
            self._remove()
            self._restore()

    def _restore(self) -> None:
        while self._environment:
            name, value = self._environment.popitem()
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    def _remove(self) -> None:
        while self._folders:
            shutil.rmtree(self._folders.pop(), ignore_errors=True)

    def _temporary(self, parent: str | None = None) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="mirror-audit-", dir=parent))
        self._folders.append(folder)
        return folder

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(at_once=interrupted(error))


LIGHT = ("-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of the JVM. It handles only about a thousand rows per GB, so compiling less halves the cost of an audit."""


def settings(folder: Path, sockets: Path) -> dict[str, str]:
    """Returns Spark's configuration for a local session. All files go to ``folder``, and Unix sockets to
    ``sockets``."""
    java_options = (
        f"-Dlog4j2.configurationFile=file:{folder}/log4j2.properties",
        f"-Djava.io.tmpdir={folder}",
        f"-Dderby.system.home={folder}",
        *LIGHT,
    )
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{HEAP_MB}m",
        "spark.driver.maxResultSize": "0",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A Python task costs 50 ms over TCP and 12 ms over a Unix socket.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(sockets),
        "spark.python.daemon.module": "mirror.audit.spark.daemon",
        # With a thousand rows per GB, planning again at every stage and compiling Java code cost more than the rows do.
        "spark.sql.shuffle.partitions": str(cores()),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.task.maxFailures": "1",
    }


def _quiet_updates(spark: SparkSession) -> None:
    """Silences PySpark's own server for updates from the JVM. It prints a traceback when the JVM is gone, and the code
    that waits for Spark's answer reports that anyway."""
    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = lambda *_: None


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "".join(f"\n    {line}" for line in lines[-LOG_TAIL:])
