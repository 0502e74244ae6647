"""The fields of the internal topic's keys and values, checked as they are read (``offsetmap.entries``).

Anybody who may write to the topic may have written them. Each function raises ``ValueError`` for what no mirror writes.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any

MOST = (1 << 63) - 1
"""The largest offset or producer id."""
MOST_I32 = (1 << 31) - 1
"""The largest partition, leader epoch or sequence."""
MOST_I16 = (1 << 15) - 1
"""The largest producer epoch."""
MOST_MS = 253_402_300_799_999
"""The last millisecond that can be shown as a date."""
LONGEST_NAME = 500
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,32767}")
"""Longer than Kafka allows: a mirror has once written down copies into topics that no cluster can have."""
_TOPIC_MOST = 249
INTERNAL_PREFIXES = ("__", "mirror-internal")
"""Topics with these prefixes belong to Kafka (group offsets, transactions) or to us: they are never copied, and nothing
is copied into them."""
_TOPIC_ID = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{16}|")

Fields = Mapping[str, Any]


def number(fields: Fields, name: str, *, least: int = 0, most: int = MOST) -> int:
    """Returns an integer within these bounds; true and false are none."""
    return _number(fields[name], name, least, most)


def numbers(fields: Fields, name: str, *bounds: tuple[int, int]) -> list[int]:
    """Returns a list of as many integers as there are bounds, each within its own (least, most)."""
    found = fields[name]
    if type(found) is not list or len(found) != len(bounds):
        raise ValueError(f"{name} is not a list of {len(bounds)} numbers")
    return [_number(each, name, *bound) for each, bound in zip(found, bounds, strict=True)]


def flag(fields: Fields, name: str) -> bool:
    """Returns true or false."""
    found = fields[name]
    if type(found) is not bool:
        raise ValueError(f"{name} is neither true nor false")
    return found


def label(fields: Fields, name: str) -> str:
    """Returns a name: printable, and not too long for a message."""
    found = _text(fields[name], name)
    if len(found) > LONGEST_NAME or not found.isprintable():
        raise ValueError(f"{name} is not a name")
    return found


def prose(fields: Fields, name: str) -> str:
    """Returns a text, which may quote what a broker said. Lone surrogates are replaced: nothing could show them."""
    return _text(fields[name], name).encode(errors="replace").decode()


def is_topic(name: str) -> bool:
    """Returns True if Kafka allows a topic of this name."""
    return len(name) <= _TOPIC_MOST and name not in (".", "..") and _TOPIC.fullmatch(name) is not None


def topic(fields: Fields, name: str) -> str:
    """Returns a topic name, or one that is only too long."""
    return _matching(_TOPIC, fields[name], name)


def topic_id(fields: Fields, name: str) -> str | None:
    """Returns a topic id in hexadecimal; None if the cluster has none."""
    return None if fields[name] is None else _matching(_TOPIC_ID, fields[name], name)


TopicIds = tuple[str | None, str | None]
"""Of the source topic and of the destination topic, as ``id_text`` makes them."""


def id_text(topic_id: bytes | None) -> str | None:
    """Returns a topic id as ``topic_id`` reads it: as it is stored and compared. People get ``id_shown``."""
    return topic_id.hex() if topic_id else None


def ids_differ(one: str | None, other: str | None) -> bool:
    """Returns True if two topic ids, as ``id_text`` makes them, are known to be of two topics. An id that is not known
    differs from none: a topic gets one when its cluster is upgraded to Kafka 2.8, and stays the same topic."""
    return one is not None and other is not None and one != other


def same_ids(ids: TopicIds, others: TopicIds) -> bool:
    """Returns True if these are not known to be the ids of other topics (``ids_differ``)."""
    return not ids_differ(ids[0], others[0]) and not ids_differ(ids[1], others[1])


def id_shown(topic_id: bytes | str | None) -> str:
    """Returns a topic id as Kafka's own tools print it (Uuid.toString: base64url without padding, 22 characters).

    Args:
        topic_id: as the protocol has it, or as ``id_text`` makes it. None: the topic has none, and the result is empty.
            Any other text stays as it is.
    """
    if isinstance(topic_id, str):
        if not _TOPIC_ID.fullmatch(topic_id):
            return topic_id
        topic_id = bytes.fromhex(topic_id)
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=") if topic_id else ""


def at_ms(fields: Fields) -> int:
    """Returns milliseconds since 1970."""
    return number(fields, "at_ms", most=MOST_MS)


def digest(found: object) -> str:
    """Returns a ``pins.header_digest``; empty: not known."""
    return _matching(_DIGEST, found, "digest")


def _number(found: object, name: str, least: int, most: int) -> int:
    if type(found) is not int or not least <= found <= most:
        raise ValueError(f"{name} is not an integer from {least} to {most}")
    return found


def _text(found: object, name: str) -> str:
    if type(found) is not str:
        raise ValueError(f"{name} is not text")
    return found


def _matching(pattern: re.Pattern[str], found: object, name: str) -> str:
    text = _text(found, name)
    if not pattern.fullmatch(text):
        raise ValueError(f"{name} is not as a mirror writes it")
    return text
