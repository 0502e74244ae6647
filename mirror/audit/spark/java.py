"""Checks the Java that Spark runs on before Spark starts, because Spark's own message is a series of tracebacks."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from mirror.audit.errors import AuditError

MINIMUM = 17
REMEDY = f"install Java {MINIMUM} or newer (for example openjdk-{MINIMUM}-jre-headless), or set JAVA_HOME to one"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def check() -> int:
    """Returns the major version of the Java that Spark will start.

    Raises:
        AuditError: there is none, it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise AuditError("the audit runs on Spark, which needs Java, and no java is on PATH", REMEDY)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AuditError(f"{java} does not run: {error}", REMEDY) from error
    found = _VERSION.search(done.stderr + done.stdout)
    if found is None:
        raise AuditError(f"{java} -version names no version", REMEDY)
    version = int(found[1])
    if version < MINIMUM:
        raise AuditError(f"{java} is Java {version}, and Spark 4 needs {MINIMUM}", REMEDY)
    return version
