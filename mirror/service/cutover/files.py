"""Files that are there as a whole or not at all, and that only their owner may read."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


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
