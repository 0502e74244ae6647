"""Coroutine tests run in a loop of their own, and the answer to whether a halt may be written does not get old."""

import pytest

from mirror.relay.durable import due
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook


@pytest.fixture(autouse=True)
def as_just_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the short ``settle_ms`` of tests, it would on a loaded machine, and be asked for and tried once more. Tests
    about that have a clock of their own."""
    monkeypatch.setattr(due, "since_boot", lambda: 0.0)
