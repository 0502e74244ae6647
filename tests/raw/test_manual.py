"""docs/RAW.md: its examples run, its tables have every key with its default, every reason and every error."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mirror.raw import errors
from mirror.raw.errors import BrokerError, PositionError, RawError, SendFailed, Unfit
from mirror.raw.settings import ClientSettings, ConsumerSettings, ProducerSettings
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import batches_of, create, fill
from tests.raw.real import PATIENCE_S, consumed

PAGE = (Path(__file__).parents[2] / "docs" / "RAW.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def example(containing: str, source: SandboxCluster, destination: SandboxCluster, topic: str) -> str:
    """An example of the page, with this test's clusters and topic."""
    found: str
    (found,) = [text for text in EXAMPLES if containing in text]
    for before, after in (
        ('"kafka-west-1:9092"', f'"{source.bootstrap_servers}"'),
        ('"kafka-east-1:9092"', f'"{destination.bootstrap_servers}"'),
        ('"orders"', f'"{topic}"'),
        ('"group.id": "', f'"group.id": "{topic}-'),
    ):
        found = found.replace(before, after)
    return found


@pytest.mark.broker
def test_reading(source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str) -> None:
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name)
    names: dict[str, object] = {}
    text = example("sizes[", source_cluster, destination_cluster, topic_name).replace("10_000", "15_000")
    exec(compile(text, "docs/RAW.md", "exec"), names)
    last = -1
    wanted = {}
    for stored in batches_of(source_cluster, topic_name):
        last += int.from_bytes(stored[23:27]) + 1
        wanted[topic_name, 0, last] = len(stored)
    assert names["sizes"] == wanted


@pytest.mark.broker
def test_writing(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    for cluster in (source_cluster, destination_cluster):
        create(cluster, topic_name)
    fill(source_cluster, topic_name, batches=1, codec="zstd")
    (stored,) = batches_of(source_cluster, topic_name)
    (tmp_path / "batch.bin").write_bytes(stored)
    text = example("batch.bin", source_cluster, destination_cluster, topic_name)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == (f"offsets 0 to 2 of {topic_name}-0\n", "")
    assert consumed(destination_cluster, topic_name) == consumed(source_cluster, topic_name)


@pytest.mark.broker
def test_copying(source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str) -> None:
    """It ends when it is told to, and a second run copies what came meanwhile, and nothing else."""
    for cluster in (source_cluster, destination_cluster):
        create(cluster, topic_name)
    text = example("copier", source_cluster, destination_cluster, topic_name)
    for _ in range(2):
        fill(source_cluster, topic_name, batches=5, codec="lz4")
        wanted = consumed(source_cluster, topic_name)
        with subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.PIPE, text=True) as copier:
            try:
                until = time.monotonic() + PATIENCE_S
                while consumed(destination_cluster, topic_name) != wanted:
                    assert time.monotonic() < until
                    assert copier.poll() is None
                    time.sleep(0.2)
                copier.send_signal(signal.SIGTERM)
                assert copier.wait(PATIENCE_S) == 0
                assert copier.stderr is not None
                assert copier.stderr.read() == ""
            finally:
                copier.kill()
        assert consumed(destination_cluster, topic_name) == wanted


@pytest.mark.parametrize(("title", "kind"), [("RawConsumer", ConsumerSettings), ("RawProducer", ProducerSettings)])
def test_every_key_has_a_line(title: str, kind: type[ClientSettings]) -> None:
    """With its default; those of all clients have a paragraph."""
    table = PAGE.split(f"| {title} | default | |")[1].split("\n\n")[0]
    told = dict(re.findall(r"^\| `([\w.]+)` \| (\S+) \|", table, re.MULTILINE))
    own = {name: field for name, field in kind.model_fields.items() if name not in ClientSettings.model_fields}
    wanted = {
        str(field.alias): "none" if field.default == "" else f"`{str(field.default).lower()}`" for field in own.values()
    }
    assert told == {"bootstrap.servers": "required", **wanted}
    paragraph = PAGE.split("## Configuration")[1].split("| RawConsumer")[0]
    for name, field in ClientSettings.model_fields.items():
        key = str(field.alias)
        if key not in ("bootstrap.servers", "client.rack") and not name.startswith(
            ("ssl", "sasl", "https", "security")
        ):
            assert f"`{key}`" in paragraph


def test_every_reason_and_error_has_a_line() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|.* \|.* \|$", PAGE, re.MULTILINE)) >= {each.slug for each in Unfit}
    kinds = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, RawError)}
    bases = {each.__name__ for each in (RawError, BrokerError, PositionError, SendFailed)}
    assert {name for name in kinds - bases if f"`{name}`" not in PAGE} == set()
