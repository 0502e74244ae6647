"""The commit of the code that was run."""

import subprocess
from pathlib import Path

__all__ = ["CHANGED", "UNKNOWN", "of_now", "since"]

CHANGED = "+changes"
"""Follows the commit if files differ from it."""
UNKNOWN = "unknown"
"""Without git, or where it failed."""
_ROOT = Path(__file__).resolve().parent.parent


def of_now(*written: str, root: Path = _ROOT) -> str:
    """Returns the short commit id; ``UNKNOWN`` without git. ``written``: files that a run itself writes, left out."""
    try:
        name = _git(root, "rev-parse", "--short", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", ".", *(f":!{file}" for file in written))
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return name + CHANGED * bool(changed)


def since(begun: str, *written: str, root: Path = _ROOT) -> str:
    """Returns the commit at which a run began, and the one at which it ended if that is another: programs that were
    started meanwhile may have been of either."""
    ended = of_now(*written, root=root)
    return begun if ended == begun else f"{begun} to {ended}"


def _git(root: Path, *arguments: str) -> str:
    # Without locks: a look that refreshes the index would get into the way of a commit that is made meanwhile.
    command = ["git", "--no-optional-locks", *arguments]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()
