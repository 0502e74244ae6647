"""Which form of the path of every batch is used: the compiled one (``_plain.c``, ``_gather.c``) or the one in Python.

The compiled one is made on installation where there is a C compiler, and decides nothing: the two are held against each
other by their tests, and everything that is not the plain case is left to Python by both.
"""

import os
from types import ModuleType

PURE = "MIRROR_PURE"
"""With this in the environment, the Python form is used although the compiled one is there."""

MODULE: ModuleType | None
try:
    from mirror.relay import _native
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
        raise RuntimeError("mirror.relay._native was not compiled on installation")
    return MODULE


def loop_form() -> str:
    """In words, for the version and the description of a machine."""
    return "compiled" if is_compiled() else "in Python"
