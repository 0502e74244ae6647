"""A broker that forgets, for those who fill and delete."""

from collections.abc import Iterator

import pytest

from mirror.sandbox import SandboxCluster
from tests.relay.leading.leads import FORGETFUL


@pytest.fixture(scope="package")
def sandbox() -> Iterator[SandboxCluster]:
    """A broker that forgets."""
    with SandboxCluster(name="destination", quick=True, properties=FORGETFUL) as cluster:
        yield cluster
