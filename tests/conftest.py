"""Fixtures that any test may ask for: two real clusters, a Spark session, and a topic name of one's own."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import tests.hypothesis_profiles  # noqa: F401 - registers the profiles
from mirror.sandbox import SandboxCluster
from tests.patience import PATIENT
from tests.plugins.at_once import AtOnce
from tests.plugins.nightly import ByDay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A shell that runs the tests in the background, or nohup, has these ignored, and every process started from here would
# inherit that: nothing that is to end by them would.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


LONG = ("broker", "spark", "long")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--by-day", action="store_true", help="leave out what tests/plugins/nightly.py names")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--by-day"):
        config.pluginmanager.register(ByDay())
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(AtOnce(terminal))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes come first, in whatever order, so that no worker of pytest-xdist is left with one at the
    end while the others have nothing to do. Run with ``--no-loadscope-reorder``: by itself, it begins with the files of
    many tests, which are the quick ones."""
    of_long_files = {item.path for item in items if any(item.get_closest_marker(name) for name in LONG)}
    items.sort(key=lambda item: item.path not in of_long_files)


@pytest.fixture(scope="session")
def source_cluster() -> Iterator[SandboxCluster]:
    """A running cluster with one broker, shared by all tests; started by the first that asks."""
    with SandboxCluster(name="source", properties=PATIENT, quick=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def destination_cluster() -> Iterator[SandboxCluster]:
    """A second one, likewise."""
    with SandboxCluster(name="destination", properties=PATIENT, quick=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A running Spark session, shared by all tests: it takes some seconds to start, and a process can have only one."""
    from mirror.audit.spark.session import LocalSession

    with LocalSession() as session:
        yield session.spark


@pytest.fixture
def topic_name() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
