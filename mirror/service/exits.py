"""The exit codes of the command line. The README has the same table, and the help of each command lists those that it
uses."""

EXIT_OK = 0
EXIT_FAILED = 1
"""The command has failed; or no mirror answers, or it is not ready."""
EXIT_HALTED = 2
"""The audit found a difference, or a partition is halted."""
EXIT_UNPROVED = 3
"""The audit found no difference, and could not prove everything."""
EXIT_USAGE = 64
"""The command line is wrong: EX_USAGE of sysexits.h."""
EXIT_CONFIG = 78
"""The configuration is wrong: EX_CONFIG of sysexits.h, which systemd's RestartPreventExitStatus knows."""

MEANINGS = {
    EXIT_OK: "success",
    EXIT_FAILED: "it failed, or the mirror is not ready",
    EXIT_HALTED: "a difference, or a halted partition",
    EXIT_UNPROVED: "the audit found no difference, but could not prove everything",
    EXIT_USAGE: "wrong usage",
    EXIT_CONFIG: "the configuration is wrong",
}
"""Every exit code, in a few words."""


def in_words() -> str:
    """Returns all exit codes and their meanings in a sentence."""
    return f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in MEANINGS.items())}."
