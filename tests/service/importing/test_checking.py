"""What was made is loaded before it is printed: what is refused is left out, or told."""

from pathlib import Path

import pytest

from tests.service.importing.importing import TWO, imported, loaded


@pytest.mark.parametrize(
    "line",
    [
        "a.request.timeout.ms = 5",
        "a.reconnect.backoff.max.ms = 1",
        "a.receive.buffer.bytes = 7",
        "sync.group.offsets.interval.seconds = 0",
        "refresh.topics.interval.seconds = -1",
        "replication.factor = 100000",
        "a.client.rack = \\u0007",
        "a.client.id = ",
        "a.client.id = \\ud800",
    ],
)
def test_values_that_are_refused_are_left_out(line: str, tmp_path: Path) -> None:
    key = line.split(" ")[0]
    found = imported(tmp_path, f"{TWO}{line}\n")
    loaded(tmp_path, found.text)
    (decision,) = (each for each in found.decisions if each.startswith(f"{key}, line 5: left out"))
    assert "refused as" in decision


def test_settings_that_contradict_each_other(tmp_path: Path) -> None:
    """A fetch waits for 500 ms, so that it would never be answered in time."""
    found = imported(tmp_path, f"{TWO}a.request.timeout.ms = 400\n")
    loaded(tmp_path, found.text)
    assert any("a.request.timeout.ms, line 5: left out" in each for each in found.decisions)


def test_addresses_cannot_be_left_out(tmp_path: Path) -> None:
    found = imported(tmp_path, TWO.replace("a:9092", "nowhere"))
    assert any(
        each.startswith("a.bootstrap.servers, line 2: refused as clusters.a.bootstrap.servers")
        for each in found.decisions
    )


def test_a_loop_is_told(tmp_path: Path) -> None:
    """Both ways with the names kept: MirrorMaker 2 would go round, and so would this."""
    policy = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    found = imported(tmp_path, f"{TWO}b->a.enabled = true\n{policy}")
    assert any("a loop" in each for each in found.decisions)


def test_one_cluster_under_two_names(tmp_path: Path) -> None:
    found = imported(tmp_path, TWO.replace("b:9092", "a:9092"))
    assert any("source and destination are the same cluster" in each for each in found.decisions)


def test_what_is_looked_up_is_not_refused(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        f"{TWO}config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "a.request.timeout.ms = ${env:TIMEOUT}\na.client.id = ${env:ID}\nreplication.factor = ${env:FACTOR}\n"
        "sync.topic.acls.enabled = ${env:ACLS}\n".replace("TWO", ""),
    )
    assert not any("refused" in each for each in found.decisions)
    for line in ('request.timeout.ms: "${env:TIMEOUT}"', 'sync.topic.acls.enabled: "${env:ACLS}"'):
        assert line in found.text


def test_addresses_that_are_looked_up(tmp_path: Path) -> None:
    text = TWO.replace("a:9092", "${strimzienv:A}").replace("b:9092", "${strimzienv:B}:9092, c:9092")
    found = imported(tmp_path, text)
    assert not any("refused" in each for each in found.decisions)
    assert 'bootstrap.servers: "${env:A}"' in found.text
