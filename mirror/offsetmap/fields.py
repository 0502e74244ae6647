"""Reads and checks the fields of the internal topic's keys and values (``offsetmap.entries``).

Everybody with the right to write to the topic may have written them. Each function that reads a field raises
``ValueError`` for a value that no mirror writes, and ``KeyError`` if the field is missing.
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
"""Maximum length in characters of a name (``label``)."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,32767}")
"""It allows longer names than Kafka does, because earlier versions of the mirror have recorded copies into topics that
no cluster can have."""
_TOPIC_MOST = 249
INTERNAL_PREFIXES = ("__", "mirror-internal")
"""Topics with these prefixes belong to Kafka (group offsets, transactions) or to the mirror. They are never copied, and
nothing is copied into them."""
_TOPIC_ID = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{16}|")

Fields = Mapping[str, Any]


def number(fields: Fields, name: str, *, least: int = 0, most: int = MOST) -> int:
    """Returns an integer field within these bounds. True and false are not integers here."""
    return _number(fields[name], name, least, most)


def numbers(fields: Fields, name: str, *bounds: tuple[int, int]) -> list[int]:
    """Returns a list field with one integer for each of ``bounds``, which are (least, most)."""
    found = fields[name]
    if type(found) is not list or len(found) != len(bounds):
        raise ValueError(f"{name} is not a list of {len(bounds)} numbers")
    return [_number(each, name, *bound) for each, bound in zip(found, bounds, strict=True)]


def flag(fields: Fields, name: str) -> bool:
    """Returns a boolean field."""
    found = fields[name]
    if type(found) is not bool:
        raise ValueError(f"{name} is neither true nor false")
    return found


def label(fields: Fields, name: str) -> str:
    """Returns a name field: printable text of at most ``LONGEST_NAME`` characters."""
    found = _text(fields[name], name)
    if len(found) > LONGEST_NAME or not found.isprintable():
        raise ValueError(f"{name} is not a name")
    return found


def prose(fields: Fields, name: str) -> str:
    """Returns a text field, which may quote a broker's message. Lone surrogates are replaced, because they cannot be
    encoded for output."""
    return _text(fields[name], name).encode(errors="replace").decode()


def is_topic(name: str) -> bool:
    """Returns True if Kafka allows a topic of this name."""
    return len(name) <= _TOPIC_MOST and name not in (".", "..") and _TOPIC.fullmatch(name) is not None


def topic(fields: Fields, name: str) -> str:
    """Returns a field with a topic name. It may be longer than Kafka allows (``_TOPIC``)."""
    return _matching(_TOPIC, fields[name], name)


def topic_id(fields: Fields, name: str) -> str | None:
    """Returns a field with a topic id in hexadecimal; None if the cluster has no topic ids."""
    return None if fields[name] is None else _matching(_TOPIC_ID, fields[name], name)


TopicIds = tuple[str | None, str | None]
"""The ids of the source topic and of the destination topic, as ``id_text`` makes them."""


def id_text(topic_id: bytes | None) -> str | None:
    """Returns a topic id in hexadecimal, the form in which it is stored and compared; None if there is none.
    ``id_shown`` is the form for people."""
    return topic_id.hex() if topic_id else None


def ids_differ(one: str | None, other: str | None) -> bool:
    """Returns True if two topic ids, as ``id_text`` makes them, belong to different topics. If one is not known (None),
    this returns False: a topic without an id gets one when its cluster is upgraded to Kafka 2.8, and stays the same
    topic."""
    return one is not None and other is not None and one != other


def same_ids(ids: TopicIds, others: TopicIds) -> bool:
    """Returns False if the source topics or the destination topics are known to be different ones (``ids_differ``)."""
    return not ids_differ(ids[0], others[0]) and not ids_differ(ids[1], others[1])


def id_shown(topic_id: bytes | str | None) -> str:
    """Returns a topic id as Kafka's own tools print it (Uuid.toString: base64url without padding, 22 characters).

    Args:
        topic_id: the bytes of the protocol, or text as ``id_text`` makes it. None: the topic has no id, and the result
            is an empty string. Any other text is returned unchanged.
    """
    if isinstance(topic_id, str):
        if not _TOPIC_ID.fullmatch(topic_id):
            return topic_id
        topic_id = bytes.fromhex(topic_id)
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=") if topic_id else ""


def at_ms(fields: Fields) -> int:
    """Returns the field ``at_ms``: milliseconds since 1970."""
    return number(fields, "at_ms", most=MOST_MS)


def digest(found: object) -> str:
    """Returns a value if it is a ``pins.header_digest``, or empty (not known)."""
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
