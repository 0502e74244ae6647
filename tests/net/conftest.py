"""Coroutine tests run in a loop of their own; brokers of three generations."""

from collections.abc import Iterator

import pytest

from mirror.sandbox import SandboxCluster
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook
from tests.patience import PATIENT

NEWEST, LAST_WITH_ZOOKEEPER, BEFORE_KIP_664 = "4.3.0", "3.9.2", "2.8.2"


@pytest.fixture(scope="package")
def kafka_3_9() -> Iterator[SandboxCluster]:
    """The last release line that ZooKeeper could run; here with KRaft."""
    with SandboxCluster(name="kafka-3.9", version=LAST_WITH_ZOOKEEPER, properties=PATIENT, quick=True) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def kafka_2_8() -> Iterator[SandboxCluster]:
    """Describes producers, but no transactions."""
    with SandboxCluster(name="kafka-2.8", version=BEFORE_KIP_664, properties=PATIENT, quick=True) as cluster:
        yield cluster


@pytest.fixture(scope="package", params=[NEWEST, LAST_WITH_ZOOKEEPER, BEFORE_KIP_664])
def sandbox(request: pytest.FixtureRequest) -> SandboxCluster:
    """Each of them."""
    names = {NEWEST: "source_cluster", LAST_WITH_ZOOKEEPER: "kafka_3_9", BEFORE_KIP_664: "kafka_2_8"}
    found: SandboxCluster = request.getfixturevalue(names[request.param])
    return found
