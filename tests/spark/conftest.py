"""The data source in the session's Spark; coroutine tests run in a loop of their own."""

import pytest
from pyspark.sql import SparkSession

import mirror.spark
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook


@pytest.fixture(scope="session")
def known(spark: SparkSession) -> SparkSession:
    """A session that knows the format."""
    mirror.spark.register(spark)
    return spark
