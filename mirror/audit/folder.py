"""The folder of an audit's result files. It needs neither Spark nor Arrow: an earlier verdict goes first of all."""

from pathlib import Path

from mirror.audit.errors import AuditError

SUMMARY = "summary.json"
TABLES = [f"{name}.{kind}" for name in ("findings", "coverage") for kind in ("json", "parquet")]
CERTIFICATE = "certificate.json"
PAGE = "report.html"
CERTIFIED = (*TABLES, PAGE)
"""Those whose digests the certificate has."""
FILES = (*CERTIFIED, CERTIFICATE, SUMMARY)
"""All of them, in the order in which they get their names: the verdict comes last."""
UNFINISHED = ".unfinished"


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
