"""One record of the internal topic, of whatever kind: read, and refused if no mirror wrote it.

Key and value are in JSON, so that operators can read them with any consumer. The newest record of a key counts, and one
without a value takes the key away.
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
"""Bytes of a key that a message shows at most."""


class StateError(ValueError):
    """A record that no mirror of this version wrote. The message has its key."""


Pinned = FlowEntry | Pin | KeptHalt | AcceptedLoop | Upstream | Remembered | Suspended
"""Entries of which the newest of a key counts, whatever else there is."""
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
    """Returns the entry of one record; None for a kind that this version does not know, and for a key that is not ours.

    Raises:
        StateError: the key is ours and the value is not, or the key is nearly one of ours.
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
        # Otherwise one entry could have two records, and the tombstone of either would not take the other away.
        raise StateError(f"{shown} is not written as {entry.key()!r}")
    return entry
