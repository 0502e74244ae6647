"""A Spark session on a Spark cluster, for topics that outgrow one machine: ``mirror audit --master``, ``spark-submit``.

The mirror's own code is shipped to the executors, but the packages that it imports must be there. This is checked
before any rows are read, and the error names missing packages with the machine that lacks them.
"""

import os
import socket
import sys
import time
import zipfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

import mirror
from mirror.audit.errors import AuditError
from mirror.audit.spark.session import LIGHT, LocalSession, settings

NEEDED = ("confluent_kafka", "crc32c", "kafka", "lz4", "numpy", "pandas", "pyarrow", "snappy", "xxhash", "zstandard")
"""Third-party packages that the tasks import."""
PATIENCE_S = 60.0
"""How long the cluster may take to provide the first executor."""
LOOK_EVERY_S = 0.2
ONE_MACHINE = frozenset(
    {
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.local.dir",
        "spark.python.daemon.module",
        "spark.python.unix.domain.socket.enabled",
        "spark.python.unix.domain.socket.dir",
        "spark.sql.shuffle.partitions",
        "spark.task.maxFailures",
    }
)
"""Settings of a local session that name its folders, or that are right on one machine only."""


class ExecutorPython(NamedTuple):
    """An executor's Python, as a task saw it."""

    host: str
    python: str
    code: str
    """The file from which it imports the mirror's own code."""
    lacking: tuple[str, ...]


def is_submitted() -> bool:
    """Returns True if ``spark-submit`` started this process. Then it has set the master and started the JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class ClusterSession(LocalSession):
    """A ``LocalSession`` whose tasks run on the executors of ``master``.

    Tasks that die with their executor are retried on another one, as often as ``spark.task.maxFailures`` says.
    """

    def __init__(self, master: str | None, conf: Mapping[str, str]) -> None:
        """``master``: Spark's URL, None under ``spark-submit``. ``conf``: settings as for ``spark-submit --conf``."""
        super().__init__()
        self._master = master
        self._conf = dict(conf)

    @property
    def python(self) -> str:
        """The executors' interpreter: the configured one, or else the path of this process's interpreter, which is
        right if the machines are set up alike."""
        return self._conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or super().python

    def _create(self, folder: Path, sockets: Path) -> SparkSession:
        builder: Any = SparkSession.builder.appName("mirror audit")
        if self._master is not None:
            builder = builder.master(self._master)
        for key, value in (settings(folder, sockets) | self._of_cluster()).items():
            if key not in ONE_MACHINE or key in self._of_cluster():
                builder = builder.config(key, value)
        spark: SparkSession = builder.getOrCreate()
        self._wait_for_executors(spark)
        spark.sparkContext.addPyFile(str(_packed(folder)))
        _check(look(spark), self._name)
        spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
        return spark

    def _of_cluster(self) -> dict[str, str]:
        usual = {"spark.executor.extraJavaOptions": " ".join(LIGHT)}
        if self._master is not None and _is_loopback(self._master):
            usual |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return usual | self._conf

    @property
    def _name(self) -> str:
        return self._master or "the cluster that spark-submit was told of"

    def _wait_for_executors(self, spark: SparkSession) -> None:
        """Waits until there is an executor besides the driver. Without one, a job would wait forever.

        Raises:
            AuditError: there is still no executor after ``PATIENCE_S``.
        """
        context: Any = spark.sparkContext
        until = time.monotonic() + PATIENCE_S
        while context._jsc.sc().getExecutorMemoryStatus().size() < 2 and not context.master.startswith("local"):
            if time.monotonic() > until:
                raise AuditError(
                    f"{self._name} has given no executor in {PATIENCE_S:.0f} s",
                    "see in its web page whether workers are alive and have cores and memory free; --conf "
                    "spark.executor.memory=1g asks for less",
                )
            time.sleep(LOOK_EVERY_S)


def look(spark: SparkSession) -> list[ExecutorPython]:
    """Returns what the executors' Python is and lacks, from one task for each core."""
    context = spark.sparkContext
    many = max(2, context.defaultParallelism)
    return list(context.parallelize(range(many), many).map(_probe).collect())


def _probe(_: int) -> ExecutorPython:
    """Runs in a task. Returns what its Python is and lacks."""
    return ExecutorPython(
        socket.gethostname(),
        f"{sys.executable} ({sys.version_info.major}.{sys.version_info.minor})",
        mirror.__file__,
        tuple(name for name in NEEDED if find_spec(name) is None),
    )


def _check(found: Iterable[ExecutorPython], master: str) -> None:
    lacking = sorted({each for each in found if each.lacking})
    if lacking:
        told = "; ".join(f"{each.host}, {each.python}: {', '.join(each.lacking)}" for each in lacking)
        raise AuditError(
            f"executors of {master} lack packages that the audit needs: {told}",
            "install them there, or name a Python that has them with --conf spark.pyspark.python=/path/of/python",
        )


def _packed(folder: Path) -> Path:
    """Packs the mirror's own Python code into an archive that executors import from. Compiled modules are left out; the
    audit does not need them."""
    root = Path(mirror.__file__).parent
    archive = folder / "mirror.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(root.rglob("*.py")):
            packed.write(path, Path("mirror") / path.relative_to(root))
    return archive


def _is_loopback(master: str) -> bool:
    hosts = [urlsplit(f"//{each.rpartition('//')[2]}").hostname or "" for each in master.split(",")]
    return all(host == "localhost" or host.startswith("127.") for host in hosts)
