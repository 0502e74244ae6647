"""Finds the Java that runs the brokers, and checks that it is new enough."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from mirror.sandbox.errors import SandboxError

__all__ = ["MINIMUM", "find", "major"]

MINIMUM = 17  # Kafka 4 and Spark 4 both need it

_REMEDY = (
    f"install Java {MINIMUM} or newer (for example the package openjdk-{MINIMUM}-jre-headless), or set JAVA_HOME to one"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find() -> str:
    """Returns the path of a ``java`` of version 17 or newer: that of JAVA_HOME, else the first on PATH.

    Raises:
        SandboxError: there is none, it does not run, or it is too old.
    """
    return _check(os.environ.get("JAVA_HOME"), os.environ.get("PATH"))


@functools.lru_cache(maxsize=8)
def _check(home: str | None, path: str | None) -> str:
    if home:
        java = str(Path(home) / "bin" / "java")
        if not os.access(java, os.X_OK):
            raise SandboxError(f"JAVA_HOME is {home}, but {java} is not a program", _REMEDY)
    else:
        found = shutil.which("java", path=path)
        if found is None:
            raise SandboxError("Java is not installed: no `java` on PATH, and JAVA_HOME is not set", _REMEDY)
        java = found
    version = major(java)
    if version < MINIMUM:
        raise SandboxError(f"{java} is Java {version}; Kafka's brokers need {MINIMUM} or newer", _REMEDY)
    return java


def major(java: str) -> int:
    """Returns the major version of a ``java`` program, e.g. 17.

    Raises:
        SandboxError: the program does not run, or prints no version.
    """
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"{java} does not run: {error}", _REMEDY) from error
    output = done.stderr + done.stdout
    found = _VERSION.search(output)
    if found is None:
        raise SandboxError(f"`{java} -version` names no version: {output.strip()[:200]!r}", _REMEDY)
    return int(found[1])
