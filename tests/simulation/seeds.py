"""How many runs a sweep plays: all of them by night (``make deep``), the first third of them in ``make test``.

``SIM_RUNS`` and ``SIM_MAPPED_RUNS`` ask for another number, of sweeps in exact and in mapped mode. ``SIM_SEED`` is the
first seed.
"""

import os

__all__ = ["DEEP", "FIRST", "mapped_runs", "runs"]

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
"""Whether everything is played."""
FIRST = int(os.environ.get("SIM_SEED", "1"))
SHARE = 3
"""By day, one run in so many is played."""


def runs(deep: int, *, share: int = SHARE) -> int:
    """Returns the number of runs of a sweep in exact mode.

    Args:
        deep: the number by night.
        share: by day, one in so many. 1: all, where fewer do not show what is asserted of them together.
    """
    return _of("SIM_RUNS", deep, share)


def mapped_runs(deep: int) -> int:
    """The same, with ``offsets: mapped``."""
    return _of("SIM_MAPPED_RUNS", deep, SHARE)


def _of(variable: str, deep: int, share: int) -> int:
    return int(os.environ.get(variable) or (deep if DEEP else deep // share))
