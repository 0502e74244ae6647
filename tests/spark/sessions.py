"""Spark sessions for the tests of the sink: each in a process of its own, with tasks that are tried four times. (Spark
has one session in a process, and the audit's tries each task once.)"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from mirror.audit.spark.session import settings
from mirror.spark import register

PATIENCE_S = 450
"""For all that a script does, on a machine that does much else."""


@contextmanager
def session() -> Iterator[SparkSession]:
    """A running session with the format, for what runs in the child."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with tempfile.TemporaryDirectory(prefix="spark-", dir="/tmp") as folder:
        (Path(folder) / "log4j2.properties").write_text("rootLogger.level = off\n")
        builder = SparkSession.builder.master("local[2,4]").appName("sink")
        own = {name: value for name, value in settings(Path(folder), Path(folder)).items() if "maxFailures" not in name}
        for name, value in own.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            register(spark)
            yield spark
        finally:
            spark.stop()


@contextmanager
def started(script: Path, *arguments: str) -> Iterator[psutil.Process]:
    """A script that runs, and is killed at the end, with all that it has started."""
    root = Path(__file__).parent.parent.parent
    own = {**os.environ, "PYTHONPATH": str(root)}
    command, silent = [sys.executable, str(script), *arguments], subprocess.DEVNULL
    running = psutil.Popen(command, cwd=root, env=own, stdout=silent, stderr=silent)
    try:
        yield running
    finally:
        for each in [running, *running.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        running.wait()


def run(script: Path, *arguments: str) -> Any:
    """What a script prints as the last line, in JSON."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=Path(__file__).parent.parent.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
