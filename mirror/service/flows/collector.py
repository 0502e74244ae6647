"""Settings of a worker's garbage collector. It runs rarely, because the objects of a busy flow form no cycles, and once
after the end of a flow."""

import gc

__all__ = ["CONTAINERS_MORE", "settle", "sweep"]

CONTAINERS_MORE = 50_000
"""The garbage collector runs when there are this many more container objects than at its last run. Thousands of batches
wait at any time, none of them in a cycle; with Python's default (700), the collector would traverse them again and
again."""


def settle() -> None:
    """Makes the collector ignore all present objects (gc.freeze): modules and the like, which stay for good. It does
    this only once in a process: later, many objects belong to other flows, and do not stay."""
    if gc.get_freeze_count():
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(CONTAINERS_MORE)


def sweep() -> None:
    """Frees the objects of a relay that has ended, with all its buffers. To be called once nothing refers to it any
    more.

    The relay is part of a cycle and old. With the settings of this module, the collector would free it only after
    millions of further objects; and the process's first relay never, because it is among the ignored objects.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
