"""Files that are there as a whole or not at all, and that only their owner may read; and who may write them."""

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of a file system without locks."""


class InUse(Exception):
    """Another command writes to the folder; the message says so, and what to do."""


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder, as long as the context lasts. The kernel releases it, whatever a command dies of.
    Where the file system has no locks (some network file systems), it holds none.

    Raises:
        InUse: another command holds it.
        OSError: its file cannot be made.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(
                f"another cutover is at work in {folder}: wait until it has ended, or name another folder with --out"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str) -> None:
    """Writes a file under another name, and renames it when all of it is on disk. Mode 0600.

    Raises:
        OSError: it cannot be written; an earlier file of this name is as it was.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.rename(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def as_json(data: Any) -> str:
    """Returns the text of a JSON file."""
    return json.dumps(data, indent=2) + "\n"
