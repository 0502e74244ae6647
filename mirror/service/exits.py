"""Exit codes of ``mirror run``."""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_HALTED = 2
