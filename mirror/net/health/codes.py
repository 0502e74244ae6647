"""Finds the error codes in an answer, at any depth."""

from collections.abc import Iterator
from typing import Any

from kafka.protocol.data_container import DataContainer


def error_codes(answer: Any) -> Iterator[int]:
    """Yields every error code but 0 of a ``kafka.protocol`` answer: its own, and those of everything listed in it."""
    for name in answer._struct.fields:
        value = getattr(answer, name, None)
        if name == "error_code":
            if value:
                yield value
        elif isinstance(value, list):
            if value and isinstance(value[0], DataContainer):
                for each in value:
                    yield from error_codes(each)
        elif isinstance(value, DataContainer):
            yield from error_codes(value)
