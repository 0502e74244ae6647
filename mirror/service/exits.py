"""Exit codes of the command line."""

EXIT_OK = 0
EXIT_FAILED = 1
"""It could not be done, or is not being done: no mirror answers, or it is not ready."""
EXIT_HALTED = 2
"""A difference, or a halted partition."""
EXIT_USAGE = 64
"""The command line is wrong: EX_USAGE of sysexits.h."""
EXIT_CONFIG = 78
"""The configuration is wrong: EX_CONFIG of sysexits.h, which systemd's RestartPreventExitStatus knows."""
