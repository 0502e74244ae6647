"""structlog as the service needs it: without rich, which it loads for coloured tracebacks wherever that is installed
(for the demo, here), and which would stay in the memory of the supervisor for as long as it runs."""

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
