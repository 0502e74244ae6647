"""A ``java`` that plays Ivy: no network, and it writes down how it was called.

``install`` puts it into a folder that can be JAVA_HOME.
"""

from __future__ import annotations

import sys
from pathlib import Path

_SCRIPT = """\
#!{python}
import os, pathlib, sys, time
import xml.etree.ElementTree as ET
home = pathlib.Path({home!r})
if sys.argv[1:] == ["-version"]:
    print('openjdk version "{version}" 2025-01-01', file=sys.stderr)
    sys.exit(0)
with open(home / "calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if "-ivy" in sys.argv:
    asked = ET.parse(sys.argv[sys.argv.index("-ivy") + 1]).find(".//dependency")
    group, artifact, revision = (asked.get(name) for name in ("org", "name", "rev"))
    revision += "-" + asked[0].get("{{http://ant.apache.org/ivy/maven}}classifier")
else:
    at = sys.argv.index("-dependency")
    group, artifact, revision = sys.argv[at + 1:at + 4]
print(f"\\tfound {{group}}#{{artifact}};{{revision}} in public", flush=True)
behaviour = (home / "behaviour").read_text()
if behaviour == "missing":
    print("\\t:: %s#%s;%s: not found" % (group, artifact, revision))
    print("\\t::          UNRESOLVED DEPENDENCIES         ::")
    sys.exit(1)
if behaviour == "offline":
    print("Server access Error: Connection refused url=https://repository.invalid/x.pom")
    print("\\t::          UNRESOLVED DEPENDENCIES         ::")
    sys.exit(1)
folder = pathlib.Path(sys.argv[sys.argv.index("-retrieve") + 1]).parent
(folder / f"{{artifact}}-{{revision}}.jar").write_text("jar")
print("downloading https://repository.invalid/x.jar ...")
print("\\t[SUCCESSFUL ] x (1ms)", flush=True)
if behaviour == "slow":
    while (home / "behaviour").read_text() == "slow":
        time.sleep(0.01)
if behaviour == "nothing":
    (folder / f"{{artifact}}-{{revision}}.jar").unlink()
if artifact == "kafka_2.13":
    (folder / "slf4j-api-1.7.36.jar").write_text("jar")
"""


def install(home: Path, *, version: str = "17.0.1", behaviour: str = "ok") -> Path:
    """Write the program; returns the folder for JAVA_HOME.

    Args:
        home: a folder, made if need be.
        version: what ``java -version`` says.
        behaviour: ``ok``, ``missing``, ``offline``, ``nothing`` (succeeds without a jar), or ``slow``: it ends once
            the file ``behaviour`` says otherwise.
    """
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_SCRIPT.format(python=sys.executable, home=str(home), version=version))
    program.chmod(0o755)
    (home / "behaviour").write_text(behaviour)
    return home


def calls(home: Path) -> list[str]:
    """The command lines with which it was called, but for ``-version``."""
    path = home / "calls"
    return path.read_text().splitlines() if path.exists() else []
