"""Reads a record of the internal topic, of any kind, and refuses it if no mirror can have written it.

Key and value are JSON, so that operators can read them with any consumer. The newest record of a key counts, and a
record without a value removes the key.
"""

import json

from mirror.offsetmap import fields
from mirror.offsetmap.entries.checkpoint import Checkpoint, SkippedOffsets
from mirror.offsetmap.entries.chunks import MapChunk
from mirror.offsetmap.entries.keys import VERSION
from mirror.offsetmap.entries.passed import PassedOverOffsets
from mirror.offsetmap.entries.pins import AcceptedLoop, FlowEntry, KeptHalt, Note, Pin, Remembered, Suspended, Upstream
from mirror.offsetmap.entries.starting import StartingOffset

SHOWN = 500
"""Maximum number of bytes of a key that a message shows."""


class StateError(ValueError):
    """A record that no mirror of this version can have written. The message has its key."""


Pinned = FlowEntry | Pin | KeptHalt | AcceptedLoop | Upstream | Remembered | Suspended
"""Entries of which the newest one of a key counts, independently of all others."""
Entry = Checkpoint | MapChunk | SkippedOffsets | PassedOverOffsets | StartingOffset | Note | Pinned
_KINDS: dict[str, type[Entry]] = {
    "checkpoint": Checkpoint,
    "map": MapChunk,
    "skipped": SkippedOffsets,
    "passed": PassedOverOffsets,
    "flow": FlowEntry,
    "partition": Pin,
    "starting": StartingOffset,
    "copied": Note,
    "halt": KeptHalt,
    "loop": AcceptedLoop,
    "upstream": Upstream,
    "remembered": Remembered,
    "suspended": Suspended,
}


def read_entry(key: bytes, value: bytes) -> Entry | None:
    """Returns the entry of one record; None if the key is not a mirror's, or is of a kind that this version does not
    know.

    Raises:
        StateError: the key is a mirror's and the value is not, or the key is not written exactly as a mirror does.
    """
    try:
        named = json.loads(key)
    except (ValueError, RecursionError):
        return None
    kind = _KINDS.get(str(named.get("kind"))) if isinstance(named, dict) else None
    if kind is None:
        return None
    shown = repr(key[:SHOWN]) + ("..." if len(key) > SHOWN else "")
    try:
        told = json.loads(value)
        version = fields.number(told, "v")
        if version != VERSION:
            raise StateError(f"{shown} is of version {version}; this program knows {VERSION}")
        entry = kind.load(named, told)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"{shown}: {type(error).__name__}: {error}") from error
    if entry.key() != key:
        # Otherwise one entry could have two records, and the tombstone of one would not remove the other.
        raise StateError(f"{shown} is not written as {entry.key()!r}")
    return entry
