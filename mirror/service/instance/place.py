"""The folder in which ``mirror start`` keeps the files of one configuration: a lock, the control socket, the log.

It is below the user's state folder, whatever the shell's environment is. It is not below ``$XDG_RUNTIME_DIR``: that
folder is removed when the user logs out while the mirror goes on, and the next start would not find it and would start
a second one.
"""

import fcntl
import hashlib
import os
import pwd
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mirror.service.exits import EXIT_FAILED

STATE_HOME = "XDG_STATE_HOME"
LOOK_EVERY_S = 0.05
"""How often a lock that another command holds is tried again."""


class Failed(Exception):
    """The command has failed; the message says why, and what to do. ``code``: the exit code."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


def identity(config: Path) -> str:
    """Returns an identifier of a configuration file on this machine: 16 hexadecimal digits, a hash of its real path. It
    does not depend on the way in which the file is named."""
    return hashlib.sha256(os.fsencode(config.resolve())).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of one configuration file. Only its owner can read or write it.

    Attributes:
        config: the file's real path.
        folder: the folder.
    """

    config: Path
    folder: Path

    @property
    def log(self) -> Path:
        """Path of the log of a mirror in the background."""
        return self.folder / "log"

    def opened(self, name: str, flags: int) -> int:
        """Opens a file in the folder, or creates it. Returns the descriptor. ``flags``: for os.open, in addition to
        those for every file.

        Raises:
            Failed: it cannot be opened.
        """
        try:
            return os.open(self.folder / name, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise Failed(self.unusable(f"{error.strerror}: {name}")) from error

    def unusable(self, why: str) -> str:
        """Returns the message if the folder cannot be used, with what to do. ``why``: the cause."""
        return (
            f"{self.folder} cannot be used: {why}; mirror start keeps its control socket and its log there: "
            f"make room, or set ${STATE_HOME} to another folder of yours"
        )

    @contextmanager
    def control(self) -> Iterator[str]:
        """Yields a path of the control socket that is valid within the context. It is short enough for a socket (107
        bytes), however long the folder's path is."""
        folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{folder}/control"
        finally:
            os.close(folder)

    @contextmanager
    def locked(self, timeout_s: float) -> Iterator[Callable[[], None]]:
        """Holds the lock for commands that start or stop this mirror, so that there is one at a time. If the command
        dies, the kernel releases the lock. Yields a function that releases it early.

        Raises:
            Failed: another command has held it for ``timeout_s``, or the lock's file cannot be opened.
        """
        descriptor = self.opened("lock", os.O_RDWR)
        try:
            deadline = time.monotonic() + timeout_s
            while not _taken(descriptor):
                if time.monotonic() > deadline:
                    raise Failed(
                        f"another mirror start, stop or restart of {self.config} has been at work for {timeout_s:g} s"
                    )
                time.sleep(LOOK_EVERY_S)
            yield lambda: fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def place_of(config: Path) -> Place:
    """Returns the place of a configuration file, and creates its folder.

    Raises:
        Failed: the folder cannot be created, or other users could write to it.
    """
    real = config.resolve()
    parts = ["mirror", socket.gethostname(), f"{real.stem}-{identity(config)}"]  # a home may be shared by machines
    folder = _state_home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in parts:
            folder = folder / part
            folder.mkdir(mode=0o700, exist_ok=True)
            _check(folder)
    except OSError as error:
        raise Failed(
            f"{folder} cannot be created: {error.strerror}; mirror start keeps its control socket and its log there: "
            f"set ${STATE_HOME} to a folder of yours"
        ) from error
    return Place(real, folder)


def _state_home() -> Path:
    given = os.environ.get(STATE_HOME, "")
    # The user's home from the user database: sudo may leave $HOME unchanged.
    return Path(given) if os.path.isabs(given) else Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".local" / "state"


def _check(folder: Path) -> None:
    """Raises ``Failed`` for a folder in which another user could replace the socket or read the log."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise Failed(f"{folder} is {_kind(found.st_mode)}, and not a folder: remove it, and try again")
    if found.st_uid != os.geteuid():
        raise Failed(
            f"{folder} belongs to user {found.st_uid}, and not to you ({os.geteuid()}): remove it, or set "
            f"${STATE_HOME} to a folder of yours"
        )
    if found.st_mode & 0o077:
        raise Failed(f"{folder} is open to other users (mode {stat.S_IMODE(found.st_mode):o}): chmod 700 {folder}")


def _kind(mode: int) -> str:
    return "a symbolic link" if stat.S_ISLNK(mode) else "something else"
