"""The folder of an audit's result files. This module imports neither Spark nor Arrow, so that an earlier verdict can be
removed before they are loaded."""

from pathlib import Path

from mirror.audit.errors import AuditError

SUMMARY = "summary.json"
TABLES = [f"{name}.{kind}" for name in ("findings", "coverage") for kind in ("json", "parquet")]
CERTIFICATE = "certificate.json"
PAGE = "report.html"
CERTIFIED = (*TABLES, PAGE)
"""The files whose digests are in the certificate."""
FILES = (*CERTIFIED, CERTIFICATE, SUMMARY)
"""All files, in the order in which they get their names. The summary, which has the verdict, comes last."""
UNFINISHED = ".unfinished"
"""The suffix of a file that is still being written."""


def prepare(folder: Path) -> None:
    """Creates the folder before any other work is done, and removes an earlier audit's files, the verdict first.

    Raises:
        AuditError: the folder cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in reversed(FILES):
            (folder / name).unlink(missing_ok=True)
            (folder / (name + UNFINISHED)).unlink(missing_ok=True)
        probe = folder / ".mirror-audit"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise AuditError(
            f"cannot write to {folder}: {error.strerror}", "name a folder that can be written to"
        ) from error
