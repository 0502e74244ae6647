"""docs/SPARK.md: its examples run, its tables have every column, every option with its default, and every error."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirror.raw import errors
from mirror.raw.settings import ClientSettings
from mirror.sandbox import SandboxCluster
from mirror.spark.read.options import KNOWN, ReaderSettings
from mirror.spark.schema import ARROW_SCHEMA, CODECS, SCHEMA
from tests.audit.clusters import create, fill
from tests.spark.real import given, rows_of

PAGE = (Path(__file__).parents[2] / "docs" / "SPARK.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def example(containing: str, cluster: SandboxCluster, topic: str, folder: Path) -> str:
    """An example of the page, with this test's cluster, topic and folder."""
    found: str
    (found,) = [text for text in EXAMPLES if containing in text]
    for before, after in (
        ("kafka-west-1:9092", cluster.bootstrap_servers),
        ("orders", topic),
        ("archive/", f"{folder}/"),
    ):
        found = found.replace(before, after)
    return found


@pytest.mark.broker
@pytest.mark.spark
def test_queries(known: SparkSession, source_cluster: SandboxCluster, topic_name: str, tmp_path: Path) -> None:
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, codec="zstd")
    rows = rows_of(given(source_cluster, topic_name))
    names: dict[str, Any] = {}
    for containing in ("small.show()", "wrong.show()"):
        exec(compile(example(containing, source_cluster, topic_name, tmp_path), "docs/SPARK.md", "exec"), names)
    (small,) = names["small"].collect()
    assert (small["codec"], small["avg(size)"]) == ("zstd", sum(row["size"] for row in rows) / len(rows))
    assert names["wrong"].count() == 0


@pytest.mark.broker
@pytest.mark.spark
def test_an_archive(known: SparkSession, source_cluster: SandboxCluster, topic_name: str, tmp_path: Path) -> None:
    """A second run has what came meanwhile, and nothing else."""
    create(source_cluster, topic_name)
    text = example("archive/batches", source_cluster, topic_name, tmp_path)
    for _ in range(2):
        fill(source_cluster, topic_name, codec="lz4")
        exec(compile(text, "docs/SPARK.md", "exec"), {})
        archive = known.read.parquet(str(tmp_path / "batches")).orderBy("base_offset")
        archived = [{**row.asDict(), "batch": bytes(row["batch"])} for row in archive.collect()]
        assert archived == rows_of(given(source_cluster, topic_name))


def test_every_column_has_a_line() -> None:
    table = PAGE.split("| column | type | what |")[1].split("\n\n")[0]
    told = []
    for names, kinds in re.findall(r"^\| (`.*?) \| ([a-z, ]+) \|", table, re.MULTILINE):
        columns, types = names.split(", "), kinds.split(", ")
        told += [
            f"{name.strip('`')} {kind}"
            for name, kind in zip(columns, types * len(columns) if len(types) == 1 else types, strict=False)
        ]
    assert ", ".join(told) == SCHEMA
    assert len(told) == len(ARROW_SCHEMA)
    assert all(f"`{codec}`" in table for codec in CODECS)


def test_every_option_has_a_line() -> None:
    table = PAGE.split("| option | default | |")[1].split("\n\n")[0]
    told = {
        name for names in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(.+?)`", names)
    }
    own = {
        f"kafka.{field.alias}"
        for name, field in ReaderSettings.model_fields.items()
        if name not in ClientSettings.model_fields
    }
    assert told == {*KNOWN.values(), *own, "kafka.bootstrap.servers", "kafka.client.id"}
    paragraph = PAGE.split("TLS and SASL have the keys")[1].split("**Rights.**")[0]
    for name, field in ClientSettings.model_fields.items():
        if name not in ("bootstrap_servers", "client_id", "client_rack") and not name.startswith(
            ("ssl", "sasl", "https", "security")
        ):
            assert f"`kafka.{field.alias}`" in paragraph


def test_errors_are_those_of_the_raw_clients() -> None:
    told = re.findall(r"`(\w+)`", PAGE.split("## Errors")[1])
    assert told
    assert all(hasattr(errors, name) for name in told)
