"""Imports structlog without rich. If rich is installed (the demo needs it), structlog imports it for coloured
tracebacks, and it would stay in the supervisor's memory for as long as the supervisor runs."""

import sys

__all__ = ["structlog"]

_loaded = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]  # makes an import of it fail
try:
    import structlog
finally:
    del sys.modules["rich"]
    if _loaded is not None:
        sys.modules["rich"] = _loaded
