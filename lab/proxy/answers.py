"""Answers that no broker gave: an error code for each partition of a request, whatever the kind of request.

Kafka's schemas are regular enough for that: an answer lists what the request listed (topics, partitions, producers),
level by level, and carries its error codes on the innermost level that has any.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from lab.proxy.frames import Frame, answer_class

Only = Callable[[tuple[Any, ...]], bool]
"""Selects innermost entries, by the names and numbers that lead to them, such as ("topic", 0)."""

_NOT_KNOWN = (
    "base_offset", "high_watermark", "last_stable_offset", "leader_epoch", "log_append_time_ms", "log_start_offset",
    "low_watermark", "offset", "preferred_read_replica", "producer_epoch", "producer_id", "timestamp",
)  # fmt: skip
"""Fields that a broker answers with -1 next to an error."""
_NAMES = (
    "name",
    "topic",
    "topic_id",
    "index",
    "partition_index",
    "partition",
    "producer_id",
    "transactional_id",
    "key",
)
"""Fields that identify an entry."""
_OF_NUMBER = ("partition_index",)
_OF_TEXT = ("transactional_id", "key", "name")


def refusal(request: Frame, code: int) -> bytes:
    """Returns the frame of an answer with this error code everywhere, made from the request alone.

    Raises:
        KeyError: a kind of request that is not known here.
    """
    kind = answer_class(request.name)
    answer = kind[request.version](**_entry(request.decode(), kind, code))
    return _framed(answer, request.correlation_id)


def spoiled(answer: Frame, code: int, only: Only | None = None) -> bytes:
    """Returns the broker's own answer with this error code in each entry (that ``only`` selects).

    Those of a Fetch lose their records; all else stays as it is. Without entries (``entries``), so does all.

    Raises:
        KeyError: a kind of request that is not known here.
    """
    decoded = answer.decode()
    for path, entry in _innermost(decoded, ()):
        if only is None or only(path):
            entry.error_code = code
            if "records" in entry._struct.fields:
                entry.records = None
    return _framed(decoded, answer.correlation_id)


def entries(answer: Any) -> dict[tuple[Any, ...], int]:
    """Returns the error codes in a decoded answer, by the names and numbers that lead to them."""
    return {path: entry.error_code for path, entry in _innermost(answer, ())}


def carries(request: Frame, known_as: Collection[str]) -> bool:
    """Returns True if a Produce request writes to a topic, by its name or (from version 13 on) its id, as ``uuid.UUID``
    writes it."""
    return any(str(one.name or one.topic_id) in known_as for one in request.decode().topic_data)


def _framed(answer: Any, correlation_id: int) -> bytes:
    answer.with_header(correlation_id)
    return bytes(answer.encode(header=True, framed=True))


def _lists(kind: Any) -> Iterator[Any]:
    """Yields the fields of a structure that are arrays of structures with an error code somewhere inside."""
    for field in kind._struct._fields:
        if field.is_struct_array() and _has_code(getattr(kind, field.type_str)):
            yield field


def _has_code(kind: Any) -> bool:
    return "error_code" in kind._struct.fields or any(_lists(kind))


def _entry(asked: Any, kind: Any, code: int) -> dict[str, Any]:
    """Returns the fields of an answer's structure for a requested entry."""
    fields = kind._struct.fields
    made: dict[str, Any] = {name: -1 for name in _NOT_KNOWN if name in fields}
    if isinstance(asked, int):
        made |= {name: asked for name in _OF_NUMBER if name in fields}
    elif isinstance(asked, str):
        made |= dict([next((name, asked) for name in _OF_TEXT if name in fields)])
    else:
        made |= {name: getattr(asked, name) for name in _NAMES if name in fields and name in asked._struct.fields}
        if "partition_index" in fields and "partition" in asked._struct.fields:
            made["partition_index"] = asked.partition
    lists = list(_lists(kind))
    below: list[Any] = []
    if lists and not isinstance(asked, int | str):
        below = next((value for name in asked._struct.fields if isinstance(value := getattr(asked, name), list)), [])
    if below:
        one = getattr(kind, lists[0].type_str)
        made[lists[0].name] = [one(**_entry(each, one, code)) for each in below]
    elif "error_code" in fields:
        made["error_code"] = code
    return made


def _innermost(entry: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the entries that carry the error codes, with the names and numbers that lead to them."""
    all_lists = list(_lists(type(entry)))
    lists = [field for field in all_lists if getattr(entry, field.name)]
    if not lists:
        # With lists, but nothing in them, it is the whole answer's code, which a fetch session has without an error.
        if "error_code" in entry._struct.fields and (not all_lists or entry.error_code):
            yield path, entry
        return
    for field in lists:
        for below in getattr(entry, field.name):
            told = (getattr(below, name) for name in _NAMES if name in below._struct.fields)
            yield from _innermost(below, (*path, *(value for value in told if value not in (None, ""))))
