"""The commit that results name."""

import re
import subprocess
from pathlib import Path

from lab.commit import of_now, since


def test_the_commit_is_that_of_the_files(tmp_path: Path) -> None:
    """Also that they are not as they are there; the report that a run writes does not count."""
    assert of_now(root=tmp_path) == "unknown"

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "docs" / "results").mkdir(parents=True)
    for name in ("code", "docs/results/failures.md"):
        (tmp_path / name).write_text("")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    clean = of_now("docs/results/failures.md", root=tmp_path)
    assert re.fullmatch("[0-9a-f]{7,}", clean)
    (tmp_path / "docs" / "results" / "failures.md").write_text("rows")
    assert of_now("docs/results/failures.md", root=tmp_path) == clean
    (tmp_path / "code").write_text("changed")
    assert of_now("docs/results/failures.md", root=tmp_path) == clean + "+changes"
    assert of_now("code", "docs/results/failures.md", root=tmp_path) == clean
    assert since(clean, "code", "docs/results/failures.md", root=tmp_path) == clean
    assert since(clean, root=tmp_path) == f"{clean} to {clean}+changes"
