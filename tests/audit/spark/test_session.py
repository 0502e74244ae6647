"""Spark started and ended by the audit itself: quiet, gone without a trace, and gone when the audit is killed."""

import contextlib
import operator
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pyspark
import pyspark.sql
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError
from pyspark.errors.exceptions.captured import CapturedException

from mirror.audit.errors import AuditError
from mirror.audit.spark import jvm, session
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import copy, create, fill

SCRIPT = """
import sys
from mirror.audit.command import audit_flow
from mirror.audit.model.request import AuditRequest, Endpoint
ports, topic = [int(port) for port in sys.argv[1:3]], sys.argv[3]
ends = [Endpoint(alias=alias, bootstrap=(("127.0.0.1", port),)) for alias, port in zip(("east", "west"), ports)]
code = audit_flow(AuditRequest(flow="east->west", source=ends[0], destination=ends[1], topics=(topic,), catch_up_s=0))
import psutil
print("children", len(psutil.Process().children(recursive=True)))
sys.exit(code)
"""


@pytest.mark.broker
@pytest.mark.spark
def test_an_audit_leaves_nothing_behind(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    for cluster in (source_cluster, destination_cluster):
        create(cluster, topic_name)
    fill(source_cluster, topic_name, codec="snappy")
    copy(source_cluster, destination_cluster, topic_name)
    here, temporary = tmp_path / "here", tmp_path / "tmp"
    here.mkdir()
    temporary.mkdir()
    ports = [str(cluster.brokers[0].port) for cluster in (source_cluster, destination_cluster)]
    before = {process.pid for process in psutil.process_iter()}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *ports, topic_name],
        cwd=here,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "identical: east and west" in " ".join(done.stdout.split())
    assert done.stdout.splitlines()[-1] == "children 0"
    assert list(here.iterdir()) == []
    assert list(temporary.iterdir()) == []
    ours = [process for process in psutil.process_iter(["cmdline"]) if process.pid not in before]
    assert not [found for found in ours if str(temporary) in " ".join(found.info["cmdline"] or [])]


STARTED = """
import threading, time
from mirror.audit.spark import jvm, session
from mirror.audit.spark.session import LocalSession
session = LocalSession()
def tell():
    while not session._started:
        time.sleep(0.01)
    print(session._started[0].pid, flush=True)
threading.Thread(target=tell, daemon=True).start()
session.start()
"""


@pytest.mark.spark
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_jvm_that_was_starting_does_not_outlive_its_audit(sent: signal.Signals, tmp_path: Path) -> None:
    """1. An audit is ended just after it started the JVM.
    2. Its temporary folder goes at once: the JVM cannot tell its port, and by itself would then live for ever.
    3. It is gone all the same.
    """
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    audit = subprocess.Popen(
        [sys.executable, "-c", STARTED],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert audit.stdout is not None
    java = psutil.Process(int(audit.stdout.readline()))
    audit.send_signal(sent)
    shutil.rmtree(temporary, ignore_errors=True)
    assert audit.wait(60) != 0
    audit.stdout.close()
    _, alive = psutil.wait_procs([java], timeout=60)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


INTERRUPTED = """
import sys, threading, time
from mirror.audit import command
from mirror.audit.spark.session import LocalSession

def count(*_):
    with LocalSession() as session:
        tracker = session.spark.sparkContext.statusTracker()
        def tell():
            while not tracker.getActiveJobsIds():
                time.sleep(0.01)
            print("busy", flush=True)
        threading.Thread(target=tell, daemon=True).start()
        session.spark.range(1 << 50).selectExpr("sum(id * id)").collect()

command._audit = count
sys.exit(command.audit_flow(None))
"""


@pytest.mark.spark
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_is_one_line(sent: signal.Signals, tmp_path: Path) -> None:
    """
    1. Spark is busy, and the terminal sends Ctrl-C to all that it has in the foreground; or somebody sends SIGTERM.
    2. One line says so, no traceback; exit code 1, and nothing is left.
    """
    audit = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert audit.stdout is not None
    assert audit.stdout.readline() == "busy\n"
    children = psutil.Process(audit.pid).children(recursive=True)
    if sent is signal.SIGINT:
        os.killpg(audit.pid, sent)
    else:
        audit.send_signal(sent)
    out, errors = audit.communicate(timeout=60)
    assert (audit.returncode, out, errors) == (1, "", "audit: interrupted; nothing was proved\n")
    assert list(tmp_path.iterdir()) == []
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


KILLED = """
import sys, threading, time
import psutil
from mirror.audit import report
from mirror.audit.command import audit_flow
from mirror.audit.model.request import AuditRequest, Endpoint
ports, topic, at, victim, when = [int(port) for port in sys.argv[1:3]], *sys.argv[3:]
gone = threading.Event()

def kill():
    killed = 0
    while True:  # Spark starts other workers for those that are gone
        for child in psutil.Process().children(recursive=True):
            try:
                if not any(victim in word for word in child.cmdline()[:4]):
                    continue
                child.kill()
            except psutil.Error:  # a worker ends by itself when what started it is gone
                continue
            killed += 1
            if killed == 1:
                print("killed", flush=True)
                while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:  # to reap it is its parent's
                    time.sleep(0.002)
                gone.set()
        time.sleep(0.002)

class Killing(report.BarProgress):
    def stage(self, text, size=0):
        super().stage(text)
        if text == at:
            threading.Thread(target=kill, daemon=True).start()
            if when == "before":
                gone.wait()

report.BarProgress = Killing
ends = [Endpoint(alias=alias, bootstrap=(("127.0.0.1", port),)) for alias, port in zip(("east", "west"), ports)]
request = AuditRequest(flow="east->west", source=ends[0], destination=ends[1], topics=(topic,), catch_up_s=0)
sys.exit(audit_flow(request))
"""


LOOKING = "looking at the batches that differ"
JAVA_ENDED = "Spark's Java process was ended by SIGKILL"


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    ("at", "victim", "when", "told"),
    [
        pytest.param("reading and comparing both clusters", "java", "while", JAVA_ENDED, id="java-reading"),
        pytest.param(LOOKING, "java", "before", JAVA_ENDED, id="java-before-looking"),
        pytest.param(LOOKING, "mirror.audit.spark.daemon", "while", "Spark failed: ", id="workers-looking"),
    ],
)
def test_whoever_of_sparks_is_killed_it_is_one_line(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
    at: str,
    victim: str,
    when: str,
    told: str,
) -> None:
    """
    1. The JVM is killed while it reads, or just before it is asked to look at what differs; or Spark's Python workers
       are, while they look. (A JVM that is killed while it looks is the first case once more: all questions to the JVM
       are asked in one place.)
    2. No verdict: one line, what to try, exit code 1. No traceback, of whatever thread.
    """
    for cluster in (source_cluster, destination_cluster):
        create(cluster, topic_name)
    fill(source_cluster, topic_name)
    copy(source_cluster, destination_cluster, topic_name, change=lambda batches: batches[:-1] + batches[:1])
    ports = [str(cluster.brokers[0].port) for cluster in (source_cluster, destination_cluster)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *ports, topic_name, at, victim, when],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "killed\n"), done.stderr
    assert len(done.stderr.splitlines()) == 2, done.stderr
    line, remedy = done.stderr.splitlines()
    assert line.startswith(f"audit: {told}"), line
    assert "An error occurred while calling" not in line
    assert remedy.startswith("   try: ")
    assert list(tmp_path.iterdir()) == []


def _captured(text: str) -> CapturedException:
    """As PySpark makes it of an exception in Java, without a JVM that it would ask for more."""
    error = CapturedException.__new__(CapturedException)
    error._desc, error._stackTrace = text, ""
    return error


def test_a_jvm_that_is_going_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed, and the kernel takes its time to take back its memory; an answer comes from one that lives."""
    going = subprocess.Popen(["sh", "-c", "sleep 2; kill -9 $$"])
    try:
        monkeypatch.setattr("pyspark.SparkContext._gateway", SimpleNamespace(proc=going))
        monkeypatch.setattr("pyspark.SparkContext._jvm", SimpleNamespace())
        with pytest.raises(AuditError, match="Spark failed: a task failed"), jvm.failures_told():
            raise _captured("a task failed")
        with pytest.raises(AuditError, match="Java process was ended by SIGKILL"), jvm.failures_told():
            raise PySparkRuntimeError("its socket is closed")
    finally:
        going.kill()
        going.wait()


def test_what_was_raised_cannot_be_asked_for_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Java answers that a call has failed. py4j asks it for the text when somebody reads it; it is killed just then.
    2. How Java has ended is told; where it only does not answer, that is.
    """
    refused = ConnectionRefusedError("connection refused")
    client = SimpleNamespace(send_command=Mock(side_effect=refused))
    error = Py4JJavaError("An error occurred", SimpleNamespace(_target_id="o1", _gateway_client=client))
    with pytest.raises(ConnectionRefusedError):
        str(error)
    going = subprocess.Popen(["sh", "-c", "sleep 1; kill -9 $$"])
    try:
        monkeypatch.setattr("pyspark.SparkContext._gateway", SimpleNamespace(proc=going))
        with pytest.raises(AuditError, match="Java process was ended by SIGKILL"), jvm.failures_told():
            raise error
    finally:
        going.kill()
        going.wait()
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    with pytest.raises(AuditError, match="Spark failed: its Java process does not answer"), jvm.failures_told():
        raise error


PYSPARK = ("SparkContext._gateway", "SparkContext._jvm", "SparkContext._active_spark_context",
           "sql.SparkSession._instantiatedSession", "sql.SparkSession._activeSession")  # fmt: skip
"""What PySpark keeps of the one session that a process may have."""


def test_a_jvm_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "END_S", 0.1)
    for name in PYSPARK:
        monkeypatch.setattr(f"pyspark.{name}", None)
    deaf = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)
    started: jvm.Started = [deaf]
    jvm.end(started)
    assert started == []
    assert deaf.returncode == -signal.SIGKILL


@pytest.mark.parametrize("how", ["stopped", "its JVM is gone", "at once"])
@pytest.mark.parametrize("python", [None, "/usr/bin/python-of-others"])
def test_nothing_of_a_session_stays_in_the_process(
    monkeypatch: pytest.MonkeyPatch, how: str, python: str | None
) -> None:
    """
    1. A session begins. It sets what PySpark takes from the environment, and PySpark keeps it as the one that there is.
    2. It ends: however it does, the environment is as it was, and another session can begin. Mutation: the next one
       is the one that is gone.
    """
    usual = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": None, "SPARK_LOCAL_IP": None}
    for name, value in usual.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    for name in PYSPARK:
        monkeypatch.setattr(f"pyspark.{name}", None)
    spark = Mock()
    spark.stop.side_effect = ConnectionRefusedError() if how == "its JVM is gone" else None

    def create(self: session.LocalSession, *_: object) -> Mock:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        for name in PYSPARK[2:]:
            monkeypatch.setattr(f"pyspark.{name}", spark)
        return spark

    monkeypatch.setattr("mirror.audit.spark.java.check", lambda: None)
    monkeypatch.setattr(session.LocalSession, "_create", create)
    monkeypatch.setattr(session, "_stderr_to", lambda _: contextlib.nullcontext())
    made = session.LocalSession().start()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    made.stop(at_once=how == "at once")
    assert {name: os.environ.get(name) for name in usual} == usual
    assert [kept_by_pyspark(name) for name in PYSPARK] == [None] * len(PYSPARK)


def kept_by_pyspark(name: str) -> object:
    """What PySpark has there."""
    kept: object = operator.attrgetter(name)(pyspark)
    return kept


@pytest.mark.parametrize(
    ("limit", "due"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("50000 100000\n", 1),
        ("6400000 100000\n", 16),
        ("max 100000\n", 16),
        ("\n", 16),
        (None, 16),
    ],
)
def test_a_containers_limit_of_processors_counts(
    limit: str | None, due: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each task needs memory: on a node of 64 processors, 64 tasks would not fit into the CronJob's."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(session, "CPU_LIMIT", tmp_path / "cpu.max")
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit)
    assert session.cores() == due
    assert session.settings(tmp_path, tmp_path)["spark.sql.shuffle.partitions"] == str(due)
