"""One Spark session for all audits of the test session: it takes some seconds to start. Coroutines run in loops."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from mirror.audit.spark.session import LocalSession
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A running session."""
    with LocalSession() as session:
        yield session.spark
