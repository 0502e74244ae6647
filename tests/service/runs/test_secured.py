"""``mirror run`` and ``mirror audit`` where both clusters ask for TLS and authentication; no secret is ever seen."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import psutil
import pytest

from mirror.net.security.certificates import Certificate, certificates_of
from mirror.net.security.options import TlsOptions
from mirror.sandbox import SandboxCluster
from tests import secured
from tests.secured import KEY_PASSWORD, PASSWORD, SASL_TLS, USER, Files
from tests.service.runs.test_worker import caught_up
from tests.service.stage.kafka_side import assert_identical, create_topic, produce, writing
from tests.service.stage.running import Mirror, config_text, get, mirror
from tests.service.telemetry.stage.alerts import samples

pytestmark = pytest.mark.broker
PARTITIONS = 3
SESSION_MS = 10_000
"""So that sessions end, and are renewed, while it copies."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return secured.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def both(files: Files) -> Iterator[tuple[SandboxCluster, SandboxCluster]]:
    """Brokers that also ask for the client's certificate."""
    more = {"listener.name.sasltls.ssl.client.auth": "required"}
    with (
        secured.cluster(files, name="source", session_ms=SESSION_MS, more=more) as source,
        secured.cluster(files, name="destination", session_ms=SESSION_MS, more=more) as destination,
    ):
        yield source, destination


def settings(files: Files, folder: Path) -> dict[str, Mapping[str, object]]:
    """mTLS on both sides: with SCRAM at the source, and a token at the destination."""
    for name, secret in (("password", PASSWORD), ("key-password", KEY_PASSWORD), ("token", secured.token())):
        (folder / name).write_text(secret + "\n")
    tls = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(files.ca),
        "ssl.certificate.location": str(files.client),
        "ssl.key.location": str(files.locked_key),
        "ssl.key.password": "${file:key-password}",
    }
    return {
        "source": {
            **tls,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": "${file:password}",
        },
        "destination": {**tls, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": "${file:token}"},
    }


def seen_of(process: Mirror) -> str:
    """All that anybody could see of it: what it prints, and its processes' arguments."""
    parent = psutil.Process(process.process.pid)
    listing = [" ".join(each.cmdline()) for each in (parent, *parent.children(recursive=True))]
    return "\n".join([*map(str, process.lines), *process.noise, *listing])


@pytest.mark.spark
def test_copied_and_audited(
    both: tuple[SandboxCluster, SandboxCluster], files: Files, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A topic is copied while a producer writes, for longer than a session; a worker joins the group, commits.
    2. Both sides are the same, says a reader of the test's own, and says ``mirror audit`` over the same listeners.
    3. Nothing that was printed, or stands in the arguments of a process, has a secret.
    """
    source, destination = both
    create_topic(source.bootstrap_servers, topic_name, PARTITIONS)
    produce(source.bootstrap_servers, topic_name, 3_000, partitions=PARTITIONS, codec="lz4", size=2_000)
    config = config_text(
        source.servers(SASL_TLS), destination.servers(SASL_TLS), [topic_name], clusters=settings(files, tmp_path)
    )
    with mirror(tmp_path / "mirror.yaml", config) as process:
        process.wait_event("started")
        with writing(source.bootstrap_servers, topic_name, PARTITIONS):
            before = len(process.of("progress"))
            process.wait_for(lambda: len(process.of("progress")) > before + 1.3 * SESSION_MS / 100, "a session")
        caught_up(process, source.bootstrap_servers, destination.bootstrap_servers, topic_name)
        seen = seen_of(process)
        assert not process.of("resync")
        assert not process.of("broker_unreachable")
        assert process.stop() == 0
    assert assert_identical(source.bootstrap_servers, destination.bootstrap_servers, [topic_name], PARTITIONS) > 10
    out = tmp_path / "out"
    command = [sys.executable, "-m", "mirror", "audit", "-c", str(tmp_path / "mirror.yaml"), "--out", str(out)]
    audit = subprocess.run(command, capture_output=True, text=True, check=False)
    assert audit.returncode == 0, audit.stdout + audit.stderr
    written = "".join(path.read_text(errors="replace") for path in out.rglob("*") if path.is_file())
    for secret in (PASSWORD, KEY_PASSWORD, (tmp_path / "token").read_text().strip()):
        assert secret not in seen + process.errors + audit.stdout + audit.stderr + written


def test_rotated_while_it_runs(
    both: tuple[SandboxCluster, SandboxCluster], files: Files, topic_name: str, tmp_path: Path
) -> None:
    """
    1. It copies, and shows when our certificate and the authority's end. Ours and its key are replaced, one after the
       other.
    2. The group's client is made again, and joins with the new ones; copying goes on, and nothing else happens. The
       end of the new one is shown.
    """
    source, destination = both
    create_topic(source.bootstrap_servers, topic_name, 1)
    produce(source.bootstrap_servers, topic_name, 30, partitions=1)
    clusters = settings(files, tmp_path)
    for name, file in (("certificate", files.client), ("key", files.locked_key)):
        (tmp_path / name).write_bytes(file.read_bytes())
        for cluster in clusters.values():
            cast(dict[str, object], cluster)[f"ssl.{name}.location"] = str(tmp_path / name)
    later = tmp_path / "later"
    later.mkdir()
    new = secured.made(later, authority=files.authority)
    config = config_text(source.servers(SASL_TLS), destination.servers(SASL_TLS), [topic_name], clusters=clusters)
    with mirror(tmp_path / "mirror.yaml", config) as process:
        process.wait_event("caught_up")
        assert len(process.of("assigned")) == 1
        authority, old, other = (certificates_of(TlsOptions(ca_file=str(each))) for each in (
            files.ca, files.client, new.client
        ))  # fmt: skip
        assert ends(process) == {*authority, *old[:1]}
        (tmp_path / "certificate").write_bytes(new.client.read_bytes())
        (tmp_path / "key").write_bytes(new.locked_key.read_bytes())
        process.wait_for(lambda: len(process.of("assigned")) == 2, "the partition to be assigned again")
        assert ends(process) == {*authority, *other[:1]}
        produce(source.bootstrap_servers, topic_name, 30, partitions=1, seed=1)
        caught_up(process, source.bootstrap_servers, destination.bootstrap_servers, topic_name, 1)
        assert process.stop() == 0
    assert_identical(source.bootstrap_servers, destination.bootstrap_servers, [topic_name], 1)


def ends(process: Mirror) -> set[Certificate]:
    """The certificates that /metrics shows, of either cluster the same."""
    told = samples(get(process, "/metrics")[1])["mirror_tls_certificate_expiry_timestamp_seconds"]
    by_cluster = {
        name: {Certificate(labels["subject"], value) for labels, value in told if labels["cluster"] == name}
        for name in ("source", "destination")
    }
    assert by_cluster["source"] == by_cluster["destination"]
    return by_cluster["source"]


def test_a_password_that_is_wrong_at_first(
    both: tuple[SandboxCluster, SandboxCluster], files: Files, topic_name: str, tmp_path: Path
) -> None:
    """
    1. The source refuses the password: it waits, and says which cluster and which mechanism, once.
    2. The file gets the right one: it begins, without a restart.
    """
    source, destination = both
    create_topic(source.bootstrap_servers, topic_name, 1)
    produce(source.bootstrap_servers, topic_name, 30, partitions=1)
    clusters = settings(files, tmp_path)
    (tmp_path / "password").write_text("another")
    config = config_text(source.servers(SASL_TLS), destination.servers(SASL_TLS), [topic_name], clusters=clusters)
    with mirror(tmp_path / "mirror.yaml", config) as process:
        waiting = process.wait_event("waiting")
        assert "SCRAM-SHA-512 is refused" in str(waiting)
        assert "source" in str(waiting)
        (tmp_path / "password").write_text(PASSWORD)
        process.wait_event("caught_up")
        assert len(process.of("waiting")) == 1
        assert process.stop() == 0
