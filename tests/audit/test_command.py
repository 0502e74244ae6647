"""``mirror audit`` as a shell sees it: exit codes, messages with a remedy, never a traceback."""

import io
import json
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from mirror.audit import command
from mirror.audit.errors import AuditError
from mirror.audit.model.request import AuditRequest, Endpoint
from mirror.audit.spark import java
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import copy, create, endpoint, fill

NOWHERE = Endpoint(alias="east", bootstrap=(("127.0.0.1", 1),), setup_timeout_s=2)


def audited(request: AuditRequest, spark: SparkSession | None = None, out: Path | None = None) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    streams = io.StringIO(), io.StringIO()
    consoles = [Console(file=stream, width=180) for stream in streams]
    code = command.audit_flow(request, out=out, console=consoles[0], errors=consoles[1], spark=spark)
    texts = [stream.getvalue() for stream in streams]
    assert not any("Traceback" in text for text in texts)
    return code, texts[0], texts[1].strip()


def request(source: Endpoint, destination: Endpoint, *topics: str) -> AuditRequest:
    """A flow of these topics."""
    return AuditRequest(flow="a->b", source=source, destination=destination, topics=topics, catch_up_s=0)


def test_errors_survive_a_traceback_in_a_java_exception() -> None:
    error = AuditError("cluster \"x\": :gone; 'all' of it\n", "start it — now")
    text = f"org.apache.spark.SparkException: Traceback\n  RuntimeError: {error.marked()}\n\tat java.lang"
    again = AuditError.unmarked(text)
    assert again is not None
    assert (again.problem, again.remedy) == (error.problem, error.remedy)
    assert AuditError.unmarked("something else") is None


def test_a_digest_must_be_known() -> None:
    with pytest.raises(ValueError, match="md5"):
        replace(request(NOWHERE, NOWHERE), digest="md5")


def test_an_unreachable_cluster() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        code, out, errors = audited(request(replace(NOWHERE, bootstrap=(("127.0.0.1", port),)), NOWHERE, "t"))
    assert (code, out) == (1, "")
    assert "cluster east" in errors
    assert f"127.0.0.1:{port}" in errors
    assert "try: check bootstrap.servers" in errors


def test_a_folder_for_the_files_is_needed_first(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, errors = audited(request(NOWHERE, NOWHERE, "t"), out=tmp_path / "file")
    assert code == 1
    assert errors.startswith("audit: cannot write to")


def test_without_the_audits_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "pyspark" else True)
    code, _, errors = audited(request(NOWHERE, NOWHERE, "t"))
    assert code == 1
    assert "pyspark" in errors
    assert "pip install '.[audit]'" in errors


def test_sigterm_is_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then Spark is ended and its files are removed, as with Ctrl-C."""
    before = signal.getsignal(signal.SIGTERM)

    def killed(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(command, "_audit", killed)
    code, out, errors = audited(request(NOWHERE, NOWHERE, "t"))
    assert (code, out, errors) == (1, "", "audit: interrupted; nothing was proved")
    assert signal.getsignal(signal.SIGTERM) is before


def fake_java(folder: Path, says: str) -> Path:
    """A program called java."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return folder


def test_java_is_checked_before_spark_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java.check() >= java.MINIMUM
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AuditError, match="no java is on PATH; install Java 17"):
        java.check()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "absent"))
    with pytest.raises(AuditError, match="does not run"):
        java.check()
    for name, says, problem in (
        ("old", 'openjdk version "11.0.2"', "is Java 11, and Spark 4 needs 17"),
        ("eight", 'java version "1.8.0_281"', "is Java 8"),
        ("odd", "hello", "names no version"),
    ):
        (tmp_path / name).mkdir()
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / name, says)))
        with pytest.raises(AuditError, match=problem):
            java.check()


@pytest.mark.broker
class TestWithBrokers:
    """Wrong questions to real clusters."""

    def test_an_unknown_topic(
        self, source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
    ) -> None:
        ends = endpoint(source_cluster, "east"), endpoint(destination_cluster, "west")
        code, _, errors = audited(request(*ends, topic_name))
        assert code == 1
        assert f"topic {topic_name} is not at cluster east" in errors
        code, _, errors = audited(request(*ends, "no such topic!"))
        assert code == 1
        assert "no such topic!" in errors

    def test_one_cluster_on_both_sides(self, source_cluster: SandboxCluster, topic_name: str) -> None:
        create(source_cluster, topic_name)
        ends = endpoint(source_cluster, "east"), endpoint(source_cluster, "west")
        code, _, errors = audited(request(*ends, topic_name))
        assert code == 1
        assert "east and west are the same cluster" in errors

    def test_empty_topics_are_identical_without_spark(
        self,
        source_cluster: SandboxCluster,
        destination_cluster: SandboxCluster,
        topic_name: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for cluster in (source_cluster, destination_cluster):
            create(cluster, topic_name, partitions=2)
        monkeypatch.setenv("JAVA_HOME", "/nonexistent")
        ends = endpoint(source_cluster, "east"), endpoint(destination_cluster, "west")
        code, out, errors = audited(request(*ends, topic_name))
        assert (code, errors) == (0, "")
        assert "the same 0 records" in out

    def test_without_java(
        self,
        source_cluster: SandboxCluster,
        destination_cluster: SandboxCluster,
        topic_name: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for cluster in (source_cluster, destination_cluster):
            create(cluster, topic_name)
        fill(source_cluster, topic_name, batches=1)
        copy(source_cluster, destination_cluster, topic_name)
        monkeypatch.setenv("JAVA_HOME", "/nonexistent")
        ends = endpoint(source_cluster, "east"), endpoint(destination_cluster, "west")
        code, _, errors = audited(request(*ends, topic_name))
        assert code == 1
        assert "install Java 17" in errors

    @pytest.mark.spark
    def test_exit_codes_and_files(
        self,
        source_cluster: SandboxCluster,
        destination_cluster: SandboxCluster,
        topic_name: str,
        spark: SparkSession,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Identical, then different after one more batch at the source; nothing is written but where it was asked."""
        monkeypatch.chdir(tmp_path)
        for cluster in (source_cluster, destination_cluster):
            create(cluster, topic_name)
        fill(source_cluster, topic_name, codec="zstd", batches=4)
        copy(source_cluster, destination_cluster, topic_name)
        asked = request(endpoint(source_cluster, "east"), endpoint(destination_cluster, "west"), topic_name)
        code, out, errors = audited(asked, spark)
        assert (code, errors) == (0, "")
        assert "identical: east and west" in out
        assert list(tmp_path.iterdir()) == []
        fill(source_cluster, topic_name, codec="zstd", batches=1)
        code, out, _ = audited(asked, spark, out=tmp_path / "result")
        assert code == 2
        assert "different" in out
        assert [path.name for path in tmp_path.iterdir()] == ["result"]
        (found,) = json.loads((tmp_path / "result" / "findings.json").read_text())
        assert (found["kind"], found["topic"], found["partition"]) == ("missing", topic_name, 0)
        assert found["source_end"] - found["source_start"] == 3
