"""Which form of the path of every batch is used: the compiled one (``_plain.c`` and others) or the one in Python.

The compiled one is made on installation where there is a C compiler, and decides nothing: the two are held against each
other by their tests, and everything that is not the plain case is left to Python by both.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, Protocol, cast

from mirror.records.header import HEADER_SIZE

PURE = "MIRROR_PURE"
"""With this in the environment, the Python form is used although the compiled one is there."""

MODULE: ModuleType | None
try:
    from mirror.relay.hot import _native
except ImportError:
    MODULE = None
else:
    MODULE = _native


def is_compiled() -> bool:
    """Whether the compiled form is there and wanted."""
    return MODULE is not None and not os.environ.get(PURE)


def compiled_if(wanted: bool | None) -> ModuleType | None:
    """The compiled form if it is wanted; None: the one in Python. ``wanted`` None: whatever is to be used here.

    Raises:
        RuntimeError: it is wanted and not there.
    """
    if not (is_compiled() if wanted is None else wanted):
        return None
    if MODULE is None:
        raise RuntimeError("mirror.relay.hot._native was not compiled on installation")
    return MODULE


def loop_form() -> str:
    """In words, for the version and the description of a machine."""
    return "compiled" if is_compiled() else "in Python"


class Outbox(Protocol):
    """A deque, as far as it is needed. The compiled form keeps plain batches as numbers and makes the objects when they
    are looked at: thousands wait at any time, and objects would have left the cache by the time that they are sent.

    ``sizes`` counts without looking: the batches (no holes, which have no head), and their bytes as they are stored.
    ``close`` likewise: gives the last batch the frame that it was fetched in; False: it has to be looked at for that.
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
    """An empty one: what a partition has waiting."""
    return cast(Outbox, MODULE.Outbox()) if MODULE is not None and is_compiled() else PlainOutbox()
