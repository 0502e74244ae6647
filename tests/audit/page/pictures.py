"""Writes the picture of the report that the documents show, from what ``make demo`` has left:
``python -m tests.audit.page.pictures``."""

from pathlib import Path
from tempfile import TemporaryDirectory

from mirror.audit.folder import PAGE
from tests.service.http.page.looking import looked_at

ROOT = Path(__file__).resolve().parents[3]


def main() -> None:
    """Takes it."""
    report, picture = ROOT / "build" / "demo" / PAGE, ROOT / "docs" / "pictures" / "audit.png"
    with TemporaryDirectory() as folder:
        looked_at(
            report.as_uri(), Path(folder), f"--screenshot={picture}", "--window-size=1100,1000", polls_ms=1_000
        )  # fmt: skip


if __name__ == "__main__":
    main()
