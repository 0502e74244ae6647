"""Each coroutine test runs in its own event loop."""

from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook
