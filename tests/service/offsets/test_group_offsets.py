"""A group's coordinator that is not ready: waited for, but not for ever."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from mirror.sandbox import Cluster
from mirror.service.offsets import group_offsets
from mirror.service.offsets.group_offsets import SOON, asked


def answers(*codes: int) -> Iterator[Mapping[str, Future[str]]]:
    """Failures with these codes, one for each time that it is asked; then the answer."""
    for code in codes:
        failed: Future[str] = Future()
        failed.set_exception(KafkaException(KafkaError(code)))
        yield {"g": failed}
    done: Future[str] = Future()
    done.set_result("offsets")
    yield {"g": done}


@pytest.mark.parametrize("code", sorted(SOON))
def test_a_coordinator_that_is_not_ready(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again until it is; and told, if it never is. The same answer with the rule taken away is a failure."""
    monkeypatch.setattr(group_offsets, "BACKOFF_S", 0.0)
    found = answers(code, code)
    assert asked(lambda: next(found)) == "offsets"
    monkeypatch.setattr(group_offsets, "TIMEOUT_S", 0.0)
    found = answers(code)
    with pytest.raises(KafkaException):
        asked(lambda: next(found))


def test_a_refusal_is_told_at_once() -> None:
    found = answers(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        asked(lambda: next(found))
    assert len(list(found)) == 1, "asked once"


ASKS = """
import sys
from mirror.service.config import ClusterSettings
from mirror.service.offsets.group_offsets import committed
settings = ClusterSettings.model_validate({"bootstrap.servers": sys.argv[1]})
print(committed(settings, "g", "source"))
"""


@pytest.mark.broker
def test_a_cluster_that_no_group_has_used_before() -> None:
    """Its coordinators are only being made: librdkafka's admin client ends the process there with SIGSEGV."""
    with Cluster(name="source", quick=True) as cluster:
        command = [sys.executable, "-c", ASKS, cluster.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
