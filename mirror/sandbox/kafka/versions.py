"""Differences between versions of Apache Kafka: the artifact, further jars, and where the metadata is kept."""

from __future__ import annotations

import dataclasses
import re

from mirror.sandbox.errors import SandboxError

__all__ = ["DEFAULT", "Release", "release"]

DEFAULT = "4.3.0"

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.(\d+))?\Z")
_OLDEST = (0, 10, 1)  # the first whose Metadata answer (v2) carries the cluster id
_FIRST_KRAFT = (3, 3)  # the first in which Apache declares KRaft ready for production
_FIRST_SCALA_2_13 = (2, 4)
_JAXB = ("javax.xml.bind", "jaxb-api", "2.3.1")  # removed from Java in version 11
# ZooKeeper 3.4.11 to 3.4.14 parse addresses in the format that Java had before version 14 (ZOOKEEPER-3779).
_OLDER_ZOOKEEPER = ("org.apache.zookeeper", "zookeeper", "3.4.10")
_LOG4J_1 = ("org.slf4j", "slf4j-log4j12", "1.7.25")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One version of Apache Kafka as the sandbox starts it.

    Attributes:
        version: as it was asked for.
        artifact: name of the broker's jar, with the version of Scala.
        kraft: True if it keeps its metadata itself, without ZooKeeper.
        extra_jars: jars that go before the broker's own on the class path.
    """

    version: str
    artifact: str
    kraft: bool
    extra_jars: tuple[tuple[str, str, str], ...]


def release(version: str) -> Release:
    """Returns the ``Release`` for a version such as ``"4.3.0"``.

    Raises:
        SandboxError: the text is not a version, or the version is older than 0.10.1.
    """
    found = _VERSION.match(version)
    if found is None:
        raise SandboxError(f"{version!r} is not a version of Apache Kafka", f"give one like {DEFAULT}")
    number = tuple(int(part) for part in found.groups() if part is not None)
    if number < _OLDEST:
        raise SandboxError(f"Apache Kafka {version} is older than the sandbox can start", "give 0.10.1.0 or newer")
    return Release(
        version=version,
        artifact="kafka_2.13" if number >= _FIRST_SCALA_2_13 else "kafka_2.11",
        kraft=number >= _FIRST_KRAFT,
        extra_jars=_extra_jars(number),
    )


def _extra_jars(number: tuple[int, ...]) -> tuple[tuple[str, str, str], ...]:
    """Returns jars that a version uses but does not declare, or declares in a version that Java 17 cannot run."""
    jaxb = (_JAXB,) if number < (2, 0) else ()
    log4j = (_LOG4J_1,) if (1, 0) <= number < (2, 4) else ()  # declared before that, not used after it
    zookeeper = (_OLDER_ZOOKEEPER,) if (2, 0) <= number < (2, 4) else ()
    return jaxb + log4j + zookeeper
