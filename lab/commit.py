"""The commit of the code that was run."""

import subprocess
from pathlib import Path

__all__ = ["CHANGED", "of_now"]

CHANGED = "+changes"
"""Follows the commit if files differ from it."""
_ROOT = Path(__file__).resolve().parent.parent


def of_now(*written: str, root: Path = _ROOT) -> str:
    """Returns the short commit id; ``unknown`` without git. ``written``: files that a run itself writes, left out."""
    try:
        name = _git(root, "rev-parse", "--short", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", ".", *(f":!{file}" for file in written))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + CHANGED * bool(changed)


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()
