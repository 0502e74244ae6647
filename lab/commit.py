"""The commit of the code that a run has used."""

import subprocess
from pathlib import Path

__all__ = ["CHANGED", "UNKNOWN", "of_now", "since"]

CHANGED = "+changes"
"""Suffix of the commit id if files differ from the commit."""
UNKNOWN = "unknown"
"""Stands for the commit if there is no git, or git has failed."""
_ROOT = Path(__file__).resolve().parent.parent


def of_now(*written: str, root: Path = _ROOT) -> str:
    """Returns the short id of the current commit, with ``CHANGED`` if files differ; ``UNKNOWN`` without git.

    Args:
        written: files that do not count as changed, because the run itself writes them.
        root: folder of the repository.
    """
    try:
        name = _git(root, "rev-parse", "--short", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", ".", *(f":!{file}" for file in written))
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return name + CHANGED * bool(changed)


def since(begun: str, *written: str, root: Path = _ROOT) -> str:
    """Returns the commits of a run as text: that at its beginning, and the present one if it is another. Programs that
    were started in between may be of either.

    Args:
        begun: what ``of_now`` has returned at the beginning.
        written: see ``of_now``.
        root: see ``of_now``.
    """
    ended = of_now(*written, root=root)
    return begun if ended == begun else f"{begun} to {ended}"


def _git(root: Path, *arguments: str) -> str:
    # Without locks: `git status` would refresh the index, and a commit that is made at the same moment would fail.
    command = ["git", "--no-optional-locks", *arguments]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()
