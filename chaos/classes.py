"""Kafka's classes in the form in which a JVM takes them at once (class data sharing): brokers start in half the time.

An archive is made once for a Java and a Kafka, by a broker that starts and stops, and is kept beside the jars.
"""

import hashlib
import tempfile
from contextlib import suppress
from pathlib import Path

from mirror.sandbox import Cluster, SandboxError, jars, java

__all__ = ["options"]

_STOP_TIMEOUT_S = 120.0


def options(version: str) -> tuple[str, ...]:
    """Options of ``java`` for brokers of this version; the first time this takes some seconds.

    Raises:
        SandboxError: there is no Java, or no Kafka.
    """
    classpath = jars.classpath(version)
    path = jars.cache_folder() / "classes" / f"kafka-{version}-{_mark(classpath)}.jsa"
    if not path.exists():
        with suppress(SandboxError, OSError):  # brokers start without it, too
            _make(version, path)
    return (f"-XX:SharedArchiveFile={path}",) if path.exists() else ()


def _mark(classpath: str) -> str:
    """Changes with whatever makes a JVM refuse the archive."""
    files = [Path(java.find()).resolve(), *map(Path, classpath.split(":"))]
    told = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]
    return hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest()


def _make(version: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        part = Path(folder) / path.name
        with Cluster(
            "classes", version=version, quick=True, jvm_options=(f"-XX:ArchiveClassesAtExit={part}",)
        ) as cluster:
            cluster.brokers[0].stop(timeout_s=_STOP_TIMEOUT_S)  # writes it
        if part.exists():
            part.replace(path)  # complete by its mere existence, as everything in the cache
