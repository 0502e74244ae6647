"""Finds the error codes in an answer, at any depth."""

from typing import Any, NamedTuple

NAME = "error_code"


class _Places(NamedTuple):
    """The fields in which a structure has error codes, by its schema, so that an answer with thousands of partitions is
    searched quickly.

    ``own``: True if it has an error code itself. ``lists``, ``structs``: names of the fields whose items, or whose
    value, have error codes, with the places in these."""

    own: bool
    lists: tuple[tuple[str, "_Places"], ...]
    structs: tuple[tuple[str, "_Places"], ...]


_KNOWN: dict[type[Any], _Places] = {}


def error_codes(answer: Any) -> list[int]:
    """Returns every error code other than 0 in a ``kafka.protocol`` answer, at any depth."""
    found: list[int] = []
    _collect(answer, _places_of(type(answer)), found)
    return found


def _collect(item: Any, places: _Places, found: list[int]) -> None:
    own, lists, structs = places
    if own and (code := getattr(item, NAME, 0)):
        found.append(code)
    for name, below in lists:
        listed = getattr(item, name, None)
        if not listed:
            continue
        if below.lists or below.structs:
            for each in listed:
                _collect(each, below, found)
        else:
            found += [code for each in listed if (code := each.error_code)]
    for name, below in structs:
        inner = getattr(item, name, None)
        if inner is not None:
            _collect(inner, below, found)


def _places_of(kind: type[Any]) -> _Places:
    known = _KNOWN.get(kind)
    if known is None:
        known = _KNOWN[kind] = _places(kind._struct)
    return known


def _places(struct: Any) -> _Places:
    lists: list[tuple[str, _Places]] = []
    structs: list[tuple[str, _Places]] = []
    for name, field in struct.fields.items():
        if getattr(field, "fields", None):
            below = _places(field)
            if any(below):
                (lists if field.is_struct_array() else structs).append((name, below))
    return _Places(NAME in struct.fields, tuple(lists), tuple(structs))
