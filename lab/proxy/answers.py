"""Makes answers that no broker has given: with an error code for each partition, for any kind of request.

Kafka's schemas are regular enough for that. An answer lists what the request has listed (topics, partitions,
producers), level by level. It has its error codes on the innermost level with such a field.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from lab.proxy.frames import Frame, answer_class

Only = Callable[[tuple[Any, ...]], bool]
"""Returns True for innermost entries to select. It gets the names and numbers that lead to an entry, such as
("topic", 0)."""

_NOT_KNOWN = (
    "base_offset", "high_watermark", "last_stable_offset", "leader_epoch", "log_append_time_ms", "log_start_offset",
    "low_watermark", "offset", "preferred_read_replica", "producer_epoch", "producer_id", "timestamp",
)  # fmt: skip
"""Fields that brokers set to -1 beside an error code."""
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
    """Returns the bytes of an answer with an error code in every entry, made only from the request.

    Raises:
        KeyError: the kind of request is not known here.
    """
    kind = answer_class(request.name)
    answer = kind[request.version](**_entry(request.decode(), kind, code))
    return _framed(answer, request.correlation_id)


def spoiled(answer: Frame, code: int, only: Only | None = None) -> bytes:
    """Returns the bytes of the broker's own answer, with an error code put into its entries.

    Entries of a Fetch answer lose their records. Everything else stays as it is, and so does an answer without entries.

    Args:
        answer: the broker's answer.
        code: the error code.
        only: selects entries; None: all of them.

    Raises:
        KeyError: the kind of request is not known here.
    """
    decoded = answer.decode()
    for path, entry in _innermost(decoded, ()):
        if only is None or only(path):
            entry.error_code = code
            if "records" in entry._struct.fields:
                entry.records = None
    return _framed(decoded, answer.correlation_id)


def entries(answer: Any) -> dict[tuple[Any, ...], int]:
    """Returns the names and numbers that lead to an innermost entry -> its error code. ``answer``: a decoded answer."""
    return {path: entry.error_code for path, entry in _innermost(answer, ())}


def carries(request: Frame, known_as: Collection[str]) -> bool:
    """Returns True if a Produce request writes to a topic. ``known_as``: the topic's name, and its id as text of
    ``uuid.UUID`` (requests from version 13 on have ids instead of names)."""
    return any(str(one.name or one.topic_id) in known_as for one in request.decode().topic_data)


def _framed(answer: Any, correlation_id: int) -> bytes:
    answer.with_header(correlation_id)
    return bytes(answer.encode(header=True, framed=True))


def _lists(kind: Any) -> Iterator[Any]:
    """Yields those fields of a structure that are arrays of structures with an error code at any level."""
    for field in kind._struct._fields:
        if field.is_struct_array() and _has_code(getattr(kind, field.type_str)):
            yield field


def _has_code(kind: Any) -> bool:
    return "error_code" in kind._struct.fields or any(_lists(kind))


def _entry(asked: Any, kind: Any, code: int) -> dict[str, Any]:
    """Returns the fields of an answer's entry for an entry of the request.

    Args:
        asked: the entry of the request.
        kind: class of the answer's entry.
        code: the error code.
    """
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
    """Yields each entry that has an error code, with the names and numbers that lead to it. ``path``: those that lead
    to ``entry``."""
    all_lists = list(_lists(type(entry)))
    lists = [field for field in all_lists if getattr(entry, field.name)]
    if not lists:
        # If all lists are empty, the code is that of the whole answer. An answer of a fetch session without news has 0
        # there, and no entry.
        if "error_code" in entry._struct.fields and (not all_lists or entry.error_code):
            yield path, entry
        return
    for field in lists:
        for below in getattr(entry, field.name):
            told = (getattr(below, name) for name in _NAMES if name in below._struct.fields)
            yield from _innermost(below, (*path, *(value for value in told if value not in (None, ""))))
