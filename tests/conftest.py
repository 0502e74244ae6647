"""Fixtures that any test may ask for: two real clusters, and a topic name of one's own."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import pytest

import tests.hypothesis_profiles  # noqa: F401 - registers the profiles
from mirror.sandbox import Cluster

# A shell that runs the tests in the background, or nohup, has these ignored, and every process started from here would
# inherit that: nothing that is to end by them would.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(scope="session")
def source_cluster() -> Iterator[Cluster]:
    """A running cluster with one broker, shared by all tests; started by the first that asks."""
    with Cluster(name="source", quick=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def destination_cluster() -> Iterator[Cluster]:
    """A second one, likewise."""
    with Cluster(name="destination", quick=True) as cluster:
        yield cluster


@pytest.fixture
def topic_name() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
