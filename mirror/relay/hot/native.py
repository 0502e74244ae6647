"""Chooses between the two forms of the path of every batch: compiled (``_plain.c`` and others), or in Python.

The compiled form is built on installation if there is a C compiler. It decides nothing: it leaves everything but the
plain case to Python, as the Python form does. Tests compare the two.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, Protocol, cast

from mirror.records.header import HEADER_SIZE

PURE = "MIRROR_PURE"
"""Environment variable. If it is set, the Python form is used although the compiled one is there."""

MODULE: ModuleType | None
try:
    from mirror.relay.hot import _native
except ImportError:
    MODULE = None
else:
    MODULE = _native


def is_compiled() -> bool:
    """Returns True if the compiled form is there and wanted."""
    return MODULE is not None and not os.environ.get(PURE)


def compiled_if(wanted: bool | None) -> ModuleType | None:
    """Returns the compiled form, or None for the form in Python.

    Args:
        wanted: True for the compiled form; None: as ``is_compiled`` says.

    Raises:
        RuntimeError: the compiled form is wanted and not there.
    """
    if not (is_compiled() if wanted is None else wanted):
        return None
    if MODULE is None:
        raise RuntimeError("mirror.relay.hot._native was not compiled on installation")
    return MODULE


def loop_form() -> str:
    """Returns the form as text, for the version and the description of a machine."""
    return "compiled" if is_compiled() else "in Python"


class Outbox(Protocol):
    """The part of a deque's interface that is needed, and two methods more. The compiled form keeps plain batches as
    numbers, and makes the objects when they are looked at: thousands wait at any time, and objects would have left the
    CPU's cache when they are sent.

    ``sizes`` returns the number of batches (without holes, which have no head) and their bytes as stored, without
    making objects. ``close`` gives the last batch the frame that it was fetched in, also without making an object. It
    returns False if it cannot: then the caller has to replace the last item.
    """

    def append(self, item: Any, /) -> None: ...
    def extend(self, items: Iterable[Any], /) -> None: ...
    def popleft(self) -> Any: ...
    def pop(self) -> Any: ...
    def sizes(self) -> tuple[int, int]: ...
    def close(self, frame: Any, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, position: int, /) -> Any: ...
    def __setitem__(self, position: int, item: Any, /) -> None: ...


class PlainOutbox(deque[Any]):
    """The form in Python."""

    def sizes(self) -> tuple[int, int]:
        """See ``Outbox``."""
        sizes = [HEADER_SIZE + len(item[1]) for item in self if item[0]]
        return len(sizes), sum(sizes)

    def close(self, frame: Any, /) -> bool:
        """See ``Outbox``."""
        return False


def new_outbox() -> Outbox:
    """Returns an empty queue for a partition's batches."""
    return cast(Outbox, MODULE.Outbox()) if MODULE is not None and is_compiled() else PlainOutbox()
