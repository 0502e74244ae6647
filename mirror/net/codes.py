"""The error codes in an answer, wherever they stand in it."""

from collections.abc import Iterator
from typing import Any

from kafka.protocol.data_container import DataContainer


def error_codes(answer: Any) -> Iterator[int]:
    """Every error code of an answer of ``kafka.protocol`` but 0: its own, and those of what is listed in it."""
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
