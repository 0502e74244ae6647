"""Formats numbers for people."""

__all__ = ["count", "elapsed", "size"]

_SIZES = ((10**9, "GB"), (10**6, "MB"), (10**3, "KB"))


def size(number: float) -> str:
    """Returns bytes as ``61.2 MB`` (powers of ten, as throughput and disks are counted)."""
    for unit, name in _SIZES:
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number:.0f} B"


def count(number: int, noun: str = "") -> str:
    """Returns ``12,345 records``, ``1 batch``; the plural is regular, or in -es after s, x, ch and sh."""
    if not noun:
        return f"{number:,}"
    plural = "" if number == 1 else "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number:,} {noun}{plural}"


def elapsed(seconds: float) -> str:
    """Returns ``9 s`` or ``2 min 05 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
