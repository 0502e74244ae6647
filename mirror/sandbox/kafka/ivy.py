"""One run of Apache Ivy: resolves an artifact and its dependencies, and shows the progress."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mirror.sandbox.children import guardian
from mirror.sandbox.errors import SandboxError
from mirror.sandbox.kafka import java

__all__ = ["retrieve", "say"]

_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


def say(line: str) -> None:
    """Print one line for the waiting user on standard error."""
    Console(stderr=True, highlight=False).print(f"sandbox: {line}")


def retrieve(
    *, ivy_jar: Path, cache: Path, into: Path, group: str, artifact: str, version: str, classifier: str = ""
) -> None:
    """Copy an artifact's jar and the jars it needs into a folder.

    Args:
        ivy_jar: Ivy itself.
        cache: Ivy's own cache; only one process may use it at a time.
        into: an existing folder.
        group, artifact, version: as Maven names the artifact.
        classifier: if given, only the jar with this classifier is fetched, without the jars it needs.

    Raises:
        SandboxError: Ivy failed; with the end of its output.
    """
    name = " ".join(filter(None, (artifact, version, classifier)))
    if classifier:
        wanted = ["-ivy", str(_module(cache, group, artifact, version, classifier))]
    else:
        wanted = ["-dependency", group, artifact, version]
    command = [
        # The run dies with this thread, which waits for it: a killed owner leaves no download behind.
        sys.executable, "-I", "-S", guardian.__file__, "exec", str(os.getpid()),
        java.find(), *_proxy_options(os.environ), "-jar", str(ivy_jar), *_settings(cache), "-cache", str(cache),
        *wanted, "-confs", "default", "-retrieve", f"{into}/{_PATTERN}",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as run:
        assert run.stdout is not None
        try:
            output = _follow(run.stdout, name)
        except BaseException:
            run.kill()
            raise
    if run.returncode != 0 or any("UNRESOLVED DEPENDENCIES" in line for line in output):
        raise _failure(":".join(filter(None, (group, artifact, version, classifier))), output)
    say(f"fetched {name}")


def _module(cache: Path, group: str, artifact: str, version: str, classifier: str) -> Path:
    """Writes the module file that asks for one jar with a classifier: Ivy's command line has no option for that."""
    made = cache / "classified.xml"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="mirror" module="one"/>'
        '<configurations><conf name="default"/></configurations><dependencies>'
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)} transitive="
        f'"false" conf="default->default"><artifact name={quoteattr(artifact)} type="jar" ext="jar" '
        f"m:classifier={quoteattr(classifier)}/></dependency></dependencies></ivy-module>"
    )
    return made


def _follow(lines: Iterable[str], name: str) -> list[str]:
    """Show the progress that Ivy prints, and return its lines for an error message."""
    console = Console(stderr=True)
    if not console.is_terminal:
        say(f"fetching {name} and what it needs (only the first time)")
        return list(lines)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    output: list[str] = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"looking up what {name} needs", total=None)
        found = 0
        for line in lines:
            output.append(line)
            if line.lstrip().startswith("found "):
                found += 1
                progress.update(task, total=found)
            elif line.startswith("downloading "):
                progress.update(task, description=f"fetching {name} (only the first time)")
            elif "[SUCCESSFUL ]" in line:
                progress.advance(task)
    return output


def _failure(what: str, output: list[str]) -> SandboxError:
    text = "".join(output)
    if "not found" in text and "Server access Error" not in text and "UnknownHost" not in text:
        return SandboxError(f"{what} is not in the Maven repository", "check the version: is it one that was released?")
    last = [line.strip() for line in output if line.strip() and not line.startswith(("....", "downloading"))][-12:]
    detail = "\n    ".join(last)
    return SandboxError(
        f"{what} could not be fetched:\n    {detail}",
        "check the network; behind a proxy set https_proxy, with a repository of your own name an Ivy settings file"
        " in MIRROR_IVY_SETTINGS or a mirror in ~/.m2/settings.xml",
    )


def _proxy_options(environ: os._Environ[str] | dict[str, str]) -> list[str]:
    """Returns the ``java`` options for the proxy variables, which Java itself does not read."""
    options = []
    for scheme in ("http", "https"):
        named = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        parts = urlsplit(named if named and "//" in named else f"//{named or ''}")
        if parts.hostname:
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or 3128}"]
    without = environ.get("no_proxy") or environ.get("NO_PROXY")
    if options and without:
        hosts = [f"*{host}" if host.startswith(".") else host for host in without.replace(" ", "").split(",") if host]
        options.append("-Dhttp.nonProxyHosts=" + "|".join(hosts))
    return options


def _settings(cache: Path) -> list[str]:
    """Returns the options that make Ivy use the machine's own configuration, if any: Ivy's settings file, or else
    Maven's mirror."""
    for named in (os.environ.get("MIRROR_IVY_SETTINGS"), str(Path.home() / ".ivy2" / "ivysettings.xml")):
        if named and Path(named).is_file():
            return ["-settings", named]
    mirror = _maven_mirror(Path.home() / ".m2" / "settings.xml")
    if mirror is None:
        return []
    made = cache / "ivysettings.xml"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        f'<ibiblio name="mirror" m2compatible="true" root={quoteattr(mirror)}/>'
        "</resolvers></ivysettings>"
    )
    return ["-settings", str(made)]


def _maven_mirror(settings: Path) -> str | None:
    """Returns the URL that Maven's settings use instead of its central repository, or None."""
    try:
        root = ET.parse(settings).getroot()
    except (OSError, ET.ParseError):
        return None
    for mirror in root.iterfind(".//{*}mirror"):  # with or without Maven's namespace
        of = (mirror.findtext("{*}mirrorOf") or "").strip()
        url = (mirror.findtext("{*}url") or "").strip()
        if url and any(name in ("*", "external:*", "central") for name in of.split(",")):
            return url
    return None
