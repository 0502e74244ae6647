"""Kafka's jars: fetched once by the Ivy that ships with pyspark, kept in a cache, one folder per artifact and version.

A folder that exists in the cache is complete: it is filled under another name and then renamed.
Versions never share a folder, so class paths do not mix them.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from mirror.sandbox.errors import SandboxError
from mirror.sandbox.kafka import ivy
from mirror.sandbox.kafka.versions import Release, release

__all__ = ["Coordinate", "cache_folder", "classpath", "classpath_of", "fetch", "lock"]

Coordinate = tuple[str, str, str]
"""Group, artifact and version, as Maven names a jar."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z")
_SLF4J_BACKENDS = ("slf4j-simple-", "slf4j-log4j12-", "slf4j-reload4j-", "logback-classic-", "log4j-slf4j")


def cache_folder() -> Path:
    """Returns the cache's folder: ``MIRROR_CACHE``, else ``mirror`` in the user's cache (``XDG_CACHE_HOME``)."""
    if named := os.environ.get("MIRROR_CACHE"):
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "mirror"


def classpath(version: str) -> str:
    """Returns the class path of a Kafka broker (and of its ZooKeeper, in old versions) with a logging backend.

    Args:
        version: Apache Kafka's version, e.g. ``"4.3.0"``.

    Raises:
        SandboxError: no such version, no Java, no Ivy, or the repository cannot be reached.
    """
    kafka: Release = release(version)
    return classpath_of([*kafka.extra_jars, ("org.apache.kafka", kafka.artifact, version)])


def classpath_of(coordinates: Iterable[Coordinate]) -> str:
    """Returns one class path for several artifacts and their dependencies, in order; each jar is named once.

    A logging backend is added if none of them brings one: it writes to standard error.
    """
    found: dict[str, Path] = {}
    for coordinate in coordinates:
        for jar in fetch(*coordinate):
            found.setdefault(jar.name, jar)
    if not any(name.startswith(_SLF4J_BACKENDS) for name in found):
        for name in list(found):
            if matched := re.fullmatch(r"slf4j-api-(.+)\.jar", name):
                for jar in fetch("org.slf4j", "slf4j-simple", matched[1]):
                    found.setdefault(jar.name, jar)
    return os.pathsep.join(str(jar) for jar in found.values())


def fetch(group: str, artifact: str, version: str, classifier: str = "") -> list[Path]:
    """Get an artifact's jar and the jars it needs, from the cache or, the first time, from the Maven repository.

    Several processes may call this at once: one fetches, and the others wait for it.

    Args:
        group, artifact, version: as Maven names it.
        classifier: if given, only the jar with this classifier is fetched, without the jars it needs. For example,
            ``test`` has a project's own fakes.

    Returns:
        Paths of jar files, sorted by name; never empty.

    Raises:
        SandboxError: no such artifact, no Java 17, no pyspark, or the repository cannot be reached.
    """
    for part in (group, artifact, version, *filter(None, [classifier])):
        if not _NAME.match(part):
            raise SandboxError(f"{part!r} cannot be part of a jar's name", "give a group, an artifact and a version")
    folder = cache_folder() / "jars" / group / "-".join(filter(None, (artifact, version, classifier)))
    if not folder.is_dir():
        with lock(folder.parent.parent / ".lock", waiting_for=f"fetching {artifact} {version}"):
            if not folder.is_dir():  # otherwise another process made it while we waited
                _fill(folder, group, artifact, version, classifier)
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise SandboxError(f"{folder} holds no jars", "remove that folder, so that it is fetched again")
    return jars


def _fill(folder: Path, group: str, artifact: str, version: str, classifier: str) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed while fetching
    partial.mkdir(parents=True)
    try:
        ivy.retrieve(
            ivy_jar=_ivy_jar(), cache=cache_folder() / "ivy", into=partial,
            group=group, artifact=artifact, version=version, classifier=classifier,
        )  # fmt: skip
        if not any(partial.glob("*.jar")):
            raise SandboxError(f"{group}:{artifact}:{version} brought no jars", "check the artifact's name")
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _ivy_jar() -> Path:
    remedy = "install the part that brings it, in the project's folder: pip install '.[audit]'"
    spec = importlib.util.find_spec("pyspark")  # finds it without importing it
    if spec is None or spec.origin is None:
        raise SandboxError("pyspark is not installed; Kafka's jars are fetched by the Ivy inside it", remedy)
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise SandboxError(f"no ivy-*.jar in {Path(spec.origin).parent / 'jars'}", remedy)
    return found[-1]


@contextlib.contextmanager
def lock(path: Path, *, waiting_for: str) -> Iterator[None]:
    """Hold an exclusive lock between processes and between threads; the kernel releases it when its holder dies.

    Args:
        path: a file in the cache, created if missing.
        waiting_for: what the lock's holder does, for the message to a user who waits.

    Raises:
        SandboxError: the cache cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise SandboxError(f"the cache cannot be written: {error}", "set MIRROR_CACHE to a folder of yours") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ivy.say(f"waiting for another process, which is {waiting_for}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
