"""Exit codes of the command line: the one table of them. The README has it, too, and the help of each command says
which of them it ends with, and why."""

EXIT_OK = 0
EXIT_FAILED = 1
"""The command could not do it, or the mirror does not: none answers, or it is not ready."""
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
    """Returns all of them in a sentence."""
    return f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in MEANINGS.items())}."
