"""Programs that end with the thread that started them, whatever ends it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mirror.sandbox import guardian

__all__ = ["start"]


def start(
    command: list[str], *, log: Path, environment: Mapping[str, str] | None = None, feed: bool = False
) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own: Ctrl-C in the terminal is this process's to handle.

    The kernel kills it when the calling thread ends; so that thread must live as long as the program is needed.
    ``mirror.sandbox.process`` does the same for programs that need neither input nor signals (there SIGINT is ignored).

    Args:
        command: the program and its arguments.
        log: gets its output; replaced.
        environment: in addition to this process's own.
        feed: whether its standard input is a pipe, unbuffered; it is empty otherwise.
    """
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, "exec", str(os.getpid()), *command],
            # Unbuffered: what is in a buffer when the program has gone could be written by nobody.
            bufsize=0,
            stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
