"""systemd units that run a mirror: finds them by their configuration file, and controls them with systemctl."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirror.service.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_USAGE
from mirror.service.instance.place import Failed

BOOTED = Path("/run/systemd/system")
"""Exists if systemd is the init system of this machine (sd_booted(3))."""
SHOW_S = 15.0
"""Longest wait for systemctl to show something."""
_TEMPLATE = "mirror@"
_PROPERTIES = "Id,LoadState,ActiveState,SubState,MainPID,StatusText,ExecMainStatus,ExecStart"
_INSTANCE = re.compile(r"[A-Za-z0-9:_.-]+")
"""Names that need no escaping as the instance name of a unit (systemd-escape(1))."""
_CONFIG = re.compile(r"argv\[\]=\S*mirror run .*?(?:-c|--config)[ =](\S+)")


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit.

    Attributes:
        name: the unit's name, such as mirror@west.service.
        shown: its properties, from `systemctl show`.
    """

    name: str
    shown: dict[str, str]

    @property
    def is_active(self) -> bool:
        """True if the unit is active or activating."""
        return self.shown.get("ActiveState") in ("active", "activating", "reloading")

    @property
    def pid(self) -> int | None:
        """Id of the unit's main process; None if none runs."""
        return int(self.shown.get("MainPID") or 0) or None

    def again(self) -> "Unit":
        """Returns the unit with its current properties."""
        return next(iter(_show([self.name])), self)

    def drive(self, verb: str) -> None:
        """Starts, stops or restarts the unit with systemctl, and waits until that is done. systemctl's output goes to
        stderr.

        Raises:
            Failed: systemd has not done it, for example because polkit refused.
        """
        code = subprocess.run(["systemctl", verb, self.name], check=False, stdout=subprocess.DEVNULL).returncode
        if not code:
            return
        status = self.again().shown.get("ExecMainStatus", "")
        known = verb != "stop" and status in (str(EXIT_CONFIG), str(EXIT_USAGE))
        raise Failed(
            f"systemctl {verb} {self.name} failed (exit code {code}); journalctl -u {self.name} says why, if the "
            "mirror has begun",
            int(status) if known else EXIT_FAILED,
        )

    def drained(self, *, since: float) -> dict[str, Any] | None:
        """Returns the fields of the last log line ``stopped`` in the journal since a time (seconds since 1970). None:
        there is none, or the journal cannot be read."""
        try:
            command = ["journalctl", "-u", self.name, "-o", "cat", "-n", "50", "--no-pager", f"--since=@{int(since)}"]
            found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SHOW_S).stdout
        except (OSError, subprocess.SubprocessError):
            return None
        for text in reversed(found.splitlines()):
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and line.get("event") == "stopped":
                return {name: value for name, value in line.items() if isinstance(value, int)}
        return None


def unit_of(config: Path) -> Unit | None:
    """Returns the installed unit that runs ``mirror run`` with this file; None if there is none.

    Raises:
        Failed: this machine has systemd, but it does not answer.
    """
    if shutil.which("systemctl") is None:
        return None
    names = _names(config)
    for unit in _show(names):
        found = _CONFIG.search(unit.shown.get("ExecStart", ""))
        if unit.shown.get("LoadState") == "loaded" and found and Path(found[1]).resolve() == config.resolve():
            return unit
    return None


def _names(config: Path) -> list[str]:
    """Returns the names of candidates: our template's instance of the file's name, and all units with the prefix of the
    template."""
    listed = _systemctl("list-units", "--all", "--plain", "--no-legend", "mirror*.service")
    listed += _systemctl("list-unit-files", "--plain", "--no-legend", "mirror*.service")
    names = [words[0] for line in listed.splitlines() if (words := line.split())]
    stems = {config.stem, config.resolve().stem}
    names += [f"{_TEMPLATE}{stem}.service" for stem in sorted(stems) if _INSTANCE.fullmatch(stem)]
    return list(dict.fromkeys(name for name in names if not name.endswith("@.service")))


def _show(names: list[str]) -> list[Unit]:
    units = []
    # One by one: in a call for several units, a single one that systemd refuses would fail them all.
    for name in names:
        text = _systemctl("show", "--no-pager", f"--property={_PROPERTIES}", name)
        shown = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        if shown:
            units.append(Unit(name, shown))
    return units


def _systemctl(*arguments: str) -> str:
    """Returns systemctl's output; empty if this machine does not have systemd.

    Raises:
        Failed: this machine has systemd, but it does not answer: it is not known whether a unit runs the mirror.
    """
    try:
        ran = subprocess.run(
            ["systemctl", *arguments], check=False, capture_output=True, text=True, timeout=SHOW_S, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    else:
        if not ran.returncode:
            return ran.stdout
        why = ran.stderr.strip()
    if BOOTED.exists():
        raise Failed(f"systemd cannot be asked whether it runs the mirror: systemctl {arguments[0]}: {why}")
    return ""
