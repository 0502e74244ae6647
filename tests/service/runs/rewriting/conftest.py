"""Destinations of several versions, each started by the first test of a file that asks for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from mirror.sandbox import SandboxCluster
from tests.patience import PATIENT
from tests.service.runs.rewriting.test_deep_path import QUICK_CLEANER, Sides

NEW = "4.3.0"
Start = Callable[[str], str]


@pytest.fixture(scope="module")
def destination_of() -> Iterator[Start]:
    """Version -> bootstrap servers of a cluster whose cleaner is quick."""
    with ExitStack() as stack:

        @cache
        def start(version: str) -> str:
            cluster = SandboxCluster(version=version, properties={**PATIENT, **QUICK_CLEANER}, quick=True)
            return stack.enter_context(cluster).bootstrap_servers

        yield start


@pytest.fixture
def sides(source_cluster: SandboxCluster, destination_of: Start, request: pytest.FixtureRequest) -> Sides:
    """Bootstrap servers of a source, and of a destination of the version that the test asks for."""
    return source_cluster.bootstrap_servers, destination_of(getattr(request, "param", NEW))
