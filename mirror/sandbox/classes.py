"""Kafka's classes in the form in which a JVM takes them at once (class data sharing): brokers start in half the time.

An archive is made once for a Java and a Kafka, by a broker that starts and stops, and is kept beside the jars.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from . import java
from .errors import SandboxError
from .jars import cache_folder, lock

__all__ = ["options", "recording", "records"]

_RECORDING = "-XX:ArchiveClassesAtExit="


def recording(path: Path) -> str:
    """The option of ``java`` that leaves the loaded classes in a file at its end."""
    return f"{_RECORDING}{path}"


def records(given: Sequence[str]) -> bool:
    """Whether that is among some options."""
    return any(option.startswith(_RECORDING) for option in given)


def options(version: str, classpath: str, make: Callable[[Path], None]) -> tuple[str, ...]:
    """Options of ``java`` for a Kafka of this version; none where there can be no archive, which only takes longer.

    Args:
        version: Apache Kafka's.
        classpath: its jars, as they will be given to ``java``.
        make: called if there is no archive yet: has a JVM write one (``recording``) to the path that it is given.

    Raises:
        SandboxError: there is no Java, or the cache cannot be written.
    """
    path = cache_folder() / "classes" / f"kafka-{version}-{_mark(classpath)}.jsa"
    if not path.exists():
        with lock(path.parent / ".lock", waiting_for=f"starting a first broker of Kafka {version}"):
            if not path.exists():
                with suppress(SandboxError):  # the broker that is to be started says it better
                    _fill(path, make)
    return (f"-XX:SharedArchiveFile={path}",) if path.exists() and path.stat().st_size else ()


def _fill(path: Path, make: Callable[[Path], None]) -> None:
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)  # of a process that was killed meanwhile
    make(partial)
    partial.touch()  # empty: this Java makes none, and is not asked again
    partial.rename(path)  # complete by its mere existence, as everything in the cache


def _mark(classpath: str) -> str:
    """Changes with whatever makes a JVM refuse the archive."""
    files = [Path(java.find()).resolve(), *map(Path, classpath.split(os.pathsep))]
    told = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]
    return hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest()
