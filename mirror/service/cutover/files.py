"""Files that exist completely or not at all, and that only their owner may read; and a lock for their folder."""

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of flock() on a file system without locks."""


class InUse(Exception):
    """Another command holds the folder's lock; the message says so, and what to do."""


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder while the context lasts. If the command dies, the kernel releases the lock. On a file
    system without locks (some network file systems), nothing is locked.

    Raises:
        InUse: another command holds the lock.
        OSError: the lock's file cannot be created.
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
    """Writes a file of mode 0600: under a temporary name first, which is changed when all of it is on disk.

    Raises:
        OSError: the file cannot be written. An earlier file of this name is unchanged, unless only the last step
            failed, which makes the new name durable (fsync of the folder).
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
    """Returns data as the text of a JSON file."""
    return json.dumps(data, indent=2) + "\n"
