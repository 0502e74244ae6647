"""Starts programs that end with the thread that started them, whatever ends it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mirror.sandbox.children import guardian

__all__ = ["start"]


def start(
    command: list[str], *, log: Path, environment: Mapping[str, str] | None = None, feed: bool = False
) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own: Ctrl-C in the terminal is left to this process.

    The kernel kills it when the calling thread ends; so that thread must live as long as the program is needed.
    ``mirror.sandbox.children.process`` does the same for programs that need neither input nor signals (there SIGINT is
    ignored).

    Args:
        command: the program and its arguments.
        log: the file for its output; replaced if it exists.
        environment: in addition to this process's own.
        feed: True if its standard input is an unbuffered pipe; otherwise it is empty.
    """
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, "exec", str(os.getpid()), *command],
            # Unbuffered: data left in a buffer when the program has gone could never be written.
            bufsize=0,
            stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
