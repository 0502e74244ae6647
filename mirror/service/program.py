"""The supervisor's program: ``mirror run`` replaces itself by it (exec); and its start."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from mirror.service.child import program
from mirror.service.commands import Commands
from mirror.service.log import logs
from mirror.service.supervisor import Supervisor
from mirror.service.worker_settings import Supervision


def become(told: Supervision, *, commands: Commands, control: str = "") -> NoReturn:
    """Replaces this program by the supervisor, in the same process (exec). The new program does not read the
    configuration: the memory that this takes (YAML, pydantic) would stay in use for as long as the service runs.

    Args:
        told: the supervisor's settings.
        commands: the mirror's commands as they are typed here.
        control: the folder of its control socket; empty: it has none.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is an event loop that can log it
    descriptor = os.memfd_create("supervision", 0)
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8") as file:
        json.dump({"told": told.pack(), "commands": asdict(commands), "control": control}, file)
    typed = f"mirror run -c {commands.config}"
    os.execv(sys.executable, program("mirror.service.program", descriptor, name=typed))


def main(descriptor: int) -> NoReturn:
    """Runs the supervisor. ``descriptor``: that of an inherited file with its settings."""
    with os.fdopen(descriptor, encoding="utf-8") as file:
        file.seek(0)
        data = json.load(file)
    told, commands = Supervision.unpack(data["told"]), Commands(**data["commands"])
    logs.configure(told.log_level)
    manager = None
    if os.environ.get("NOTIFY_SOCKET"):
        from mirror.service.notify import ServiceManager

        manager = ServiceManager.taken_from(os.environ)
    control = None
    if data.get("control"):
        from mirror.service.instance.control import Control
        from mirror.service.instance.place import Place

        control = Control(Place(Path(commands.config), Path(data["control"])))
    try:
        supervisor = Supervisor(told, commands=commands, manager=manager, control=control, alone=True)
        code = asyncio.run(supervisor.run())
    finally:
        logs.flush()
    sys.exit(code)
