"""Exit codes of the command line."""

EXIT_OK = 0
EXIT_FAILED = 1
"""The command could not do it, or the mirror does not: none answers, or it is not ready."""
EXIT_HALTED = 2
"""The audit found a difference, or a partition is halted."""
EXIT_USAGE = 64
"""The command line is wrong: EX_USAGE of sysexits.h."""
EXIT_CONFIG = 78
"""The configuration is wrong: EX_CONFIG of sysexits.h, which systemd's RestartPreventExitStatus knows."""
