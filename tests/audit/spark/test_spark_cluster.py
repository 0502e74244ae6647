"""The audit on a Spark cluster: a standalone master and two workers on loopback, real processes each."""

import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pyspark
import pytest

import mirror
from mirror.audit.errors import AuditError
from mirror.audit.spark.cluster_session import ExecutorPython, _check, _is_loopback, _packed
from mirror.demo.watch import children
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import copy, create, fill

HOME = Path(pyspark.__file__).parent
WAIT_S = 120.0


class SparkCluster(NamedTuple):
    """A master, and workers with a core each."""

    master: str
    workers: list[psutil.Process]

    @property
    def reading(self) -> list[psutil.Process]:
        """Workers whose executors run Python."""
        return [each for each in self.workers if any("pyspark.daemon" in name for name in _below(each))]


def _below(process: psutil.Process) -> list[str]:
    found = []
    with suppress(psutil.Error):
        for each in process.children(recursive=True):
            with suppress(psutil.Error):  # one that has just ended says nothing about the others
                found.append(" ".join(each.cmdline()))
    return found


def _wait(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """Ended with whatever it has started."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_DIRS": str(tmp_path / "local"), "SPARK_NO_DAEMONIZE": "1"}

    def start(name: str, *arguments: str) -> Path:
        log = tmp_path / f"{len(started)}.log"
        program = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
        ports = ["--port", "0", "--webui-port", "0"]
        started.append(children.start([*program, *ports, *arguments], log=log, environment=environment))
        return log

    try:
        log = start("master.Master")
        found: list[str] = []

        def known() -> bool:
            found[:] = re.findall(r"Starting Spark master at (spark://\S+)", log.read_text(errors="replace"))
            return bool(found)

        _wait(known, "a Spark master")
        logs = [
            start("worker.Worker", "--cores", "1", "--memory", "1g", "-d", str(tmp_path / f"work{each}"), found[0])
            for each in range(2)
        ]
        _wait(lambda: all("registered with master" in each.read_text(errors="replace") for each in logs), "workers")
        yield SparkCluster(found[0], [psutil.Process(each.pid) for each in started[1:]])
    finally:
        running = [psutil.Process(each.pid) for each in started if each.poll() is None]
        for process in running:
            _end(process)
        for each in started:
            each.wait(30)


def _end(process: psutil.Process) -> None:
    """And all that it has started."""
    with suppress(psutil.Error):
        for each in [*process.children(recursive=True), process]:
            each.kill()


def audit(*command: str, python: str = sys.executable) -> "subprocess.Popen[str]":
    """Started; ``python`` is what executors run."""
    environment = os.environ | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit code, and what it printed."""
    out, err = process.communicate(timeout=300)
    return process.returncode, " ".join(out.split()), err


def held_python(directory: Path) -> tuple[str, Path]:
    """A Python for executors that goes on once the file is there: a kill before that strikes a task that runs."""
    goes_on, program = directory / "goes_on", directory / "python"
    held = f"while [ ! -e '{goes_on}' ]; do sleep 0.1; done"
    program.write_text(f"#!/bin/sh\n{held}\nexec '{sys.executable}' \"$@\"\n")
    program.chmod(0o755)
    return str(program), goes_on


@pytest.mark.broker
@pytest.mark.spark
def test_an_audit_on_a_spark_cluster(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    spark_cluster: SparkCluster,
    tmp_path: Path,
) -> None:
    """
    1. ``mirror audit --master``. A worker is killed, and its executor, once that runs Python: its tasks go to the other
       one, and the verdict is the right one; or there is none, and no traceback.
    2. ``spark-submit``, after somebody has written to the destination: a difference.
    """
    for cluster in (source_cluster, destination_cluster):
        create(cluster, topic_name)
    fill(source_cluster, topic_name, codec="zstd", batches=40)
    copy(source_cluster, destination_cluster, topic_name)
    config = tmp_path / "mirror.yaml"
    config.write_text(
        f"clusters:\n"
        f"  east: {{bootstrap.servers: '{source_cluster.bootstrap_servers}'}}\n"
        f"  west: {{bootstrap.servers: '{destination_cluster.bootstrap_servers}'}}\n"
        f"flows:\n  'east->west': {{topics: [{topic_name}]}}\n"
    )
    python, goes_on = held_python(tmp_path)
    process = audit(
        sys.executable, "-m", "mirror", "audit", "-c", str(config),
        "--master", spark_cluster.master, "--conf", "spark.executor.memory=512m",
        python=python,
    )  # fmt: skip
    _wait(lambda: spark_cluster.reading or process.poll() is not None, "an executor that runs Python")
    assert process.poll() is None, ended(process)
    _end(spark_cluster.reading[0])
    assert process.poll() is None
    goes_on.touch()
    code, out, err = ended(process)
    assert code in (0, 1), (out, err)
    assert ("identical: east and west" in out) == (code == 0)
    assert "Traceback" not in err
    fill(destination_cluster, topic_name, batches=1)
    script = Path(mirror.__file__).parent / "spark_submit.py"
    submit = (str(HOME / "bin" / "spark-submit"), "--master", "local[1]")
    code, out, err = ended(audit(*submit, str(script), "-c", str(config)))
    assert code == 2, err
    assert "1 difference" in out


def test_what_executors_lack() -> None:
    """By machine and interpreter, once each; and what helps."""
    here = ExecutorPython("node-1", "/usr/bin/python3 (3.11)", "mirror.zip", ())
    lacks = here._replace(host="node-2", lacking=("xxhash",))
    _check([here, here], "spark://a:1")
    with pytest.raises(AuditError) as error:
        _check([here, lacks, lacks], "spark://a:1")
    assert error.value.problem == (
        "executors of spark://a:1 lack packages that the audit needs: node-2, /usr/bin/python3 (3.11): xxhash"
    )
    assert "spark.pyspark.python" in error.value.remedy


def test_what_is_shipped(tmp_path: Path) -> None:
    """The package as it is imported, from the archive alone."""
    archive = _packed(tmp_path)
    assert "mirror/audit/read/tasks.py" in zipfile.ZipFile(archive).namelist()
    script = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); "
        "import mirror.audit.read.tasks as it, mirror.audit.read.opened; "
        "print(it.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == f"{archive}/mirror/audit/read/tasks.py"


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077,a:7077", False),
        ("yarn", False),
        ("k8s://https://a", False),
    ],
)
def test_loopback(master: str, *, local: bool) -> None:
    """Only there the driver binds to loopback alone."""
    assert _is_loopback(master) == local
