"""Archives of Kafka's loaded classes (class data sharing): with them, brokers start in half the time.

An archive is made once for each version of Java and Kafka, by a broker that starts and stops, and is kept beside the
jars.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from mirror.sandbox.errors import SandboxError
from mirror.sandbox.kafka import java
from mirror.sandbox.kafka.jars import cache_folder, lock

__all__ = ["options", "recording", "records"]

_RECORDING = "-XX:ArchiveClassesAtExit="


def recording(path: Path) -> str:
    """Returns the ``java`` option that writes the loaded classes to a file when the JVM exits."""
    return f"{_RECORDING}{path}"


def records(given: Sequence[str]) -> bool:
    """Returns True if the options include the one that ``recording`` returns."""
    return any(option.startswith(_RECORDING) for option in given)


def options(version: str, classpath: str, make: Callable[[Path], None]) -> tuple[str, ...]:
    """Returns the ``java`` options that use the archive; none if there can be no archive, which is only slower.

    Args:
        version: Apache Kafka's version.
        classpath: the class path that ``java`` will get.
        make: called with a path if there is no archive yet; runs a JVM that writes one there (``recording``).

    Raises:
        SandboxError: there is no Java, or the cache cannot be written.
    """
    path = cache_folder() / "classes" / f"kafka-{version}-{_mark(classpath)}.jsa"
    if not path.exists():
        with lock(path.parent / ".lock", waiting_for=f"starting a first broker of Kafka {version}"):
            if not path.exists():
                with suppress(SandboxError):  # the start of the real broker reports it better
                    _fill(path, make)
    return (f"-XX:SharedArchiveFile={path}",) if path.exists() and path.stat().st_size else ()


def _fill(path: Path, make: Callable[[Path], None]) -> None:
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)  # left by a process that was killed
    make(partial)
    partial.touch()  # an empty file: this Java makes no archive, and is not asked again
    partial.rename(path)  # whatever exists in the cache is complete


def _mark(classpath: str) -> str:
    """Returns a hash that changes with everything that makes a JVM refuse the archive."""
    files = [Path(java.find()).resolve(), *map(Path, classpath.split(os.pathsep))]
    told = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]
    return hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest()
