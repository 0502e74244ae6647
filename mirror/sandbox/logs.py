"""Finds the cause of a failure in a JVM's log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["backend_options", "excerpt", "mentions", "size"]

_LINES = 20
_LONGEST_LINE = 240
_ERRORS = (" ERROR ", " FATAL ", "Exception", "Error occurred", "Could not ")

_LOG4J_1 = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss.SSS} [%t] %p %c - %m%n
"""


def backend_options(classpath: str, folder: Path) -> list[str]:
    """Returns the JVM options that write the log, with times, to standard output or error.

    Args:
        classpath: the class path; it shows which logging backend is used.
        folder: folder for a configuration file, if the backend needs one.
    """
    if "slf4j-log4j12-" not in classpath:
        simple = "-Dorg.slf4j.simpleLogger."
        return [f"{simple}showDateTime=true", f"{simple}dateTimeFormat=HH:mm:ss.SSS"]
    # Kafka before 1.0 brings log4j 1, which says nothing without a configuration.
    path = folder / "log4j.properties"
    path.write_text(_LOG4J_1)
    return [f"-Dlog4j.configuration=file:{path}"]


def size(path: Path) -> int:
    """Returns the size of a log in bytes; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def mentions(path: Path, signs: Iterable[str], *, start: int = 0) -> bool:
    """Returns True if a log holds one of the texts, from byte ``start`` on."""
    text = _text(path, start)
    return any(sign in text for sign in signs)


def excerpt(path: Path, *, start: int = 0) -> str:
    """Returns the relevant lines, indented: from the first error on, or the last ones if there is none."""
    lines = [line for line in _text(path, start).splitlines() if not line.startswith("\tat ")]
    errors = (at for at, line in enumerate(lines) if any(sign in line for sign in _ERRORS))
    first = next(errors, max(0, len(lines) - _LINES))
    return "\n".join(f"    {line[:_LONGEST_LINE]}" for line in lines[first : first + _LINES]) or "    (nothing)"


def _text(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")
    except OSError:
        return ""
