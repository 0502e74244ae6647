"""Coroutine tests run in a loop of their own."""

from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook
