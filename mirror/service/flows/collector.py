"""A worker's garbage collector: rare, because what a busy flow holds is no cycle, and once more after a flow's end."""

import gc

__all__ = ["CONTAINERS_MORE", "settle", "sweep"]

CONTAINERS_MORE = 50_000
"""The garbage collector runs when this many more containers live than at its last run. Thousands of batches wait at any
time, none of them in a cycle; with Python's default (700) the collector would walk all of them again and again."""


def settle() -> None:
    """Has the collector pass over what is loaded by now, which stays for good. Only once in a process: later, much of
    what lives is another flow's and does not stay."""
    if gc.get_freeze_count():
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(CONTAINERS_MORE)


def sweep() -> None:
    """Frees what is left of a relay that has ended, with all its buffers. Called once nobody holds it any more.

    It is a cycle, and old. The collector, as it is set here, would come to it after millions of containers; and to the
    process's first relay never, as that is among what it passes over.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
