"""A broker that forgets, for those who fill and delete."""

from collections.abc import Iterator

import pytest

from mirror.sandbox import Cluster as Sandbox
from tests.relay.leading.leads import FORGETFUL


@pytest.fixture(scope="package")
def sandbox() -> Iterator[Sandbox]:
    """A broker that forgets."""
    with Sandbox(name="destination", quick=True, properties=FORGETFUL) as cluster:
        yield cluster
