"""Imports structlog without rich. Where rich is installed (here: for the demo), structlog loads it for coloured
tracebacks, and it would stay in the supervisor's memory for as long as the supervisor runs."""

import sys

__all__ = ["structlog"]

_loaded = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]  # "not to be had", as Python's import system has it
try:
    import structlog
finally:
    del sys.modules["rich"]
    if _loaded is not None:
        sys.modules["rich"] = _loaded
