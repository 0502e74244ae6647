"""Fixtures for the tests of the service."""

from pathlib import Path

import pytest

from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook: coroutine tests run in a loop of their own
from tests.service.config.loading import Load


@pytest.fixture
def loading(tmp_path: Path) -> Load:
    return Load(tmp_path)
