"""Finds values that YAML reads as anchors or aliases by mistake: passwords without quotes that begin with ``&`` or
``*``.

In YAML, ``&name`` before a value gives the value a name, and ``*name`` stands for the value of that name.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
)

from mirror.service.config.errors import Path


class Place(NamedTuple):
    """A value in a file: its line, counted from 1, and its path."""

    line: int
    path: Path


class _Level:
    """The position within a mapping or list that is being read: the current key or index."""

    def __init__(self, *, is_mapping: bool) -> None:
        self.is_mapping = is_mapping
        self.at: str | int = "" if is_mapping else -1
        self.key_is_next = is_mapping


def undefined_aliases(text: str) -> list[Place]:
    """Returns the places of aliases for which there is no anchor before them."""
    known: set[str] = set()
    found: list[Place] = []
    for event, path in _nodes(text):
        if not isinstance(event, AliasEvent):
            known.add(event.anchor)
        elif event.anchor not in known:
            found.append(Place(event.start_mark.line + 1, path))
    return found


def unused_anchors(text: str) -> list[Place]:
    """Returns the places of scalar values with an anchor that no alias uses. (The anchor of a mapping or list cannot be
    meant as the beginning of its value.)"""
    anchored: dict[str, Place] = {}
    found: list[Place] = []
    for event, path in _nodes(text):
        if isinstance(event, AliasEvent):
            anchored.pop(event.anchor, None)
        elif event.anchor is not None:
            if event.anchor in anchored:  # redefined: from here on, the name stands for another value
                found.append(anchored.pop(event.anchor))
            if isinstance(event, ScalarEvent):
                anchored[event.anchor] = Place(event.start_mark.line + 1, path)
    return found + list(anchored.values())


def _nodes(text: str) -> Iterator[tuple[NodeEvent, Path]]:
    """Yields the parser's event for every value, alias and key, with its path. Ends where the text is not valid
    YAML."""
    open_levels: list[_Level] = []
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            if isinstance(event, CollectionEndEvent):
                open_levels.pop()
            if not isinstance(event, NodeEvent):
                continue
            if open_levels:
                _go_on(open_levels[-1], event)
            yield event, tuple(level.at for level in open_levels)
            if isinstance(event, CollectionStartEvent):
                open_levels.append(_Level(is_mapping=isinstance(event, MappingStartEvent)))
    except YAMLError:
        return


def _go_on(level: _Level, event: NodeEvent) -> None:
    """Updates the level at the beginning of a key, a value or an item."""
    if isinstance(level.at, int):
        level.at += 1
    elif level.key_is_next:
        level.at = event.value if isinstance(event, ScalarEvent) else "[...]"
    level.key_is_next = level.is_mapping and not level.key_is_next
