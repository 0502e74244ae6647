"""The process between a sandbox's owner and its brokers: nothing that it starts outlives the owner.

Run as a script (``python -I -S guardian.py PREFIX``) with one end of a socket pair as standard input. It is the parent
of every JVM of one cluster, and removes the cluster's temporary folder. Two things can end it, and both are covered:

* The owner dies, by whatever means: the socket reads end-of-file, or (when a forked child of the owner still holds the
  other end) the parent process id changes. The guardian kills its children with SIGKILL and removes the folder.
* The guardian itself dies: its children have asked the kernel for SIGKILL at their parent's death (PR_SET_PDEATHSIG).
  That signal follows the parent *thread*, so the parent is this single-threaded process and not the owner.
  Only the folder is left then; the next guardian sees that the folder's guardian is dead, and removes it.

Protocol: one JSON object a line. The guardian greets with ``{"folder": PATH}``, then answers each request in order:

    {"do": "spawn", "argv": [...], "log": PATH}       {"pid": N}
    {"do": "signal", "pid": N, "signal": N}           {"sent": true | false}
    {"do": "poll", "pid": N}                          {"code": null | N}
    {"do": "close"}                                   {"closed": true}, and the guardian ends

An answer ``{"error": TEXT}`` says that a request failed.
A process is reaped only by ``poll``, ``signal`` or at the end, so no process id is reused while it may be signalled.
Imports only the standard library, nothing of the project: it starts in about 30 ms.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
OWNER_CHECK_S = 0.5  # how often the parent process id is checked; end-of-file is seen at once
REMOVAL_ATTEMPTS = 20
OWNER_FILE = "owner"


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent thread ends; end at once if the parent is gone already. (As
    ``mirror.parent``, which this file cannot import: it starts without the project.)"""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # If the parent died between the fork and the line above, the kernel sends no signal.
    if os.getppid() != parent_pid:
        os._exit(1)


class Guardian:
    """Children and folder of one cluster."""

    def __init__(self, channel: socket.socket, folder: Path, owner_pid: int) -> None:
        self.channel = channel
        self.folder = folder
        self.owner_pid = owner_pid
        self.children: dict[int, subprocess.Popen[bytes]] = {}

    def serve(self) -> None:
        """Answer requests until the owner closes or is gone."""
        self.send({"folder": str(self.folder)})
        pending = b""
        while os.getppid() == self.owner_pid:
            if not select.select([self.channel], [], [], OWNER_CHECK_S)[0]:
                continue
            chunk = self.channel.recv(65536)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                request = json.loads(line)
                if request["do"] == "close":
                    self.end()
                    self.send({"closed": True})
                    return
                self.send(self.answer(request))

    def send(self, message: dict[str, Any]) -> None:
        self.channel.sendall(json.dumps(message).encode() + b"\n")

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            match request["do"]:
                case "spawn":
                    return {"pid": self.spawn(request["argv"], request["log"])}
                case "signal":
                    return {"sent": self.signal(request["pid"], request["signal"])}
                case "poll":
                    child = self.children.get(request["pid"])
                    return {"code": child.poll() if child else -signal.SIGKILL}
                case unknown:
                    return {"error": f"unknown request {unknown!r}"}
        except OSError as error:
            return {"error": str(error)}

    def spawn(self, argv: list[str], log: str) -> int:
        me = os.getpid()
        with open(log, "ab") as output:
            child = subprocess.Popen(
                argv,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the owner's terminal is the owner's to handle
                preexec_fn=lambda: die_with_parent(me),
            )
        self.children[child.pid] = child
        return child.pid

    def signal(self, pid: int, number: int) -> bool:
        child = self.children.get(pid)
        if child is None or child.poll() is not None:
            return False
        os.kill(pid, number)
        if number == signal.SIGSTOP:  # each thread stops when it next looks: until then, one on another core answers
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return True

    def end(self) -> None:
        """Kill every child, wait for it, and remove the folder. May be called twice."""
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()
        self.children.clear()
        for _ in range(REMOVAL_ATTEMPTS):
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                return
            time.sleep(0.1)  # one of the owner's threads wrote a file meanwhile


def sweep(prefix: str) -> None:
    """Remove folders whose guardian was killed: nobody else was left to remove them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            pid, started = (folder / OWNER_FILE).read_text().split()
            if start_time(int(pid)) != started:
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue  # being made or removed at this moment, or not ours to remove


def start_time(pid: int) -> str | None:
    """Returns a process's start time (clock ticks since boot), which makes its id unique; None if it is not running."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat[stat.rindex(")") + 2 :].split()
    return None if state == "Z" else fields[18]


def main(prefix: str) -> None:
    owner_pid = os.getppid()
    # A stray SIGTERM must still clean up; a stray SIGINT or SIGHUP is meant for the owner, who tells us by closing.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    channel = socket.socket(fileno=os.dup(0))
    sweep(prefix)
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        channel.sendall(json.dumps({"error": f"make a temporary folder: {error}"}).encode() + b"\n")
        return
    guardian = Guardian(channel, folder, owner_pid)
    try:
        (folder / OWNER_FILE).write_text(f"{os.getpid()} {start_time(os.getpid())}")
        guardian.serve()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the owner ended in the middle of an exchange
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        guardian.end()


if __name__ == "__main__":
    if sys.argv[1] == "exec":  # exec PARENT_PID COMMAND...: a command that dies with the thread that started it
        die_with_parent(int(sys.argv[2]))
        os.execvp(sys.argv[3], sys.argv[3:])
    main(sys.argv[1])
